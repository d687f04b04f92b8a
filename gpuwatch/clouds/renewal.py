"""Credentials that are made again where a cloud does not take their token any more, though it was to last longer.

A token ends early: somebody revoked the sessions of a role, its hour was shorter than it said, or this machine's clock
is slow. SDKs renew by their own clock alone, and keep what they once found. So a call that is refused for its token
renews what it was sent with, once, and a read is then sent once more. A change is not: the ledger decides about that.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from gpuwatch.clouds.errors import CloudError
from gpuwatch.runtime.clock import Clock

_PAUSE_SECONDS = 60.0  # before credentials that came back the same are made again

Found = TypeVar("Found")  # what an SDK has for credentials
Proof = TypeVar("Proof")  # what a request is sent with: a key with its token


class Renewable(Generic[Found, Proof]):
    """Credentials: `ask` is how they give what a request is sent with, and `make` makes them, or others, again."""

    def __init__(
        self, found: Found, make: Callable[[Found], Found], ask: Callable[[Found], Proof], clock: Clock
    ) -> None:
        """Nothing is asked yet."""
        self.found, self._make, self._ask, self._clock = found, make, ask, clock
        self._turn = threading.Lock()
        self._useless: Proof | None = None  # that came back the same when they were made again
        self._rests_until = 0.0

    def proof(self) -> Proof:
        """What the next request is sent with; raises CloudError where there are no credentials."""
        return self._ask(self.found)

    def renew(self, used: Proof) -> bool:
        """Make the credentials again that gave `used`, which is not taken any more; whether there are others now."""
        with self._turn:
            try:
                if self.proof() != used:
                    return True  # another call was faster, or they have changed by themselves
                if used == self._useless and self._clock.monotonic() < self._rests_until:
                    return False
                fresh = self._make(self.found)
                if self._ask(fresh) != used:
                    self.found = fresh
                    return True
            except CloudError:
                return False
            self._useless, self._rests_until = used, self._clock.monotonic() + _PAUSE_SECONDS
            return False
