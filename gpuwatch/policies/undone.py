"""PURE: a stop that somebody undoes twice within a day is a disagreement: its target is left alone for a growing time.

Rules, all of them:

1. A removal is undone if its machine runs again, or its group is to be larger than it was left, and gpuwatch itself
   has not started the one or grown the other since. A stop that its cloud ascribes to others is no stop of gpuwatch.
2. That counts until there is use: the machine, or a member that came to the group since, was busy for a quarter of an
   hour in all. Then the start was a need. What a boot does for some minutes is no use.
3. Two in a row, the second undone within a day after the first removal: the target is left alone for a day. What is
   undone once a day is removed again each time, for idle hours cost more than a boot. At the third in a row its owner
   gets a message, and then at each seventh.
4. Then it is tried once. Undone again, it is left alone for twice as long, two weeks at most. If it is not undone again
   for as long as it was left alone, all of it is forgotten.
5. A machine that somebody starts again is wanted: it is not ended for two weeks more, however long it was left alone.
6. An order to resume a pool by its name forgets what was undone there before.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.model.bounds import time_on_record
from gpuwatch.model.decision import LAUNCHED_AT, Done, LedgerView, Observation, Status, Verb
from gpuwatch.model.duration import backoff_seconds, format_time
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.model.undone import (
    GROUP,
    REMOVED_AT,
    ROW,
    SIZE,
    STARTED_AGAIN,
    TIMES,
    UNDONE_AT,
    UNTIL,
    Removal,
    Undone,
)

CODE = "left_alone"  # of the step of a target that is left alone
REPEATS = "stops_undone"  # of what is told of a target whose removals are undone again and again
_TOLD_AT, _TOLD_AGAIN = 3, 7  # in a row, each within a day
WITHIN, USE = timedelta(days=1), timedelta(minutes=15)
LONGEST = timedelta(days=14)
# Nothing older matters: whoever was left alone for two weeks is tried, and forgotten after two more.
MEMORY = 2 * LONGEST + timedelta(days=2)
ACTIONS = frozenset({Verb.STOP, Verb.START, Verb.TERMINATE, Verb.GROW, Verb.LEFT_ALONE})
_TOGETHER = timedelta(minutes=10)  # removals of one group that assumed the same size are of one round
_SLACK = timedelta(minutes=1)  # between a cloud's clock and ours
_ADDS = frozenset({Verb.START, Verb.GROW})
_STILL_DOWN = frozenset(
    {NodeState.STOPPED, NodeState.STOPPING, NodeState.TERMINATING, NodeState.TERMINATED, NodeState.UNKNOWN}
)


def runs_again(at: datetime, launched_at: datetime | None, node: Node | None) -> bool:
    """Whether it is proved that somebody has started the node since a stop that was seen `at`.

    One list that lacks it, or that is stale, is no proof. That its agent answers is one, and another launch time.
    """
    if node is None or node.state in _STILL_DOWN:
        return False
    if node.verdict is not None or node.launched_at is None:
        return True
    return node.launched_at != launched_at if launched_at is not None else node.launched_at > at


def note_action(known: dict[str, Removal], done: Done) -> None:
    """Keep the newest removal of each target: a start or a growth of gpuwatch's own ends what could be undone.

    Actions come in the order in which they were intended.
    """
    if done.verb in _ADDS:
        if done.status is Status.SETTLED or done.reached:
            known.pop(done.node_id, None)
    elif done.verb is Verb.STOP:
        _note_stop(known, done)
    elif done.verb is Verb.TERMINATE and done.status is Status.SETTLED:
        known.pop(done.node_id, None)
        if GROUP in done.arguments and done.arguments.get(SIZE, "").isdecimal():
            _note_end(known, done)


def _note_stop(known: dict[str, Removal], done: Done) -> None:
    """A machine's stop: one that was undone before it was seen has failed."""
    if done.status is Status.SETTLED and NOT_PROVED in done.detail:
        known.pop(done.node_id, None)
    elif done.status is Status.SETTLED or (done.reached and done.detail == STARTED_AGAIN):
        known[done.node_id] = _removal(done, done.node_id, None)


