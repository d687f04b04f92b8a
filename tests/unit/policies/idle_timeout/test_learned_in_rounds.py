"""Learned and drawn waits in whole rounds: what is learnt is kept, helps, and never makes a busy machine go."""

from dataclasses import replace
from pathlib import Path

from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import Verb, Wait
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.measurement import Pauses
from gpuwatch.model.promise import Notice
from gpuwatch.policies import idle
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout import node_wait
from tests.support.builders.fleet import RULES, Desk, a_node, a_notice, an_observation

LEARNED = IdleRules(timeout="learned", fresh_timeout=None, restart_cost=600.0, grace_period=60.0)
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
    assert desk.ledger.gaps()["default"].hazard.rows, "nothing was learnt"


def test_a_pool_that_was_only_observed_for_a_week_is_known_when_enforcement_begins() -> None:
    """Pauses and days count while nothing is touched; the fixed wait of a fresh pool is then over."""
    rules = replace(RULES, warm_up=0.0, idle=replace(LEARNED, fresh_timeout=1800.0))
    desk = Desk(rules=rules, limits=FREE, enforce=False)
    desk.fleet.put(a_node("i-0", State.BUSY))
    waited = []
    for _ in range(8):
        for _ in range(3):
            desk.fleet.show("i-0", State.IDLE, 1500.0)
            waited.append(desk.round(seconds=1.0).observation)
            desk.fleet.show("i-0", State.BUSY, 0.0)
            desk.round(seconds=8 * 3600.0 - 1.0)
    desk.enforce = True
    desk.fleet.show("i-0", State.IDLE, 0.0)
    found = desk.round().observation

    assert waited[0].fresh["default"] == Pauses()
    assert waited[0].waits == {}
    assert found.fresh == {}
    assert found.waits.keys() == {"i-0"}


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
    assert desk.ledger.gaps()["default"].open == {}
    assert all(review.step.verb is not Verb.STOP for review in done.reviews)


def nobody(**changes: object) -> Evidence:
    """What an agent says that saw no session."""
    found = Evidence(name="people", says=State.IDLE, observed=None, limit=1800.0, unit="seconds since input", source="")
    return replace(found, **changes)  # type: ignore[arg-type]  # its fields


def at(node: Node, *evidence: Evidence) -> Node:
    """The node with what its agent looked at."""
    verdict = node.verdict
    assert verdict is not None
    activity = replace(verdict.activity, evidence=evidence)
    return replace(node, signal=replace(node.signal, verdict=replace(verdict, activity=activity)))


def test_where_nobody_is_there_to_be_told_the_grace_is_as_short_as_the_pool_says() -> None:
    """Seen, not assumed: a silent session, an owner, a doubt or no look at all keep the whole grace."""
    rules = replace(RULES.idle, grace_period=600.0, unattended_grace_period=0.0)
    node = replace(a_node("i-1"), owner=None)

    assert idle.grace_seconds(at(node, nobody()), an_observation(), rules) == 0.0
    assert idle.grace_seconds(at(node, nobody(observed=7200.0)), an_observation(), rules) == 600.0
    assert idle.grace_seconds(at(node, nobody(says=State.UNKNOWN)), an_observation(), rules) == 600.0
    assert idle.grace_seconds(at(node), an_observation(), rules) == 600.0
    assert idle.grace_seconds(replace(at(node, nobody()), owner="alice"), an_observation(), rules) == 600.0
    assert idle.grace_seconds(replace(at(node, nobody()), state=NodeState.STOPPED), an_observation(), rules) == 600.0


def test_whoever_logs_in_after_a_notice_without_grace_gets_the_whole_grace_from_it_on() -> None:
    """And what was promised to somebody stays when nobody is there any more."""
    rules = replace(RULES.idle, grace_period=600.0, unattended_grace_period=0.0)
    node, notice = replace(a_node("i-1"), owner=None), a_notice(age=60.0)
    promise = notice.promise
    assert promise is not None
    none = replace(notice, promise=replace(promise, grace_seconds=0.0, stop_at=notice.at))

    def verb(person: Evidence, given: Notice) -> Verb:
        return idle.propose(an_observation(at(node, person), notices=(given,)), "default", rules).steps[0].verb

    assert verb(nobody(), none) is Verb.STOP
    assert verb(nobody(observed=2000.0), none) is Verb.HOLD
    assert verb(nobody(), notice) is Verb.HOLD


def test_a_learned_wait_holds_its_notice_and_never_less_than_the_round_after_it() -> None:
    """The notice comes so early that the node can go when its wait is over, but not before the first idle minute."""
    rules = replace(RULES.idle, timeout="learned", grace_period=300.0, unattended_grace_period=0.0)
    node = replace(a_node("i-1", held=400.0), owner=None)

    def before(wait: float, *evidence: Evidence) -> float | None:
        waits = {"i-1": Wait(seconds=wait, why="")}
        seen = at(node, *evidence)
        return node_wait.wait_seconds(seen, replace(an_observation(seen), waits=waits, interval_seconds=60.0), rules)

    assert before(600.0, nobody()) == 540.0
    assert before(30.0, nobody()) == 60.0
    rules = replace(rules, unattended_grace_period=300.0)
    assert before(600.0, nobody()) == 300.0


def test_a_learned_wait_is_half_an_hour_at_least_where_somebody_is_logged_in() -> None:
    """A silent session may be somebody who reads; an owner who is away is told, and the wait stays."""
    rules = replace(RULES.idle, timeout="learned", grace_period=300.0)
    waits = {"i-1": Wait(seconds=0.0, why="")}
    away, reads = at(a_node("i-1", held=400.0), nobody()), at(a_node("i-1", held=400.0), nobody(observed=2700.0))

    def before(node: Node) -> float | None:
        return node_wait.wait_seconds(node, replace(an_observation(node), waits=waits), rules)

    assert before(replace(away, owner=None)) == 60.0
    assert before(replace(away, owner="alice")) == 60.0
    assert before(reads) == 1800.0


def test_a_notice_stays_while_a_learned_wait_grows() -> None:
    """Nobody is told twice that a machine may go."""
    rules = replace(RULES.idle, timeout="learned", grace_period=60.0)
    seen = an_observation(a_node("i-1", held=400.0), notices=(a_notice(age=60.0),))
    step = idle.propose(replace(seen, waits={"i-1": Wait(seconds=900.0, why="")}), "default", rules).steps[0]

    assert (step.verb, step.reason.code) == (Verb.HOLD, "waiting")
