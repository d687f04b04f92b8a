"""PURE: how long whatever is without use is left alone: a wait, a notice, a grace without a break, and then.

Rules, all of them; for nodes, for nodes that gpuwatch stopped and for workloads of a cluster alike:

1. What has been without use for less than its wait is left alone. A notice that it has is taken back, unless the wait
   may grow after a notice, as a learned one does, and nothing has used it since that notice.
2. After its wait it gets a notice. Nothing is ever taken without one.
3. The notice is taken back if the count of its agents does not reach back to it: something has used it since. A count
   may lag behind by the age of its newest sample, two of its intervals, the time since it came, and the round trip.
4. It is left alone until the promised time, and until the whole grace has passed since the notice: less grace by now
   shortens nothing, more prolongs it.
5. The grace also has to pass on a clock that nobody sets: the agents' own count. A stopped node and a window of
   Prometheus have no such count: times in which the controller was away do not count there.
6. A notice never asks for more than a new one would. One that does was given before the wall clock was set back: it is
   taken back, and given again with the time that is right now.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.promise import Notice

_SLACK_SECONDS = 5.0  # the round trip and one round's work
_STEP_SECONDS = 60.0  # by which a wall clock may be set back without a new notice


class Phase(Enum):
    """Where something is on that way. TOO_SOON and BROKEN take back its notice, WAITING and GRACE leave it alone."""

    WAITING = "waiting"
    TOO_SOON = "too soon"
    CANDIDATE = "candidate"
    BROKEN = "broken"
    GRACE = "grace"
    DUE = "due"


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How long something has been without use, and by how much that may lag behind.

    `own_clock`: its agents count it, whatever is done to the controller and its clock.
    """

    seconds: float
    lag_seconds: float = 0.0
    own_clock: bool = True


def count_of(nodes: Iterable[Node], held_seconds: float, now: datetime) -> Count:
    """Return the count of what runs on these nodes, by the slowest of their agents."""
    lag, own = 0.0, True
    for node in nodes:
        verdict = node.verdict
        behind = 0.0 if verdict is None else verdict.age_seconds + 2 * verdict.interval_seconds
        lag = max(lag, behind + max(0.0, node.waited_seconds(now)))
        own = own and node.state is not NodeState.STOPPED and not node.signal.windowed
    return Count(seconds=held_seconds, lag_seconds=lag + _SLACK_SECONDS, own_clock=own)


def phase(
    count: Count, wait: float, notice: Notice | None, grace: float, now: datetime, *, may_grow: bool = False
) -> Phase:
    """Return where something is that waits; `may_grow`: its wait may grow after the notice."""
    if count.seconds < wait:
        stays = notice is None or (may_grow and unbroken(count, notice, now))
        return Phase.WAITING if stays else Phase.TOO_SOON
    if notice is None:
        return Phase.CANDIDATE
    if not unbroken(count, notice, now) or is_set_back(notice, now):
        return Phase.BROKEN
    return Phase.GRACE if left_seconds(count, notice, grace, now) > 0 else Phase.DUE


def unbroken(count: Count, notice: Notice, now: datetime) -> bool:
    """Whether nothing has used it since the notice, as far as its count may lag behind."""
    return count.seconds + count.lag_seconds >= (now - notice.at).total_seconds()


def left_seconds(count: Count, notice: Notice, grace: float, now: datetime) -> float:
    """Return how long to wait until what a notice promised may happen; 0.0 or less: not any more.

    `grace` is what is given now.
    """
    promise = notice.promise
    if promise is None:
        return float("inf")
    longest = max(grace, promise.grace_seconds)
    since = (now - notice.at).total_seconds()
    if count.own_clock and promise.idle_seconds is not None:
        passed = count.seconds - promise.idle_seconds
    else:
        passed = since - sum(each.seconds for each in notice.interruptions if each.why == "away")
    return max((promise.stop_at - now).total_seconds(), longest - since, longest - passed)


def is_set_back(notice: Notice, now: datetime) -> bool:
    """Whether a notice would be waited for longer than a new one like it: the wall clock was set back since."""
    promise = notice.promise
    if promise is None:
        return False
    ahead = max((notice.at - now).total_seconds(), (promise.stop_at - now).total_seconds() - promise.grace_seconds)
    return ahead > _STEP_SECONDS
