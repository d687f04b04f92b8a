"""What always comes to nothing at the last moment is tried ever more seldom, and the reason is told once."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest

from gpuwatch.cli.render import plan_text
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits, judge
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, LedgerView, Status, Verb
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.desk import a_desk
from tests.support.builders.fleet import Desk, a_node, a_verdict
from tests.support.builders.guard_cases import a_case, with_ledger
from tests.support.builders.past_steps import a_done, vetoes

SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0))
FREE = Limits(max_stops_per_hour_ratio=1.0, max_stops_per_hour=99, mass_idleness_nodes=99)


def stops(desk: Desk, node_id: str) -> list[Status]:
    """How each attempt to stop it ended."""
    history = desk.ledger.history(node_id, limit=500)
    return [entry.outcomes[-1].status for entry in history if entry.intent.verb is Verb.STOP]


def a_fickle_machine() -> tuple[Desk, Callable[[], None]]:
    """One that is idle whenever a round looks, and busy whenever it is asked a last time; and a round of it."""
    desk = a_desk(a_node("i-1", held=0.0), a_node("i-2", held=0.0), rules=SOON, limits=FREE)
    fleet, asked = desk.fleet, [False]

    def answer(node: Node) -> NodeReport:
        verdict = node.verdict
        assert verdict is not None
        if asked[0] and node.id == "i-1":
            return NodeReport(verdict=a_verdict("i-1", State.BUSY, 0.0, age=0.5, at=desk.clock.now()))
        return NodeReport(verdict=replace(verdict, at=desk.clock.now(), age_seconds=0.5))

    fleet.answer = answer
    observe = desk.parts.signals.observe

    class Source:
        """The fleet's signals, which know who asks."""

        def observe(self, nodes: object) -> object:
            asked[0] = False
            seen = observe(nodes)  # type: ignore[arg-type]
            asked[0] = True
            return seen

        confirm, measure = staticmethod(fleet.confirm), staticmethod(fleet.measure)

    def a_round() -> None:
        step(replace(desk.parts, signals=Source()))  # type: ignore[arg-type]
        desk.rest(60.0)

    return desk, a_round


def test_a_machine_that_is_always_vetoed_backs_off_and_is_told() -> None:
    """A few attempts an hour instead of sixty; status and plan have one sentence; the other one is stopped."""
    desk, a_round = a_fickle_machine()
    for _ in range(360):
        a_round()

    vetoed = stops(desk, "i-1")
    assert set(vetoed) == {Status.CANCELLED}
    assert 10 <= len(vetoed) <= 50
    assert stops(desk, "i-2") == [Status.SETTLED]
    desk.fleet.answer = None  # it is idle for who looks
    said = [line for line in plan_text(desk.plan()).split("\n") if "often_vetoed" in line]
    assert len(said) == 1
    assert "times in a row at the last moment" in said[0]
    assert "vetoed at the last moment: It has been busy for 0s. The next attempt is in" in said[0]


def test_a_machine_that_was_vetoed_for_hours_is_stopped_within_ten_minutes_of_being_idle() -> None:
    """To back off is not to give up."""
    desk, a_round = a_fickle_machine()
    for _ in range(120):
        a_round()
    desk.fleet.answer = None
    for _ in range(11):
        desk.round()

    assert "i-1" in desk.fleet.stops()


@pytest.mark.parametrize(("count", "minutes", "refused"), [(2, 1, False), (3, 1, True), (3, 3, False), (9, 9, True)])
def test_the_wait_grows_with_the_vetoes_in_a_row(count: int, minutes: float, *, refused: bool) -> None:
    """Two minutes after the third, ten at most."""
    case = with_ledger(a_case(), recent=vetoes(count, minutes_ago=minutes))

    assert ("often_vetoed" in {answer.rule for answer in judge(case).refusals}) is refused


@pytest.mark.parametrize("between", [a_done("i-1", Status.FAILED), a_done("i-1", Status.CANCELLED)])
def test_what_ended_otherwise_ends_the_row(between: Done) -> None:
    """A stop that failed, or was no longer wanted, says nothing of the last moment."""
    case = with_ledger(a_case(), recent=(*vetoes(3), between))

    assert "often_vetoed" not in {answer.rule for answer in judge(case).refusals}


class Slow(Ledger):
    """A ledger that takes three seconds to say what was ordered, once it is slow."""

    clock: ManualClock
    seconds = 0.0

    def orders(self, now: datetime) -> LedgerView:
        """Answer late."""
        self.clock.advance(self.seconds)
        return super().orders(now)


def test_a_ledger_that_is_too_slow_is_told_once_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is stopped on old answers; the log has one warning, status the reason, and it ends with the slowness."""
    ledger = Slow.in_memory()
    desk = a_desk(a_node("i-1"), a_node("i-2"), rules=SOON, limits=FREE, ledger=ledger)
    ledger.clock, ledger.seconds = desk.clock, 3.0
    with caplog.at_level(logging.INFO):
        for _ in range(60):
            desk.round()

    told = [each for each in caplog.records if each.levelno >= logging.WARNING and "too slow" in each.getMessage()]
    assert desk.fleet.stops() == []
    assert len(told) == 1
    assert "the ledger is too slow: it took 3s to say" in told[0].getMessage()
    assert len(stops(desk, "i-1")) <= 12
    assert "the ledger is too slow" in plan_text(desk.plan())

    ledger.seconds = 0.0
    for _ in range(12):
        desk.round()
    assert sorted(desk.fleet.stops()) == ["i-1", "i-2"]
