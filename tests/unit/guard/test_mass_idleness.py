"""Sudden mass idleness: when a pool freezes, what lets it go, and what cannot hide it."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard import Limits, Rulebook, burst, review
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Decision
from gpuwatch.model.fleet import Node, NodeReport
from tests.support.builders.fleet import HOUR, NOW, RULES, Desk, a_node, a_notice, a_verdict, an_observation
from tests.support.builders.past_steps import a_step

LIMITS = Limits()
AN_HOUR_AGO = NOW - timedelta(hours=1)


def turned(count: int, *, held: float = HOUR, spread: float = 1.0, name: str = "t") -> list[Node]:
    """Nodes that turned idle one after the other, the last of them `held` seconds ago."""
    return [a_node(f"i-{name}{n}", held=held + n * spread) for n in range(count)]


def busy(count: int, *, launched_at: datetime | None = None) -> list[Node]:
    """Nodes that work."""
    start = launched_at or NOW - timedelta(days=2)
    return [a_node(f"i-b{n}", State.BUSY, launched_at=start) for n in range(count)]


def test_most_of_a_pool_that_turns_idle_at_once_is_a_burst() -> None:
    """Five of eight nodes within two minutes: named with their number and times."""
    found = burst(an_observation(*turned(5), *busy(3)), "default", LIMITS)

    assert found is not None
    assert (found.count, found.members, found.last) == (5, 8, AN_HOUR_AGO)
    assert found.first == AN_HOUR_AGO - timedelta(seconds=4)


@given(count=st.integers(0, 4), working=st.integers(0, 9))
def test_fewer_than_the_minimum_never_freeze(count: int, working: int) -> None:
    """A small pool may turn idle as a whole: mass_idleness_nodes."""
    assert burst(an_observation(*turned(count), *busy(working)), "default", LIMITS) is None


@given(count=st.integers(5, 20), working=st.integers(0, 40))
def test_the_share_is_of_the_nodes_that_worked_until_then(count: int, working: int) -> None:
    """A burst is at least mass_idleness_ratio of the nodes that could turn idle."""
    found = burst(an_observation(*turned(count), *busy(working)), "default", LIMITS)

    assert (found is not None) is (count >= (count + working) / 2)


@given(gap=st.floats(0.0, 600.0))
def test_the_same_time_is_a_window(gap: float) -> None:
    """Five nodes are no burst where the first and the last turned idle further apart than the window."""
    found = burst(an_observation(*turned(5, spread=gap / 4)), "default", LIMITS)

    assert (found is not None) is (gap / 4 * 4 <= LIMITS.mass_idleness_window)


def test_nodes_idle_for_long_do_not_hide_a_broken_sensor() -> None:
    """Five working nodes that turn idle at once are all of those that worked, however many were idle before."""
    before = turned(20, held=50 * HOUR, spread=1000.0, name="e")

    assert burst(an_observation(*turned(5), *before), "default", LIMITS) is not None


@given(
    count=st.integers(5, 9),
    working=st.integers(0, 9),
    later=st.lists(st.tuples(st.booleans(), st.floats(0, HOUR - 1, exclude_max=True)), max_size=12),
)
def test_nodes_added_later_never_unfreeze(count: int, working: int, later: list[tuple[bool, float]]) -> None:
    """Whoever starts after a burst, busy or idle, makes it no smaller."""
    base = [*turned(count), *busy(working)]
    added = [
        a_node(f"i-n{n}", State.IDLE if idle else State.BUSY, age / 2, launched_at=NOW - timedelta(seconds=age))
        for n, (idle, age) in enumerate(later)
    ]

    if burst(an_observation(*base), "default", LIMITS) is not None:
        assert burst(an_observation(*base, *added), "default", LIMITS) is not None


@given(count=st.integers(5, 9), working=st.integers(1, 9), ages=st.lists(st.floats(0, HOUR - 1), max_size=9))
def test_nodes_that_turn_idle_later_never_unfreeze(count: int, working: int, ages: list[float]) -> None:
    """A burst stays one while the rest of the pool goes to rest as well."""
    rest = busy(working)
    gone = [a_node(node.id, held=age) for node, age in zip(rest, ages, strict=False)]
    after = [*gone, *rest[len(gone) :]]

    if burst(an_observation(*turned(count), *rest), "default", LIMITS) is not None:
        assert burst(an_observation(*turned(count), *after), "default", LIMITS) is not None


def test_a_fleet_idle_from_its_start_does_not_freeze() -> None:
    """Machines that nobody has used since they were launched together have turned nothing."""
    start = NOW - timedelta(hours=2)
    nodes = [replace(node, launched_at=start) for node in turned(9, held=2 * HOUR - 120)]

    assert burst(an_observation(*nodes), "default", LIMITS) is None


def test_nodes_idle_from_their_start_do_not_hide_a_burst_either() -> None:
    """They could not turn idle, so they do not count among those that did not."""
    fresh = [a_node(f"i-f{n}", held=2 * HOUR, launched_at=NOW - timedelta(hours=2)) for n in range(30)]

    assert burst(an_observation(*turned(5), *fresh), "default", LIMITS) is not None


def test_agents_restarted_all_at_once_freeze_their_pool() -> None:
    """An upgrade begins every count of idleness anew at one moment, which looks like a broken sensor."""
    nodes = [a_node(f"i-{n}", held=1800.0) for n in range(8)]

    assert burst(an_observation(*nodes), "default", LIMITS) is not None


@pytest.mark.parametrize("state", [State.OCCUPIED, State.PARKED, State.STALLED])
def test_whatever_does_not_work_counts_like_idle(state: State) -> None:
    """A sensor that reads zero makes nodes look occupied or parked, one that misses power and memory stalled."""
    nodes = [a_node(f"i-{n}", state, HOUR) for n in range(8)]
    mixed = [a_node(f"i-{n}", (state, State.IDLE)[n % 2], HOUR) for n in range(8)]

    assert burst(an_observation(*nodes), "default", LIMITS) is not None
    assert burst(an_observation(*mixed), "default", LIMITS) is not None


def test_a_state_without_a_time_is_no_burst() -> None:
    """Prometheus has no duration of occupied and parked nodes: they do not turn so in every round anew."""
    nodes = []
    for number in range(8):
        verdict = a_verdict(f"i-{number}", State.OCCUPIED, 0.0)
        verdict = replace(verdict, activity=replace(verdict.activity, since=None))
        nodes.append(a_node(f"i-{number}", signal=NodeReport(verdict=verdict)))

    assert burst(an_observation(*nodes), "default", LIMITS) is None


@pytest.mark.parametrize(("held", "since"), [(HOUR, None), (0.0, NOW)])
def test_a_duration_or_a_time_is_enough(held: float, since: datetime | None) -> None:
    """Prometheus knows how long a node has been idle and not since when; one that turns idle now has 0 s."""
    nodes = []
    for number in range(8):
        verdict = a_verdict(f"i-{number}", State.IDLE, held)
        verdict = replace(verdict, activity=replace(verdict.activity, since=since))
        nodes.append(a_node(f"i-{number}", signal=NodeReport(verdict=verdict)))

    assert burst(an_observation(*nodes), "default", LIMITS) is not None


def test_machines_that_nobody_enrolled_make_no_burst() -> None:
    """Foreign nodes neither freeze a pool nor hide that it froze."""
    foreign = [replace(node, enrolled=False) for node in turned(9, name="f")]

    assert burst(an_observation(*foreign), "default", LIMITS) is None
    assert burst(an_observation(*turned(5), *foreign), "default", LIMITS) is not None


def test_an_acknowledgement_is_of_what_was_before_it_and_nothing_after() -> None:
    """`gpuwatch acknowledge`, for the pool or for all, ends the freeze of earlier bursts; another pool's does not."""
    nodes = turned(6)
    after, before = NOW - timedelta(minutes=50), NOW - timedelta(minutes=70)

    def frozen(*known: tuple[str | None, datetime]) -> bool:
        return burst(an_observation(*nodes, acknowledged=known), "default", LIMITS) is not None

    assert not frozen(("default", after))
    assert not frozen((None, after))
    assert frozen(("other", after))
    assert frozen(("default", before))
    assert not frozen(("default", before), (None, after))
    last = NOW - timedelta(hours=1)
    assert frozen(("default", last)), "at that moment nobody could have seen it"
    assert not frozen(("default", last + timedelta(seconds=1)))
    assert burst(an_observation(*nodes, resumed=((None, after),)), "default", LIMITS) is not None, "no pause says so"


