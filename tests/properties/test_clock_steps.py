"""The wall clock is set while the controller runs: no wait becomes shorter, and no limit forgets (P18, P4)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.clock_steps import ClockSteps
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Done, LedgerView, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.promise import Notice
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.nightly import by_night

DAY = 86400.0
SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=3600.0))
STEPS = [-DAY, -3600.0, -40.0, 40.0, 3600.0, DAY, 30 * DAY]


def between_rounds(step: float) -> float:
    """Seconds: a minute, and ten where a day must pass until the clock is where it was."""
    return 600.0 if step == -DAY else 60.0


def a_desk(*names: str, limits: Limits) -> Desk:
    """Idle machines, whose owners have an hour from the notice."""
    desk = Desk(rules=SOON, limits=limits)
    for name in names:
        desk.fleet.put(a_node(name, held=0.0))
    return desk


@pytest.mark.parametrize("step", STEPS)
def test_a_grace_period_is_as_long_as_was_said(step: float) -> None:
    """An hour on the clock that does not jump lies between the notice and the stop, whatever the other one shows."""
    desk = a_desk("i-1", limits=Limits(max_stops_per_hour_ratio=1.0))
    for _ in range(10):
        desk.round()
    assert desk.ledger.view(desk.clock.now()).notice("i-1") is not None
    noticed = desk.clock.monotonic() - 5 * 60.0
    desk.clock.jump(step)
    longest = 3 * 3600.0 + max(0.0, -step)  # the owner was told a time: a clock that is set back reaches it later
    while desk.fleet.nodes_["i-1"].state is NodeState.RUNNING and desk.clock.monotonic() < noticed + longest:
        desk.round(between_rounds(step))

    assert desk.fleet.nodes_["i-1"].state is not NodeState.RUNNING, "it goes, all the same"
    assert desk.clock.monotonic() - noticed >= 3600.0


@pytest.mark.parametrize("step", [*STEPS[::3], *by_night(*STEPS[1::3], *STEPS[2::3])])
def test_the_hours_stops_are_not_forgotten(step: float) -> None:
    """One stop an hour: the clock is set after the first one, and the second one waits for its hour."""
    desk = a_desk("i-1", "i-2", limits=Limits(max_stops_per_hour=1, max_stops_per_hour_ratio=1.0))
    times: list[float] = []
    desk.fleet.watch_stop = lambda _node, _key: times.append(desk.clock.monotonic())
    while not times:
        desk.round()
    desk.clock.jump(step)
    later = max(0.0, -step)  # its owner was told a time, which a clock that is set back reaches later
    for _ in range(int((130 * 60.0 + later) / between_rounds(step))):
        desk.round(between_rounds(step))

    assert len(times) == 2
    assert 3600.0 <= times[1] - times[0] <= 2 * 3600.0 + later


@pytest.mark.parametrize("step", STEPS)
def test_a_pause_and_a_keep_last_as_long_as_was_said(step: float) -> None:
    """Each is for two hours from now; a clock that is set forward ends neither."""
    desk = a_desk("i-1", "i-2", limits=Limits(max_stops_per_hour_ratio=1.0))
    desk.round()
    now = desk.clock.now()
    desk.ledger.snooze("i-1", "ann", "", now, now + timedelta(hours=2))
    desk.ledger.pause("default", "ann", "", now, now + timedelta(hours=2))
    desk.round()
    desk.clock.jump(step)
    for _ in range(60):
        done = desk.round()

    assert [pause.pool for pause in done.observation.ledger.pauses] == ["default"]
    assert [keep.node_id for keep in done.observation.ledger.snoozes] == ["i-1"]
    assert desk.fleet.calls == []


@pytest.mark.parametrize("step", STEPS)
def test_the_ledger_is_whole_when_the_clock_comes_back(step: float) -> None:
    """Its newest round is the one that was written last, whatever time that bears."""
    desk = a_desk("i-1", limits=Limits())
    for jump in (0.0, step, -step):
        desk.clock.jump(jump)
        for _ in range(3):
            desk.round()
        assert desk.ledger.audit().broken is None


@given(
    pieces=st.lists(st.tuples(st.floats(1.0, 4000.0), st.floats(-DAY, DAY)), min_size=1, max_size=8),
    place=st.integers(0, 8),
    looks=st.integers(1, 4),
)
def test_a_record_never_looks_older_than_it_is(pieces: list[tuple[float, float]], place: int, looks: int) -> None:
    """Time passes and the clock is set, in turns: whenever it was written down, its age is at least not overstated."""
    clock, steps = ManualClock(wall=NOW), ClockSteps()
    written = wall = None
    for number, (seconds, jump) in enumerate(pieces):
        for _ in range(looks):
            steps.note_steps(clock)
            clock.advance(seconds / looks)
        if number == min(place, len(pieces) - 1):
            written, wall = clock.monotonic(), clock.now()
        clock.jump(jump)
    clock.advance(60.0)
    steps.note_steps(clock)
    assert written is not None
    assert wall is not None
    done = Done(key="k", verb=Verb.STOP, node_id="i", pool="p", status=Status.SETTLED, at=wall, reached_at=wall)
    view = LedgerView(recent=(done,), notices=(Notice(node_id="i", key="k", at=wall),))
    seen, age = steps.by_present_clock(view, clock.now()), clock.monotonic() - written
    rows = [seen.recent[0].at, seen.recent[0].reached_at or clock.now(), seen.notices[0].at]

    assert all((clock.now() - at).total_seconds() <= age + 2.1 for at in rows)


def test_a_clock_that_goes_as_it_should_changes_nothing() -> None:
    """No step: the very same view."""
    clock, steps, view = ManualClock(wall=NOW), ClockSteps(), LedgerView()
    for _ in range(5):
        steps.note_steps(clock)
        clock.advance(60.0)

    assert steps.by_present_clock(view, clock.now()) is view
    assert steps.back_seconds == 0.0


def test_the_spans_do_not_pile_up() -> None:
    """A clock that is set in every round for weeks."""
    clock, steps = ManualClock(wall=NOW), ClockSteps()
    for number in range(1000):
        clock.jump(7.0 if number % 2 else -7.0)
        clock.advance(60.0)
        steps.note_steps(clock)

    assert len(steps._spans) <= 66


def test_a_restart_of_its_owner_is_known_whatever_our_clock_shows() -> None:
    """The cloud's launch times are compared with each other, and with nothing of ours."""
    rules = PoolRules(
        warm_up=0.0,
        idle=IdleRules(timeout=300.0, grace_period=60.0, terminate_after=7200.0, terminate_grace_period=60.0),
    )
    desk = Desk(rules=rules, limits=Limits(max_stops_per_hour_ratio=1.0))
    desk.fleet.put(a_node("i-1", held=0.0))
    while desk.fleet.nodes_["i-1"].state is NodeState.RUNNING:
        desk.round()
    desk.round()
    true = desk.clock.now()
    desk.clock.jump(DAY)
    desk.round()
    desk.fleet.start("i-1", "owner")
    node = desk.fleet.nodes_["i-1"]
    desk.fleet.put(replace(node, launched_at=true, state=NodeState.STOPPED))
    for _ in range(300):
        desk.round()

    assert desk.fleet.nodes_["i-1"].state is NodeState.STOPPED
