"""Rounds of a pool that counts GPUs: what a cloud or the guard refuses comes in other sizes in the same round."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuwatch.controller.context import Memory
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.web import fleet_view
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.model.money import Price
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.replacement import CLOUD, FAILING_SINCE, KIND
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import NOW, Desk
from tests.support.builders.gpu_pools import FIRM, MIXED, TYPES, gpu_rules, of_gpus
from tests.support.fakes.spot_market import SpotMarket

WIDE = Limits(max_additions_per_round=30, max_additions_per_hour=200)


def a_desk(floor: int, room: dict[str, int], *, limits: Limits = WIDE, **rules: object) -> tuple[Desk, SpotMarket]:
    """A pool of so many GPUs on a cloud that has so many machines of these offers, and of the others any number."""
    desk = Desk(rules=gpu_rules(floor, offers=MIXED, **rules), limits=limits)
    desk.pools = {"default": desk.rules}
    desk.fleet = SpotMarket(clock=desk.clock, offers=MIXED, room=room)
    return desk, desk.fleet


def test_what_a_cloud_refuses_comes_in_the_same_round_on_smaller_machines() -> None:
    """No machine of eight is to be had: two of four, or eight of one, and no more of them in later rounds."""
    desk, market = a_desk(16, {"spot-eight": 1, "spot-four": 1})
    desk.round()
    assert market.made == {"spot-eight": 1, "spot-four": 1, "spot-one": 4}
    desk.memory = Memory()
    for _ in range(20):
        desk.round()
    assert market.gpus() == 16


def test_what_a_large_machine_was_to_bring_for_a_few_comes_on_a_small_one() -> None:
    """Two are missing, and the cloud has no machine of eight: two come, and not eight."""
    offers = {"spot-eight": MIXED["spot-eight"], "one": MIXED["one"]}
    desk = Desk(rules=gpu_rules(2, offers=offers), limits=WIDE)
    desk.pools, market = {"default": desk.rules}, SpotMarket(clock=desk.clock, offers=offers, room={"spot-eight": 0})
    desk.fleet = market
    desk.round()
    assert market.made == {"one": 2}


def test_a_taken_machine_is_replaced_once_by_its_gpus() -> None:
    """A notice for eight GPUs, refusals, a restart, and the loss itself: eight come, and no more."""
    desk, market = a_desk(16, {"spot-eight": 2, "spot-four": 1})
    desk.round()
    first = market.alive()
    market.announce(first[0])
    desk.round()
    assert (market.gpus(), market.made["spot-four"], market.made["spot-one"]) == (24, 1, 4)
    desk.memory = Memory()
    desk.clock.advance(120.0)
    market.carry_out()
    for _ in range(20):
        desk.round()
    assert (market.gpus(), sum(market.made.values())) == (16, 7)


@pytest.mark.parametrize(
    ("limit", "comes"),
    [("40", {"eight": 2}), ("12", {"eight": 1, "four": 1}), ("7", {"four": 1, "one": 3}), ("0.5", {})],
)
def test_growth_is_cut_to_the_money_an_hour_on_machines_that_fit(limit: str, comes: dict[str, int]) -> None:
    """One GPU costs a dollar: machines that are too dear for what is left give way to smaller ones."""
    limits = replace(WIDE, max_usd_per_hour=Decimal(limit))
    desk = Desk(rules=gpu_rules(16), limits=limits)
    desk.pools, market = {"default": desk.rules}, SpotMarket(clock=desk.clock, offers=FIRM)
    desk.fleet = market
    desk.prices = {
        kind: Price(usd_per_hour=Decimal(size), as_of=NOW.date(), source="a test") for size, kind in TYPES.items()
    }
    desk.round()
    assert market.made == comes


def test_a_limit_of_additions_counts_machines() -> None:
    """The rest comes in later rounds, once the first have settled."""
    desk, market = a_desk(20, {}, limits=replace(WIDE, max_additions_per_round=1))
    sizes = []
    for _ in range(4):
        desk.round()
        sizes.append(market.gpus())
    assert sizes == [8, 16, 20, 20]


def test_a_sick_machine_comes_back_by_its_gpus() -> None:
    """Eight were lost with it: two machines of four come, once, and cover both halves."""
    rules = gpu_rules(offers={"four": FIRM["four"]}, health=HealthRules(action="replace"))
    desk = Desk(rules=rules, limits=WIDE)
    desk.pools, market = {"default": rules}, SpotMarket(clock=desk.clock, offers={"four": FIRM["four"]})
    desk.fleet = market
    for number in range(10):
        market.put(of_gpus(8, f"i-{number}"))
        market.show(f"i-{number}", State.BUSY)
        market.offer_of[f"i-{number}"] = "four"
    about = {FAILING_SINCE: (NOW - timedelta(hours=2)).isoformat(), KIND: TYPES[8], CLOUD: ""}
    reason = Reason(code="sick", sentence="Its GPU is failing.")
    gone = desk.ledger.intend(Verb.TERMINATE, "i-9", "default", desk.clock.now(), reason, 1, arguments=about)
    market.nodes_.pop("i-9")
    desk.ledger.settle(gone, Status.SETTLED, "gone", desk.clock.now())
    desk.clock.advance(60.0)
    for _ in range(20):
        desk.round()
    assert market.made == {"four": 2}


def test_the_size_that_is_wanted_is_told_in_gpus() -> None:
    """On the page, and as a metric of its own: nobody adds GPUs to nodes."""
    desk, _ = a_desk(16, {}, capacity=MixRules())
    done = desk.round()
    (row,) = fleet_view.pools(done, (), desk.rulebook)
    assert (row.unit, row.target) == ("gpus", 16)
    metrics = ControllerMetrics("enforce", "ml", desk.clock)
    metrics.round(done, 0.25)
    page = metrics.page().body.decode()
    assert 'gpuwatch_controller_pool_target_gpus{fleet="ml",pool="default"} 16.0' in page
    assert "gpuwatch_controller_pool_target_nodes{" not in page
