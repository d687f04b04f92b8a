"""Where two counts of one pool differed, the safer one holds: nothing comes twice, nothing goes for what only comes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import DECISION_TAG, Done, Status, Step, Verb
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.life import Life
from gpuwatch.policies import PoolRules, capacity, machines
from gpuwatch.policies.floors import keep_floor
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.scaling.votes import strength
from gpuwatch.policies.sizes import Need
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.choice import choose_offers
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.settings import Offers
from tests.support.builders.fleet import NOW, RULES, a_node
from tests.support.builders.offers import OFFERS, SPOT_A, SURE, a_node_of
from tests.support.builders.past_steps import a_step
from tests.support.builders.pending_capacity import ASKED_A, LAUNCH, an_intent, seen, stopped

CAME = Done(
    key="k", verb=Verb.LAUNCH, node_id="new:default:1", pool="default", status=Status.SETTLED,
    at=NOW - timedelta(minutes=2), arguments=ASKED_A, detail="the cloud shows i-9",
)  # fmt: skip
POOL = replace(RULES, offers=OFFERS, interruptible="any")
LEAVES = an_intent(Verb.TERMINATE, "i-1", Status.ACCEPTED)


@pytest.mark.parametrize("lacks", [{"enrolled": False}, {"pool": "other"}], ids=["the fleet's tag", "its pool's"])
def test_a_list_without_a_new_machines_tags_brings_no_second_machine(lacks: dict[str, Any]) -> None:
    """It was a node of the pool two minutes ago; after ten minutes it is as it is listed."""
    late = seen(replace(a_node("i-9"), **lacks), recent=(CAME,))
    for_good = seen(replace(a_node("i-9"), **lacks), recent=(replace(CAME, at=NOW - timedelta(minutes=11)),))

    assert capacity.additions(late, "default", 1, LAUNCH) == ()
    assert len(capacity.additions(for_good, "default", 1, LAUNCH)) == 1


def test_a_machine_that_ended_while_it_was_started_is_asked_for_elsewhere_at_once() -> None:
    """Gone is what its cloud says is gone."""
    gone = replace(a_node("i-1"), state=NodeState.TERMINATED)
    observation = seen(gone, open_intents=(an_intent(Verb.START, "i-1", Status.ACCEPTED),))

    assert [step.verb for step in capacity.additions(observation, "default", 1, LAUNCH)] == [Verb.LAUNCH]


def test_a_surplus_that_is_shown_before_its_launch_is_settled_stays_a_surplus() -> None:
    """Otherwise what is there on top would be taken for what is wanted, and more would come on top of that."""
    life = Life(key="k-new:default:1", pool="default", at=NOW, surplus=True)
    node = a_node_of(SPOT_A, "i-9", tags={DECISION_TAG: life.key})
    opened = (an_intent(Verb.LAUNCH, "new:default:1", Status.ACCEPTED, SPOT_A.arguments("spot-a", "default")),)
    there = replace(seen(a_node_of(SURE, "i-1"), node, open_intents=opened), lives=(life,))
    coming = replace(seen(a_node_of(SURE, "i-1"), open_intents=opened), lives=(life,))

    assert machines.surplus(coming, "default") == machines.surplus(there, "default") == 1


def test_a_machine_that_hangs_in_its_removal_keeps_no_offer_from_being_asked() -> None:
    """It does not count in the pool's size, so it takes no place in the division between spot and on demand."""
    nodes = [a_node_of(SPOT_A, f"i-{number}") for number in (1, 2)]
    observation = seen(*nodes, open_intents=(LEAVES,))
    offers = Offers(offers=OFFERS, mix=MixRules())

    assert machines.now(observation, "default") == 1
    assert len(choose_offers(observation, "default", offers, Need(wanted=2, missing=1))) == 1


def removals(*nodes: Node) -> list[Step]:
    """The stops of these nodes."""
    return [a_step(node.id) for node in nodes]


def test_a_floor_does_not_count_what_an_earlier_round_removes() -> None:
    """The machine shows that it runs, and works, until it is down: with it there were enough."""
    nodes = [a_node("i-1", State.BUSY), a_node("i-2"), a_node("i-3")]

    kept, clamp = keep_floor(seen(*nodes, open_intents=(LEAVES,)), "default", removals(nodes[1]), 2, PoolRules())
    assert list(kept) == ["i-2"]
    assert clamp.endswith("1 leave the floor of 2 running nodes; 1 more are being removed.")
    again, _ = keep_floor(seen(*nodes, open_intents=(LEAVES,)), "default", removals(nodes[0]), 2, PoolRules())
    assert again == {}


def test_on_demand_that_only_comes_is_no_reason_for_another_to_go() -> None:
    """Two are always on demand, two run and two more are launched: the running ones are no stand-ins."""
    opened = tuple(
        an_intent(Verb.LAUNCH, f"new:default:{number}", Status.ACCEPTED, SURE.arguments("sure", "default"))
        for number in (1, 2)
    )
    rules = replace(POOL, capacity=MixRules(on_demand_base=2))
    observation = seen(a_node_of(SURE, "i-1"), a_node_of(SURE, "i-2"), open_intents=opened)

    assert back.nodes_now(observation, "default", rules).on_demand == 4
    assert back.stand_ins(observation, "default", 4, rules) == 0


def test_what_comes_by_a_start_or_a_group_counts_in_the_division_between_spot_and_on_demand() -> None:
    """As in the pool's size."""
    spot = stopped("i-1", capacity_type=CapacityType.SPOT)
    observation = seen(spot, open_intents=(an_intent(Verb.START, "i-1", Status.ACCEPTED),))

    has = back.nodes_now(observation, "default", POOL)
    assert (has.spot_coming, has.on_demand) == (1, 0)


def test_a_node_whose_stop_was_certainly_not_carried_out_carries_load_like_any_other() -> None:
    """It counts in the pool's size, and is no young node."""
    observation = seen(a_node("i-1"), open_intents=(an_intent(Verb.STOP, "i-1", Status.THROTTLED),))

    has = strength(observation, "default", 900.0)
    assert (has.count, has.mature) == (1, 1)


def test_a_launch_that_may_have_happened_and_is_shown_is_not_counted_beside_its_machine() -> None:
    """Under other settings it would stand in the place of one that is needed."""
    entry = an_intent(Verb.LAUNCH, "new:default:1", Status.INTERRUPTED, ASKED_A)
    entry = replace(entry, reached=True, reached_at=NOW - timedelta(minutes=2))
    observation = seen(a_node("i-9", tags={DECISION_TAG: entry.intent.key}), open_intents=(entry,))

    assert len(capacity.additions(observation, "default", 2, LaunchRules(template="lt-new"))) == 1
