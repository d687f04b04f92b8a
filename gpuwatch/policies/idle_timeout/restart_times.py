"""PURE: how long the machines of a pool take from their start until they first work, as measured.

Rules, all of them:

1. A start is a launch time: clouds renew it at every start of a machine.
2. From there to the beginning of its first busy verdict is one measurement, if that lies within an hour. A machine that
   was started and left idle for longer is no measure of a restart, and neither is one that claims work from before.
3. The newest 64 measurements count. Their median is what a restart costs, once there are five. A machine
   that waited for its users, or was looked at late, seems slow, so a mean or a higher quantile would be too dear.
4. Of every start and launch that gpuwatch asked for its cloud says whether it had a machine. That is counted once, and
   what is older counts less: about the last four weeks count. What was ours or the network's fault, says nothing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter
from statistics import median

from gpuwatch.model.activity import State
from gpuwatch.model.decision import ADDITIONS, Done, Status
from gpuwatch.model.fleet import Node, NodeState

LONGEST_SECONDS = 3600.0
ENOUGH = 5
_KEPT = 64
_FADING = 28 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """A pool's measurements, the newest last; `counted` has the starts of the last hour that they hold already."""

    seconds: tuple[float, ...] = ()
    counted: dict[str, float] = field(default_factory=dict)
    asked: float = 0.0  # starts and launches that the cloud answered, older ones fading
    refused: float = 0.0  # those of them for which it had no machine
    answered_at: float | None = None  # when the newest that was counted ended


def watch_starts(starts: Starts, at: float, nodes: Iterable[Node]) -> Starts:
    """The measurements after a round."""
    counted = {name: begun for name, begun in starts.counted.items() if at - begun <= LONGEST_SECONDS}
    seconds = starts.seconds
    earliest = datetime.fromtimestamp(at - LONGEST_SECONDS - 1, UTC)  # most are older, and that is soon seen
    young = [node for node in nodes if node.launched_at is not None and node.launched_at >= earliest]
    for node in young:
        begun = _began_at(node, at)
        if begun is not None and counted.get(node.id) != begun:
            took = at - node.activity.held_seconds - begun
            counted[node.id] = begun
            seconds = (*seconds, took)[-_KEPT:] if took > 0 else seconds
    return (
        starts
        if (seconds, counted) == (starts.seconds, starts.counted)
        else replace(starts, seconds=seconds, counted=counted)
    )


def count_refusals(starts: Starts, done: Iterable[Done]) -> Starts:
    """The measurements after these ended starts and launches of the pool, in whatever order (rule 4)."""
    since = -math.inf if starts.answered_at is None else starts.answered_at
    for each in sorted(done, key=attrgetter("at")):
        at = each.at.timestamp()
        failed = each.status is Status.FAILED and each.fault is None
        if at <= since or each.verb not in ADDITIONS or not (failed or each.status is Status.SETTLED):
            continue
        kept = 1.0 if starts.answered_at is None else math.exp((starts.answered_at - at) / _FADING)
        asked, refused = starts.asked * kept + 1, starts.refused * kept + failed
        starts = replace(starts, asked=asked, refused=refused, answered_at=at)
    return starts


def measured_restart(starts: Starts) -> tuple[float | None, int]:
    """What a restart costs in seconds, None where too little is measured, and how many starts say so."""
    count = len(starts.seconds)
    return (median(starts.seconds) if count >= ENOUGH else None), count


def _began_at(node: Node, at: float) -> float | None:
    """When a machine that works now was started, where that is within the hour."""
    if node.state is not NodeState.RUNNING or node.launched_at is None or node.activity.state is not State.BUSY:
        return None
    begun = node.launched_at.timestamp()
    return begun if 0 <= at - begun <= LONGEST_SECONDS else None
