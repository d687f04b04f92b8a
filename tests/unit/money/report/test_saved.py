"""What is called saved, from rounds that gpuwatch really made: its own stops, and those that others made before it."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.model.money import Price, effective_source
from gpuwatch.model.offers import PriceKey
from gpuwatch.model.stops import LastStop
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.money.report.saved import saved_by_pool, stops_of
from tests.support.builders.fleet import NOW, RULES, Desk, a_node


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
