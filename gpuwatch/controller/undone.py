"""Stops that somebody undoes: what the ledger has of them, what is seen of their use, and the record that ends the war.

The newest removals are read once by a process, and again after a step of the clock; each round adds what it has read of
the last hour anyway. A new process does not know what a machine did before its first round: then only its agent's own
count, or how long after its start it turned idle, says whether it was used.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.controller.context import ControllerContext, PastRemovals, Watched
from gpuwatch.controller.interruptions import Record, write_record
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Intent, LedgerView, Observation, Reason, Status, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.model.undone import REMOVAL, UNDONE_AT, UNTIL, Removal, Undone
from gpuwatch.policies.undone import (
    CODE,
    REPEATS,
    USE,
    is_over,
    is_told,
    judge_undone,
    newcomers,
    note_action,
    repeats_sentence,
    sentence_of,
    undone_at,
)

_LONGEST_GAP = timedelta(minutes=30)  # every view goes back an hour at least
_WATCHED = timedelta(minutes=10)  # whoever first looks later does not know what was before
_CLOCKS_APART = timedelta(minutes=10)  # of a machine and of its cloud


def with_undone(parts: ControllerContext, seen: Observation) -> Observation:
    """The observation with the removals that somebody has undone, as far as nothing was used since."""
    if parts.starts_are_needs:
        return seen
    known, now = _past_removals(parts, seen.ledger, seen.now), seen.now
    found: list[Undone] = []
    for removal in list(known.newest.values()):
        at = undone_at(removal, seen.fleet, seen.ledger, _first_seen(known, removal, now), now)
        if at is not None:
            news = removal.key not in known.watched
            watch = known.watched[removal.key] = _watch(known, removal, seen, at)
            made = judge_undone(removal, at, now, told=removal.key in known.told) if news or not watch.used else None
            # What is used before it was seen is no disagreement, and was taken back all the same: that is said once.
            made = (
                replace(made, times=0, row=0, before=None, until=None, quiet_at=None) if made and watch.used else made
            )
        else:
            made = judge_undone(removal, None, now, told=True) if seen.fleet.find(removal.target) else None
        if made is not None:
            found.append(made)
        elif is_over(removal, now):
            del known.newest[removal.target]
    keys = {each.key for each in known.newest.values()}
    known.watched = {key: watch for key, watch in known.watched.items() if key in keys}
    return replace(seen, undone=tuple(sorted(found, key=lambda each: each.target))) if found else seen


def _past_removals(parts: ControllerContext, seen: LedgerView, now: datetime) -> PastRemovals:
    """What this process knows of them, with what this round has read."""
    known, back = parts.memory.removals, parts.memory.clock_steps.back_seconds
    stale = known.at is None or known.back_seconds != back or not timedelta(0) <= now - known.at <= _LONGEST_GAP
    if stale:
        known.newest.clear()
        known.noted = frozenset()
    for view in (parts.removals(now), seen) if stale else (seen,):
        for done in view.recent:
            if done.key in known.noted:
                continue
            if done.verb is Verb.LEFT_ALONE and done.status is Status.SETTLED:
                about = done.arguments
                known.told[about.get(REMOVAL, "")] = _time(about.get(UNDONE_AT)) or done.at
            else:
                note_action(known.newest, done)
        known.noted = frozenset(done.key for done in view.recent) | (known.noted if stale else frozenset())
        for pool, at in view.resume_orders:
            gone = [each.target for each in known.newest.values() if each.pool == pool and each.at <= at]
            for target in gone:
                del known.newest[target]
    known.at, known.back_seconds = now, back
    return known


def _first_seen(known: PastRemovals, removal: Removal, now: datetime) -> datetime:
    """When it was first seen undone, as the record says, or by this process."""
    if removal.key in known.told:
        return known.told[removal.key]
    watch = known.watched.get(removal.key)
    return now if watch is None else watch.since


def _watch(known: PastRemovals, removal: Removal, seen: Observation, at: datetime) -> Watched:
    """What is known of use since, with this round: what agents have counted, or what rounds have seen."""
    nodes, now = newcomers(removal, seen.fleet), seen.now
    before = known.watched.get(removal.key)
    if before is None:
        missed = (
            max((_not_idle(each, at, now) for each in nodes), default=timedelta(0)) if now - at > _WATCHED else None
        )
        before = Watched(since=now, last=now, busy=missed or timedelta(0), used=False)
    busy = before.busy
    if any(each.activity.state is State.BUSY for each in nodes):
        busy += max(timedelta(0), min(now - before.last, 2 * timedelta(seconds=seen.interval_seconds)))
    counted = max((_agents_count(each, at) for each in nodes), default=timedelta(0))
    used = before.used or max(busy, counted) >= USE
    return Watched(since=before.since, last=now, busy=busy, used=used)


def _not_idle(node: Node, at: datetime, now: datetime) -> timedelta:
    """For how long a machine that nobody watched was not idle since its start, at most: what a window shows is less."""
    verdict, begun = node.verdict, max(at, node.launched_at or at)
    if verdict is None or node.signal.windowed or verdict.activity.state is not State.IDLE:
        return timedelta(0)
    return now - begun - timedelta(seconds=max(0.0, verdict.activity.held_seconds))


def _agents_count(node: Node, at: datetime) -> timedelta:
    """For how long its agent has counted it as busy since it was started: each run of an agent counts by itself."""
    tally = None if node.verdict is None else node.verdict.tally
    if tally is None or tally.since < at - _CLOCKS_APART:
        return timedelta(0)
    return timedelta(seconds=tally.node_seconds.get(State.BUSY, 0.0))


def record_disagreements(parts: ControllerContext, observation: Observation, round_id: int) -> tuple[Intent, ...]:
    """Write down once of each target that it is left alone, or is undone again and again: its owner gets a message."""
    news = [each for each in observation.undone if is_told(each) and not each.told and not each.waits]
    return tuple(_record(parts, observation, each, each.until, round_id) for each in news)


def _record(
    parts: ControllerContext, observation: Observation, found: Undone, until: datetime | None, round_id: int
) -> Intent:
    owners, node = _owners(observation, found), observation.fleet.find(found.target)
    price = None if node is None else observation.price(node)
    made = Record(
        verb=Verb.LEFT_ALONE,
        node_id=found.target,
        pool=found.pool,
        reason=Reason(code=REPEATS, sentence=repeats_sentence(found))
        if until is None
        else Reason(code=CODE, sentence=sentence_of(found, until)),
        arguments={
            REMOVAL: found.key,
            UNDONE_AT: found.at.isoformat(),
            **({} if until is None else {UNTIL: until.isoformat()}),
        },
        owner=owners[0] if len(owners) == 1 else None,
        usd_per_hour=None if price is None else price.usd_per_hour,
    )
    return write_record(parts, made, round_id)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _owners(observation: Observation, found: Undone) -> Sequence[str]:
    """The owners of a machine, or of a group's members."""
    if not found.group:
        node = observation.fleet.find(found.target)
        return [] if node is None or node.owner is None else [node.owner]
    members = [each for each in observation.fleet.roster(found.pool).nodes if each.group == found.target]
    return sorted({each.owner for each in members if each.owner is not None})
