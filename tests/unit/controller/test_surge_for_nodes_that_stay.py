"""Spot is bought on top of what is wanted only for a node on demand that the whole guard lets go."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuwatch.guard import Limits
from gpuwatch.model.activity import LocalDisks, State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG
from gpuwatch.model.fleet import Node
from gpuwatch.policies import PoolRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES
from tests.support.builders.light_desk import LightDesk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

POOL = replace(RULES, offers=OFFERS, interruptible="any", warm_up=120.0, schedule={"always": Window(min_nodes=4)})
DISKS = LocalDisks.USED


def a_desk(
    rules: PoolRules = POOL,
    limits: Limits | None = None,
    *,
    state: State = State.BUSY,
    born: Callable[[Node], Node] = lambda node: node,
) -> tuple[LightDesk, SpotMarket]:
    """Four nodes were bought on demand, as there was no spot; now there is."""
    desk = LightDesk(limits=limits or Limits(max_stops_per_hour_ratio=1.0), rules=rules)
    market = SpotMarket(clock=desk.clock, tags={INTERRUPTIBLE_TAG: "true"}, born=born)
    market.room = {"spot-a": 0, "spot-b": 0}
    desk.fleet, desk.pools = market, {"default": rules}
    for _ in range(15):
        desk.round()
    assert len(market.alive("sure")) == 4
    for node_id in market.alive():
        market.show(node_id, state)
    market.room = {}
    return desk, market


def on_disks(desk: LightDesk, market: SpotMarket) -> None:
    """The agents of all machines say that local disks are in use."""
    del desk
    for node_id in market.alive():
        node = market.nodes_[node_id]
        assert node.verdict is not None
        verdict = replace(node.verdict, local_disks=DISKS)
        market.put(replace(node, instance_store=True, signal=replace(node.signal, verdict=verdict)))


def test_what_the_guard_lets_go_gives_its_place() -> None:
    """Both consent, and nothing is in the way."""
    desk, market = a_desk()
    for _ in range(90):
        desk.round()
    assert market.alive("sure") == []


@pytest.mark.parametrize("state", [State.BUSY, State.IDLE])
def test_no_spot_is_bought_for_nodes_with_local_disks_in_use(state: State) -> None:
    """Whether they work and consent, or are idle: they never go without their owner's word."""
    desk, market = a_desk(state=state)
    on_disks(desk, market)
    for _ in range(120):
        desk.round()
        assert len(market.alive()) == 4


@pytest.mark.parametrize("state", [State.BUSY, State.IDLE])
def test_no_spot_is_bought_for_nodes_that_nobody_has_approved(state: State) -> None:
    """An approval may come late or never, and both machines would be paid for."""
    desk, market = a_desk(replace(POOL, approval=True), state=state)
    for _ in range(120):
        desk.round()
        assert len(market.alive()) == 4


def test_no_spot_is_bought_while_a_backtest_is_missing() -> None:
    """Nothing goes before it."""
    desk, market = a_desk(limits=Limits(max_stops_per_hour_ratio=1.0, require_backtest=7 * 86400.0))
    for _ in range(60):
        done = desk.round()
        assert len(market.alive()) == 4
    refusals = [answer for each in done.reviews for answer in each.refusals if answer.rule == "gives_way"]
    assert refusals
    assert "backtest" in refusals[0].sentence
