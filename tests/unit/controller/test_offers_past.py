"""What is known of offers is the same, whether three days are read again in a round or only what is new."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.controller.context import Memory
from gpuwatch.controller.round import observe
from gpuwatch.model.decision import LedgerView
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

POOL = replace(RULES, offers=OFFERS, interruptible="any", schedule={"always": Window(min_nodes=2)})


@pytest.fixture
def desk() -> Desk:
    """A pool that wants two nodes."""
    made = Desk()
    made.fleet = SpotMarket(clock=made.clock)
    made.pools = {"default": POOL}
    return made


def market(desk: Desk) -> SpotMarket:
    """Its cloud."""
    assert isinstance(desk.fleet, SpotMarket)
    return desk.fleet


def looks_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[timedelta]:
    """How far back each view of the ledger goes, from now on."""
    asked: list[timedelta] = []
    view = desk.ledger.view

    def watched(now: object, **more: object) -> LedgerView:
        asked.append(more.get("recent", timedelta(hours=1)))  # type: ignore[arg-type]
        return view(now, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(desk.ledger, "view", watched)
    return asked


def test_a_round_knows_what_a_new_process_knows(desk: Desk) -> None:
    """Through refusals, losses, long pauses and days."""
    for number in range(40):
        market(desk).room = {"spot-a": number % 2, "spot-b": 0 if number % 5 else 3}
        if number % 4 == 3:
            market(desk).take(("spot-a", "spot-b")[number % 2])
        desk.round(60.0 if number % 7 else 6 * 3600.0)
        mine = observe(desk.parts).offers
        assert mine == observe(replace(desk.parts, memory=Memory())).offers, number

    assert mine["default"].offers


def test_three_days_are_read_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again where nobody looked for more than half an hour."""
    asked = looks_back(desk, monkeypatch)
    for _ in range(5):
        desk.round()
    assert [each >= timedelta(days=3) for each in asked].count(True) == 1

    desk.rest(1900.0)
    desk.round()
    assert [each >= timedelta(days=3) for each in asked].count(True) == 2


def test_a_step_of_the_clock_reads_all_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are as old as they are, whatever the clock says (P18)."""
    for _ in range(3):
        desk.round()
    asked = looks_back(desk, monkeypatch)
    desk.clock.jump(-7200.0)
    desk.round()

    assert any(each >= timedelta(days=3) for each in asked)
