"""The page's card on a Kubernetes cluster, in a real Chromium: what becomes of idle workloads, and who holds GPUs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, expect

from gpuwatch.model.activity import State
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import a_site
from tests.support.builders.workload_desk import a_workload_desk
from tests.support.builders.workloads import ALICE, a_notebook, its_pod
from tests.support.components import require
from tests.support.real.browser import NAMELESS, a_visit, chromium

pytestmark = pytest.mark.component("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    with chromium(require("chromium")) as browser:
        yield browser


def test_an_idle_workload_is_shown_with_its_time_and_its_end(browser: Browser) -> None:
    """What, when and why; after its end it is among what was done, and no longer on the card."""
    desk = a_workload_desk()
    with a_site(desk) as site:
        site.web.state.update(desk.round(), leading=True)
        with a_visit(browser, site.url) as visit:
            visit.page.wait_for_selector("#kubernetes li")
            text = visit.text("#kubernetes")

            assert visit.text("#kubernetes-sum") == "prod: 1 of 2 GPUs requested"
            assert "Notebook team-a/alice stop at " in text
            assert "1 pod with 1 GPU, owner alice. Its GPU pod has been idle for" in text
            assert "team-a/alice-0 idle for 2 h" in text
            assert "$4.10/h" in text
            assert visit.run(NAMELESS) == []
            for _ in range(14):
                site.web.state.update(desk.round(), leading=True)
            expect(visit.page.locator("#kubernetes")).to_contain_text("Every pod with GPUs uses them")
            assert "release kube:prod/team-a/Notebook/alice" in visit.text("#actions")


def test_what_keeps_a_workload_is_said(browser: Browser) -> None:
    """The guard's rule while gpuwatch observes; a pod that works leaves no row of its workload."""
    desk = a_workload_desk()
    desk.enforce = False
    with a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            visit.page.wait_for_selector("#kubernetes li")
            assert "Notebook team-a/alice stays: the guard refuses (observe_only)" in visit.text("#kubernetes")
            desk.fleet.show("i-1", State.BUSY)
            site.round()
            expect(visit.page.locator("#kubernetes")).to_contain_text("Every pod with GPUs uses them")


def test_more_than_eight_are_counted_and_no_name_is_markup(browser: Browser) -> None:
    """The most expensive come first; a name from the cluster is text."""
    pods = [its_pod(f"<b>{n}</b>-0", a_notebook(name=f"<b>{n}</b>", uid=f"uid-{n}"), uid=f"uid-{n}") for n in range(10)]
    with a_site(a_workload_desk(*pods)) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            visit.page.wait_for_selector("#kubernetes li")
            text = visit.text("#kubernetes")

            assert "and 2 more workloads: gpuwatch status" in text
            assert "and 2 more: gpuwatch status" in text
            assert "Notebook team-a/<b>0</b>" in text
            assert visit.page.locator("#kubernetes b").count() == 0


def test_an_api_server_in_trouble_comes_first_and_without_a_cluster_there_is_no_card(browser: Browser) -> None:
    """Nothing of such a cluster is stopped, and the page says why."""
    desk = a_workload_desk()
    desk.cluster.trouble = "The API server of cluster prod has been silent for 2m."
    with a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            visit.page.wait_for_selector("#kubernetes li")
            assert visit.text("#kubernetes").startswith("None of its nodes is stopped: The API server of cluster prod")
    alone = Desk()
    alone.fleet.put(replace(a_node("i-1"), name="one"))
    with a_site(alone) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            visit.page.wait_for_selector("#rows tr")
            assert visit.page.is_hidden("#kubernetes-card")


def test_a_workload_that_somebody_keeps_says_who_until_when_and_why(browser: Browser) -> None:
    """An order of the ledger; the next round shows it."""
    desk = a_workload_desk()
    now = desk.clock.now()
    desk.ledger.snooze(ALICE, "ann@desk", "a demo on Friday", now, now + timedelta(hours=4))
    with a_site(desk) as site:
        site.round()
        with a_visit(browser, site.url) as visit:
            visit.page.wait_for_selector("#kubernetes li")
            text = visit.text("#kubernetes")

            assert "Notebook team-a/alice kept until " in text
            assert " by ann@desk" in text
            assert "Reason: a demo on Friday" in text
            assert visit.run(NAMELESS) == []
