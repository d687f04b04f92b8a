"""A week of small memory: what recurs without a GPU is hum; what is new, grows or used a GPU is work."""

import statistics
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity.days import DAY_SECONDS, EMPTY, MOST_PROGRAMS, Run, Week, median

_MONDAY = 20_003 * DAY_SECONDS  # days since 1970
_LOOK = 300.0
REPORT = "0 cron report.sh 1a2b3c4d"
USUAL = Run(seconds=90.0, cores=0.3, bytes_per_second=20e3)
STEADY = Run(seconds=5 * DAY_SECONDS, cores=0.03, bytes_per_second=500.0)


def days_of(  # noqa: PLR0913  what a program does on its days
    days: int,
    run: Run = USUAL,
    *,
    runs: int = 96,
    on: frozenset[int] | None = None,
    watched: float = DAY_SECONDS,
    gpu_on: int | None = None,
    grows: float = 1.0,
    week: Week = EMPTY,
    first: int = 0,
) -> Week:
    """The week after so many days with a program; `on` are the days on which it ran."""
    for day in range(first, first + days):
        begin = _MONDAY + day * DAY_SECONDS
        its = replace(run, begun=runs, cores=run.cores * grows**day)
        there = {REPORT: its} if on is None or day in on else {}
        for look in range(int(watched / _LOOK)):
            at = begin + look * _LOOK
            gpu = {REPORT} if gpu_on == day and look == 1 else set()
            week = week.after_look(at, _LOOK, there if look == 0 else {}, gpu)
    return week


def at_noon(day: int) -> float:
    """The middle of a day."""
    return _MONDAY + (day + 0.5) * DAY_SECONDS


def test_what_has_run_each_quarter_of_an_hour_for_three_days_is_hum_and_says_so() -> None:
    """Root's report of 90 seconds: on the fourth day it is no work, in words that people understand."""
    assert days_of(3).hum_of(REPORT, USUAL, at_noon(3)) == ("has run about each 15m for 3 days without a GPU")
    assert days_of(4, runs=1).hum_of(REPORT, USUAL, at_noon(4)) == "has run each day for 4 days without a GPU"


