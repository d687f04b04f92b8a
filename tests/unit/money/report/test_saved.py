"""What is called saved, from rounds that gpuwatch really made: its own stops, and those that others made before it."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.model.fleet import CapacityType, NodeReport, NodeState
from gpuwatch.model.money import Price, effective_source, usd_to_the_cent
from gpuwatch.model.offers import PriceKey
from gpuwatch.model.stops import LastStop
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.money.report.period import period_of
from gpuwatch.money.report.saved import saved_by_pool, savings_in, stops_of
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, an_observation


@pytest.mark.parametrize("cause", [None, "its machine has shut itself down", "the market took it"])
@pytest.mark.parametrize("seconds", [0, 20])
def test_only_what_the_cloud_shows_as_our_stop_is_booked_as_saved(cause: str | None, seconds: int) -> None:
    """Its owner types poweroff, or the market takes it, right before the call; or nobody does."""
    desk = Desk(limits=Limits(), rules=RULES)
    desk.fleet.put(a_node("i-1"))

    def before_us(call: str, node_id: str) -> CloudError | None:
        if call == "stop" and cause is not None:
            at = (desk.clock.now() - timedelta(seconds=seconds)).replace(microsecond=0)
            stopped = replace(desk.fleet.nodes_[node_id], state=NodeState.STOPPED)
            desk.fleet.put(replace(stopped, last_stop=LastStop(at=at, other=cause)))
        return None

    desk.fleet.fault = before_us
    for _ in range(90):
        desk.round()
    now = desk.clock.now()
    found = stops_of(ActionHistory(desk.ledger), now - timedelta(hours=9), now, 60.0, frozenset())

    assert len(found.known) == (cause is None)
    assert len(found.unproved) == (cause is not None)


@pytest.mark.parametrize(
    ("capacity", "source", "saves"),
    [
        (CapacityType.ON_DEMAND, "a list", "10"),
        (CapacityType.SPOT, "a list", "4"),
        (CapacityType.ON_DEMAND, effective_source(date(2026, 10, 1), date(2026, 10, 31), Decimal("0.7")), "3.0"),
    ],
)
def test_a_stop_saves_what_its_own_machine_would_have_cost(capacity: CapacityType, source: str, saves: str) -> None:
    """Spot its spot price, also where the limits count it as on demand; of a committed price the rest alone."""
    desk = Desk(limits=Limits(), rules=RULES)

    def ask(hire: PriceKey, _: datetime) -> Price:
        usd = Decimal(4 if hire.capacity_type is CapacityType.SPOT else 10)
        return Price(usd_per_hour=usd, as_of=NOW.date(), source=source)

    desk.fleet.put(a_node("i-1", capacity_type=capacity))
    desk.fleet.put(a_node("i-2", State.BUSY, 60.0))
    metrics = ControllerMetrics("enforce", "test", desk.clock)
    for _ in range(90):
        step(replace(desk.parts, prices=ask))
        desk.rest(60.0)
    now = desk.clock.now()
    [off] = stops_of(ActionHistory(desk.ledger), now - timedelta(hours=9), now, 60.0, frozenset()).known

    metrics.tell_savings(saved_by_pool(desk.ledger, ZoneInfo("UTC"), now, 60.0, desk.rulebook))

    assert off.turn.usd_per_hour == Decimal(saves)
    assert (
        f'gpuwatch_fleet_saved_usd_per_hour{{fleet="test",pool="default"}} {float(saves)}'
        in metrics.page().body.decode()
    )


@pytest.mark.parametrize("day", [2, 3])
def test_the_same_is_saved_once_the_days_rows_are_summed_up(day: int) -> None:
    """At work from 9:00, stopped at 12:30, started by its owner at 13:40 and again the next morning, at $10 an hour."""
    ledger, begin = Ledger.in_memory(), datetime(2026, 3, 2, tzinfo=UTC)
    book, rules = SpendBook(ledger), Metering(zone=ZoneInfo("UTC"), silent_after_seconds=1800)
    price = Price(usd_per_hour=Decimal(10), as_of=NOW.date(), source="a list")
    runs = [(9.0, 12.5), (13 + 2 / 3, 17.0), (33.5, 41.0)]  # the owner ends the later two
    seen: list[Decimal] = []
    for tick in range(6 * 24 * 4):
        now, hour = begin + timedelta(minutes=10 * tick), tick / 6
        launched = next((begin + timedelta(hours=first) for first, last in runs if first <= hour < last), None)
        node = a_node("i-1", State.BUSY, 9e4, launched_at=launched or begin)
        if launched is None:
            node = replace(node, state=NodeState.STOPPED, signal=NodeReport())
        observed = replace(an_observation(node, now=now), prices={"g6.xlarge": price})
        if tick == 0:
            round_id = ledger.record_round(observed, (), (), (), Rulebook())
        book.meter(observed, rules)
        if hour == 12.5:
            why = Reason(code="idle", sentence="It is idle.")
            stop = ledger.intend(Verb.STOP, "i-1", "default", now, why, round_id, usd_per_hour=Decimal(10))
            ledger.settle(stop, Status.SETTLED, "the cloud shows it", now)
        if (now.day, hour % 24) in {(4, 0.0), (5, 12.0)}:
            period = period_of(rules.zone, now, day=f"2026-03-0{day}")
            found = stops_of(ActionHistory(ledger), begin, now, 600.0, frozenset())
            seen.append(usd_to_the_cent(savings_in(found, period, now, None).whole.usd))
            billed = [key.span for key, _, _ in book.each(0, 2**40)]

    assert max(billed) > 3600, "a day is summed up"
    assert len(billed) < 15, "and its hours are few"
    assert seen == [Decimal("11.67") if day == 2 else Decimal("0.00")] * 2
    assert list(book.wrong(0, 2**40)) == []
