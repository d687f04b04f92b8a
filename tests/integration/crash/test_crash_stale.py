"""The controller dies at every step and the cloud's answers are old: no limit is exceeded, and the ledger is true."""

from dataclasses import replace

import pytest

from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Status
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import Desk, a_node, a_verdict
from tests.support.crash_points import Story, every_cut
from tests.support.nightly import by_night

SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0))
ONE_AN_HOUR = Limits(max_stops_per_hour=1, max_stops_per_hour_ratio=1.0, mass_idleness_nodes=99)
GONE = {NodeState.STOPPED, NodeState.TERMINATED}


def out_of_order(now: float) -> float:
    """Answers are 0, 90, 30 or 150 seconds old, in no order."""
    return (0.0, 90.0, 30.0, 150.0)[int(now / 60) % 4]


def always_old(_now: float) -> float:
    """Answers are nearly two minutes old."""
    return 110.0


def a_story(then: str, ages: object) -> Story:
    """Two idle machines and one stop an hour; the story ends within that hour, so one machine goes."""
    desk = Desk(rules=replace(SOON, idle=replace(SOON.idle, action=then)), limits=ONE_AN_HOUR)  # type: ignore[arg-type]
    desk.fleet.stale = ages  # type: ignore[assignment]
    for node_id in ("i-1", "i-2"):
        desk.fleet.put(a_node(node_id, held=0.0))
    return Story(desk=desk, rounds=34)


@pytest.mark.pairwise
@pytest.mark.parametrize("then", ["stop", "terminate"])
@pytest.mark.parametrize("ages", [out_of_order, always_old])
@pytest.mark.parametrize(("downtime", "pace"), [(0.0, 3), (300.0, 7)], ids=["no downtime", "five minutes down"])
def test_a_crash_and_old_answers_exceed_no_limit(then: str, ages: object, downtime: float, pace: int) -> None:
    """What was carried out is settled as ours, counted and on the record, whoever wanted it last (P4, P12, P13)."""
    for where, desk in every_cut(a_story(then, ages), downtime, pace=pace, around=then):
        desk.fleet.stale = lambda _now: 0.0
        desk.round()
        fleet = desk.fleet
        gone = [node.id for node in fleet.nodes_.values() if fleet._now(node).state in GONE]

        assert len(gone) == 1, f"{where}: {gone} are gone within the hour"
        assert fleet.stopped_while == [State.IDLE], where
        ends = {
            (entry.intent.node_id, entry.outcomes[-1].status if entry.outcomes else None)
            for node_id in ("i-1", "i-2")
            for entry in desk.ledger.history(node_id, limit=100)
            if entry.intent.verb in REMOVALS
        }
        assert {(gone[0], Status.SETTLED)} <= ends, f"{where}: {ends}"
        assert (gone[0], Status.CANCELLED) not in ends or len(ends) > 1, f"{where}: {ends}"


@pytest.mark.parametrize("downtime", [60.0, *by_night(0.0)])
def test_what_nobody_wants_any_more_is_still_found_done(downtime: float) -> None:
    """The stop is carried out, the controller dies, and old answers show a machine that is at work: it counts as ours.

    After it the machine seems busy to everybody who asks, so the stop is no longer wanted.
    """

    def turns_busy(desk: Desk, number: int) -> None:
        if number >= 9:
            desk.fleet.answer = lambda node: NodeReport(
                verdict=a_verdict(node.id, State.BUSY, 0.0, at=desk.clock.now())
            )

    story = replace(a_story("stop", always_old), befalls=turns_busy)
    for where, desk in every_cut(story, downtime, pace=3, around="stop"):
        desk.fleet.stale = lambda _now: 0.0
        for _ in range(15):
            desk.round()
        view = desk.ledger.view(desk.clock.now())
        down = [node.id for node in desk.fleet.nodes_.values() if desk.fleet._now(node).state in GONE]

        assert sorted(each.node_id for each in view.stopped) == sorted(down), where
        assert len(down) <= 1, where
