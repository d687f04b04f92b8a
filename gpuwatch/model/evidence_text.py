"""PURE: evidence as people read it: the process and its owner, the value and its limit, what reset an idle time.

Names come from hosts: they are made legible and cut here, so that every reader shows the same harmless text.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuwatch.model.activity import Activity, Evidence, LastBusy, State, WorkOwner
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.readable import legible, quantity_text
from gpuwatch.model.verdict import NodeVerdict

_LONGEST_NAME = 64
_LONGEST_NOTE = 160
LATER = "; later: "  # what follows in a note comes too late to keep the node

# What a state is in a sentence about the past: "…, after cpu was busy".
_WAS = {
    State.BUSY: "was busy",
    State.PARKED: "was parked",
    State.STALLED: "was stalled",
    State.OCCUPIED: "was occupied",
    State.UNKNOWN: "made its use unknown",
    State.IDLE: "was idle",
}


def later_text(activity: Activity) -> str | None:
    """What is due on a node too late to keep it; None: nothing is known."""
    notes = ((each.note or "").partition(LATER)[2] for each in activity.evidence)
    return next((legible(note, _LONGEST_NOTE) for note in notes if note), None)


def owner_text(owner: WorkOwner | None) -> str | None:
    """`alice's python3, pid 4711, session-3.scope`, as far as known; None: nothing is known."""
    if owner is None:
        return None
    user, unit, process = (_name(each) for each in (owner.user, owner.unit, owner.process))
    owns = user and (process or owner.pid is not None)
    who = f"{user}'s {process or 'process'}" if owns else user or process
    pid = None if owner.pid is None else f"pid {owner.pid}"
    return ", ".join(each for each in (who, pid, unit) if each) or None


def amount_text(evidence: Evidence) -> str | None:
    """`1.4 cores, limit 0.8`: what was seen against the limit; None: no number was seen."""
    return None if evidence.observed is None else quantity_text(evidence.observed, evidence.limit, evidence.unit)


def evidence_text(evidence: Evidence) -> str:
    """`cpu was busy: 1.4 cores, limit 0.8, root's fluent-bit, pid 812, fluent-bit.service`."""
    about = ", ".join(each for each in (amount_text(evidence), who_text(evidence)) if each)
    was = f"{legible(evidence.name, _LONGEST_NAME)} {_WAS[evidence.says]}"
    return f"{was}: {about}" if about else was


def change_text(evidence: Evidence) -> str:
    """` To change: agent.evidence.cpu.busy_cores.`; empty where no setting changes it."""
    return f" To change: {legible(evidence.setting)}." if evidence.setting else ""


def owners_text(activity: Activity) -> tuple[str, ...]:
    """Who keeps a node from being idle: `processes: alice's python3, pid 4711, session-3.scope`."""
    named = ((each.name, owner_text(each.owner)) for each in activity.evidence if each.says is not State.IDLE)
    return tuple(f"{legible(name, _LONGEST_NAME)}: {who}" for name, who in named if who)


def reset_text(verdict: NodeVerdict) -> str | None:
    """What keeps a node from being idle, or what its idle time began after; None: not known."""
    activity, newest = verdict.activity, newest_reset(verdict.last_busy)
    if activity.state is State.IDLE and activity.since is not None:
        passed = verdict.at + timedelta(seconds=verdict.age_seconds) - activity.since
        ago = format_duration(max(activity.held_seconds, passed.total_seconds()))
        began = f"Its idle time began {ago} ago"
        if newest is not None:
            return f"{began}, after {evidence_text(newest.evidence)}.{change_text(newest.evidence)}"
        return None if verdict.tally is None else f"{began}. {nothing_text(verdict.tally.since)}"
    if activity.state in {State.IDLE, State.UNKNOWN} or newest is None or newest.ago_seconds > 0.0:
        return None
    held = format_duration(activity.held_seconds)
    word = f"It has been {activity.state.value} for {held}: {evidence_text(newest.evidence)}"
    return f"{word}.{change_text(newest.evidence)}"


def who_text(evidence: Evidence) -> str | None:
    """The process and its owner; without an owner or an amount, what the signal noted: what a process waits for."""
    owner, note = owner_text(evidence.owner), None if evidence.note is None else legible(evidence.note, _LONGEST_NOTE)
    return note or owner if evidence.observed is None else owner or note


def last_text(verdict: NodeVerdict | None) -> str:
    """`; its idle time began after cpu was busy: …`, for what waits; empty where not known."""
    if verdict is None or verdict.activity.state is not State.IDLE:
        return ""
    newest = newest_reset(verdict.last_busy)
    return "" if newest is None else f"; its idle time began after {evidence_text(newest.evidence)}"


def newest_reset(last_busy: Sequence[LastBusy]) -> LastBusy | None:
    """The newest entry, whatever order an agent gave them; of several, one that names a process."""
    return min(last_busy, key=lambda each: (each.ago_seconds, each.evidence.owner is None), default=None)


def nothing_text(since: datetime) -> str:
    """Instead of an empty list: what was before the agent's start is not known."""
    return f"Nothing was busy since the agent started at {format_time(since)}; what was before is not known."


def _name(text: str | None) -> str | None:
    return None if text is None else legible(text, _LONGEST_NAME)
