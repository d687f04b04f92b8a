"""The last day by use over the API: slots of the fleet, stretches of a node, gaps where nobody looked, and marks."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeState
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import Site, a_site


@pytest.fixture
def site() -> Iterator[Site]:
    """A busy and an idle machine, an hour of rounds with a gap from 12:20 to 12:40; the idle one is stopped."""
    desk = Desk()
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0, gpu_count=1))
    desk.fleet.put(a_node("i-due", held=7200.0))
    with a_site(desk) as site:
        for minute in range(60):
            if 20 <= minute < 40:
                desk.clock.advance(60.0)
            else:
                site.round()
        yield site


def minutes(text: str) -> float:
    """Of a time, after 12:00."""
    return (datetime.fromisoformat(text).timestamp() - datetime.fromisoformat("2026-03-02T12:00Z").timestamp()) / 60


def test_the_fleet_is_told_in_slots_and_a_time_without_rounds_is_a_gap(site: Site) -> None:
    """The newest slot is what the page's tile says; before the first round, and between 12:20 and 12:40, is nothing."""
    told, fleet = site.ask("/api/v1/timeline").json, site.ask("/api/v1/fleet").json
    slots = told["gpus"]
    newest = dict(zip(told["uses"], slots[-1], strict=True))

    assert (len(slots), told["slot_seconds"], minutes(told["until"])) == (288, 300, 59)
    assert newest == {name: float(number) for name, number in fleet["totals"]["gpus_by_activity"].items()}
    assert [slot is None for slot in slots[-12:]] == [False] * 4 + [True] * 4 + [False] * 4
    assert slots[:-12] == [None] * 276
    assert {mark["verb"]: mark["count"] for mark in told["marks"]} == {"notice": 1, "stop": 1}


def test_a_node_is_told_in_stretches_with_what_was_done_and_why(site: Site) -> None:
    """They follow each other without a hole; the gap has no use; the stop has its reason."""
    told = site.ask("/api/v1/nodes/i-due/timeline?hours=1").json
    stretches = told["stretches"]

    assert [each["use"] for each in stretches] == ["idle", "off", None, "off"]
    assert [minutes(each["begin"]) for each in stretches[2:]] == [20, 40]
    assert all(one["end"] == two["begin"] for one, two in pairwise(stretches))
    assert (stretches[0]["begin"], stretches[-1]["end"]) == (told["since"], told["until"])
    assert [mark["verb"] for mark in told["marks"]] == ["notice", "stop"]
    assert told["marks"][1]["why"].startswith("It has been idle for ")


def test_the_timeline_costs_little_while_nothing_is_new(site: Site) -> None:
    """An ETag that lasts a round."""
    first = site.ask("/api/v1/timeline")
    again = site.ask("/api/v1/timeline", If_None_Match=first.headers["etag"])
    site.round()
    later = site.ask("/api/v1/timeline", If_None_Match=first.headers["etag"])

    assert (first.status, again.status, later.status) == (200, 304, 200)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/api/v1/timeline?hours=0", 400),
        ("/api/v1/timeline?hours=25", 400),
        ("/api/v1/timeline?pool=x", 400),
        ("/api/v1/nodes/nobody/timeline", 404),
    ],
)
def test_what_cannot_be_told_is_refused(site: Site, target: str, status: int) -> None:
    """More than a day is not kept; an unknown node is not found."""
    assert site.ask(target).status == status


def test_a_node_that_nobody_can_tell_is_unknown() -> None:
    """Its cloud gives no answer about it: neither idle nor off, on the tile and in the timeline."""
    desk = Desk()
    desk.fleet.put(replace(a_node("i-1", gpu_count=2), state=NodeState.UNKNOWN, signal=NodeReport()))
    with a_site(desk) as site:
        site.round()
        site.round()
        totals = site.ask("/api/v1/fleet").json["totals"]
        stretches = site.ask("/api/v1/nodes/i-1/timeline").json["stretches"]

    assert (totals["gpus_by_activity"]["unknown"], totals["gpus_by_activity"]["off"]) == (2, 0)
    assert [each["use"] for each in stretches] == [None, "unknown"]
