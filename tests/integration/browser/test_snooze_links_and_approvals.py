"""Snooze links and approvals in a real Chromium, as people meet them: on a phone, in the dark, by keyboard."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Request, expect

from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.builders.served_page import Site, a_site, with_users
from tests.support.builders.snooze_link_page import SECRET, link
from tests.support.components import require
from tests.support.real.browser import FAINT, NAMELESS, WAIT_MS, a_visit, chromium, violations

pytestmark = pytest.mark.component("chromium")

ANN = {"username": "ann", "password": "ann"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    with chromium(require("chromium")) as browser:
        yield browser


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Idle machines of a pool that wants approvals, noticed a minute ago; ann is an operator, links are on."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()), rules=replace(RULES, approval=True))
    desk.fleet.put(a_node("i-1", name="<b>gpu-0042</b>", owner="ann", pool="training"))
    desk.fleet.put(a_node("i-2", name="gpu-0043", pool="training"))
    with a_site(desk, with_users(tmp_path, "ann"), secret=SECRET) as site:
        site.round()
        site.round()
        yield site


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (320, "dark"),
        (1280, "light"),
        pytest.param(320, "light", marks=pytest.mark.nightly),
        pytest.param(1280, "dark", marks=pytest.mark.nightly),
    ],
)
def test_a_link_is_opened_and_a_button_pressed(browser: Browser, site: Site, scheme: Any, width: int) -> None:  # noqa: ANN401  Playwright's type
    """Without a login and without a script; it fits, has names and contrast, and says until when."""
    viewport = {"width": width, "height": 760}
    with a_visit(browser, site.url + link(site), ready="form", viewport=viewport, color_scheme=scheme) as visit:
        dark = visit.run("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"

        assert (visit.text("h2"), dark) == ("<b>gpu-0042</b> will be stopped", scheme == "dark")
        assert visit.run("document.documentElement.scrollWidth") <= width
        assert (visit.run(NAMELESS), visit.run(FAINT)) == ([], [])
        assert site.desk.ledger.view(site.desk.clock.now()).snoozes == ()
        visit.page.fill("#reason", "a paper's deadline")
        visit.page.click("text=1 day")
        expect(visit.page.locator(".done")).to_contain_text("Kept until")
        visit.page.wait_for_load_state("load")  # its style sheet may come after its text
        assert visit.text("h2") == "<b>gpu-0042</b> is kept"
        assert (visit.run(NAMELESS), visit.run(FAINT)) == ([], [])

    [keep] = site.desk.ledger.view(site.desk.clock.now()).snoozes
    assert (keep.who, keep.reason) == ("link:mail:ann@example.com", "a paper's deadline")
    assert keep.until - keep.at == timedelta(days=1)


def test_a_link_takes_neither_a_script_nor_a_mouse(browser: Browser, site: Site) -> None:
    """JavaScript off; from the text field the first Tab is the first button."""
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(site.url + link(site))
        page.focus("#reason")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator(".done")).to_contain_text("Kept until", timeout=WAIT_MS)
    finally:
        context.close()

    [keep] = site.desk.ledger.view(site.desk.clock.now()).snoozes
    assert keep.until - keep.at == timedelta(hours=4)


def test_no_request_tells_where_it_was_made(browser: Browser, site: Site) -> None:
    """The address is a right: it is in no Referer, neither of the style sheet nor of the form itself."""
    with a_visit(browser, site.url + link(site), ready="form") as visit:
        made: list[Request] = []
        visit.page.on("request", lambda request: made.append(request))  # noqa: PLW0108  it takes no builtin
        visit.page.click("text=4 hours")
        visit.page.wait_for_selector(".done")
        visit.page.wait_for_load_state("load")
        rows = [each.all_headers() for each in made]

        assert len(rows) >= 2
        assert [each["referer"] for each in rows if "referer" in each] == []


def test_an_operator_finds_who_waits_and_approves(browser: Browser, site: Site) -> None:
    """The count leads to the rows; the button asks once more, with node, reason and time; No goes back."""
    with a_visit(browser, site.url, http_credentials=ANN) as visit:
        page = visit.page
        page.click("text=2 nodes wait for approval")
        expect(page.locator("#count")).to_have_text("2 nodes")
        assert page.input_value("#next") == "approval"
        assert "stop, waits for approval" in visit.text("#rows")
        page.click("text=gpu-0042")
        page.wait_for_selector("#approve form")
        assert (visit.run(NAMELESS), visit.run(FAINT)) == ([], [])
        page.fill("#approve-why", "nobody's")
        page.keyboard.press("Enter")
        sure = visit.text("#approve-sure")
        for part in ("stop <b>gpu-0042</b>?", "i-1 of pool training", "at the earliest", "idle for 2h", "nobody's"):
            assert part in sure
        assert visit.run("document.activeElement.id") == "approve-yes"
        assert (visit.run(NAMELESS), visit.run(FAINT)) == ([], [])
        assert site.desk.ledger.view(site.desk.clock.now()).approvals == ()
        page.click("text=No, back")
        assert page.input_value("#approve-why") == "nobody's"
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        expect(page.locator("#detail-body")).to_contain_text("by ann@127.0.0.1: nobody's")
        [approval] = site.desk.ledger.view(site.desk.clock.now()).approvals
        page.keyboard.press("Escape")
        site.round()
        expect(page.locator("#count")).to_have_text("1 of 2 nodes", timeout=WAIT_MS)

    assert (approval.node_id, approval.who, approval.reason) == ("i-1", "ann@127.0.0.1", "nobody's")


def test_an_approval_that_comes_too_late_is_not_done_and_says_why(browser: Browser, site: Site) -> None:
    """Another operator was first."""
    with a_visit(browser, site.url, http_credentials=ANN) as visit:
        visit.page.click("text=gpu-0042")
        visit.page.click("#approve button")
        now = site.desk.clock.now()
        site.desk.ledger.approve("i-1", "carl@host", "", now)
        visit.page.click("#approve-yes")
        expect(visit.page.locator("#approve-status")).to_have_text(
            "Not done: i-1 was approved already, by carl@host.", timeout=WAIT_MS
        )
        visit.wrong.clear()  # Chromium logs the 409


def test_who_may_only_read_is_told_how_it_is_approved(browser: Browser, site: Site) -> None:
    """No button; the command that an operator would run."""
    bob = {"username": "bob", "password": "bob"}
    with a_visit(browser, site.url, http_credentials=bob) as visit:
        visit.page.click("text=gpu-0042")
        expect(visit.page.locator("#detail-body")).to_contain_text("gpuwatch approve i-1")

        assert visit.page.locator("#approve").count() == 0


@pytest.mark.parametrize("width", [320, pytest.param(390, marks=pytest.mark.nightly)])
def test_approving_fits_a_phone(browser: Browser, site: Site, width: int) -> None:
    """The question and its buttons, too."""
    with a_visit(browser, site.url, http_credentials=ANN, viewport={"width": width, "height": 760}) as visit:
        visit.page.click("text=gpu-0042")
        visit.page.click("#approve button")
        visit.page.wait_for_selector("#approve-yes")
        detail = "document.getElementById('detail')"

        assert visit.run(f"{detail}.scrollWidth <= {detail}.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, site: Site, scheme: Any) -> None:  # noqa: ANN401  Playwright's type
    """Behind a link, before and after a button; and where it is asked once more whether to approve."""
    with a_visit(browser, site.url + link(site), ready="form", color_scheme=scheme) as visit:
        found = violations(visit)
        visit.page.click("text=4 hours")
        visit.page.wait_for_selector(".done")
        found += violations(visit)
    with a_visit(browser, site.url, http_credentials=ANN, color_scheme=scheme) as visit:
        visit.page.click("text=gpu-0042")
        visit.page.click("#approve button")
        visit.page.wait_for_selector("#approve-yes")

        assert found + violations(visit) == []
