"""The one rule of waiting: no shorter than was said, monotone in evidence, safe from clocks, never without a notice."""

from dataclasses import replace
from datetime import timedelta
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.promise import Interruption, Notice, Promise
from gpuwatch.policies.waiting import Count, Phase, count_of, left_seconds, phase, unbroken
from tests.support.builders.fleet import NOW, a_node, a_verdict

SECONDS = st.floats(0.0, 7200.0)
# How far on the way to being taken: what is left alone or starts again, what has a notice, what may be taken.
FAR = {
    Phase.WAITING: 0,
    Phase.TOO_SOON: 0,
    Phase.BROKEN: 0,
    Phase.CANDIDATE: 1,
    Phase.GRACE: 1,
    Phase.DUE: 2,
}
COUNTS = st.builds(Count, seconds=SECONDS, lag_seconds=st.floats(0.0, 120.0), own_clock=st.booleans())


@st.composite
def notices(draw: st.DrawFn) -> Notice:
    """One that was given some time ago, by a promise that may be later than its grace, or by none."""
    at = NOW - timedelta(seconds=draw(SECONDS))
    promise = Promise(
        action="stop",
        pool="default",
        stop_at=at + timedelta(seconds=draw(st.floats(-600.0, 7200.0))),
        grace_seconds=draw(st.floats(0.0, 3600.0)),
        idle_seconds=draw(st.none() | SECONDS),
    )
    whys: st.SearchStrategy[Literal["away", "paused"]] = st.sampled_from(["away", "paused"])
    breaks = tuple(
        Interruption(why=draw(whys), since=at, until=at + timedelta(seconds=draw(st.floats(0.0, 1800.0))))
        for _ in range(draw(st.integers(0, 2)))
    )
    told = draw(st.booleans()) or draw(st.booleans())
    return Notice(node_id="i-1", key="k", at=at, promise=promise if told else None, interruptions=breaks)


WAITERS = {"count": COUNTS, "wait": SECONDS, "grace": st.floats(0.0, 3600.0), "may_grow": st.booleans()}


@given(**WAITERS)
def test_nothing_is_due_without_a_notice(count: Count, wait: float, grace: float, may_grow: bool) -> None:
    """However long it has been without use: first the wait, then a notice."""
    found = phase(count, wait, None, grace, NOW, may_grow=may_grow)

    assert found is (Phase.WAITING if count.seconds < wait else Phase.CANDIDATE)


@given(**WAITERS, notice=notices())
def test_what_is_due_has_had_all_that_its_notice_promised(
    count: Count,
    wait: float,
    grace: float,
    may_grow: bool,
    notice: Notice,
) -> None:
    """P14: the promised time, the longer of both graces on our clock and by its own count, and no break."""
    if phase(count, wait, notice, grace, NOW, may_grow=may_grow) is not Phase.DUE:
        return
    promise = notice.promise
    assert promise is not None
    longest, since = max(grace, promise.grace_seconds), (NOW - notice.at).total_seconds()

    assert count.seconds >= wait
    assert promise.due(notice.at) <= NOW + timedelta(microseconds=1)
    assert since >= longest
    assert unbroken(count, notice, NOW)
    if count.own_clock and promise.idle_seconds is not None:
        assert count.seconds - promise.idle_seconds >= longest - 1e-6
    else:
        away = sum(each.seconds for each in notice.interruptions if each.why == "away")
        assert since - away >= longest - 1e-6


