"""An operator keeps a workload of the cluster over the API, as a machine, and lets it go."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders.served_page import Answer, Site, a_site, known, with_users
from tests.support.builders.two_clusters import alice, two_clusters
from tests.support.builders.workload_desk import a_workload_desk
from tests.support.builders.workloads import ALICE

ALICES = "team-a/notebook/alice"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A page with an operator; Alice's notebook has had its notice."""
    with a_site(a_workload_desk(), with_users(tmp_path, "ann")) as site:
        site.round()
        yield site


def order(site: Site, method: str, name: str = ALICES, user: str = "ann", body: object = None) -> Answer:
    """What a program sends."""
    sent = {"Authorization": known(user), "X_Gpuwatch": "act", "Content_Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    return site.ask(f"/api/v1/workloads/{name}/snooze", method, content, **sent)


def row_of(site: Site) -> dict[str, object]:
    """The one workload, as the page gets it."""
    (row,) = site.ask("/api/v1/fleet", Authorization=known("ann")).json["workloads"]
    return row  # type: ignore[no-any-return]  # JSON


def test_an_operator_keeps_a_workload_and_lets_it_go(site: Site) -> None:
    """From the next round on its notice is withdrawn, and its row says who keeps it; taken back, it is as before."""
    made = order(site, "POST", body={"seconds": 7200, "reason": "a demo"})
    site.round()
    withdrawn = row_of(site)
    site.round()
    kept = row_of(site)
    ended = order(site, "DELETE")
    site.round()
    after = row_of(site)

    assert (made.status, made.json["node_id"], made.json["who"]) == (201, ALICE, "ann@127.0.0.1")
    assert (made.json["until"], made.json["reason"]) == ("2026-03-02T14:01:00Z", "a demo")
    assert (withdrawn["action"], kept["action"], kept["ends_at"]) == ("withdraw", "hold", None)
    assert kept["snooze"] == made.json
    assert (ended.status, after["snooze"], after["action"]) == (200, None, "notice")


@pytest.mark.parametrize(
    ("name", "seconds", "user", "status", "words"),
    [
        (ALICES, 8 * 86400, "ann", 400, "a workload in pool default is kept for 7d at most (max_snooze)"),
        (ALICES, 3600, "bob", 403, "bob is not one of controller.operators"),
        ("team-a/notebook/bob", 3600, "ann", 404, "There are: team-a/notebook/alice."),
        (ALICES, None, "ann", 400, "seconds"),
    ],
)
def test_a_workload_is_kept_within_the_cap_of_its_pool_and_by_operators(
    site: Site, name: str, seconds: float | None, user: str, status: int, words: str
) -> None:
    """Not for longer than max_snooze, not by others, and only one that is there."""
    made = order(site, "POST", name, user, {"seconds": seconds})

    assert made.status == status
    assert words in made.json["error"]
    assert site.desk.ledger.view(site.desk.clock.now()).snoozes == ()


def test_of_two_clusters_the_path_says_which(tmp_path: Path) -> None:
    """Without a cluster it is told which there are, and nothing is kept; the namesake goes on."""
    desk = two_clusters()
    desk.cluster.bind("node-1", alice("prod"))
    desk.other.bind("node-1", alice("research"))
    with a_site(desk, with_users(tmp_path, "ann")) as site:
        site.round()
        body = {"seconds": 3600, "reason": "a demo"}
        unclear = order(site, "POST", body=body)
        made = order(site, "POST", f"research/{ALICES}", body=body)
        kept = [each.node_id for each in desk.ledger.view(desk.clock.now()).snoozes]
        gone = order(site, "POST", f"elsewhere/{ALICES}", body=body)
        ended = order(site, "DELETE", f"research/{ALICES}")

    assert (unclear.status, gone.status) == (404, 404)
    assert f"Say which: prod/{ALICES}, research/{ALICES}." in unclear.json["error"]
    assert (made.status, made.json["node_id"]) == (201, "kube:research/team-a/Notebook/alice")
    assert kept == ["kube:research/team-a/Notebook/alice"]
    assert ended.status == 200
    assert desk.ledger.view(desk.clock.now()).snoozes == ()


def test_what_is_not_there_cannot_be_let_go(site: Site) -> None:
    """The names of those that are there are told."""
    answer = order(site, "DELETE", "team-a/job/x")

    assert answer.status == 404
    assert "There are: team-a/notebook/alice." in answer.json["error"]
