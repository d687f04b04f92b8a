"""What counters grew by per second, over the time between two looks or a longer span; a signal says it as a finding.

`Hum` separates the use of a server from what goes on by itself: keep-alives, leases, probes, readings of pages. That is
even from minute to minute. A minute stands out if it has moved a kilobyte at least, and three times the median minute
of the hour before. Nothing stands out before five minutes are known.
"""

from collections import deque
from collections.abc import Mapping

from gpuwatch.agent.activity.days import median
from gpuwatch.agent.evidence.base import Moment, Origin, make_finding, several
from gpuwatch.model.activity import Evidence, State

SHORTEST_SPAN_SECONDS = 1.0  # over less, a confirmation's own packets and a journal's flush would look like work
_MINUTE_SECONDS = 60.0
_MINUTES = 60
_FEWEST_MINUTES = 5
_LEAST_BYTES = 1000.0
_TIMES = 3.0


class Rate:
    """What was counted per second up to now, since the last look that is `span_seconds` ago or more.

    Without such a look, since the first one.
    """

    def __init__(
        self, limit: float, unit: str = "bytes per second", span_seconds: float = SHORTEST_SPAN_SECONDS
    ) -> None:
        """More than `limit` a second is busy; nothing is known before the second look."""
        self._limit = limit
        self._unit = unit
        self._span_seconds = span_seconds
        self._looks: deque[tuple[float, Mapping[str, float]]] = deque()  # oldest first; one is older than the span

    def judge(self, signal: Origin, moved: Mapping[str, float], now: Moment) -> Evidence:
        """What the counters of all devices say, compared with those of the look before."""
        at, looks = now.monotonic_seconds, self._looks
        if looks and at <= looks[-1][0]:
            looks.clear()
        looks.append((at, moved))
        if len(looks) == 1:
            return self._say(signal, State.UNKNOWN, "looked at for the first time", None)
        while len(looks) > 2 and at - looks[1][0] >= self._span_seconds:  # noqa: PLR2004  this look, and one before it
            looks.popleft()
        last, before = looks[0]
        grown = {name: moved[name] - before[name] for name in moved.keys() & before.keys()}
        rate = sum(max(0, each) for each in grown.values()) / (at - last)
        new = sorted(name for name in moved if grown.get(name, -1) < 0)
        if new:
            self._looks = deque([(at, moved)])
        if rate > self._limit:
            return self._say(signal, State.BUSY, several(sorted(name for name in grown if grown[name] > 0)), rate)
        if new:
            return self._say(signal, State.UNKNOWN, f"new, or counting from zero again: {several(new)}", rate)
        return self._say(signal, State.IDLE, None, rate)

    def forget(self) -> None:
        """Begin again, because the counters could not be read."""
        self._looks.clear()

    def _say(self, signal: Origin, says: State, note: str | None, rate: float | None) -> Evidence:
        return make_finding(signal, says, note, observed=rate, limit=self._limit, unit=self._unit)


class Hum:
    """Minutes of one kind of traffic; times are of the monotonic clock."""

    def __init__(self) -> None:
        """Begin without a known hum."""
        self._minutes: deque[float] = deque(maxlen=_MINUTES)
        self._begin: float | None = None
        self._moved = 0
        self._stands_out = False

    def stands_out(self, moved: int, at: float) -> bool:
        """Whether the last whole minute stands out, with `moved` more bytes since the call before."""
        if self._begin is None or at < self._begin:
            self._begin, self._moved = at, 0
            return False
        self._moved += moved
        seconds = at - self._begin
        if seconds >= _MINUTE_SECONDS:
            minute = self._moved * _MINUTE_SECONDS / seconds
            usual = median(self._minutes) if len(self._minutes) >= _FEWEST_MINUTES else None
            self._stands_out = usual is not None and minute >= _LEAST_BYTES and minute > _TIMES * usual
            self._minutes.append(minute)
            self._begin, self._moved = at, 0
        return self._stands_out