def _note_end(known: dict[str, Removal], done: Done) -> None:
    """The end of a group's member with its place."""
    target, size = done.arguments[GROUP], int(done.arguments[SIZE])
    before = known.get(target)
    made = _removal(done, target, size - 1)
    together = (
        before is not None
        and before.left is not None
        and before.size == size
        and before.before == made.before
        and abs(made.at - before.at) <= _TOGETHER
    )
    if together and before is not None and before.left is not None:
        made = _removal(done, target, before.left - 1)
    elif before is not None and before.left is not None and made.before is None and size <= before.left:
        # Nobody has undone the last one: it is the same removal, of members that could go later.
        made = replace(made, before=before.before)
    known[target] = made


def _removal(done: Done, target: str, left: int | None) -> Removal:
    """The removal that the ledger has as ended."""
    size = done.arguments.get(SIZE, "")
    return Removal(
        target=target,
        pool=done.pool,
        key=done.key,
        at=done.reached_at or done.at,
        seen_at=done.at,
        launched_at=time_on_record(done.arguments.get(LAUNCHED_AT)),
        size=int(size) if left is not None else None,
        left=left,
        before=_undone_before(done, target),
    )


def _undone_before(done: Done, target: str) -> Undone | None:
    """What was undone before it, without use in between; what cannot be read was not."""
    about: Mapping[str, str] = done.arguments
    try:
        times, row, until = int(about.get(TIMES, "")), int(about.get(ROW, "1")), about.get(UNTIL)
        return Undone(
            target=target,
            pool=done.pool,
            key=done.key,
            removed_at=datetime.fromisoformat(about[REMOVED_AT]),
            at=datetime.fromisoformat(about[UNDONE_AT]),
            times=times,
            row=row,
            until=None if until is None else datetime.fromisoformat(until),
            quiet_at=None if until is None else datetime.fromisoformat(until) + _rest(times),
        )
    except (LookupError, ValueError):
        return None


def _rest(times: int) -> timedelta:
    """For how long a target is left alone at so many disagreements in a row (rules 3 and 4)."""
    return timedelta(seconds=backoff_seconds(times, first=WITHIN.total_seconds(), longest=LONGEST.total_seconds()))


def is_over(removal: Removal, now: datetime) -> bool:
    """Whether it no longer matters if the removal is undone from now on."""
    before = removal.before
    return now > max(removal.at + WITHIN, removal.at if before is None or before.until is None else _end(before.until))


def _end(until: datetime) -> datetime:
    """When nothing of it matters any more: no longer rest follows, and a machine may be ended."""
    return until + LONGEST


def undone_at(removal: Removal, fleet: Fleet, ledger: LedgerView, seen_at: datetime, now: datetime) -> datetime | None:
    """When somebody undid a removal; None: it stands, or gpuwatch itself is about to undo it (rule 1).

    `seen_at` is when it was first seen undone, where no clock of the cloud says it.
    """
    if ledger.open_step(removal.target, Verb.START) is not None or _grows(ledger, removal.target):
        return None
    if removal.left is not None:
        group = fleet.group(removal.target)
        if group is None or not group.seen_now or not group.enrolled or group.desired <= removal.left:
            return None
        begun = [each.launched_at for each in newcomers(removal, fleet) if each.launched_at is not None]
        return min([*begun, seen_at, now])
    node = fleet.find(removal.target)
    if node is None or not node.enrolled or not runs_again(removal.seen_at, removal.launched_at, node):
        return None
    begun_at = node.launched_at
    return min(now, begun_at if begun_at is not None and begun_at >= removal.at - _SLACK else seen_at)


def _grows(ledger: LedgerView, target: str) -> bool:
    entry = ledger.open_step(target, Verb.GROW)
    return entry is not None and entry.intent.verb is Verb.GROW


