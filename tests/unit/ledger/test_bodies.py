"""Rounds of a Kubernetes cluster: what has not changed is kept once an hour, and every round reads back whole."""

import random
import string
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.ledger.snapshots import CHANGES, PIECES
from gpuwatch.model.decision import Observation, Reason, Verb
from gpuwatch.model.kubernetes import KubernetesNode
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.nightly import examples
from tests.support.real.postgresql import Place, postgresql

MINUTE = timedelta(minutes=1)
START = NOW.replace(minute=0)
KEEP = {"quiet_round_retention": 3600.0, "retention": 86400.0}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty ledger in each database."""
    here = LedgerSettings(path=str(tmp_path / "ledger.db"), **KEEP)  # type: ignore[arg-type]
    made = Place(here if request.param == "sqlite" else LedgerSettings(url=postgresql().database(), **KEEP))  # type: ignore[arg-type]
    yield made
    made.close()


def a_member(number: int, pod: str = "work") -> KubernetesNode:
    """A node with a pod of that name."""
    return shown_node(f"gpu-{number}", f"i-{number}", shown_pod(pod, f"gpu-{number}", gpus=8.0))


def seen(minute: float, *members: KubernetesNode | None) -> Observation:
    """A round: machines that are these nodes, or none; and one node object that is no machine."""
    machines = [
        replace(a_node(f"i-{number}"), kubernetes=known) for number, known in enumerate(members) if known is not None
    ]
    machines += [a_node(f"i-{number}") for number, known in enumerate(members) if known is None]
    at = START + minute * MINUTE
    view = shown_cluster(*filter(None, members), shown_node("other"))
    nodes = tuple(sorted(view.nodes, key=lambda node: node.name))
    observation = an_observation(*machines, now=at)
    return replace(observation, fleet=replace(observation.fleet, cluster=replace(view, nodes=nodes)))


def codecs(place: Place) -> list[tuple[int, int | None]]:
    """How each round is written, and on which it rests."""
    return [(codec, base) for codec, base in place.execute("SELECT codec, base FROM bodies ORDER BY round_id")]


def test_what_has_not_changed_is_kept_once_and_reads_back(place: Place) -> None:
    """A pod that came, a machine that is no node any more, one that is new: all of it is there again."""
    ledger = place.open()
    members = [a_member(number) for number in range(8)]
    stories = [
        seen(0, *members),
        seen(1, *members),
        seen(2, *members[:7], a_member(7, "another")),
        seen(3, *members[:7], None),
        seen(4, *members, a_member(8)),
    ]
    numbers = [ledger.record_round(each) for each in stories]

    assert codecs(place) == [(PIECES, None)] + 4 * [(CHANGES, numbers[0])]
    assert [ledger.observation(number) for number in numbers] == stories
    assert ledger.audit().broken is None


def test_a_body_of_megabytes_is_written_into_its_place_and_reads_back(place: Place) -> None:
    """SQLite would copy it twice on its way into the row: at 100,000 machines that were 150 MB of memory."""
    ledger = place.open()
    noise = "".join(random.Random(1).choices(string.printable, k=3 << 20))
    large = an_observation(replace(a_node("i-1"), tags={"noise": noise}), now=START)
    stories = [seen(-1, a_member(1)), large, replace(large, now=START + MINUTE)]
    numbers = [ledger.record_round(each) for each in stories]

    assert [ledger.observation(number) for number in numbers] == stories
    assert ledger.audit().broken is None


def test_a_whole_body_begins_each_hour_each_start_and_after_a_great_change(place: Place) -> None:
    """What a later one rests on is never of another process, nor of another hour."""
    ledger = place.open()
    members = [a_member(number) for number in range(4)]
    ledger.record_round(seen(58, *members))
    ledger.record_round(seen(59, *members))
    ledger.record_round(seen(60, *members))
    ledger.record_round(seen(61, *[a_member(number, "new") for number in range(4)]))
    place.close()
    again = place.open()
    last = again.record_round(seen(62, *members))

    assert [codec for codec, _ in codecs(place)] == [PIECES, CHANGES, PIECES, PIECES, PIECES]
    assert again.observation(last) == seen(62, *members)


def test_a_round_without_a_cluster_is_whole(place: Place) -> None:
    """As ever."""
    ledger = place.open()
    for minute in (0, 1):
        ledger.record_round(an_observation(a_node("i-1"), now=START + minute * MINUTE))

    assert codecs(place) == [(PIECES, None)] * 2


def test_a_body_stays_while_others_rest_on_it(place: Place) -> None:
    """Compaction drops the quiet rounds, and no round that is left can no longer be read."""
    ledger = place.open()
    members = [a_member(number) for number in range(4)]
    ledger.record_round(seen(-10, *members))  # the first of its hour is kept, and none rests on it
    reason = Reason(code="x", sentence="A test.")
    rounds = [ledger.record_round(seen(minute, *members)) for minute in range(0, 50, 10)]
    ledger.intend(Verb.NOTICE, "i-1", "default", START, reason, rounds[-1])
    for hours, left in ((2, [rounds[0], rounds[-1]]), (25, [])):
        for _ in range(5):
            ledger.compact(START + timedelta(hours=hours))
        whole = [number for number, _ in ledger.whole_rounds(None, START + timedelta(days=2)) if number in rounds]
        assert whole == left
        assert all(ledger.observation(number).fleet.cluster is not None for number in whole)
    assert ledger.audit().broken is None


def test_a_round_whose_base_is_gone_says_so(place: Place) -> None:
    """Somebody deleted it: the sentence names both, and what is written next is whole."""
    ledger = place.open()
    members = [a_member(number) for number in range(4)]
    first, second = (ledger.record_round(seen(minute, *members)) for minute in (0, 1))
    place.execute(f"DELETE FROM bodies WHERE round_id = {first}")  # noqa: S608  a number
    with pytest.raises(LedgerError, match=f"round {first}, on which later ones rest, is gone"):
        ledger.round(second)
    third = ledger.record_round(seen(2, *members))

    assert ledger.observation(third) == seen(2, *members)


@given(
    story=st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 20.0]), st.lists(st.sampled_from("aab-"), min_size=4, max_size=6)),
        min_size=2,
        max_size=8,
    )
)
@settings(max_examples=examples(30), deadline=None)
def test_every_round_of_any_life_reads_back(story: list[tuple[float, list[str]]]) -> None:
    """Pods change, nodes come and go, hours pass: each round is as it was seen."""
    ledger, minute, told = Ledger.in_memory(), 0.0, {}
    for step, pods in story:
        minute += step
        observation = seen(minute, *(None if pod == "-" else a_member(number, pod) for number, pod in enumerate(pods)))
        told[ledger.record_round(observation)] = observation

    assert {number: ledger.observation(number) for number in reversed(told)} == told
    ledger.close()