@given(**WAITERS, notice=st.none() | notices(), less=SECONDS, more=SECONDS, away=SECONDS)
def test_more_evidence_of_use_or_more_patience_never_brings_it_nearer(  # noqa: PLR0913, PLR0917  generated
    count: Count,
    wait: float,
    grace: float,
    may_grow: bool,
    notice: Notice | None,
    less: float,
    more: float,
    away: float,
) -> None:
    """P8: later use, a longer wait, a longer grace, an absence of the controller."""
    before = FAR[phase(count, wait, notice, grace, NOW, may_grow=may_grow)]
    used = replace(count, seconds=max(0.0, count.seconds - less))

    assert FAR[phase(used, wait, notice, grace, NOW, may_grow=may_grow)] <= before
    assert FAR[phase(count, wait + more, notice, grace, NOW, may_grow=may_grow)] <= before
    assert FAR[phase(count, wait, notice, grace + more, NOW, may_grow=may_grow)] <= before
    if notice is not None:
        gone = Interruption(why="away", since=notice.at, until=notice.at + timedelta(seconds=away))
        longer = replace(notice, interruptions=(*notice.interruptions, gone))
        assert FAR[phase(count, wait, longer, grace, NOW, may_grow=may_grow)] <= before


@given(**WAITERS, notice=notices(), step=st.floats(-86400.0, 86400.0))
def test_no_step_of_our_clock_makes_it_due_before_its_own_count_says_so(
    count: Count,
    wait: float,
    grace: float,
    may_grow: bool,
    notice: Notice,
    step: float,
) -> None:
    """P18: the grace passes on the agents' count, which nobody sets; a step forward breaks the notice at most."""
    promise = notice.promise
    found = phase(count, wait, notice, grace, NOW + timedelta(seconds=step), may_grow=may_grow)
    if count.own_clock and promise is not None and promise.idle_seconds is not None:
        short = count.seconds - promise.idle_seconds < max(grace, promise.grace_seconds) - 1e-6

        assert not (short and found is Phase.DUE)


@given(notice=notices(), count=COUNTS, grace=st.floats(0.0, 3600.0), later=SECONDS)
def test_what_is_left_only_shrinks_with_time(notice: Notice, count: Count, grace: float, later: float) -> None:
    """By no more than the time that passes."""
    left = left_seconds(count, notice, grace, NOW)
    onward = replace(count, seconds=count.seconds + later)
    then = left_seconds(onward, notice, grace, NOW + timedelta(seconds=later))

    assert left - later - 1e-3 <= then <= left + 1e-3


def test_a_wait_that_may_grow_keeps_its_notice_until_something_uses_it() -> None:
    """A learned wait; any other takes the notice back."""
    notice = Notice(node_id="i-1", key="k", at=NOW - timedelta(seconds=60))
    waits, used = Count(seconds=600.0), Count(seconds=30.0)

    assert phase(waits, 900.0, notice, 0.0, NOW, may_grow=True) is Phase.WAITING
    assert phase(waits, 900.0, notice, 0.0, NOW) is Phase.TOO_SOON
    assert phase(used, 900.0, notice, 0.0, NOW, may_grow=True) is Phase.TOO_SOON


def test_a_count_lags_behind_as_its_slowest_agent_does() -> None:
    """The age of its newest sample, two intervals, the time since it came, and 5 s; a clock set back adds nothing."""
    quick = a_node("i-1", signal=NodeReport(verdict=replace(a_verdict("i-1"), age_seconds=1.0, interval_seconds=2.0)))
    slow = replace(quick.signal, received_at=NOW - timedelta(seconds=8))
    ahead = replace(quick.signal, received_at=NOW + timedelta(seconds=8))

    assert count_of([quick], 60.0, NOW) == Count(seconds=60.0, lag_seconds=10.0)
    assert count_of([quick, replace(quick, signal=slow)], 60.0, NOW).lag_seconds == 18.0
    assert count_of([replace(quick, signal=ahead)], 60.0, NOW).lag_seconds == 10.0
    assert count_of([], 60.0, NOW) == Count(seconds=60.0, lag_seconds=5.0)


def test_a_stopped_node_and_a_window_of_prometheus_have_no_clock_of_their_own() -> None:
    """One such node of several is enough."""
    node = a_node()

    assert count_of([node], 60.0, NOW).own_clock
    assert not count_of([node, replace(node, state=NodeState.STOPPED)], 60.0, NOW).own_clock
    assert not count_of([replace(node, signal=replace(node.signal, windowed=True)), node], 60.0, NOW).own_clock
