"""Agents that answer slowly, or not at all, have their turn like all others (P19): nobody is left out for ever."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.controller.observe.agent_errors import kind_of
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.fleet import Fleet, Node, NodeReport
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.nightly import examples

PATIENCE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played(ScrapeSource):
    """A source whose agents are played: each takes its own time, on a clock that so many of them share."""

    seconds_of: dict[str, float] = field(default_factory=dict)

    async def _ask_all(
        self, nodes: Sequence[Node], credentials: object, nonce: str | None, seconds: float
    ) -> list[NodeReport]:
        """Ask so many at the same time, in this order, until the time is over."""
        del credentials, nonce
        await asyncio.sleep(0)
        begun = self.clock.monotonic()
        free = [begun] * self.settings.concurrency
        found: list[NodeReport] = []
        for node in nodes:
            worker = min(range(len(free)), key=free.__getitem__)
            at = free[worker]
            if at > begun + seconds:
                found.append(NodeReport(failure="there was no time to ask its agent in this round"))
                continue
            self._asked[node.id] = at
            free[worker] += min(self.seconds_of[node.id], PATIENCE)
            if self.seconds_of[node.id] > PATIENCE:
                self._silent[node.id] = at
                found.append(NodeReport(failure="its agent did not answer within 5s"))
            else:
                self._silent.pop(node.id, None)
                verdict = a_verdict(node.id, at=NOW + timedelta(seconds=at))
                found.append(NodeReport(verdict=verdict, received_at=self.clock.now()))
        return found


def a_source(seconds_of: dict[str, float], clock: ManualClock | None = None, **other: object) -> Played:
    """A source of agents that take so long."""
    made = ObserveSettings(targets=dict.fromkeys(seconds_of, "http://127.0.0.1:1"))
    source = Played(settings=made, clock=clock or ManualClock(wall=NOW), max_age_seconds=30.0, seconds_of=seconds_of)
    return replace(source, **other) if other else source  # type: ignore[arg-type]


def rounds(source: Played, count: int) -> list[Fleet]:
    """So many rounds, a minute apart."""
    nodes, found = [a_node(name, signal=NodeReport()) for name in source.seconds_of], list[Fleet]()
    for _ in range(count):
        found.append(source.observe(nodes))
        assert isinstance(source.clock, ManualClock)
        source.clock.advance(60.0)
    return found


def heard(fleets: Sequence[Fleet]) -> set[str]:
    """The nodes of which at least one of the rounds has a verdict."""
    return {node.id for fleet in fleets for node in fleet.nodes if node.verdict is not None}


def unasked(fleet: Fleet) -> list[Node]:
    """The nodes that a round had no time for."""
    return [node for node in fleet.nodes if "no time to ask" in (node.signal.failure or "")]


def test_a_thousand_agents_that_take_two_seconds_are_heard_within_two_rounds() -> None:
    """Also where a tenth of them never answers; and in each two rounds that follow."""
    seconds = {f"i-{n}": 2.0 for n in range(1000)}
    assert heard(rounds(a_source(seconds), 2)) == set(seconds)

    seconds |= {f"i-{n}": 99.0 for n in range(0, 1000, 10)}
    answering = {name for name, taken in seconds.items() if taken < PATIENCE}
    found = rounds(a_source(seconds), 6)
    for first in range(5):
        assert heard(found[first : first + 2]) == answering


def test_seven_thousand_agents_at_two_hundred_milliseconds_fit_one_round() -> None:
    """As a site asks them over a wide network."""
    seconds = {f"i-{n}": 0.2 for n in range(7000)}

    assert unasked(rounds(a_source(seconds), 1)[0]) == []


@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(st.sampled_from([0.1, 1.0, 4.9, 99.0]), min_size=1, max_size=120),
    st.integers(1, 8),
)
def test_everybody_is_asked_in_turn(taken: list[float], at_once: int) -> None:
    """However slow and silent they are, whoever had no turn comes before those of its kind that had one."""
    seconds = {f"i-{n:03}": each for n, each in enumerate(taken)}
    source = a_source(seconds)
    source = replace(source, settings=replace(source.settings, concurrency=at_once))
    asked_in, rest = set[str](), [a_node(name, signal=NodeReport()) for name in seconds]
    for _ in range(60):
        before = dict(source._asked)
        fleet = source.observe(rest)
        asked_now = {name for name, at in source._asked.items() if before.get(name) != at}
        assert asked_now | {node.id for node in unasked(fleet)} == set(seconds)
        asked_in |= asked_now
        assert isinstance(source.clock, ManualClock)
        source.clock.advance(60.0)

    assert asked_in == set(seconds), "nobody is left out for ever"


@pytest.mark.parametrize(("taken", "says"), [(4.9, "the others answered"), (99.0, "others did not answer")])
def test_the_reason_tells_slow_agents_from_silent_ones(taken: float, says: str) -> None:
    """It is never said that others did not answer where all did."""
    fleet = rounds(a_source({f"i-{n}": taken for n in range(2000)}), 1)[0]
    left = unasked(fleet)
    asked = [node for node in fleet.nodes if node not in left]

    assert left
    assert all(says in (node.signal.failure or "") for node in left)
    kinds = {kind.word for kind in (kind_of(node.signal.failure) for node in left) if kind is not None}
    assert kinds == {"not-asked"}
    assert not any("no time" in (node.signal.failure or "") for node in asked)


def test_restarts_favour_nobody() -> None:
    """A controller that restarts before each round asks others first each time."""
    seconds, found = {f"i-{n}": 4.9 for n in range(2000)}, list[Fleet]()
    for start in range(6):
        clock = ManualClock(wall=NOW + timedelta(minutes=start))
        found += rounds(a_source(seconds, clock), 1)

    assert len(heard(found)) > 1900
