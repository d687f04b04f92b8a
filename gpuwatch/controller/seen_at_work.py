"""Idle time held to what this process itself has seen: a machine that worked then has not been idle since before.

A clock goes wrong, a snapshot is restored, two agents answer for one machine by turns, or the replicas of a Prometheus
do: each answer may be possible by itself. Where a machine claims that it has been idle since before it was last seen at
work, its use is unknown for a day from then. Waits follow from nothing that is contradicted (P2, P9).
"""

from dataclasses import replace

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, Node

_DAY_SECONDS = 86400.0
_SLACK_SECONDS = 120.0  # work may end, and be dated back, between two samples
_MANY = 2  # times as many machines on record as there are: those that are gone are forgotten
_BUSY, _UNKNOWN = State.BUSY, State.UNKNOWN  # to look a member up takes longer than to compare it


def with_seen_work(fleet: Fleet, seen: dict[str, float], uptime: float) -> Fleet:
    """The fleet, in which no idle time reaches back before the last look at work; `seen` has those, by machine."""
    if len(seen) > _MANY * len(fleet.nodes):
        for node_id in seen.keys() - {node.id for node in fleet.nodes}:
            del seen[node_id]
    doubted: dict[int, Node] = {}
    for place, node in enumerate(fleet.nodes):
        verdict = node.signal.verdict
        if verdict is None:
            continue
        activity = verdict.activity
        if activity.state is _BUSY:
            if not node.signal.windowed:  # a window that has work in it does not say when that was
                seen[node.id] = uptime - verdict.age_seconds - verdict.interval_seconds  # with all that it may be late
        elif (worked := seen.get(node.id)) is not None and activity.state is not _UNKNOWN:
            ago = uptime - worked
            if ago + _SLACK_SECONDS < activity.held_seconds and ago <= _DAY_SECONDS:
                doubted[place] = _in_doubt(node, activity, ago)
    if not doubted:
        return fleet
    return replace(fleet, nodes=tuple(doubted.get(place, node) for place, node in enumerate(fleet.nodes)))


def _in_doubt(node: Node, activity: Activity, ago: float) -> Node:
    """Make the use of a machine unknown that was seen at work so many seconds ago."""
    verdict = node.signal.verdict
    assert verdict is not None  # noqa: S101  it has an activity
    doubt = (
        f"it claims to have been {activity.state.value} for {format_duration(activity.held_seconds)}, but it was seen "
        f"at work {format_duration(ago)} ago: two agents may answer for it"
    )
    unknown = Activity(state=State.UNKNOWN, since=None, held_seconds=0.0, doubt=doubt)
    return replace(node, signal=replace(node.signal, verdict=replace(verdict, activity=unknown)))
