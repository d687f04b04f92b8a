"""The page's card on what holds savings back, in a real Chromium."""

import pytest

from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import PRICE, a_site
from tests.support.components import require
from tests.support.real.browser import a_visit, chromium

pytestmark = pytest.mark.component("chromium")


def test_the_card_says_what_holds_money_and_what_frees_it() -> None:
    """The sum, the obstacle, the act and the risk; the card is gone with the last held machine."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()), prices={"g6.xlarge": PRICE}, enforce=False)
    now = desk.clock.now()
    desk.fleet.put(a_node("i-disk", instance_store=True, launched_at=now.replace(year=now.year - 1)))
    desk.fleet.show("i-disk", State.IDLE, 7200.0)
    with chromium(require("chromium")) as browser, a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            visit.page.wait_for_selector("#held li")

            assert visit.text("#held-sum") == "$136.13 a day, 1 node"
            text = visit.text("#held")
            assert text.startswith("local disks in use $136.13 a day, 1 node")
            assert "set pools.default.idle.instance_store to `discard`" in text
            assert "Alone it frees $0.00; something else holds the rest, too." in text
            desk.fleet.show("i-disk", State.BUSY)
            site.round()
            visit.page.wait_for_selector("#held-card", state="hidden")
