"""Why a group gets no more machines, by its cloud's own record of what the group tried.

Rules, all of them:

1. The newest try that has ended decides. A success after a failure, or a failure for another reason, is no refusal.
2. Each cloud says which of its words mean that there is no machine. What it has no such word for is waited for.
3. A time counts with its zone alone. A try that ended in the future shows that clocks or zones do not fit: then nothing
   is known.
4. Only a group of the fleet's own that lacks members is asked about. No answer, or no right to ask, is no trouble: the
   group is waited for longer. A missing right is said once.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gpuwatch.clouds.errors import AuthFailedError, CloudError
from gpuwatch.model.fleet import GroupRefusal, NodeGroup
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

# Signatures are refused beyond five minutes on the strictest clouds, so clocks differ by less.
_CLOCKS_DIFFER = timedelta(minutes=5)
_LONGEST = 300  # characters of a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a group to launch that has ended; `refused` is the cloud's reason where it has no machine to give."""

    began: datetime
    ended: datetime
    refused: str | None


def said(attempts: Iterable[Attempt], now: datetime) -> GroupRefusal | None:
    """What the newest of a group's tries says; of equal ones the first."""
    newest = max(attempts, key=lambda each: each.began, default=None)
    if newest is None or newest.refused is None or newest.ended > now + _CLOCKS_DIFFER:
        return None
    why = newest.refused.partition("\n")[0].strip().removesuffix(".")[:_LONGEST]
    return GroupRefusal(at=min(newest.ended, now), why=why)


def time_of(text: str) -> datetime:
    """A time as clouds write it, in UTC.

    Raises:
        ValueError: it is no time, has no zone, or does not exist in UTC.

    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    try:
        return found.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(text) from error


class Refusals:
    """Asks about groups that lack members. Any thread may ask."""

    def __init__(self, clock: Clock) -> None:
        """Nothing is asked yet."""
        self._clock = clock
        self._denied: set[str] = set()

    def added(self, group: NodeGroup, where: str, ask: Callable[[], Iterable[Attempt]]) -> NodeGroup:
        """The group with its cloud's refusal, where there is one. `where` is the place, for people."""
        if not group.enrolled or group.desired <= len(group.node_ids):
            return group
        try:
            attempts = list(ask())
        except AuthFailedError as error:
            if where not in self._denied:
                log.warning("%s; groups without stock there are waited for", error)
            self._denied.add(where)
            return group
        except CloudError:
            return group
        self._denied.discard(where)
        return replace(group, refused=said(attempts, self._clock.now()))
