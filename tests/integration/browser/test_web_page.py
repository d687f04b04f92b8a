"""The page in a real Chromium, with a thousand nodes: it loads, filters, explains, lives, and everybody can use it."""

import contextlib
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import Site, a_site, populate, with_users
from tests.support.components import require
from tests.support.real.browser import FAINT, NAMELESS, WAIT_MS, a_visit, chromium, violations

pytestmark = pytest.mark.component("chromium")

NODES = 1000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    with chromium(require("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A thousand nodes after two rounds."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()))
    populate(desk, NODES)
    with a_site(desk) as site:
        site.round()
        site.round()
        yield site


def test_a_thousand_nodes_are_there_and_nobody_else_is_asked(browser: Browser, site: Site) -> None:
    """Fifty rows of a thousand, the sums, a picture in the canvas; no request leaves, no error is logged."""
    with a_visit(browser, site.url) as visit:
        totals = site.ask("/api/v1/fleet").json["totals"]

        assert visit.text("#count") == "1,000 nodes"
        assert visit.page.locator("#rows tr").count() == 50
        assert visit.text("#gpus") == f"{totals['gpus']:,}"
        assert f"busy {totals['gpus_by_activity']['busy']:,}" in visit.text("#uses")
        assert "test" in visit.page.title()
        painted = visit.run(
            "[...document.getElementById('map').getContext('2d').getImageData(0, 0, 900, 200).data].some(each => each)"
        )
        assert painted


def test_search_and_filters_leave_what_they_say(browser: Browser, site: Site) -> None:
    """Text, use, pool and what is next work together; the address keeps them; Escape takes them back."""
    with a_visit(browser, site.url) as visit:
        visit.page.fill("#search", "gpu-0042")
        assert visit.text("#count") == "1 of 1,000 nodes"
        visit.page.fill("#search", "")
        visit.page.click("#uses button[data-use=stalled]")
        stalled = visit.text("#count")
        visit.page.select_option("#pool", "training")

        assert 0 < int(visit.text("#count").split()[0]) < int(stalled.split()[0])
        assert visit.page.get_attribute("#uses button[data-use=stalled]", "aria-pressed") == "true"
        kept = visit.text("#count")
        visit.page.reload()
        visit.page.wait_for_selector("#rows tr")
        expect(visit.page.locator("#count")).to_have_text(kept)
        assert visit.page.input_value("#pool") == "training"
        visit.page.keyboard.press("Escape")
        assert visit.text("#count") == "1,000 nodes"


def test_columns_sort_and_pages_turn(browser: Browser, site: Site) -> None:
    """By name up and down, and the next fifty."""
    with a_visit(browser, site.url) as visit:
        visit.page.click("th[data-sort=name] button")
        assert visit.text("#rows tr:first-child .name") == "gpu-0000"
        visit.page.click("#forth")
        assert visit.text("#rows tr:first-child .name") == "gpu-0050"
        visit.page.click("th[data-sort=name] button")

        assert visit.text("#rows tr:first-child .name") == "gpu-0999"
        assert visit.page.get_attribute("th[data-sort=name]", "aria-sort") == "descending"


def test_hands_stay_on_the_keyboard(browser: Browser, site: Site) -> None:
    """Search, rows, explanation and back, the map, the list of keys: no mouse."""
    with a_visit(browser, site.url) as visit:
        keys, focus = visit.page.keyboard, "document.activeElement"
        keys.press("/")
        keys.type("gpu-01")
        assert visit.run(f"{focus}.id") == "search"
        keys.press("Tab")
        visit.run(f"{focus}.blur()")
        keys.press("j")
        keys.press("j")
        second = visit.page.locator("#rows tr .name").nth(1).inner_text()
        assert visit.run(f"{focus}.textContent") == second
        keys.press("Enter")
        visit.page.wait_for_selector("#detail .refuses, #detail td")
        assert visit.text("#detail-title") == second
        keys.press("Escape")
        assert visit.run("document.getElementById('detail').open") is False
        assert visit.run(f"{focus}.textContent") == second
        keys.press("m")
        keys.press("ArrowRight")
        keys.press("ArrowRight")
        assert "next:" in visit.text("#caption")
        keys.press("?")
        assert visit.run("document.getElementById('help').open") is True


