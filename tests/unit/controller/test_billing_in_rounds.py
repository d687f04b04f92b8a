"""Every live round bills what has passed, whether it may act or not, and what goes wrong there stops no round."""

import logging
from dataclasses import replace
from datetime import date
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.cli.controller import one_round
from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.round import ControllerContext
from gpuwatch.model.activity import State
from gpuwatch.model.money import Price
from gpuwatch.model.usage import Use
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import Meter, SpendBook
from gpuwatch.money.accounting.totals import Total, totals, whole
from tests.support.builders.fleet import Desk, a_node

METERING = Metering(zone=ZoneInfo("UTC"))
PRICE = Price(usd_per_hour=Decimal("0.8048"), as_of=date(2026, 1, 19), source="a list")


def a_desk(*, enforce: bool = True) -> Desk:
    """One machine that has been idle for hours, and one that works."""
    desk = Desk(enforce=enforce, prices={"g6.xlarge": PRICE})
    desk.fleet.put(a_node("i-1"))
    desk.fleet.put(a_node("i-2", State.BUSY, 60.0))
    return desk


def live(desk: Desk) -> ControllerContext:
    """The parts of a controller that meters."""
    return replace(desk.parts, meter=Meter(desk.ledger, METERING))


def rounds(desk: Desk, count: int) -> None:
    """So many, a minute apart."""
    for _ in range(count):
        assert one_round(live(desk)) is not None
        desk.rest(60.0)


def billed(desk: Desk) -> Total:
    """All of it."""
    return whole(totals(SpendBook(desk.ledger).rows(0, 2**40), lambda _: "all").values())


@pytest.mark.parametrize("enforce", [False, True])
def test_a_round_bills_whether_it_may_act_or_not(*, enforce: bool) -> None:
    """Ten minutes of two machines, one of them idle; both modes say the same."""
    desk = a_desk(enforce=enforce)
    rounds(desk, 11)
    total = billed(desk)

    assert total.node_ms == 20 * 60_000
    assert total.gpu_ms_by_use[Use.USEFUL] == total.gpu_ms_by_use[Use.IDLE] == 600_000
    assert float(total.usd) == pytest.approx(0.8048 / 3)


def test_a_machine_that_was_stopped_costs_no_more() -> None:
    """The idle one is stopped after its notice; the other one goes on."""
    desk = a_desk()
    rounds(desk, 60)
    nodes = totals(SpendBook(desk.ledger).rows(0, 2**40, by_node=True), lambda row: row.node_id or "")

    assert desk.fleet.stops() == ["i-1"]
    assert nodes["i-2"].node_ms == 59 * 60_000
    assert nodes["i-1"].node_ms < 20 * 60_000


def test_a_simulation_and_a_plan_bill_nothing() -> None:
    """They have no metering, and pay nothing for it."""
    desk = a_desk()
    desk.round()
    desk.round()
    desk.plan()

    assert SpendBook(desk.ledger).began() is None


def test_a_failure_to_write_bills_down_stops_no_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, the round has its effect, and the next one bills the whole time."""
    desk = a_desk()
    rounds(desk, 1)
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr("gpuwatch.money.accounting.store.SPEND_MARKS", None)
        rounds(desk, 1)
    rounds(desk, 1)

    assert "What was billed could not be recorded" in caplog.text
    assert billed(desk).node_ms == 2 * 2 * 60_000


def test_a_round_that_saw_nothing_bills_nothing_and_loses_nothing() -> None:
    """The cloud gave no list for a minute: its machines are billed by the next round that sees them."""
    desk = a_desk()
    rounds(desk, 1)
    desk.fleet.fault = lambda _call, _node: CloudUnavailableError("no answer")
    rounds(desk, 1)
    desk.fleet.fault = lambda _call, _node: None
    rounds(desk, 1)

    assert billed(desk).node_ms == 2 * 2 * 60_000


@pytest.mark.parametrize(("interval", "silent_after"), [(10.0, 300.0), (60.0, 300.0), (600.0, 1800.0)])
def test_rounds_at_their_own_pace_are_no_gap(interval: float, silent_after: float) -> None:
    """Nobody looked only when more than three rounds are missing, and five minutes at least."""
    assert CostSettings().metering(interval).silent_after_seconds == silent_after
