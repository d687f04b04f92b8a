"""An offer that the guard refuses, or that lies, keeps nobody from the others (P21)."""

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.clouds.aws.errors import asking
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Status
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.market import POOL, Market, a_market
from tests.support.builders.offers import OFFERS, SPOT_A, SPOT_B

HOUR_OF_ADDITIONS = Limits(max_additions_per_hour=60)


def rounds(desk: Market, count: int) -> None:
    """Minutes of a controller."""
    for _ in range(count):
        desk.round()


def test_spot_that_ends_before_it_works_does_not_keep_the_pool_from_on_demand() -> None:
    """Three such machines end the tries of their own offer for the hour, and of no other."""
    four = replace(POOL, schedule={"always": Window(min_nodes=4)})
    desk = a_market(four, limits=HOUR_OF_ADDITIONS)
    desk.fleet.lies = {"spot-a", "spot-b"}
    rounds(desk, 25)

    assert len(desk.fleet.alive("sure")) == 4
    rounds(desk, 30)
    assert desk.fleet.made["spot-a"] <= 3
    assert desk.fleet.made["spot-b"] <= 3


def test_an_offer_whose_machines_are_no_nodes_leaves_the_pool_the_others() -> None:
    """Its template names another pool, say: that machine counts and no second one follows; the others are asked."""
    desk = a_market()
    desk.fleet.born = lambda node: replace(node, pool="elsewhere") if node.zone == SPOT_B.zone else node
    rounds(desk, 30)
    assert desk.fleet.made == {"spot-a": 1, "spot-b": 1}

    desk.pools = {"default": replace(POOL, schedule={"always": Window(min_nodes=4)})}
    desk.fleet.room = {"spot-a": 1}
    rounds(desk, 30)

    assert desk.fleet.made == {"spot-a": 1, "spot-b": 1, "sure": 2}


def test_a_long_cooldown_of_one_offer_is_no_wait_for_the_others() -> None:
    """An offer that has rested, and that the guard still refuses, is left for the next."""
    desk = a_market(limits=replace(HOUR_OF_ADDITIONS, capacity_cooldown=6 * 3600.0), spot_a=0, spot_b=1)
    rounds(desk, 15)
    assert len(desk.fleet.alive()) == 2
    desk.fleet.room = {"spot-a": 0, "spot-b": 0, "sure": 99}
    desk.fleet.take("spot-b")
    rounds(desk, 45)

    assert len(desk.fleet.alive()) == 2


@pytest.mark.parametrize("minutes", [0, 4])
def test_what_a_cloud_accepts_and_has_no_place_for_comes_from_the_next_offer(minutes: int) -> None:
    """Azure says yes, shows the machine as coming for minutes, and leaves it there stopped: it has never run."""
    desk = a_market()
    desk.fleet.room = {"spot-b": 0}
    desk.round()
    rounds(desk, minutes)
    for node_id in desk.fleet.alive("spot-a"):
        node = desk.fleet.nodes_[node_id]
        desk.fleet.put(replace(node, state=NodeState.STOPPED, failed_start="No capacity. (ZonalAllocationFailed)"))
    rounds(desk, 2)

    assert desk.fleet.made == {"spot-a": 2, "sure": 2}


def test_an_offer_outside_of_the_pools_regions_is_left_for_one_inside() -> None:
    """Whatever the order is that they would be asked in."""
    inside = {name: replace(each, region="us-east-1") for name, each in OFFERS.items()}
    offers = {**inside, "spot-a": replace(SPOT_A, region="us-west-2", zone="us-west-2a")}
    desk = a_market(replace(POOL, offers=offers, regions=("us-east-1",)))
    rounds(desk, 5)

    assert desk.fleet.made == {"spot-b": 2}


def test_what_the_cloud_refuses_skips_what_the_guard_refuses() -> None:
    """In one round: no stock in the first zone, the second is abroad, and on demand is to be had."""
    inside = {name: replace(each, region="us-east-1") for name, each in OFFERS.items()}
    offers = {**inside, "spot-b": replace(SPOT_B, region="us-west-2")}
    desk = a_market(replace(POOL, offers=offers, regions=("us-east-1",)), spot_a=0)
    desk.round()

    assert desk.fleet.made == {"sure": 2}


@pytest.mark.parametrize("error", [AuthFailedError("not allowed"), CloudError("there is no such template")])
def test_an_offer_that_does_not_work_rests_like_one_without_stock(error: CloudError) -> None:
    """A template that is gone, an account without the right: the next offer in the same round, and fewer tries."""
    desk = a_market(limits=HOUR_OF_ADDITIONS)
    desk.fleet.fault = lambda call, name: error if (call, name) == ("launch", "spot-a") else None
    done = desk.round()

    assert desk.fleet.made == {"spot-b": 2}
    assert [act.outcome.status for act in done.acts] == [Status.FAILED, Status.ACCEPTED, Status.ACCEPTED]
    desk.fleet.room = {"spot-b": 0, "sure": 0}
    desk.fleet.take("spot-b")
    tried = sum(act.review.step.arguments["offer"] == "spot-a" for _ in range(60) for act in desk.round().acts)
    assert tried <= 5


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InvalidAMIID.Unavailable", 400),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", 403),
        ("UnfulfillableCapacity", 400),
        ("InvalidKMSKey.InvalidState", 400),
    ],
)
def test_what_ec2_refuses_in_one_template_is_one_offer_s_and_the_next_is_asked(code: str, status: int) -> None:
    """A deregistered image, an account without the role for spot, a key that is switched off: none is silence."""
    answer: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(CloudError) as caught, asking("RunInstances"):
        raise ClientError(answer, "RunInstances")
    desk = a_market(limits=HOUR_OF_ADDITIONS)
    desk.fleet.fault = lambda call, name: caught.value if (call, name) == ("launch", "spot-a") else None
    desk.round()

    assert desk.fleet.made == {"spot-b": 2}


def test_an_offer_that_may_have_given_a_machine_is_not_over_when_it_is_denied_later() -> None:
    """The answer to the first try was lost: whatever is said to the second, the machine counts until it is found."""
    desk = a_market(replace(POOL, schedule={"always": Window(min_nodes=1)}))
    desk.fleet.lose = lambda call, _name: CloudUnavailableError("no answer") if call == "launch" else None
    desk.fleet.found = lambda _node: False
    desk.fleet.listed = lambda _node: False
    desk.round()
    desk.fleet.lose = lambda _call, _name: None
    desk.fleet.fault = lambda call, _name: AuthFailedError("not allowed") if call == "launch" else None
    rounds(desk, 8)
    desk.fleet.found = desk.fleet.listed = lambda _node: True
    desk.fleet.fault = lambda _call, _name: None
    rounds(desk, 20)

    assert sum(desk.fleet.made.values()) == 1


@pytest.mark.parametrize("wait", [0.0, 600.0])
def test_what_the_guard_refuses_on_spot_comes_on_demand_without_a_wait(wait: float) -> None:
    """`fallback_after` is for spot that was asked for: nobody asks for this."""
    inside = {name: replace(each, region="us-west-2") for name, each in OFFERS.items()}
    offers = {**inside, "sure": replace(OFFERS["sure"], region="us-east-1")}
    rules = replace(POOL, offers=offers, regions=("us-east-1",), capacity=MixRules(fallback_after=wait))
    desk = a_market(rules)
    desk.round()

    assert desk.fleet.made == {"sure": 2}
