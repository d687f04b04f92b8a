"""One at a time, with an order for those who wait: who has failed before waits for those who have not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count


class Turn:
    """A lock whose waiters are served by rank, the lowest first, and within a rank as they came."""

    def __init__(self) -> None:
        """Free."""
        self._changed = threading.Condition()
        self._held = False
        self._waiting: set[tuple[int, int]] = set()
        self._numbers = count()

    @contextmanager
    def taken(self, rank: int, timeout_seconds: float) -> Iterator[bool]:
        """Hold it for a while; False: it could not be had within that time, and is not held."""
        held = self._take(rank, timeout_seconds)
        try:
            yield held
        finally:
            if held:
                with self._changed:
                    self._held = False
                    self._changed.notify_all()

    def _take(self, rank: int, timeout_seconds: float) -> bool:
        with self._changed:
            mine = (rank, next(self._numbers))
            self._waiting.add(mine)
            try:
                first = self._changed.wait_for(lambda: not self._held and min(self._waiting) == mine, timeout_seconds)
                self._held = self._held or first
            finally:
                self._waiting.discard(mine)
                self._changed.notify_all()  # who waits behind one that gave up
            return first
