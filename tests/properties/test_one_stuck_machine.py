"""One machine that hangs, or that the cloud refuses, holds up nobody else (P19): neither its pool nor its limits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from gpuwatch.cli.render import plan_text, remarks
from gpuwatch.clouds import CloudError, CloudUnavailableError, ProtectedError, ThrottledError
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Status, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import Desk, FakeFleet, a_node
from tests.support.nightly import by_night

DAY = 86400.0
SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0))
FREE = Limits(max_stops_per_hour_ratio=1.0, mass_idleness_nodes=99)


@dataclass(frozen=True, slots=True)
class Deaf:
    """Signals of a fleet in which the agent of i-0 never confirms."""

    fleet: FakeFleet

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All of them."""
        return self.fleet.observe(nodes)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """As the fleet does."""
        return self.fleet.measure(fleet, queries)

    def confirm(self, node: Node) -> NodeReport:
        """One is silent."""
        silent = NodeReport(failure="its agent did not answer within 5s")
        return silent if node.id == "i-0" else self.fleet.confirm(node)


def a_desk(*nodes: str, limits: Limits = FREE, rules: PoolRules = SOON) -> Desk:
    """Idle machines of one pool."""
    desk = Desk(rules=rules, limits=limits)
    for node_id in nodes:
        desk.fleet.put(a_node(node_id, held=0.0))
    return desk


def rounds(desk: Desk, count: int) -> None:
    """So many, a minute apart."""
    for _ in range(count):
        desk.round()


def state(desk: Desk, node_id: str) -> NodeState:
    """What the cloud shows."""
    return desk.fleet._now(desk.fleet.nodes_[node_id]).state


@pytest.mark.parametrize("then", ["stop", "terminate"])
def test_a_machine_that_hangs_while_it_stops_holds_up_no_other(then: str) -> None:
    """EC2 shows it stopping for ever: the others of its pool are noticed, stopped, and count no more than it does."""
    rules = replace(SOON, idle=replace(SOON.idle, action=then))  # type: ignore[arg-type]
    desk = a_desk("i-hangs", limits=replace(FREE, max_stops_per_hour=1), rules=rules)
    desk.fleet.lag = lambda: 30 * DAY
    rounds(desk, 10)
    assert state(desk, "i-hangs") in {NodeState.STOPPING, NodeState.TERMINATING}
    desk.fleet.lag = lambda: 0.0
    for node_id in ("i-1", "i-2"):
        desk.fleet.put(a_node(node_id, held=0.0))
    rounds(desk, 15)
    within_the_hour = [state(desk, node_id) for node_id in ("i-1", "i-2")]
    rounds(desk, 130)

    assert within_the_hour == [NodeState.RUNNING] * 2, "the stop that hangs counts for an hour"
    gone = {NodeState.STOPPED, NodeState.TERMINATED}
    assert {state(desk, "i-1"), state(desk, "i-2")} <= gone, "and for no longer"


def test_a_member_that_works_again_is_protected_while_another_hangs() -> None:
    """A removal elsewhere in the pool blocks neither protection nor the withdrawal of a notice."""
    rules = replace(SOON, idle=replace(SOON.idle, action="terminate", grace_period=600.0))
    desk = a_desk(rules=rules)
    group = NodeGroup(id="g-1", name="g", pool="default", min_size=0, max_size=9, desired=2, region="r", enrolled=True)
    desk.fleet.groups_["g-1"] = replace(group, node_ids=("i-hangs", "i-works"))
    desk.fleet.put(a_node("i-hangs", held=0.0, group="g-1"))
    desk.fleet.lag = lambda: 30 * DAY
    rounds(desk, 20)
    assert state(desk, "i-hangs") is NodeState.TERMINATING
    desk.fleet.put(a_node("i-works", held=0.0, group="g-1"))
    rounds(desk, 8)
    assert desk.ledger.view(desk.clock.now()).notice("i-works") is not None
    desk.fleet.show("i-works", State.BUSY)
    rounds(desk, 2)

    assert desk.fleet.nodes_["i-works"].scale_in_protected
    assert desk.ledger.view(desk.clock.now()).notice("i-works") is None


