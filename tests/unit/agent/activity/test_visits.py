"""What comes for a while to a machine at rest and does nothing pauses its clock; work sets it to zero."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.agent.activity.days import HUM
from gpuwatch.model.activity import Activity, Evidence, State
from tests.support.builders.gpu import GIB, a_busy_reading, a_process, a_reading, a_sample

HELD = a_reading(memory_used_bytes=GIB, processes=(a_process(8),))
STEP = 60.0
RULES = ActivityRules(max_gap=STEP + 1.0, forget_after=STEP)
HOUR = 60  # samples
REST = (State.IDLE, State.OCCUPIED, State.PARKED)


def entry(says: State, name: str = "processes") -> Evidence:
    """What a signal of the host says."""
    return Evidence(name=name, says=says, observed=None, limit=None, unit="", source="/proc", note="a job at work")


def sample(seconds: float, state: State | str) -> Sample:
    """One in which the node has that state by itself; `hum`: a heavy run of hum is all that is in doubt."""
    reading = a_busy_reading() if state is State.BUSY else HELD if state is State.PARKED else a_reading()
    host: tuple[Evidence, ...] = (entry(State.OCCUPIED),) if state is State.OCCUPIED else ()
    host = (entry(State.IDLE), entry(State.UNKNOWN, HUM)) if state == HUM else host
    doubt = "nothing could be read" if state is State.UNKNOWN else None
    return replace(a_sample(seconds, reading), host=host, doubt=doubt)


def activity(states: Iterable[State | str]) -> Activity:
    """The node's activity after a sample a minute with these states."""
    memory = Memory()
    for number, state in enumerate(states):
        memory = fold(memory, sample(number * STEP, state), RULES)
    return memory.activity


@pytest.mark.parametrize(("visitor", "there"), [(State.OCCUPIED, State.IDLE), (State.PARKED, State.OCCUPIED)])
def test_a_visit_pauses_the_clock_of_a_machine_at_rest(visitor: State, there: State) -> None:
    """Ten hours, a visit of half an hour, an hour: eleven hours at rest, and the visit counts as none of it."""
    shown = activity([there] * 10 * HOUR + [visitor] * 30 + [there] * HOUR)
    assert (shown.state, round(shown.held_seconds / STEP)) == (there, 11 * HOUR - 2)


def test_a_long_visit_begins_it_again() -> None:
    """Somebody's program was there for an hour, and has ended: the machine is idle since then."""
    shown = activity([State.IDLE] * 10 * HOUR + [State.OCCUPIED] * HOUR + [State.IDLE] * 5)
    assert round(shown.held_seconds / STEP) == 4


def test_the_visitor_itself_counts_from_zero() -> None:
    """A machine that was idle overnight has no hours as an occupied one."""
    assert activity([State.IDLE] * 10 * HOUR + [State.OCCUPIED] * 10).held_seconds == 9 * STEP


@pytest.mark.parametrize("work", [[State.BUSY], [State.OCCUPIED, State.BUSY], [State.UNKNOWN] * 3])
def test_work_and_long_doubt_end_what_was_paused(work: list[State]) -> None:
    """Within a visit, too."""
    shown = activity([State.IDLE] * HOUR + [*work, State.OCCUPIED] + [State.IDLE] * 3)
    assert shown.held_seconds <= 2 * STEP


def test_a_heavy_run_of_hum_stops_the_clock_and_does_not_set_it_back() -> None:
    """A backup of 40 minutes each night: nothing is stopped meanwhile, and the machine is at rest as long as before."""
    during = activity([State.OCCUPIED] * 10 * HOUR + [HUM] * 40)
    assert (during.state, during.held_seconds, during.doubt) == (State.UNKNOWN, 0.0, "hum: a job at work")
    after = activity([State.OCCUPIED] * 10 * HOUR + [HUM] * 40 + [State.OCCUPIED] * 2)
    assert round(after.held_seconds / STEP) == 10 * HOUR


def test_other_doubt_beside_a_run_of_hum_counts_as_ever() -> None:
    """Three minutes in which nothing can be read end the time at rest, whatever runs."""
    shown = activity([State.IDLE] * HOUR + [HUM, State.UNKNOWN, State.UNKNOWN, State.UNKNOWN, HUM] + [State.IDLE] * 2)
    assert shown.held_seconds <= STEP


histories = st.lists(
    st.tuples(st.sampled_from([*REST, State.BUSY, State.UNKNOWN, HUM]), st.integers(1, 50)), min_size=1, max_size=8
)


def held(shown: Activity, state: State) -> float:
    """For how long the node is in that state; none in another."""
    return shown.held_seconds if shown.state is state else 0.0


@given(histories, st.integers(0, 7), st.sampled_from([State.OCCUPIED, State.PARKED, State.BUSY, State.UNKNOWN]))
def test_a_stronger_past_never_makes_a_machine_rest_longer(
    lived: list[tuple[State | str, int]], place: int, stronger: State
) -> None:
    """Were it occupied, parked, busy or in doubt where it was idle, it would be idle for no longer (P8)."""
    other = [
        (stronger if number == place and state is State.IDLE else state, times)
        for number, (state, times) in enumerate(lived)
    ]
    plain, harder = (activity(state for state, times in each for _ in range(times)) for each in (lived, other))
    assert held(harder, State.IDLE) <= held(plain, State.IDLE)


@given(histories)
def test_no_time_at_rest_is_older_than_the_last_work(lived: list[tuple[State | str, int]]) -> None:
    """Whatever came between: the clock never reaches back beyond work (P2)."""
    states = [state for state, times in lived for _ in range(times)]
    since = next((number for number, state in enumerate(reversed(states)) if state is State.BUSY), len(states))
    assert activity(states).held_seconds <= max(0, since) * STEP if activity(states).state in REST else True
