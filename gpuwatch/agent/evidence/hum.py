"""PURE: separates the use of a server from what goes on by itself: keep-alives, leases, probes, readings of pages.

What goes on by itself is even from minute to minute. A minute stands out if it has moved a kilobyte at least, and three
times the median minute of the hour before. Nothing stands out before five minutes are known.
"""

from collections import deque
from statistics import median

_MINUTE_SECONDS = 60.0
_MINUTES = 60
_FEWEST_MINUTES = 5
_LEAST_BYTES = 1000.0
_TIMES = 3.0


class Hum:
    """Minutes of one kind of traffic; times are of the monotonic clock."""

    def __init__(self) -> None:
        """Nothing is known."""
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
