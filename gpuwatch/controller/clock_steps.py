"""Steps of the wall clock in the life of one process, and records as if it had always gone as it goes now.

The ledger holds wall-clock times. Were the clock set forward by a day, a notice of a minute ago would look a day old,
and the stops of the last hour would no longer count. Here each record keeps its age by a clock that never jumps. Where
it is not known by which of two clocks a time was written, the younger age holds: waits never become shorter.

A record that lies in the future was written by a clock that was ahead: our own before this process began, or another
machine's. It is as old as this process has known it, which is never older than it is. So what waits for it waits as
long as after a record of now, and not until the wall clock has caught up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuwatch.model.decision import LedgerView, OpenIntent
from gpuwatch.model.promise import Notice
from gpuwatch.runtime.clock import Clock

_STEP_SECONDS = 1.0  # less is no step
_MOST_SPANS = 64


@dataclass(slots=True)
class _Span:
    """A time between two steps: how far the wall clock was ahead of the time since boot, and from when to when."""

    ahead: float
    begin: float  # seconds since 1970, by the wall clock of then
    end: float


@dataclass(slots=True)
class ClockSteps:
    """What was seen of the wall clock since this process began; look often."""

    _spans: list[_Span] = field(default_factory=list)
    _looked: float = 0.0
    # When records that lay in the future were first read: seconds since boot, by the times that they bear.
    _first_read: dict[datetime, float] = field(default_factory=dict)

    def note_steps(self, clock: Clock) -> None:
        """See whether somebody has set the clock since the last look."""
        elapsed, wall = clock.uptime(), clock.now().timestamp()
        ahead = wall - elapsed
        if self._spans:
            last = self._spans[-1]
            last.end = elapsed + last.ahead  # until now it may have gone as before, and have been set
            if abs(ahead - last.ahead) >= _STEP_SECONDS:
                self._spans.append(_Span(ahead=ahead, begin=self._looked + ahead, end=wall))
                del self._spans[1:-_MOST_SPANS]
        else:
            self._spans.append(_Span(ahead=ahead, begin=wall, end=wall))
        self._looked = elapsed

    @property
    def back_seconds(self) -> float:
        """How far back by the present clock a record may lie that is of now."""
        return max(0.0, *(self._spans[-1].ahead - each.ahead for each in self._spans)) if self._spans else 0.0

    def by_present_clock(self, view: LedgerView, now: datetime) -> LedgerView:
        """The view with the times that its records would have by the present clock."""
        self._note_future(view, now)
        if len(self._spans) <= 1 and not self._first_read:
            return view
        at, maybe = self._shift_time, self._maybe

        def opened(each: OpenIntent) -> OpenIntent:
            last = each.last
            return replace(
                each,
                intent=replace(each.intent, at=at(each.intent.at)),
                last=None if last is None else replace(last, at=at(last.at)),
                reached_at=maybe(each.reached_at),
            )

        def moved_notice(each: Notice) -> Notice:
            notified_at, promise = maybe(each.told_at), each.promise
            if promise is not None:  # as long after the notice as was said, and never before the time that was said
                promise = replace(promise, stop_at=_move_end(promise.stop_at, each.at, at))
            return replace(each, at=at(each.at), told_at=notified_at, promise=promise)

        pauses = [
            each if each.until is None else replace(each, at=at(each.at), until=_move_end(each.until, each.at, at))
            for each in view.pauses
        ]
        keeps = [replace(each, at=at(each.at), until=_move_end(each.until, each.at, at)) for each in view.snoozes]
        return replace(
            view,
            notices=tuple(map(moved_notice, view.notices)),
            open_intents=tuple(map(opened, view.open_intents)),
            recent=tuple(replace(each, at=at(each.at), reached_at=maybe(each.reached_at)) for each in view.recent),
            stopped=tuple(replace(each, at=at(each.at)) for each in view.stopped),
            wishes=tuple(replace(each, at=at(each.at)) for each in view.wishes),
            resumed=tuple((pool, at(when)) for pool, when in view.resumed),
            resume_orders=tuple((pool, at(when)) for pool, when in view.resume_orders),
            acknowledged=tuple((pool, at(when)) for pool, when in view.acknowledged),
            pauses=tuple(each for each in pauses if each.until is None or each.until > now),
            snoozes=tuple(each for each in keeps if each.until > now),
        )

    def _note_future(self, view: LedgerView, now: datetime) -> None:
        """Remember the records that this process can not have written, because their time is yet to come."""
        latest = now + timedelta(seconds=_STEP_SECONDS)
        for at in _times(view):
            if at > latest and at not in self._first_read and not self._ahead_then(at):
                self._first_read[at] = self._looked

    def _ahead_then(self, at: datetime) -> list[float]:
        """Return how far the clock may have been ahead when this process wrote that time; nothing: it has not."""
        when, slack = at.timestamp(), _STEP_SECONDS
        return [each.ahead for each in self._spans if each.begin - slack <= when <= each.end + slack]

    def _maybe(self, at: datetime | None) -> datetime | None:
        return None if at is None else self._shift_time(at)

    def _shift_time(self, at: datetime) -> datetime:
        """A record's time by the present clock: the latest that is possible."""
        ahead = self._spans[-1].ahead
        if at in self._first_read:
            return at + timedelta(seconds=self._first_read[at] + ahead - at.timestamp())
        steps = [ahead - then for then in self._ahead_then(at)]
        # Written down before this process began, as far as is known by the clock that it began with.
        steps = steps or [0.0, ahead - self._spans[0].ahead]
        return at + timedelta(seconds=max(steps))


def _times(view: LedgerView) -> Iterator[datetime]:
    """Yield the times at which the view's records were written."""
    for entry in view.open_intents:
        yield entry.intent.at
        if entry.last is not None:
            yield entry.last.at
        if entry.reached_at is not None:
            yield entry.reached_at
    for done in view.recent:
        yield done.at
        if done.reached_at is not None:
            yield done.reached_at
    for notice in view.notices:
        yield notice.at
        if notice.told_at is not None:
            yield notice.told_at
    yield from (each.at for each in view.stopped)
    yield from (each.at for each in view.wishes)
    yield from (each.at for each in view.pauses)
    yield from (each.at for each in view.snoozes)
    for _, at in (*view.resumed, *view.resume_orders, *view.acknowledged):
        yield at


def _move_end(until: datetime, at: datetime, shifted: Callable[[datetime], datetime]) -> datetime:
    """The end of what somebody said then: it lasts as long as was said, and at least until that time."""
    return max(until, until + (shifted(at) - at))
