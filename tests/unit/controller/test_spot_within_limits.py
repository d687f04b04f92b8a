"""Interruptions and the way back to spot obey whatever else holds: pauses, limits on money and growth, freezes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import pytest

from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG, Verb
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Price
from gpuwatch.model.offers import PriceKey
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import NOW
from tests.support.builders.market import POOL, Market, a_market

LIMITS = Limits(max_additions_per_hour=60, max_stops_per_hour=60, max_stops_per_hour_ratio=1.0)
SIX = replace(
    POOL,
    max_nodes=6,
    warm_up=120.0,
    schedule={"always": Window(min_nodes=6)},
    capacity=MixRules(give_back_notice=60.0),
)


def paused(desk: Market) -> None:
    """Somebody moves racks."""
    desk.ledger.pause("default", "ann", "moving racks", desk.clock.now())


def resumed(desk: Market) -> None:
    """The racks are there."""
    desk.ledger.resume("default", "ann", desk.clock.now())


def poor(desk: Market) -> None:
    """Two nodes at a dollar are all that may be paid for."""
    desk.limits = replace(desk.limits, max_usd_per_hour=Decimal("2.5"))


def rich(desk: Market) -> None:
    """No limit on money."""
    desk.limits = replace(desk.limits, max_usd_per_hour=None)


def full(desk: Market) -> None:
    """No addition is allowed."""
    desk.limits = replace(desk.limits, max_additions_per_hour=0)


def open_again(desk: Market) -> None:
    """Additions are allowed."""
    desk.limits = replace(desk.limits, max_additions_per_hour=60)


def rounds(desk: Market, count: int) -> None:
    """Minutes of a controller."""
    for _ in range(count):
        desk.round()


@pytest.mark.parametrize(
    ("brake", "release", "rule"),
    [(paused, resumed, "paused"), (poor, rich, "hourly_cost_limit"), (full, open_again, "growth_rate")],
)
def test_a_replacement_waits_for_what_holds_the_pool_and_comes_once(
    brake: Callable[[Market], None], release: Callable[[Market], None], rule: str
) -> None:
    """The notice is on record at once; the guard says what holds the replacement, and it comes when that ends."""
    desk = a_market(limits=LIMITS)
    desk.prices["g6.xlarge"] = Price(usd_per_hour=Decimal(1), as_of=NOW.date(), source="a test", exact=False)
    rounds(desk, 15)
    desk.asked()
    (lost,) = desk.fleet.alive("spot-a")
    brake(desk)
    desk.fleet.announce(lost)
    done = desk.round()

    assert [each.verb for each in done.records] == [Verb.INTERRUPTION]
    assert {answer.rule for review in done.reviews for answer in review.refusals} == {rule}
    rounds(desk, 3)
    assert desk.asked() == []
    desk.fleet.carry_out()
    release(desk)
    rounds(desk, 15)
    assert len(desk.asked()) == 1
    assert len(desk.fleet.alive()) == 2


@pytest.mark.parametrize(("usd", "nodes"), [("2.0", 4), ("1.5", 3), ("1.4", 2)])
def test_spot_counts_in_the_limit_on_money_as_what_it_costs(usd: str, nodes: int) -> None:
    """Not as on demand, which this limit has no room for; what one round may not have comes once the others run."""
    desk = a_market(replace(POOL, schedule={"always": Window(min_nodes=4)}), LIMITS)
    desk.limits = replace(LIMITS, max_usd_per_hour=Decimal(usd))

    def price(key: PriceKey, now: datetime) -> Price:
        each = Decimal("0.5") if key.capacity_type is CapacityType.SPOT else Decimal("3.0")
        return Price(usd_per_hour=each, as_of=now.date(), source="a test")

    for _ in range(12):
        step(replace(desk.parts, prices=price))
        desk.rest(60.0)

    assert sum(desk.fleet.made.values()) == nodes
    assert desk.fleet.made["sure"] == 0


def a_pool_on_demand() -> Market:
    """Six nodes on demand, which work and whose people consent; then there is spot again."""
    desk = a_market(SIX, LIMITS, spot_a=0, spot_b=0)
    desk.fleet.tags = {INTERRUPTIBLE_TAG: "true"}
    rounds(desk, 30)
    assert len(desk.fleet.alive("sure")) == 6
    desk.fleet.room = {}
    return desk


def test_a_pool_that_turned_idle_at_once_gives_nothing_back_while_it_is_frozen() -> None:
    """A sensor that reads zero takes no node, also where spot works in its place."""
    desk = a_pool_on_demand()
    for node_id in desk.fleet.alive("sure"):
        desk.fleet.show(node_id, State.IDLE)
    rounds(desk, 40)

    assert desk.fleet.stops() == []
    assert len(desk.fleet.alive()) <= 6 + SIX.capacity.surge


def test_consent_is_no_word_about_a_node_that_nobody_knows() -> None:
    """Unknown stays, whatever its tag says (P1)."""
    desk = a_pool_on_demand()
    for node_id in desk.fleet.alive("sure"):
        desk.fleet.show(node_id, State.UNKNOWN)
    rounds(desk, 20)

    assert desk.fleet.stops() == []


def test_a_pause_ends_the_way_back_with_its_notices() -> None:
    """What was told before the pause is told again after it."""
    desk = a_pool_on_demand()
    rounds(desk, 4)
    paused(desk)
    rounds(desk, 20)
    before = len(desk.fleet.stops())
    resumed(desk)
    desk.round()
    assert len(desk.fleet.stops()) == before
    rounds(desk, 40)
    assert sorted({desk.fleet.offer_of[each] for each in desk.fleet.alive()}) == ["spot-a", "spot-b"]