def test_a_node_is_explained_with_every_rule_of_the_guard(browser: Browser, site: Site) -> None:
    """Evidence, what would change it, each rule's answer, the ledger's past."""
    with a_visit(browser, site.url) as visit:
        visit.page.click("#rows tr:first-child .name")
        visit.page.wait_for_selector("#detail h3")
        text = visit.text("#detail")

        for part in ("What would change it", "Evidence", "The guard, were it to stop now", "mass_idleness", "Ledger"):
            assert part in text


def test_a_round_shows_without_a_reload(browser: Browser) -> None:
    """What was idle works now: sums, row and caption follow within seconds; what is typed stays."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()))
    desk.fleet.put(a_node("i-1", held=60.0))
    desk.fleet.put(a_node("i-2", State.BUSY, 60.0))
    with a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            visit.page.fill("#search", "i-1")
            expect(visit.page.locator("#rows")).to_contain_text("idle")
            desk.fleet.show("i-1", State.BUSY)
            site.round()
            expect(visit.page.locator("#rows")).to_contain_text("busy", timeout=WAIT_MS)
            expect(visit.page.locator("#uses")).to_contain_text("busy 2")

            assert visit.page.input_value("#search") == "i-1"


def test_a_controller_that_is_gone_is_no_quiet_fleet(browser: Browser) -> None:
    """The page says that what it shows is old."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()))
    desk.fleet.put(a_node("i-1"))
    with a_site(desk) as site, contextlib.ExitStack() as stack:
        site.round()
        visit = stack.enter_context(a_visit(browser, site.url))
        visit.page.route("**/api/**", lambda route: route.abort())
        expect(visit.page.locator("#banner")).to_contain_text("does not answer", timeout=WAIT_MS)
        visit.wrong.clear()  # Chromium logs the requests that failed


def test_names_are_text_whatever_is_in_them(browser: Browser) -> None:
    """Markup in names, owners and tags is shown, not run."""
    evil = "<img src=x onerror=document.title='owned'>\"'&"
    desk = Desk(clock=ManualClock(wall=SystemClock().now()))
    desk.fleet.put(a_node("i-1", name=evil, owner=evil, pool=evil))
    with a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            visit.page.click("#rows tr:first-child .name")
            visit.page.wait_for_selector("#detail h3")

            assert visit.text("#detail-title") == evil
            assert visit.page.locator("img[src=x]").count() == 0
            assert "owned" not in visit.page.title()


def test_dark_follows_the_system_and_the_button_remembers(browser: Browser, site: Site) -> None:
    """Dark by the system's wish; light by the button, also after a reload."""
    paper = "getComputedStyle(document.body).backgroundColor"
    with a_visit(browser, site.url, color_scheme="dark") as visit:
        assert visit.run(paper) == "rgb(13, 17, 23)"
        visit.page.click("#theme")
        assert visit.run(paper) == "rgb(243, 245, 247)"
        visit.page.reload()
        visit.page.wait_for_selector("#rows tr")

        assert visit.run(paper) == "rgb(243, 245, 247)"
        assert visit.text("#theme") == "Theme: light"


@pytest.mark.parametrize("width", [320, 820, pytest.param(390, marks=pytest.mark.nightly)])
def test_nothing_needs_sideways_scrolling(browser: Browser, site: Site, width: int) -> None:
    """On a phone and a tablet, with a node explained as well."""
    with a_visit(browser, site.url, viewport={"width": width, "height": 800}) as visit:
        assert visit.run("document.documentElement.scrollWidth") <= width
        visit.page.click("#rows tr:first-child .name")
        visit.page.wait_for_selector("#detail h3")
        detail = "document.getElementById('detail')"

        assert visit.run(f"{detail}.scrollWidth <= {detail}.clientWidth")
        assert visit.run(f"{detail}.getBoundingClientRect().right") <= width


def test_a_browser_that_reads_chinese_sees_no_english_sentence(browser: Browser, site: Site) -> None:
    """The page, its tables, hints and pictures, and a node explained; on a phone, too, without sideways scrolling."""
    hidden = (
        "[...document.querySelectorAll('[title], svg title, svg desc')].map(each => each.title || each.textContent)"
    )
    with a_visit(browser, site.url, locale="zh-CN", viewport={"width": 390, "height": 800}) as visit:
        visit.page.click("#past-table summary")
        visit.page.fill("#search", "gpu-0001")
        texts = [*visit.text("body").splitlines(), *visit.run(hidden)]
        visit.page.click("#rows tr:first-child .name")
        visit.page.wait_for_selector("#detail svg")
        texts += visit.text("#detail").splitlines()
        typed = r"gpuwatch snooze 4h|NVML utilization samples"
        english = [each for each in texts if re.search("[A-Za-z]{2,} [A-Za-z]{2,}", re.sub(typed, "", each))]

        assert visit.run("document.documentElement.lang") == "zh-CN"
        assert visit.text("#count") == "1,000 个节点，显示 1 个"
        assert english == []
        assert visit.run("document.documentElement.scrollWidth") <= 390


