"""Sudden mass idleness: many nodes of a pool that turned idle at the same time. A sensor is suspected, not luck.

Occupied, parked and stalled nodes count like idle ones: a sensor that reads zero makes nodes look so on which
somebody's process is alive.
"""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.guard.settings import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node

_SINCE_START = timedelta(minutes=10)  # idle since its start, or nearly: it never turned idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """So many of the `members` that worked until then turned idle between these times."""

    count: int
    members: int
    first: datetime
    last: datetime


def burst(observation: Observation, pool: str, limits: Limits) -> Burst | None:
    """The latest mass idleness of a pool that nobody has acknowledged since (`gpuwatch acknowledge`).

    It is recognised by how long each verdict has held, so it needs no memory and survives a restart. The share is of
    the nodes that could turn idle then: neither those idle before nor those started after make it smaller.
    """
    roster = observation.fleet.roster(pool)
    if roster.without_work < limits.mass_idleness_nodes:
        return None
    members = [node for node in roster.nodes if node.id in roster.members]
    known = [at for named, at in observation.ledger.acknowledged if named in {None, pool}]
    window = timedelta(seconds=limits.mass_idleness_window)
    onset_of = [(node, _onset(node, observation.now)) for node in members]
    onsets = sorted(onset for node, onset in onset_of if onset is not None and not _from_start(node, onset))
    could = [node for node, onset in onset_of if onset is None or not _from_start(node, onset)]
    starts = sorted(node.launched_at for node in could if node.launched_at is not None)
    found, low = None, 0
    for high, last in enumerate(onsets):
        while last - onsets[low] > window:
            low += 1
        count = high - low + 1
        # Those not started after it, without those idle before it.
        working = max(count, bisect_right(starts, last) - low)
        enough = count >= max(limits.mass_idleness_nodes, limits.mass_idleness_ratio * working)
        if enough and last >= max(known, default=last):
            found = Burst(count=count, members=working, first=onsets[low], last=last)
    return found


def _onset(node: Node, now: datetime) -> datetime | None:
    """When a node ceased to work, as far as its present state says; None where it works, or nobody knows.

    Prometheus counts no time of occupied, parked and stalled nodes: they did not all turn so in this round.
    """
    activity = node.activity
    if activity.state in {State.BUSY, State.UNKNOWN} or (activity.since is None and activity.held_seconds == 0.0):
        return None
    return now - timedelta(seconds=activity.held_seconds)


def _from_start(node: Node, onset: datetime) -> bool:
    """Whether a node was idle from its start."""
    return node.launched_at is not None and onset - node.launched_at < _SINCE_START
