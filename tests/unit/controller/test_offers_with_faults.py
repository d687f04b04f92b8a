"""Offers that fail for another reason than stock: the next is asked at once, and what is learnt is no lack of stock."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, NotSentError
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Status
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket


def a_desk() -> tuple[Desk, SpotMarket]:
    """A pool with the usual offers that wants one node."""
    desk = Desk(limits=Limits(max_additions_per_round=9, max_additions_per_hour=200))
    market = SpotMarket(clock=desk.clock)
    desk.fleet = market
    floor = {"always": Window(min_nodes=1)}
    desk.pools = {"default": replace(RULES, offers=OFFERS, interruptible="any", schedule=floor)}
    return desk, market


def failing(market: SpotMarket, error: CloudError) -> None:
    """Every launch of spot ends so."""
    spot = {name for name, each in OFFERS.items() if each.capacity == "spot"}
    market.fault = lambda call, name: error if call == "launch" and name in spot else None


@pytest.mark.parametrize(
    "error", [AuthFailedError("no right"), CloudError("no such template"), NotSentError("no connection")]
)
def test_the_next_offer_is_asked_in_the_same_round_and_no_stock_is_blamed(error: CloudError) -> None:
    """The right, the template, the region: each offer is tried, and then on demand brings the node."""
    desk, market = a_desk()
    failing(market, error)
    done = desk.round()
    assert done.acts[-1].outcome.status is Status.ACCEPTED
    assert all(act.outcome.status is Status.FAILED for act in done.acts[:-1])
    assert len(market.alive()) == 1
    known = desk.round().observation.offers["default"].offers
    tried = [act.review.step.arguments["offer"] for act in done.acts[:-1]]
    assert tried
    assert all(known[name].refusals == 0 and known[name].faults == 1 for name in tried)
    said = desk.plan().decisions[0].clamps
    assert any(str(error) in each and "not for lack of stock" in each for each in said)


def test_a_day_of_denied_calls_ends_with_the_right() -> None:
    """Half an hour after it is given back, spot is asked again, and the count is gone."""
    desk, market = a_desk()
    failing(market, AuthFailedError("no right"))
    for _ in range(24 * 6):
        desk.round(seconds=600.0)
    market.fault = lambda _call, _name: None
    for name in list(market.alive()):
        market.take(market.offer_of[name])
    for _ in range(4):
        desk.round(seconds=600.0)
    known = desk.plan().observation.offers["default"].offers
    assert all(each.refusals == 0 for each in known.values())
    assert any(OFFERS[market.offer_of[each]].capacity == "spot" for each in market.alive())


def test_a_launch_without_an_answer_still_holds_its_place() -> None:
    """What was sent may have happened: no other offer is asked for that node while it may appear."""
    desk, market = a_desk()
    market.lose = lambda call, _: CloudUnavailableError("reset") if call == "launch" else None
    desk.round()
    market.lose = lambda _call, _name: None
    for _ in range(9):
        desk.round()
    assert len(market.alive()) == 1


def test_a_launch_that_may_have_happened_is_not_taken_back_by_a_missing_connection() -> None:
    """The first try was sent; that a later one was not says nothing of the first."""
    desk, market = a_desk()
    market.found = market.listed = lambda _: False
    market.lose = lambda call, _: CloudUnavailableError("reset") if call == "launch" else None
    desk.round()
    market.lose = lambda _call, _name: None
    market.fault = lambda call, _: NotSentError("no connection") if call == "launch" else None
    for _ in range(8):
        desk.round()
    assert len(market.alive()) == 1
    assert len(desk.ledger.view(desk.clock.now()).open_intents) == 1


class Unread(SpotMarket):
    """A cloud whose templates cannot be read: the launch itself is never sent."""

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """What is asked before it has no answer."""
        del key
        raise CloudUnavailableError(f"the template of {arguments['offer']} cannot be read")


def test_a_silence_before_the_launch_holds_no_place() -> None:
    """Nothing was sent, whatever the cloud was asked before: each offer rests, and none is in doubt."""
    desk, _ = a_desk()
    desk.fleet = Unread(clock=desk.clock)
    done = desk.round()
    assert {act.outcome.status for act in done.acts} == {Status.FAILED}
    assert desk.ledger.view(desk.clock.now()).open_intents == ()
    assert all(each.faults == 1 for each in desk.plan().observation.offers["default"].offers.values())
