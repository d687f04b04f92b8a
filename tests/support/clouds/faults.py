"""PURE: what goes wrong on the wire between an SDK and a cloud, for every provider alike, and when.

    server.plan.strike(Fault.RESET_AFTER, when(operation="StopInstances"))        # done, and the answer is lost
    server.plan.strike(Fault.RESET_BEFORE, when(region="ap-beijing"), times=None)  # that region is down
    server.plan.strike(Fault.EXPIRED, when(), skip=3, times=None)                  # the credentials end mid-round
    server.plan.strike(Fault.STALE, when(change=False), times=2)                   # two reads after a write are late

Strikes are tried in the order in which they were planned, and the first that fits a request is spent on it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """One way in which a call goes wrong. "Before" and "after" are about the call's effect in the cloud."""

    RESET_BEFORE = "the connection breaks before the effect"
    RESET_AFTER = "the connection breaks after the effect"
    SILENT_BEFORE = "no answer comes, and there is no effect"  # the client gives up at once: `silence.py`
    SILENT_AFTER = "no answer comes after the effect"
    THROTTLED = "429 without Retry-After"  # with the status and the words of the provider
    THROTTLED_FOR = "429 with Retry-After"
    ERROR_BEFORE = "5xx before the effect"
    ERROR_AFTER = "5xx after the effect"
    GATEWAY = "a gateway's page says 502"  # before the effect; nothing of the provider is in it
    GARBLED = "a page that is no answer says 200"  # before the effect
    CUT = "half an answer, after the effect"
    LOST_TOKEN = "a page lacks the way to the next one"  # noqa: S105  a page's token
    REPEATED_PAGE = "the page before comes once more"
    STALE = "a read after a write shows what was before it"
    SKEW = "the cloud's clock is an hour ahead of ours"
    EXPIRED = "the credentials have expired"


# What the caller of a change cannot know: whether it happened.
UNKNOWN_OUTCOME = (
    *(Fault.RESET_BEFORE, Fault.RESET_AFTER, Fault.SILENT_BEFORE, Fault.SILENT_AFTER),
    *(Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.GATEWAY, Fault.GARBLED, Fault.CUT),
)
# After these the change has happened, or nothing of it has: the effect is in the cloud's state.
AFTER_EFFECT = frozenset({Fault.RESET_AFTER, Fault.SILENT_AFTER, Fault.ERROR_AFTER, Fault.CUT})
SILENT = frozenset({Fault.SILENT_BEFORE, Fault.SILENT_AFTER})
RESET = frozenset({Fault.RESET_BEFORE, Fault.RESET_AFTER})
# These need the provider's `Paged` hooks.
OF_PAGES = frozenset({Fault.LOST_TOKEN, Fault.REPEATED_PAGE})

SKEW_SECONDS = 3600.0
RETRY_AFTER_SECONDS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks: the API's own name of the operation, the region, whether it changes anything."""

    operation: str
    region: str = ""
    change: bool = False


When = Callable[[Asked], bool]


def when(*, operation: str | None = None, region: str | None = None, change: bool | None = None) -> When:
    """Requests that fit all that is given."""

    def fits(asked: Asked) -> bool:
        return (
            operation in (None, asked.operation)
            and region in (None, asked.region)
            and (change is None or change is asked.change)
        )

    return fits


@dataclass(slots=True)
class _Strike:
    fault: Fault
    when: When
    skip: int
    left: int | None


class FaultPlan:
    """What will go wrong; a request takes at most one fault out of it."""

    def __init__(self) -> None:
        self._strikes: list[_Strike] = []
        self._lock = threading.Lock()

    def strike(self, fault: Fault, fits: When, *, times: int | None = 1, skip: int = 0) -> None:
        """The next `times` requests that fit have this fault (None: all, until `clear`), after `skip` without it."""
        with self._lock:
            self._strikes.append(_Strike(fault, fits, skip, times))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        with self._lock:
            self._strikes.clear()

    def waiting(self, fault: Fault) -> bool:
        """Whether such a fault is still to come."""
        with self._lock:
            return any(strike.fault is fault for strike in self._strikes)

    def take(self, asked: Asked, possible: Callable[[Fault], bool]) -> Fault | None:
        """The fault of this request. One that is not possible now (a page without a page before it) waits."""
        with self._lock:
            for strike in self._strikes:
                if not strike.when(asked) or not possible(strike.fault):
                    continue
                if strike.skip > 0:
                    strike.skip -= 1
                    continue
                if strike.left is not None:
                    strike.left -= 1
                    if strike.left <= 0:
                        self._strikes.remove(strike)
                return strike.fault
        return None
