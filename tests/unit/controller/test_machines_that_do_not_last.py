"""What is launched and does not last rests its source, falls back, counts, and is told."""

from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.context import Memory
from gpuwatch.controller.round import Round
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES
from tests.support.builders.light_desk import LightDesk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.failing_images import FailingImages, TakingMarket
from tests.support.nightly import by_night

MINUTES = 3  # from one round to the next
DAY = 24 * 60
FLOOR = {"always": Window(min_nodes=2)}
POOL = replace(RULES, launch=LaunchRules(template="lt-1"), schedule=FLOOR)


def a_desk(rules: PoolRules = POOL, pools: int = 1, **image: object) -> tuple[LightDesk, FailingImages]:
    """Pools of two nodes each, from the same template, with the default limits."""
    desk = LightDesk(limits=Limits(), rules=rules, interval=60.0 * MINUTES)
    cloud = FailingImages(clock=desk.clock, **image)  # type: ignore[arg-type]
    desk.fleet, desk.pools = cloud, {f"p{number}": rules for number in range(pools)}
    return desk, cloud


def hours(desk: LightDesk, count: float) -> Round:
    """Rounds for so many hours; the last one."""
    for _ in range(int(count * 60 / MINUTES) - 1):
        desk.round(60.0 * MINUTES)
    return desk.round(60.0 * MINUTES)


def said(done: Round) -> str:
    """What the round's decisions and refusals say."""
    sentences = [clamp for each in done.decisions for clamp in each.clamps]
    return " ".join([*sentences, *(answer.sentence for each in done.reviews for answer in each.refusals)])


@pytest.mark.parametrize("minutes", [6.0, *by_night(90.0)])
def test_machines_that_stop_themselves_count_towards_the_maximum(minutes: float) -> None:
    """EC2's default makes a shutdown a stop: their disks stay, and are paid for."""
    desk, cloud = a_desk(replace(POOL, max_nodes=4), minutes=minutes)
    last = hours(desk, 48)

    assert cloud.launched <= 4
    assert "stopped by themselves" in said(last)


@pytest.mark.parametrize(
    ("pools", "minutes", "then"),
    [
        (1, 90.0, NodeState.TERMINATED),
        (3, 6.0, NodeState.TERMINATED),
        *by_night((1, 6.0, NodeState.STOPPED), (3, 90.0, NodeState.STOPPED)),
    ],
)
def test_a_template_whose_machines_do_not_last_rests_for_longer_each_time(
    pools: int, minutes: float, then: NodeState
) -> None:
    """In one pool or in several; a restart of the controller changes nothing."""
    desk, cloud = a_desk(minutes=minutes, then=then, pools=pools)
    hours(desk, 24)
    first = cloud.launched
    desk.memory = Memory()
    last = hours(desk, 24)

    if then is NodeState.STOPPED:  # without a maximum, two are needed, and four may be there besides
        assert cloud.launched <= 6 * pools
    assert first <= 2 * pools + 10
    assert cloud.launched - first <= 6
    assert "did not last" in said(last) or "stopped by themselves" in said(last)


def test_work_in_between_does_not_hide_machines_that_end_within_the_hour() -> None:
    """They were busy nodes, and are gone all the same."""
    desk, cloud = a_desk(minutes=20.0, then=NodeState.TERMINATED, state=State.BUSY)
    hours(desk, 24)
    assert cloud.launched <= 12


def test_machines_that_end_after_hours_of_work_are_replaced_for_ever() -> None:
    """Whatever ends them, they were of use."""
    desk, cloud = a_desk(minutes=120.0, then=NodeState.TERMINATED, state=State.BUSY)
    hours(desk, 24)
    assert cloud.launched >= 2 * 11


def test_an_image_that_is_mended_is_found_out_by_one_machine() -> None:
    """At the next try after its rest; the pool is whole an hour later."""
    desk, cloud = a_desk(minutes=6.0, then=NodeState.TERMINATED)
    hours(desk, 6)
    cloud.minutes = None
    hours(desk, 12)
    assert sum(node.state is NodeState.RUNNING for node in cloud.nodes_.values()) == 2


def test_whoever_resumes_the_pool_tries_at_once() -> None:
    """The image is mended."""
    desk, cloud = a_desk(minutes=6.0, then=NodeState.TERMINATED)
    hours(desk, 6)
    cloud.minutes, before = None, cloud.launched
    desk.light.resume("p0", "somebody", desk.clock.now())
    hours(desk, 0.25)
    assert cloud.launched == before + 2


def test_spot_that_is_taken_after_minutes_leaves_the_pool_to_on_demand() -> None:
    """Without a word, each time: the pool is whole, and spot is asked seldom."""
    rules = replace(RULES, offers=OFFERS, interruptible="any", schedule=FLOOR)
    desk = LightDesk(limits=Limits(), rules=rules)
    market = TakingMarket(clock=desk.clock)
    desk.fleet, desk.pools = market, {"default": rules}
    up = 0
    for _ in range(DAY):
        desk.round()
        up += min(2, len(market.alive()))

    assert up >= 0.97 * 2 * DAY
    assert sum(market.made.values()) <= 40


def test_a_pool_whose_new_nodes_never_answer_stops_buying_and_says_so() -> None:
    """A queue of forty is no reason for forty machines that nobody hears of."""
    queue = Metric(signal="promql", expression="sum(jobs)", target=1.0, per_node=True)
    rules = replace(RULES, launch=LaunchRules(template="lt-1"), scaling=ScalingRules(metrics={"q": queue}))
    desk, cloud = a_desk(rules, mute=True)
    desk.fleet.numbers[("p0", "q")] = 40.0
    last = hours(desk, 24)

    assert cloud.launched <= 20
    assert "never answered" in said(last)


def test_hours_in_which_a_cloud_did_not_answer_are_no_hours_that_a_machine_lasted() -> None:
    """Its machines end after forty minutes of work, most of them while no list shows that."""
    desk, cloud = a_desk(minutes=40.0, then=NodeState.TERMINATED, state=State.BUSY)
    first = 0
    for hour in range(48):
        silent = CloudUnavailableError("no answer") if hour % 2 else None
        cloud.fault = lambda _call, _node, said=silent: said  # type: ignore[misc]
        hours(desk, 1)
        first = cloud.launched if hour < 24 else first

    assert first <= 12
    assert cloud.launched - first <= 4
