"""An operator's approval over the API: for the notice that was looked at, by who may act, written down; and told."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.orders import Approval
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.builders.served_page import Answer, Site, a_site, known, with_users


def a_desk(*, approval: bool = True) -> Desk:
    """An idle machine, and one at work, of a pool that wants approvals."""
    desk = Desk(rules=replace(RULES, approval=approval))
    desk.fleet.put(a_node("i-1"))
    desk.fleet.put(a_node("i-2", State.BUSY, 60.0))
    return desk


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A page with an operator; i-1 has had its notice a minute ago."""
    with a_site(a_desk(), with_users(tmp_path, "ann")) as site:
        site.round()
        yield site


def approve(site: Site, node: str = "i-1", user: str = "ann", **order: object) -> Answer:
    """What the page sends."""
    sent = {"Authorization": known(user), "X_Gpuwatch": "act", "Content_Type": "application/json"}
    return site.ask(f"/api/v1/nodes/{node}/approve", "POST", json.dumps(order).encode(), **sent)


def given(site: Site) -> tuple[Approval, ...]:
    """What the next round will see."""
    return site.desk.ledger.view(site.desk.clock.now()).approvals


AT = "2026-03-02T12:21:00Z"


def row_of(site: Site, node: str = "i-1") -> dict[str, object]:
    """A node of the fleet as its last round saw it: its approval and what comes next."""
    rows = site.ask("/api/v1/fleet", Authorization=known("ann")).json["nodes"]
    row = next(each for each in rows if each["id"] == node)
    return {"approval": row["approval"], "next": row["next"]}


def test_a_node_waits_until_an_operator_approves_and_then_goes(site: Site) -> None:
    """It is told so before its time and after, and what was said by whom; nothing is stopped without it."""
    site.round()
    early = row_of(site)
    for _ in range(20):
        site.round()
    late, stopped = row_of(site), site.desk.fleet.stops()
    site.desk.fleet.show("i-1", State.IDLE, 3 * 3600.0)  # it has been idle ever since
    answer = approve(site, reason="seen")
    now = site.ask("/api/v1/nodes/i-1", Authorization=known("ann")).json["approval"]
    site.round()

    [notice] = [each["notice"] for each in (early["approval"],) if isinstance(each, dict)]
    waits = {"notice": notice, "who": None, "at": None, "reason": ""}
    assert early == {
        "approval": waits,
        "next": {
            "verb": "stop",
            "at": "2026-03-02T12:10:00Z",
            "removal_at": "2026-03-02T12:10:00Z",
            "removal": None,
            "refused_by": ["approval"],
        },
    }
    assert (late["approval"], stopped) == (waits, [])
    assert late["next"] == {"verb": "stop", "at": AT, "removal_at": None, "removal": None, "refused_by": ["approval"]}
    assert (answer.status, answer.json["who"], answer.json["key"]) == (201, "ann@127.0.0.1", notice)
    assert now == {"notice": notice, "who": "ann@127.0.0.1", "at": "2026-03-02T12:22:00Z", "reason": "seen"}
    assert site.desk.fleet.stops() == ["i-1"]
    assert site.desk.ledger.audit().broken is None


def test_a_stop_is_told_with_its_time_its_reason_and_who_approved_it(site: Site) -> None:
    """Beside the node and in the list of what was done; the decision's sentence says the same in words."""
    for _ in range(21):
        site.round()
    site.desk.fleet.show("i-1", State.IDLE, 3 * 3600.0)
    approve(site)
    site.round()
    site.round()
    page = site.ask("/api/v1/fleet", Authorization=known("ann")).json
    row = next(each for each in page["nodes"] if each["id"] == "i-1")
    done = next(each for each in page["actions"] if each["verb"] == "stop")

    why = "idle for 3h, notice of 10m had run out"
    assert row["stopped"] == {
        "by": "gpuwatch",
        "at": done["at"],
        "why": why,
        "approved_by": "ann@127.0.0.1",
        "still_billed": None,
    }
    assert row["why"] == f"gpuwatch stopped it at 2026-03-02 12:23 UTC: {why}; ann@127.0.0.1 approved it."
    assert (done["status"], done["who"], done["approved_by"]) == ("settled", "gpuwatch", "ann@127.0.0.1")
    assert done["why"].startswith("It has been idle for 3h. The notice of ")


