"""agent/activity/loops.py: what begins again and again and does nothing occupies a machine all the time."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.agent.activity.loops import hold_loop
from gpuwatch.agent.activity.memory import Judgement, Loop
from gpuwatch.model.activity import Activity, Evidence, State
from tests.support.builders.gpu import GIB, a_busy_reading, a_process, a_reading, a_sample

STRENGTH = {State.IDLE: 0, State.OCCUPIED: 1, State.PARKED: 2}
HELD = a_reading(memory_used_bytes=GIB, processes=(a_process(8),))


def alive(says: State = State.OCCUPIED) -> Evidence:
    """What the signal of programs says."""
    return Evidence(
        name="processes", says=says, observed=1.0, limit=1.0, unit="programs", source="/proc", note="crashd"
    )


def sample(seconds: float, state: State) -> Sample:
    """One in which the node has that state by itself."""
    reading = a_busy_reading() if state is State.BUSY else HELD if state is State.PARKED else a_reading()
    host = (alive(),) if state is State.OCCUPIED else ()
    doubt = "nothing could be read" if state is State.UNKNOWN else None
    return replace(a_sample(seconds, reading), host=host, doubt=doubt)


def activity(states: Iterable[State], step: float = 10.0) -> Activity:
    """What the node's activity is at the end of samples with these states."""
    memory = Memory()
    for number, state in enumerate(states):
        memory = fold(memory, sample(number * step, state), ActivityRules(max_gap=step + 1.0))
    return memory.activity


def crashes(times: int, *, lives: int = 1, away: int = 5, state: State = State.OCCUPIED) -> list[State]:
    """A program that lives for so many samples and stays away for so many, so often."""
    return ([state] * lives + [State.IDLE] * away) * times


@pytest.mark.parametrize("state", [State.OCCUPIED, State.PARKED])
def test_a_crash_loop_lasts_in_one_state(state: State) -> None:
    """A container that begins each minute and ends: after three returns the state holds, between its lives too."""
    shown = activity(crashes(60, state=state))

    assert shown.state is state
    assert shown.held_seconds >= 50 * 60.0


def test_between_its_lives_the_node_says_what_returns() -> None:
    """The evidence is that of the last time, and says so."""
    (entry,) = activity(crashes(10)).evidence

    assert (entry.says, entry.note) == (State.OCCUPIED, "begins again and again: crashd")


def test_a_loop_that_holds_a_gpu_in_each_turn_is_parked_all_the_time() -> None:
    """Idle, occupied while it loads, parked, idle."""
    shown = activity([State.IDLE, State.OCCUPIED, State.PARKED, State.IDLE] * 60)

    assert shown.state is State.PARKED
    assert shown.held_seconds >= 30 * 60.0


def test_what_comes_seldom_leaves_the_node_idle() -> None:
    """Each 41 minutes: there is time to be found in between."""
    assert activity(crashes(8, away=246)).state is State.IDLE


def test_what_has_ended_for_good_is_idle_after_forty_minutes() -> None:
    """From zero: nothing of the loop's time counts as idle."""
    shown = activity([*crashes(10), *[State.IDLE] * 240])

    assert shown.state is State.IDLE
    assert shown.held_seconds <= 60.0


def test_two_returns_are_no_loop() -> None:
    """A person who runs something three times."""
    assert activity(crashes(3)).state is State.IDLE


def test_work_begins_anew() -> None:
    """What worked is no loop of something that does nothing."""
    assert activity([*crashes(10), State.BUSY, State.IDLE]).state is State.IDLE


STATES = st.lists(
    st.tuples(st.sampled_from([*STRENGTH, State.BUSY, State.UNKNOWN]), st.floats(0.0, 2500.0)), max_size=40
)


@given(steps=STATES)
def test_a_loop_never_makes_a_state_weaker(steps: list[tuple[State, float]]) -> None:
    """Nor does it hide work or doubt (P1, P2, P8): a state at rest becomes a stronger one or stays."""
    loop = Loop()
    for state, gap in steps:
        loop, shown = hold_loop(loop, Judgement(state=state), gap)
        if state in STRENGTH:
            assert STRENGTH[shown.state] >= STRENGTH[state]
        else:
            assert (shown.state, shown.evidence) == (state, ())


@given(steps=STATES, jump=st.floats(2401.0, 1e6))
def test_a_clock_that_jumps_ends_a_loop(steps: list[tuple[State, float]], jump: float) -> None:
    """After it nothing is known of returns (P9)."""
    loop = Loop()
    for state, gap in steps:
        loop, _ = hold_loop(loop, Judgement(state=state), gap)
    _, shown = hold_loop(loop, Judgement(state=State.IDLE), jump)

    assert shown.state is State.IDLE
