"""Learned and drawn waits in whole rounds: what is learnt is kept, helps, and never makes a busy machine go."""

from dataclasses import replace
from pathlib import Path

from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState, State
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import RULES, Desk, a_node

LEARNED = IdleRules(timeout="learned", restart_cost=600.0, grace_period=60.0)
FREE = Limits(max_stops_per_round=99, max_stops_per_hour=999, max_stops_per_hour_ratio=1.0, mass_idleness_nodes=999)


def a_desk(after: str, **other: object) -> Desk:
    """A controller with a pool that learns or draws, over five machines."""
    rules = replace(RULES, warm_up=0.0, idle=replace(LEARNED, timeout=after))  # type: ignore[arg-type]  # one of its words
    desk = Desk(rules=rules, limits=FREE, **other)  # type: ignore[arg-type]  # fields of a Desk
    for number in range(5):
        desk.fleet.put(a_node(f"i-{number}", State.BUSY))
    return desk


def short_gaps(desk: Desk, count: int) -> None:
    """Machines that are idle for three minutes at a time and work for an hour in between."""
    for _ in range(count):
        for node_id in desk.fleet.nodes_:
            desk.fleet.show(node_id, State.IDLE, 0.0)
        for _ in range(3):
            desk.round()
        for node_id in desk.fleet.nodes_:
            desk.fleet.show(node_id, State.BUSY, 0.0)
        desk.round(seconds=3600.0)


def test_a_pool_learns_that_its_machines_are_soon_needed_again() -> None:
    """After many short gaps and none long, a machine past break-even is one that will stay idle, before it is not."""
    desk = a_desk("learned")
    short_gaps(desk, 20)

    assert desk.fleet.stops() == []
    assert desk.ledger.gaps()["default"].tables, "nothing was learnt"


def test_what_was_learnt_survives_a_restart_of_the_controller(tmp_path: Path) -> None:
    """The ledger keeps it beside its records: a controller made anew gives the same waits, and the chain is whole."""
    desk = a_desk("learned", ledger=Ledger.open(tmp_path / "ledger.db"))
    short_gaps(desk, 5)
    for node_id in desk.fleet.nodes_:
        desk.fleet.show(node_id, State.IDLE, 0.0)
    by_name = desk.plan().observation.waits
    desk.ledger.close()
    desk.ledger = Ledger.open(tmp_path / "ledger.db")

    assert desk.plan().observation.waits == by_name
    assert len(by_name) == 5
    assert desk.ledger.audit().broken is None
    desk.ledger.close()


def test_a_plan_learns_nothing() -> None:
    """`plan` gives the waits that the round would, and leaves the ledger as it was."""
    desk = a_desk("learned")
    for node_id in desk.fleet.nodes_:
        desk.fleet.show(node_id, State.IDLE, 0.0)
    plan = desk.plan()

    assert desk.ledger.gaps() == {}
    assert len(plan.observation.waits) == 5
    assert plan.observation.waits == desk.round(seconds=0.0).observation.waits


def test_an_idle_machine_goes_in_the_end_and_a_busy_one_never() -> None:
    """However long it waits, it waits no longer than four restarts and its notice; busy machines have no wait."""
    desk = a_desk("learned")
    for node_id in ("i-0", "i-1"):
        desk.fleet.show(node_id, State.IDLE, 0.0)
    for _ in range(60):
        desk.round()

    assert {desk.fleet.nodes_[node_id].state for node_id in ("i-0", "i-1")} == {NodeState.STOPPED}
    assert set(desk.fleet.stops()) == {"i-0", "i-1"}
    assert set(desk.fleet.stopped_while) == {State.IDLE}


def test_silence_is_no_gap_and_no_end_of_one() -> None:
    """A machine that is not known has no wait, and learns the pool nothing."""
    desk = a_desk("learned")
    desk.fleet.show("i-0", State.UNKNOWN)
    done = desk.round()

    assert done.observation.waits == {}
    assert desk.ledger.gaps() == {}
    assert all(review.step.verb is not Verb.STOP for review in done.reviews)
