"""How often we may ask: a bucket of calls that fills with time, kept on our side of the cloud's own limits."""

import threading

from gpuwatch.runtime.clock import Clock

_RECOVERY_SECONDS = 60.0  # from a standstill to the full pace
_SLOWEST = 1 / 16  # of the full pace


class RateLimiter:
    """A token bucket. Each refusal by the cloud ("too many calls") halves its pace, which comes back in a minute.

    The cloud's limits are shared with all other users of the account: ours only keep us from being the one who fills
    them. Mutations have a bucket of their own, so that no number of reads makes a stop wait.
    """

    def __init__(self, clock: Clock, *, per_second: float, burst: int) -> None:
        """Begin with a full bucket."""
        self._clock = clock
        self._full_pace = per_second
        self._burst = float(burst)
        self._pace = per_second
        self._tokens = self._burst
        self._at = clock.monotonic()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Take one call out of the bucket; where it is empty, sleep until that call is due."""
        with self._lock:
            self._refill()
            self._tokens -= 1  # below zero: others wait already, and this call is due after theirs
            seconds = -self._tokens / self._pace
        if seconds > 0:
            self._clock.sleep(seconds)

    def slow_down(self) -> None:
        """Halve the pace and empty the bucket."""
        with self._lock:
            self._refill()
            self._pace = max(self._pace / 2, self._full_pace * _SLOWEST)
            self._tokens = min(self._tokens, 0.0)

    @property
    def per_second(self) -> float:
        """Calls a second at this moment."""
        with self._lock:
            self._refill()
            return self._pace

    def _refill(self) -> None:
        now = self._clock.monotonic()
        passed, self._at = max(0.0, now - self._at), now  # a demo's clock may start again
        self._tokens = min(self._burst, self._tokens + passed * self._pace)
        self._pace = min(self._full_pace, self._pace + passed * self._full_pace / _RECOVERY_SECONDS)
