"""A pool with a constant load on a market that comes and goes: never more machines than wanted and the surge."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuwatch.guard import Limits
from gpuwatch.model.decision import INTERRUPTIBLE_TAG
from gpuwatch.policies import PoolRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import RULES
from tests.support.builders.light_desk import LightDesk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

LIMITS = Limits(
    max_additions_per_round=200, max_additions_per_hour=200, max_stops_per_hour=200, max_stops_per_hour_ratio=1.0
)
WANTED, SURGE = 4, 2
QUEUE = Metric(signal="promql", expression="sum(jobs)", target=10.0, per_node=True)
MEAN = Metric(signal="gpu_utilization", target=0.6)
BAND = Metric(signal="gpu_utilization", steps={"above 0.8": "add 1", "below 0.2": "remove 1"})
# What each metric shows of a load that four nodes carry: at a minute, by how many nodes run.
LOADS: dict[str, tuple[Metric, str, Callable[[int, int], float | None]]] = {
    "a queue's length": (QUEUE, "load", lambda _minute, _running: 40.0),
    "a mean use": (MEAN, "gpu_utilization", lambda _, running: min(1.0, WANTED * 0.6 / max(1, running))),
    "a use within its steps": (BAND, "gpu_utilization", lambda _minute, _running: 0.5),
    "a number that comes and goes": (QUEUE, "load", lambda minute, _: None if minute % 2 else 40.0),
    "no number": (QUEUE, "load", lambda _minute, _running: None),
}


def a_desk(metric: Metric, *, consent: bool) -> tuple[LightDesk, SpotMarket]:
    """The pool follows one number, falls back to on demand at once, and no zone has spot."""
    mix = MixRules(surge=SURGE, give_back_notice=60.0)
    rules = replace(RULES, offers=OFFERS, capacity=mix, interruptible="any", warm_up=120.0)
    rules = replace(rules, scaling=ScalingRules(metrics={"load": metric}))
    desk = LightDesk(limits=LIMITS, rules=rules)
    market = SpotMarket(clock=desk.clock, tags={INTERRUPTIBLE_TAG: "true"} if consent else {})
    market.room = {"spot-a": 0, "spot-b": 0}
    desk.fleet, desk.pools = market, {"default": rules}
    return desk, market


def with_floor(rules: PoolRules, minute: int, *, always: bool) -> PoolRules:
    """The rules; a number of GPUs brings no node where there is none, so a schedule brings the first ones."""
    return replace(rules, schedule={"always": Window(min_nodes=WANTED)} if always or minute < 15 else {})


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("consent", [True, False])
def test_spot_that_comes_back_brings_no_more_than_the_surge(load: str, *, consent: bool) -> None:
    """A hold is a floor under removals and no wish: what comes on top of it is never kept as what is wanted."""
    metric, name, shows = LOADS[load]
    desk, market = a_desk(metric, consent=consent)
    unknown = shows(1, WANTED) is None
    for minute in range(150):
        market.room = {"spot-a": 0, "spot-b": 0} if minute < 30 else {}
        desk.pools = {"default": with_floor(desk.rules, minute, always=unknown)}
        desk.fleet.numbers[("default", name)] = shows(minute, len(market.alive()))
        desk.round()
        assert len(market.alive()) <= WANTED + SURGE

    assert sum(market.made.values()) <= 2 * WANTED + SURGE
    if consent and not unknown:
        assert sorted(market.offer_of[each].partition("-")[0] for each in market.alive()) == ["spot"] * WANTED
    if not consent:
        assert sorted(market.offer_of[each] for each in market.alive()) == ["sure"] * WANTED