def test_a_step_that_hangs_is_told() -> None:
    """Status and plan name the machine, for how long, and what the cloud shows."""
    desk = a_desk("i-hangs", "i-busy")
    desk.fleet.show("i-busy", State.BUSY)
    desk.fleet.lag = lambda: 30 * DAY
    rounds(desk, 30)
    done = desk.plan()

    rows = [line for line in remarks(done, "") if "i-hangs" in line]
    assert len(rows) == 1
    assert "stop was asked for 23m" in rows[0]
    assert "the cloud shows it stopping" in rows[0]
    assert "advice for i-hangs" in plan_text(done)


@pytest.mark.parametrize(
    "error", [ProtectedError("it is a one-time spot instance"), *by_night(CloudError("IncorrectState"))]
)
def test_a_machine_that_the_cloud_refuses_to_stop_costs_the_others_nothing(error: CloudError) -> None:
    """It is left alone for hours after two refusals, and told; the one stop an hour is there for the others."""
    desk = a_desk("i-0", "i-1", limits=replace(FREE, max_stops_per_hour=1, max_stops_per_round=1))
    asked: list[str] = []

    def refuse(call: str, node_id: str) -> CloudError | None:
        asked.extend([node_id] * (call == "stop"))
        return error if (call, node_id) == ("stop", "i-0") else None

    desk.fleet.fault = refuse
    rounds(desk, 30)
    assert state(desk, "i-1") is NodeState.STOPPED
    rounds(desk, 240)

    assert asked.count("i-0") == 3, "one whose second attempt the other's stop delayed, two in a row, then six hours"
    rows = [line for line in remarks(desk.plan(), "") if "i-0" in line]
    assert len(rows) == 1
    assert str(error) in rows[0]
    assert "gpuwatch:protect" in rows[0]
    desk.interval = 300.0
    for _ in range((24 * 60 - 270) // 5):
        desk.round(300.0)
    assert asked.count("i-0") <= 9, "a day"
    assert asked.count("i-1") == 1


def test_a_machine_that_is_always_vetoed_does_not_take_the_others_turn() -> None:
    """With one stop a round, the first machine's agent is never there when it counts: the second one goes."""
    desk = a_desk("i-0", "i-1", limits=replace(FREE, max_stops_per_round=1))
    for _ in range(30):
        step(replace(desk.parts, signals=Deaf(desk.fleet)))
        desk.rest(60.0)

    assert state(desk, "i-1") is NodeState.STOPPED
    assert state(desk, "i-0") is NodeState.RUNNING


@pytest.mark.parametrize("refused", ["tag", "protect"])
def test_a_machine_whose_tags_are_refused_for_ever_holds_up_no_other(refused: str) -> None:
    """Its notice cannot be written: the other one is told and stopped."""
    desk = a_desk("i-0", "i-1")
    desk.fleet.fault = lambda call, node_id: CloudError("no") if (call, node_id) == (refused, "i-0") else None
    rounds(desk, 30)

    assert state(desk, "i-1") is NodeState.STOPPED


def test_a_throttled_stop_does_not_use_up_the_hour() -> None:
    """Nothing was done: another machine may be stopped instead."""
    desk = a_desk("i-0", "i-1", limits=replace(FREE, max_stops_per_hour=1))
    desk.fleet.fault = lambda call, node_id: ThrottledError("slow") if (call, node_id) == ("stop", "i-0") else None
    rounds(desk, 30)

    assert state(desk, "i-1") is NodeState.STOPPED


def test_a_stop_without_an_answer_counts_until_it_is_known() -> None:
    """It may have been carried out, so the hour's one stop is spent (P4)."""
    desk = a_desk("i-0", "i-1", limits=replace(FREE, max_stops_per_hour=1))
    desk.fleet.fault = lambda call, _: CloudUnavailableError("reset") if call == "stop" else None
    rounds(desk, 30)
    stops = [entry for each in ("i-0", "i-1") for entry in desk.ledger.history(each) if entry.intent.verb in REMOVALS]

    assert len({entry.intent.node_id for entry in stops}) == 1
    assert stops[0].outcomes[0].status is Status.UNAVAILABLE
    assert all(entry.intent.verb is Verb.STOP for entry in stops)