def test_a_stop_by_somebody_else_is_not_told_as_ours(site: Site) -> None:
    """The ledger holds no stop of it: the row and the sentence say that it was not gpuwatch."""
    site.desk.fleet.put(replace(site.desk.fleet.nodes_["i-2"], state=NodeState.STOPPED, signal=NodeReport()))
    site.round()
    rows = site.ask("/api/v1/fleet", Authorization=known("ann")).json["nodes"]
    row = next(each for each in rows if each["id"] == "i-2")

    assert row["stopped"] == {"by": None, "at": None, "why": None, "approved_by": None, "still_billed": None}
    assert row["why"] == "It is stopped. gpuwatch has no stop of it on record."


def test_what_needs_no_approval_says_so(site: Site) -> None:
    """A machine at work has no notice; the pool's own line says that it asks."""
    pool = site.ask("/api/v1/pools", Authorization=known("ann")).json["pools"][0]

    assert row_of(site, "i-2")["approval"] is None
    assert pool["rule"] == "cautious: stop after 30m idle, with 10m notice and an approval"


def test_an_approval_is_of_the_notice_that_was_looked_at(site: Site) -> None:
    """Whoever looked at an earlier one has seen another idleness; what is in force may be approved once."""
    old = site.desk.ledger.view(site.desk.clock.now()).notices[0].key
    site.desk.fleet.show("i-1", State.OCCUPIED)
    site.round()
    site.desk.fleet.show("i-1", State.IDLE, 7200.0)
    site.round()
    stale = approve(site, notice=old)
    none = given(site)
    right = approve(site, notice=site.desk.ledger.view(site.desk.clock.now()).notices[0].key)
    again = approve(site)

    assert (stale.status, none) == (409, ())
    assert "look again" in stale.json["error"]
    assert (right.status, again.status, len(given(site))) == (201, 409, 1)
    assert again.json["error"] == "i-1 was approved already, by ann@127.0.0.1"


@pytest.mark.parametrize(
    ("node", "user", "order", "status", "says"),
    [
        ("i-2", "ann", {}, 409, "i-2 has no notice in force"),
        ("i-9", "ann", {}, 404, "saw no node 'i-9'"),
        ("i-1", "bob", {}, 403, "bob is not one of controller.operators"),
        ("i-1", "ann", {"reason": "a\x00b"}, 400, "reason"),
        ("i-1", "ann", {"reason": "x" * 501}, 400, "reason"),
        ("i-1", "ann", {"who": "bob"}, 400, "who"),
    ],
)
def test_what_may_not_be_approved_is_not(
    site: Site, node: str, user: str, order: dict[str, object], status: int, says: str
) -> None:
    """4xx with a sentence, and nothing in the ledger."""
    answer = approve(site, node, user, **order)

    assert (answer.status, given(site)) == (status, ())
    assert says in answer.json["error"]


def test_no_other_site_approves_with_a_browser_s_password(site: Site) -> None:
    """As every act: the header and this page's own origin."""
    sent = {"Authorization": known("ann"), "Content_Type": "application/json"}
    for headers in ({}, {"X_Gpuwatch": "act", "Origin": "https://evil.example"}):
        answer = site.ask("/api/v1/nodes/i-1/approve", "POST", b"{}", **sent, **headers)

        assert (answer.status, given(site)) == (403, ())


def test_where_the_pool_asks_for_none_there_is_nothing_to_approve(tmp_path: Path) -> None:
    """An approval that changes nothing would be believed to have changed something."""
    with a_site(a_desk(approval=False), with_users(tmp_path, "ann")) as site:
        site.round()
        answer = approve(site)

        assert (answer.status, row_of(site)["approval"]) == (409, None)
        assert "pools.default.approval" in answer.json["error"]
