"""The page in another currency, and with the first weeks of metering against the last ones."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest
from playwright.sync_api import Browser, expect

from gpuwatch.model.activity import State
from gpuwatch.model.currency import Currency, show_in
from gpuwatch.model.money import in_place_of_region
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import PRICE, a_site
from tests.support.components import require
from tests.support.real.browser import WAIT_MS, a_visit, chromium

pytestmark = pytest.mark.component("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    with chromium(require("chromium")) as browser:
        yield browser


def test_the_page_shows_yuan_with_the_rate_and_its_day(browser: Browser) -> None:
    """The API's sums stay in dollars, with the rate to convert them; the page does."""
    show_in(Currency(code="CNY", usd=Decimal("0.138"), as_of=date(2026, 11, 20)))
    desk = Desk(clock=ManualClock(wall=SystemClock().now()), prices={"g6.xlarge": PRICE})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0))
    with a_site(desk) as site:
        site.round()
        fleet = site.ask("/api/v1/fleet").json
        with a_visit(browser, site.url) as visit:
            yuan = float(fleet["totals"]["usd_per_hour"]) / 0.138
            expect(visit.page.locator("#now-usd")).to_have_text(f"¥{yuan:,.2f}/h", timeout=WAIT_MS)
            expect(visit.page.locator("#price-head")).to_have_text("¥/h")
            expect(visit.page.locator("#rate")).to_have_text("· 1 CNY = US$ 0.138, 2026-11-20")
            assert f"{yuan:.2f}" in visit.page.inner_text("#rows")

    assert fleet["currency"] == {"code": "CNY", "usd": "0.138", "as_of": "2026-11-20"}
    assert Decimal(fleet["totals"]["usd_per_hour"]) == PRICE.usd_per_hour


def test_the_first_weeks_stand_against_the_last_ones(browser: Browser) -> None:
    """As a tile, once the API has two weeks; until then there is no such tile."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()), prices={"g6.xlarge": PRICE})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0))
    first, last = ({"usd_waste_ratio": ratio} for ratio in (0.38, 0.12))
    found = {"weeks": 4, "first": first, "last": last, "usd_avoided": "1960.00"}
    days = {"first_day": "2026-01-05", "last_day": "2026-03-02"}
    with a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            expect(visit.page.locator("#now-usd")).to_contain_text("/h", timeout=WAIT_MS)
            assert not visit.page.is_visible("#began-tile")
            body = json.dumps({"progress": found | days})
            visit.page.route(
                "**/api/v1/progress", lambda route: route.fulfill(body=body, content_type="application/json")
            )
            visit.page.reload()
            expect(visit.page.locator("#began-share")).to_have_text("38 % → 12 %", timeout=WAIT_MS)
            expect(visit.page.locator("#began-more")).to_have_text(
                "of the cost: 4 weeks from 2026-01-05 against those from 2026-03-02, "
                "$490.00 a week less for the same work"
            )


def test_a_price_says_its_age_and_its_source(browser: Browser) -> None:
    """The oldest of all under the sum, and each machine's own at its price."""
    now = SystemClock().now()
    old = replace(PRICE, as_of=(now - timedelta(days=308)).date(), source="a list")
    desk = Desk(clock=ManualClock(wall=now), prices={"g6.xlarge": old})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0))
    with a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            age = f"{old.as_of}, 308 days old"
            expect(visit.page.locator("#now-prices")).to_have_text(f"oldest price: {age}", timeout=WAIT_MS)
            expect(visit.page.locator(f"[title*='({age}: a list)']")).to_have_count(1)


def test_the_sum_says_that_prices_are_of_another_region(browser: Browser) -> None:
    """Below it, behind the age."""
    now = SystemClock().now()
    source = in_place_of_region("a list", "eu-west-2, the nearest with a list price", "eu-west-1")
    desk = Desk(clock=ManualClock(wall=now), prices={"g6.xlarge": replace(PRICE, as_of=now.date(), source=source)})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0))
    with a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            expect(visit.page.locator("#now-prices")).to_contain_text(
                ". Some prices are of another region (eu-west-2)", timeout=WAIT_MS
            )
