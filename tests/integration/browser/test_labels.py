"""Words of charts at the widths of real screens: none stands on another, in report, backtest and timeline."""

import random
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, Page

from gpuwatch.cli.main import commands
from gpuwatch.model.activity import State
from gpuwatch.money.report.pages import as_html
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.ledger_fixture import DAY, a_report, at, the_fortnight
from tests.support.builders.served_page import PRICE, a_site
from tests.support.components import require
from tests.support.real.browser import a_visit, chromium

pytestmark = pytest.mark.component("chromium")
WIDTHS = (390, 700, 1280)
# The boxes of words that share a chart, two at a time, where they share more than half a pixel.
MEETING = """[...document.querySelectorAll('svg, .axis')].flatMap(chart => {
  const words = [...chart.querySelectorAll('text, span')].filter(each => each.textContent.trim());
  const boxes = words.map(each => each.getBoundingClientRect());
  return words.flatMap((one, i) => words.slice(i + 1).map((other, j) => [one, other, boxes[i], boxes[i + 1 + j]]))
    .filter(([, , a, b]) => a.right > b.left + .5 && b.right > a.left + .5)
    .filter(([, , a, b]) => a.bottom > b.top + .5 && b.bottom > a.top + .5)
    .map(([one, other]) => one.textContent + ' on ' + other.textContent);
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    with chromium(require("chromium")) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty one."""
    made = browser.new_page()
    yield made
    made.close()


def assert_readable(page: Page, html: str, charts: int) -> None:
    """At every width all words of that many charts stand alone."""
    page.set_content(html)
    assert page.locator("svg text").count() >= charts
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(MEETING) == [], width


def test_the_measure_finds_words_on_each_other(page: Page) -> None:
    """Two hours that touch, as a report once had them, are found."""
    page.set_content("<svg viewBox='0 0 480 40'><text x='10' y='20'>08:00</text><text x='30' y='20'>10:00</text></svg>")

    assert page.evaluate(MEETING) == ["08:00 on 10:00"]


@pytest.mark.parametrize("days", [1, 14, *(pytest.param(days, marks=pytest.mark.nightly) for days in (2, 7, 13))])
def test_a_report_can_be_read(page: Page, days: int) -> None:
    """Of a day by the hour, and of days with dates."""
    assert_readable(page, as_html(a_report(the_fortnight(), DAY - timedelta(days=days - 1), days)), 8)


@pytest.mark.parametrize("hour", [10, 13, *(pytest.param(hour, marks=pytest.mark.nightly) for hour in (3, 12, 17))])
def test_a_day_that_is_not_over_can_be_read(page: Page, hour: int) -> None:
    """Ten or thirteen hours are as many labels as fit only just."""
    assert_readable(page, as_html(a_report(the_fortnight(), now=at(date(2026, 3, 28), hour))), 5)


def test_a_backtest_can_be_read(page: Page, tmp_path: Path) -> None:
    """Six policies, of which some are nearly alike, on three weeks of twenty machines."""
    draw, rows = random.Random(4), ["node,busy_from_s,busy_to_s"]
    for node in range(20):
        now = draw.uniform(0, 9e4)
        while now < 21 * 86_400:
            end = now + draw.lognormvariate(8, 1.5)
            rows.append(f"machine-of-a-long-name-{node},{now:.0f},{end + 1:.0f}")
            now = end + draw.lognormvariate(8.5, 1.8)
    trace, file = tmp_path / "trace.csv", tmp_path / "page.html"
    trace.write_text("\n".join(rows))
    compared = ["timeout=10m", "timeout=12m", "timeout=1h", "timeout=break_even", "timeout=learned", "never"]
    arguments = ["backtest", "--trace", trace, "--compare", *compared, "--check-hours", "0", "--html", file]
    done = CliRunner().invoke(commands, [*map(str, arguments)])

    assert done.exit_code == 0, done.output
    assert_readable(page, file.read_text(encoding="utf-8"), 20)


def test_the_timeline_of_a_day_can_be_read(browser: Browser) -> None:
    """Twenty-four hours, most of them of the day before, on a phone and on a wide screen."""
    now = SystemClock().now()
    desk = Desk(clock=ManualClock(wall=now - timedelta(hours=25)), prices={"g6.xlarge": PRICE})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0))
    with a_site(desk) as site:
        for _ in range(50):
            site.round(1800.0)
        for width in (320, *WIDTHS):
            with a_visit(browser, site.url, viewport={"width": width, "height": 900}) as visit:
                visit.page.wait_for_selector("#past .axis span")
                assert visit.page.locator("#past .axis span").count() >= 4
                assert visit.run(MEETING) == [], width