def test_an_operator_pauses_on_the_page(browser: Browser, tmp_path: Path) -> None:
    """The form is there for operators alone; what it does is in the ledger under their name, and can be taken back."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()))
    desk.fleet.put(a_node("i-1"))
    with a_site(desk, with_users(tmp_path, "ann")) as site:
        site.round()
        ann = {"username": "ann", "password": "ann"}
        with a_visit(browser, site.url, http_credentials=ann) as visit:
            visit.page.fill("#pause-why", "upgrade")
            visit.page.click("#pause button")
            expect(visit.page.locator("#banner")).to_contain_text("by ann@127.0.0.1: upgrade")
            [order] = desk.ledger.view(desk.clock.now()).pauses
            visit.page.click("#pauses button")
            expect(visit.page.locator("#pauses")).to_have_text("None.")

        with a_visit(browser, site.url, http_credentials={"username": "bob", "password": "bob"}) as visit:
            expect(visit.page.locator("#may-not")).to_contain_text("bob is not one of controller.operators")
            assert not visit.page.is_visible("#pause")

    assert (order.pool, order.who, order.reason) == (None, "ann@127.0.0.1", "upgrade")


def test_an_operator_keeps_a_node_on_the_page(browser: Browser, tmp_path: Path) -> None:
    """For a time within the pool's cap; the page says until when and by whom, and takes it back."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()))
    desk.fleet.put(a_node("i-1"))
    with a_site(desk, with_users(tmp_path, "ann")) as site:
        site.round()
        ann = {"username": "ann", "password": "ann"}
        with a_visit(browser, site.url, http_credentials=ann) as visit:
            visit.page.click("#rows tr:first-child .name")
            visit.page.select_option("#snooze-for", "14400")
            visit.page.fill("#snooze-why", "a demo")
            visit.page.keyboard.press("Enter")
            expect(visit.page.locator("#snooze-status")).to_contain_text("by ann@127.0.0.1: a demo")
            [keep] = desk.ledger.view(desk.clock.now()).snoozes
            visit.page.click("#let-go")
            expect(visit.page.locator("#let-go")).to_have_count(0)

    assert (keep.node_id, (keep.until - keep.at).total_seconds()) == ("i-1", 14400.0)
    assert desk.ledger.view(desk.clock.now()).snoozes == ()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_is_readable(browser: Browser, site: Site, scheme: Any) -> None:  # noqa: ANN401  Playwright's type
    """Controls have names, text has contrast, the page has landmarks, a language and headings in order."""
    with a_visit(browser, site.url, color_scheme=scheme) as visit:
        levels = visit.run(
            "[...document.querySelectorAll('h1, h2, h3')].filter(e => e.checkVisibility()).map(e => +e.tagName[1])"
        )

        assert visit.run(NAMELESS) == []
        assert visit.run(FAINT) == []
        assert visit.run("document.documentElement.lang") == "en"
        assert [visit.page.locator(name).count() for name in ("header", "main", "footer", "h1")] == [1, 1, 1, 1]
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        visit.page.click("#rows tr:first-child .name")
        visit.page.wait_for_selector("#detail h3")
        assert (visit.run(NAMELESS), visit.run(FAINT)) == ([], [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, site: Site, scheme: Any) -> None:  # noqa: ANN401  Playwright's type
    """With and without a node explained."""
    with a_visit(browser, site.url, color_scheme=scheme) as visit:
        found = violations(visit)
        visit.page.click("#rows tr:first-child .name")
        visit.page.wait_for_selector("#detail h3")

        assert found + violations(visit) == []


def test_without_a_round_the_page_says_so(browser: Browser) -> None:
    """Before the first round there is a sentence, not an empty fleet."""
    with a_site(Desk(), ControllerSettings()) as site:
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(site.url)
            expect(page.locator("#banner")).to_contain_text("no round has seen the fleet yet", timeout=WAIT_MS)
        finally:
            context.close()