@pytest.mark.parametrize(
    ("who", "week", "now", "is_hum"),
    [
        ("the administrator who set it up the day before yesterday", days_of(2), USUAL, False),
        ("whose run held a GPU six days ago", days_of(7, gpu_on=1), USUAL, False),
        ("whose data has grown: ten minutes instead of 90 seconds", days_of(4), replace(USUAL, seconds=600.0), False),
        ("who evaluates models in it now: 4 cores", days_of(4), replace(USUAL, cores=4.0), False),
        ("who copies a data set in it now", days_of(4), replace(USUAL, bytes_per_second=30e6), False),
        ("nobody: twice as much, once", days_of(4), replace(USUAL, cores=0.6), True),
        ("who runs it on three days of a week", days_of(6, on=frozenset({0, 2, 4})), USUAL, False),
        ("nobody: a night was missed", days_of(5, on=frozenset({0, 1, 3, 4})), USUAL, True),
        ("whose nightly import takes six hours", days_of(4, replace(USUAL, seconds=21600.0)), USUAL, False),
        ("nobody: a backup of forty minutes", days_of(4, replace(USUAL, seconds=2400.0), runs=1), USUAL, True),
        ("a machine that is watched for three hours a day", days_of(6, watched=10800.0), USUAL, False),
        ("nobody: a machine that is on for ten hours a day", days_of(4, watched=36000.0), USUAL, True),
        (
            "whose job takes half as long again each day",
            days_of(6, grows=1.5),
            replace(USUAL, cores=0.3 * 1.5**6),
            False,
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_who_would_miss_it(who: str, week: Week, now: Run, is_hum: bool) -> None:
    """A program that comes and goes is hum only where nobody would."""
    last = max((day for day in range(8) if week.watched.get(20_003 + day)), default=0)
    assert (week.hum_of(REPORT, now, at_noon(last + 1)) is not None) is is_hum, who


def test_more_often_than_ever_is_work() -> None:
    """Somebody drains a queue with it: 96 runs a day were usual, these are 200 by noon."""
    week = days_of(4).after_look(at_noon(4), _LOOK, {REPORT: replace(USUAL, begun=200)}, ())
    assert week.hum_of(REPORT, USUAL, at_noon(4)) is None


@pytest.mark.parametrize(
    ("who", "past", "now", "at_rest"),
    [
        ("nobody: a Ray head at rest", STEADY, STEADY, True),
        ("nobody: an animated desktop", replace(STEADY, cores=0.2), replace(STEADY, cores=0.25), True),
        ("alice, who began it two days ago", replace(STEADY, seconds=DAY_SECONDS), replace(STEADY, seconds=2e5), False),
        ("who computes on five cores for a week", replace(STEADY, cores=5.0), replace(STEADY, cores=5.0), False),
        ("whose logger writes 20 kB/s", replace(STEADY, bytes_per_second=20e3), STEADY, False),
        ("whose jobs have begun in it", STEADY, replace(STEADY, cores=0.2), False),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_stays_and_uses_little_for_days_is_at_rest(who: str, past: Run, now: Run, at_rest: bool) -> None:
    """It is somebody's and no work; what uses more than a little, or more than before, works."""
    assert (days_of(4, past).steady_words(REPORT, now, at_noon(4)) is not None) is at_rest, who


def test_a_gpu_within_the_week_makes_it_work_and_is_forgotten_after_it() -> None:
    """Its own, or that of what it began."""
    week = days_of(4, gpu_on=0)
    assert week.hum_of(REPORT, USUAL, at_noon(4)) is None
    assert days_of(5, week=week, first=4).hum_of(REPORT, USUAL, at_noon(9)) is not None


def test_a_gpu_that_was_held_by_a_clock_ahead_still_counts() -> None:
    """The machine's clock was a month ahead and was set right: when the GPU was held nobody knows."""
    ahead = EMPTY.after_look(at_noon(30), 0.0, {REPORT: USUAL}, {REPORT})
    week = days_of(4, week=ahead)

    assert REPORT in week.habits
    assert week.hum_of(REPORT, USUAL, at_noon(4)) is None
    assert week.steady_words(REPORT, STEADY, at_noon(4)) is None


def test_a_clock_that_jumps_makes_no_days() -> None:
    """Three jumps ahead within an hour: none of these days was watched."""
    week = EMPTY
    for look in range(12):
        week = week.after_look(_MONDAY + look * _LOOK + look * DAY_SECONDS / 3, _LOOK, {REPORT: USUAL}, ())
    assert week.hum_of(REPORT, USUAL, at_noon(4)) is None


programs = st.dictionaries(st.integers(0, 400).map(lambda number: f"0 cron job {number}"), st.just(USUAL), max_size=300)
looks = st.lists(
    st.tuples(
        st.floats(-5 * DAY_SECONDS, 30 * DAY_SECONDS),
        st.floats(0.0, 2e6),
        programs,
        st.sets(st.sampled_from(["0 cron job 1"])),
    ),
    max_size=12,
)


@given(looks)
def test_the_memory_stays_small_and_can_be_written_and_read(
    lived: list[tuple[float, float, dict[str, Run], set[str]]],
) -> None:
    """Whatever is looked at, by whatever clock: a bounded number of programs, and eight days of each."""
    week = EMPTY
    for at, gap, runs, gpu in lived:
        week = week.after_look(_MONDAY + at, gap, runs, gpu)
    written = msgspec.json.encode(week)
    assert msgspec.json.decode(written, type=Week) == week
    assert len(week.habits) <= MOST_PROGRAMS
    assert all(len(habit.days) <= 8 for habit in week.habits.values())
    assert len(written) < 100_000


@given(
    days=st.integers(0, 7),
    runs=st.integers(0, 200),
    cores=st.floats(0, 8),
    seconds=st.floats(0, 1e6),
    more=st.floats(0, 8),
    gpu_on=st.none() | st.integers(0, 7),
)
def test_more_of_anything_never_makes_it_hum(
    days: int, runs: int, cores: float, seconds: float, more: float, gpu_on: int | None
) -> None:
    """What uses more now, lasts longer now, or held a GPU, is hum only where less of it is (P8)."""
    past = Run(seconds=90.0, cores=cores, bytes_per_second=1e3)
    now = Run(seconds=seconds, cores=cores, bytes_per_second=1e3)
    week, without = (days_of(days, past, runs=runs, watched=15000.0, gpu_on=each) for each in (gpu_on, None))
    for harder in (replace(now, cores=cores + more), replace(now, seconds=seconds * (1 + more)), now):
        if week.hum_of(REPORT, harder, at_noon(days)) is not None:
            assert without.hum_of(REPORT, now, at_noon(days)) is not None


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_the_median_is_that_of_the_standard_library(values: list[float]) -> None:
    """Whose module is not loaded for it."""
    assert median(values) == statistics.median(values)
