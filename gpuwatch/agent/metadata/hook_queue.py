"""Which notice the administrator's program runs for next. No process, no thread, no clock of its own.

Rules, all of them:

1. One run at a time, whatever it is for.
2. One run for each notice, from `lead` before its deadline on, and not after it; the soonest deadline first.
3. A notice of the same kind and action as the last run's is the same announcement moved, as long as one of them stands:
   it waits until `APART_SECONDS` after that run's end. Once none stood, the next one is new, and does not wait.
4. What waits is a notice, not a run: when its turn comes it is as it stands then, and one that is gone gets none.
5. A run for something else gives way in time: when three quarters of the time from first sight to the deadline of the
   one that waits are over.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from gpuwatch.agent.metadata.state_file import Announced

APART_SECONDS = 60.0
_WAITS_RATIO = 0.75
_LAST = datetime.max.replace(tzinfo=UTC)

Subject = tuple[str, str]


def subject(notice: Announced) -> Subject:
    """What stays the same if only the deadline of a notice moves."""
    return notice.kind.value, notice.action


class Turns:
    """Which notice's run is next."""

    def __init__(self, lead: timedelta, ran: Callable[[Announced], bool]) -> None:
        """`ran` returns whether there was a run for a notice."""
        self._lead = lead
        self._ran = ran
        self._standing: tuple[Announced, ...] = ()
        self._seen_at: dict[str, datetime] = {}
        self._ended: dict[Subject, float] = {}
        self._running: Announced | None = None
        self._limit = _LAST
        self._vanished = False  # the notice of the present run has disappeared at least once

    def take_notices(self, notices: Iterable[Announced], now: datetime) -> None:
        """Take the notices that the last look found."""
        self._standing = tuple(notices)
        self._seen_at = {notice.key: self._seen_at.get(notice.key, now) for notice in self._standing}
        there = {subject(notice) for notice in self._standing}
        self._ended = {of: ended for of, ended in self._ended.items() if of in there}
        if self._running is not None and subject(self._running) not in there:
            self._vanished = True

    def hold(self, of: Subject, monotonic_seconds: float) -> None:
        """Act as if a run for this had just ended: an earlier agent may have started one a moment ago."""
        self._ended[of] = monotonic_seconds

    def next(self, now: datetime, monotonic_seconds: float) -> Announced | None:
        """The notice that is next; None while the program runs, or if no notice waits."""
        if self._running is not None:
            return None
        waiting = (
            notice
            for notice in self._waiting(now)
            if monotonic_seconds - self._ended.get(subject(notice), -APART_SECONDS) >= APART_SECONDS
        )
        return min(waiting, key=_deadline, default=None)

    def time_left(self, notice: Announced, now: datetime) -> timedelta:
        """How long a run for it may take from now on."""
        return self._lead if notice.deadline is None else notice.deadline - now

    def begin(self, notice: Announced, now: datetime) -> None:
        """Note that its run begins."""
        self._running, self._vanished = notice, False
        self._limit = now + self.time_left(notice, now)

    def end(self, monotonic_seconds: float) -> None:
        """Note that the present run has ended."""
        if self._running is not None and not self._vanished:
            self._ended[subject(self._running)] = monotonic_seconds
        self._running = None

    def must_end(self, now: datetime) -> bool:
        """Whether the present run must end now, because another notice has a nearer deadline."""
        if self._running is None:
            return False
        others = [notice for notice in self._waiting(now) if subject(notice) != subject(self._running)]
        return any(
            notice.deadline is not None
            and notice.deadline < self._limit
            and now - self._seen_at[notice.key] >= _WAITS_RATIO * (notice.deadline - self._seen_at[notice.key])
            for notice in others
        )

    def _waiting(self, now: datetime) -> list[Announced]:
        """The notices that are due and had no run."""
        return [
            notice
            for notice in self._standing
            if timedelta() < self.time_left(notice, now) <= self._lead and not self._ran(notice)
        ]


def _deadline(notice: Announced) -> datetime:
    return _LAST if notice.deadline is None else notice.deadline
