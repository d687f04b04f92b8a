"""A node's page in a real Chromium: what was busy last, by whom, and what its agent cannot see."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser

from gpuwatch.model.activity import State, WorkOwner
from gpuwatch.model.fleet import NodeReport
from tests.support.builders.fleet import Desk, a_node, a_verdict
from tests.support.builders.last_busy import busy_last, cpu_evidence
from tests.support.builders.served_page import Site, a_site
from tests.support.components import require
from tests.support.real.browser import NAMELESS, a_visit, chromium

pytestmark = pytest.mark.component("chromium")

ALICE = WorkOwner(user="alice", unit="session-3.scope", process="<b>py</b>", pid=4711)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    with chromium(require("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One node by an agent that says what was busy, one by an agent that started idle, one by an older agent."""
    desk = Desk()
    idle = busy_last(
        a_verdict("i-idle", held=720.0), (cpu_evidence(), 720.0), (cpu_evidence(name="disk", owner=ALICE), 9000.0)
    )
    desk.fleet.put(a_node("i-idle", signal=NodeReport(verdict=replace(idle, blind=("It may not read /home/bob.",)))))
    desk.fleet.put(a_node("i-quiet", signal=NodeReport(verdict=busy_last(a_verdict("i-quiet")))))
    at_work = cpu_evidence(owner=ALICE)
    busy = busy_last(a_verdict("i-busy", State.BUSY, 60.0), (at_work, 0.0))
    busy = replace(busy, activity=replace(busy.activity, evidence=(at_work,)))
    desk.fleet.put(a_node("i-busy", State.BUSY, signal=NodeReport(verdict=busy)))
    desk.fleet.put(a_node("i-older"))
    with a_site(desk) as site:
        site.round()
        yield site


def opened(visit_text: str) -> str:
    """Text on one line, for comparing."""
    return " ".join(visit_text.split())


@pytest.mark.parametrize(
    ("node", "there", "missing"),
    [
        (
            "i-idle",
            [
                "after cpu was busy: 1.4 cores, limit 0.8, fluent-bit, fluent-bit.service. To change: agent.evidence.",
                "Busy last since the agent started at",
                "alice's <b>py</b>, pid 4711, session-3.scope",
                "It may not read /home/bob.",
            ],
            ["Work of"],
        ),
        ("i-quiet", ["Nothing since the agent started at", "what was before is not known"], ["cannot see"]),
        (
            "i-busy",
            ["Work of cpu: alice's <b>py</b>, pid 4711", "now cpu: busy", "It has been busy for"],
            ["Nothing since"],
        ),
        ("i-older", ["Evidence"], ["Busy last", "Last sign of use", "cannot see"]),
    ],
)
def test_the_page_says_what_was_busy_last(
    browser: Browser, site: Site, node: str, there: list[str], missing: list[str]
) -> None:
    """One sentence, a table, names as text and never as markup; nothing is made up for an older agent."""
    with a_visit(browser, site.url) as visit:
        visit.page.wait_for_selector("#rows tr")
        visit.page.click(f"#rows tr[data-id={node}] .name")
        visit.page.wait_for_selector("#detail-body dl")
        text = opened(visit.page.inner_text("#detail-body"))

        assert [words for words in there if words not in text] == [], text
        assert [words for words in missing if words in text] == [], text
        assert visit.run(NAMELESS) == []