def newcomers(removal: Removal, fleet: Fleet) -> list[Node]:
    """The machines that show whether there is a need: the machine itself, or the members that came since (rule 2)."""
    if removal.left is None:
        node = fleet.find(removal.target)
        return [] if node is None else [node]
    roster = fleet.roster(removal.pool).nodes
    since = removal.at - _SLACK
    return [
        each
        for each in roster
        if each.group == removal.target and each.launched_at is not None and each.launched_at >= since
    ]


def judge_undone(removal: Removal, at: datetime | None, now: datetime, *, told: bool) -> Undone | None:
    """What follows from a removal that was undone at that time, and not used since (rules 3 to 5); None: nothing.

    Without a time it stands: what was a disagreement before is one still, until that is forgotten.
    """
    before = removal.before
    quiet_at = None if before is None else before.quiet_at
    if at is None:
        waits = before is not None and before.until is not None and now <= _end(before.until)
        return replace(before, key=removal.key, waits=True, told=True) if before is not None and waits else None
    again = before is not None and quiet_at is not None and at <= quiet_at
    row = before.row + 1 if before is not None else 1
    soon = before is not None and at - before.removed_at <= WITHIN
    times = before.times + 1 if before is not None and again else int(soon)
    until = at + _rest(times) if times else None
    quiet_at = None if until is None else until + _rest(times)
    if now > (removal.at + WITHIN if until is None else _end(until)):
        return None
    return Undone(
        target=removal.target,
        pool=removal.pool,
        key=removal.key,
        removed_at=removal.at,
        at=at,
        times=times,
        row=row,
        before=before.at if before is not None and times else None,
        until=until,
        quiet_at=quiet_at,
        group=removal.left is not None,
        told=told,
    )


def undone_of(observation: Observation, node: Node) -> Undone | None:
    """What is undone of a machine, or of its group."""
    targets = {node.id, node.group}
    return next((each for each in observation.undone if each.target in targets), None)


def in_force(found: Undone, now: datetime) -> tuple[bool, bool]:
    """Whether its target is not to be stopped now, and whether it is not to be ended."""
    stays = found.until is not None and found.until > now and not found.waits
    return stays, stays if found.group else found.until is not None and _end(found.until) > now


def why_left_alone(observation: Observation, node: Node, *, ends: bool) -> str | None:
    """Why a machine is not to be removed now, as a sentence; None: nothing was undone. `ends`: it would be ended."""
    found = undone_of(observation, node) if observation.undone else None
    if found is None or found.until is None or not in_force(found, observation.now)[ends]:
        return None
    return sentence_of(found, found.until if found.group or not ends else _end(found.until))


def sentence_of(found: Undone, until: datetime) -> str:
    """Say what somebody does, and until when gpuwatch leaves the target alone for it."""
    often = "again" if found.before is None else "again twice"
    since = "the last time " if found.before is None else f"at {format_time(found.before)} and "
    when = f"{since}at {format_time(found.at)}"
    if found.group:
        return (
            f"Somebody made its group larger {often} after gpuwatch had ended members of it, {when}, and the new "
            f"members had no work. gpuwatch leaves the group alone until {format_time(until)}."
        )
    return (
        f"Somebody started it {often} after gpuwatch had stopped it, {when}, and did not use it. gpuwatch leaves "
        f"it alone until {format_time(until)}."
    )


def is_told(found: Undone) -> bool:
    """Whether people are notified: it is left alone for it, or it goes on and on."""
    return found.times > 0 or found.row % _TOLD_AGAIN == _TOLD_AT


def repeats_sentence(found: Undone) -> str:
    """Say what somebody does again and again, and what follows from it if it goes on."""
    what = "made its group larger again" if found.group else "started it again"
    ours, use = ("ended members", "the new members had no work") if found.group else ("stopped it", "did not use it")
    return (
        f"Somebody {what} {found.row} times in a row, each time within a day after gpuwatch had {ours}, the last time "
        f"at {format_time(found.at)}, and {use}. gpuwatch goes on."
    )


def change_of(pool: str) -> str:
    """Say what ends it sooner."""
    return (
        "A quarter of an hour of work on it ends this. Or turn off what undoes the stops; "
        f"`gpuwatch resume --pool {pool}` then tries again at once."
    )