def stops_at(seconds_after: float, *, after: float) -> list[bool]:
    """Whether stops pass so long after six nodes turned idle at once, in a pool that waits for `timeout`."""
    nodes = turned(6, held=seconds_after, spread=0.0)
    rules = replace(RULES, idle=replace(RULES.idle, timeout=after))
    observation = an_observation(*nodes, notices=tuple(a_notice(node.id) for node in nodes))
    decision = Decision(pool="default", steps=tuple(a_step(node.id) for node in nodes[:2]))
    return [each.allowed for each in review(observation, [decision], Rulebook(pools={"default": rules}, enforce=True))]


def test_people_have_their_time_after_a_pause() -> None:
    """A pause that outlasts the freeze does not use it up: it begins when notices are given again."""

    def allowed(*resumed: tuple[str | None, datetime]) -> bool:
        nodes = turned(8, held=9 * HOUR, spread=0.0)
        observation = an_observation(*nodes, notices=tuple(a_notice(node.id) for node in nodes), resumed=resumed)
        decision = Decision(pool="default", steps=(a_step(nodes[0].id),))
        (found,) = review(observation, [decision], Rulebook(pools={"default": RULES}, enforce=True))
        return found.allowed

    assert allowed()
    assert allowed(("other", NOW))
    assert not allowed((None, NOW))
    assert not allowed(("default", NOW - timedelta(seconds=3599)))
    assert allowed(("default", NOW - timedelta(hours=1)))


def test_resuming_acknowledges_nothing() -> None:
    """Everything turns idle during a pause: nothing is stopped after `resume` until somebody says that it is true."""
    desk = Desk(limits=replace(LIMITS, max_stops_per_hour_ratio=1.0))
    for number in range(8):
        desk.fleet.put(a_node(f"i-{number}", State.BUSY))
    desk.round()
    desk.ledger.pause(None, "ann", "maintenance", desk.clock.now())
    for node_id in list(desk.fleet.nodes_):
        desk.fleet.show(node_id, State.IDLE, 0.0)
    for _ in range(3 * 60):
        desk.round()
    desk.ledger.resume(None, "ann", desk.clock.now())
    for _ in range(59):
        desk.round()
    assert desk.fleet.calls == []

    desk.ledger.acknowledge("default", "ann", "the course is over", desk.clock.now())
    for _ in range(30):
        desk.round()
    assert desk.fleet.stops()


def test_the_freeze_begins_when_the_first_could_have_its_notice() -> None:
    """With a wait of six hours a freeze that began with the burst would be over before anything could happen."""
    assert stops_at(6 * HOUR, after=6 * HOUR) == [False, False]
    assert stops_at(7 * HOUR - 1, after=6 * HOUR) == [False, False]
    assert stops_at(7 * HOUR, after=6 * HOUR) == [True, True]
