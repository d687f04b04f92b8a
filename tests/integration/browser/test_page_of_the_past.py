"""The page on what was: who stopped a machine and why, what that saved, and the last day by use; also on a phone."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, expect

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import PRICE, Site, a_site
from tests.support.components import require
from tests.support.real.browser import FAINT, NAMELESS, WAIT_MS, a_visit, chromium, violations

pytestmark = pytest.mark.component("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    with chromium(require("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A busy machine, one that gpuwatch stopped and one that somebody else stopped, after rounds with a gap."""
    noon = SystemClock().now().replace(hour=12)  # all of it on one day
    desk = Desk(clock=ManualClock(wall=noon), prices={"g6.xlarge": PRICE})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0))
    desk.fleet.put(a_node("i-due", held=7200.0))
    desk.fleet.put(replace(a_node("i-theirs"), state=NodeState.STOPPED, signal=NodeReport()))
    with a_site(desk) as site:
        for minute in range(90):
            if 40 <= minute < 60:
                desk.clock.advance(60.0)
            else:
                site.round()
        yield site


def test_a_stopped_node_says_who_stopped_it_and_why(browser: Browser, site: Site) -> None:
    """In the table, in its details and in what was done lately, where what came of it stands too."""
    with a_visit(browser, site.url) as visit:
        words = r"Stopped [\d:]+ by gpuwatch: idle for 2h1\dm(\d+s)?, notice of 10m had run out\."
        page = visit.page
        row = page.locator("#rows tr", has_text="i-due")
        [words_of_it] = row.locator("td.why").all_inner_texts()

        assert re.fullmatch(words, words_of_it), words_of_it
        assert "It is stopped. gpuwatch has no stop of it on record." in page.inner_text("#rows")
        done = visit.text("#actions")
        assert "by gpuwatch: It has been idle for" in done
        assert "settled: the cloud shows it stopped" in done


def test_the_first_figure_is_what_was_saved_and_the_first_day_is_told_once(browser: Browser, site: Site) -> None:
    """The same as the API's; there is no second tile with the same cost."""
    with a_visit(browser, site.url) as visit:
        usd = site.ask("/api/v1/savings").json["month"]["usd"]
        expect(visit.page.locator("#saved-usd")).to_have_text(f"${usd}", timeout=WAIT_MS)
        expect(visit.page.locator("#saved-more")).to_contain_text("by 1 stop since")

        assert float(usd) > 0
        assert not visit.page.is_visible("#month-tile")


def test_the_day_is_drawn_with_its_gap_its_marks_and_as_a_table(browser: Browser, site: Site) -> None:
    """The fleet's picture has a name, a description, a gap and a mark of the stop; the table says the same."""
    with a_visit(browser, site.url) as visit:
        page = visit.page
        page.wait_for_selector("#past svg")
        words = visit.run("document.querySelector('#past svg desc').textContent")

        assert visit.run("document.querySelector('#past .gap').getAttribute('d')") != ""
        assert page.locator("#past .mark.stop").count() == 1
        assert "1 stop" in words
        assert "no data for" in words
        page.click("#past-table summary")
        expect(page.locator("#past-table")).to_contain_text("stopped 1")
        assert visit.run("getComputedStyle(document.querySelector('#past svg .busy')).fill") != "rgb(0, 0, 0)"


def test_a_node_has_a_strip_of_its_own(browser: Browser, site: Site) -> None:
    """Idle, off, no data and off again, with notice and stop and their reasons, in words too."""
    with a_visit(browser, site.url) as visit:
        visit.page.click("#rows tr:has-text('i-due') .name")
        visit.page.wait_for_selector("#strip svg")
        kinds = visit.run("[...document.querySelectorAll('#strip path')].map(each => each.getAttribute('class'))")
        visit.page.click("#strip summary")

        assert kinds == ["idle", "off", "gap", "off", "mark notice", "mark stop"]
        expect(visit.page.locator("#strip")).to_contain_text("stopped: It has been idle for")


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.nightly), "dark"])
def test_on_a_phone_why_stands_under_the_name(browser: Browser, site: Site, scheme: str) -> None:
    """At 390 pixels nothing is wider than the page, all is named and readable, and cells are still cells."""
    with a_visit(browser, site.url, viewport={"width": 390, "height": 800}, color_scheme=scheme) as visit:
        visit.page.wait_for_selector("#past svg")
        row = visit.page.locator("#rows tr", has_text="i-due")
        name, why = row.locator(".name").bounding_box(), row.locator("td.why").bounding_box()
        assert name is not None
        assert why is not None

        assert "notice of 10m had run out" in row.locator("td.why").inner_text()
        assert why["y"] > name["y"]
        assert why["width"] > 300
        assert visit.run("document.documentElement.scrollWidth") <= 390
        assert (visit.run(NAMELESS), visit.run(FAINT)) == ([], [])
        assert visit.page.get_by_role("table", name="Nodes with").get_by_role("cell").count() > 0


@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(browser: Browser, site: Site, width: int) -> None:
    """With the timeline's table open, and a node's strip."""
    with a_visit(browser, site.url, viewport={"width": width, "height": 800}) as visit:
        visit.page.wait_for_selector("#past svg")
        visit.page.click("#past-table summary")
        found = violations(visit)
        visit.page.click("#rows tr:has-text('i-due') .name")
        visit.page.wait_for_selector("#strip svg")

        assert found + violations(visit) == []


@pytest.mark.parametrize("width", [390, pytest.param(768, marks=pytest.mark.nightly), 1280])
def test_the_hours_of_a_day_stand_beside_each_other(browser: Browser, site: Site, width: int) -> None:
    """Wherever the day begins, no two labels overlap and none is cut off."""
    with a_visit(browser, site.url, viewport={"width": width, "height": 800}) as visit:
        visit.page.wait_for_selector("#past svg")
        overlaps = visit.run("""[...Array(24).keys()].flatMap(hour => {
            const until = Math.floor(Date.now() / 86400e3) * 86400 + hour * 3600;
            const old = document.querySelector("#past .axis");
            const made = axis({ from: until - 86400, until, width: 86400 });
            old.replaceWith(made);
            const shown = [...made.children].map(each => each.getBoundingClientRect()).filter(each => each.width);
            const right = made.getBoundingClientRect().right;
            return shown.filter((each, at) => each.right > (shown[at + 1]?.left ?? right)).map(() => made.textContent);
        })""")

        assert overlaps == []


def test_evidence_has_the_units_of_people(browser: Browser, site: Site) -> None:
    """Percent and GB, as `gpuwatch explain` writes them; never a ratio or a row of digits."""
    with a_visit(browser, site.url) as visit:
        written = {
            "quantity(0.01, 'ratio')": "1 %",
            "quantity(536870912, 'bytes')": "0.537 GB",
            "quantity(16672000, 'bytes per second')": "16.7 MB/s",
            "quantity(0, 'bytes')": "0 bytes",
            "quantity(140, 'watts')": "140 watts",
            "quantity(null, 'watts')": "\N{EN DASH}",
        }

        assert {call: visit.run(call) for call in written} == written
