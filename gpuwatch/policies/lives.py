"""PURE: one record for each machine that was launched or started: as what, whether it is there, how it ended.

Rules, all of them:

1. A launch is a life from the moment at which its cloud may have carried it out. A start is one from when it was
   carried out, or given up although it was accepted; it ends what the machine's life was before.
2. A life ends by our own removal, by its cloud's notice, or by itself: its cloud lists it no more, or as stopped,
   and we did not do that. What a silent cloud does not show has not ended. One that runs again has not, either. After
   a start a list that shows it stopped may be late: for three minutes the machine's launch time must be another one.
   While a removal of ours may be under way nothing is known: its own outcome says how the machine ended. What goes
   within ten minutes after such a removal was given up counts as removed, so it counts neither way. What went while its
   cloud did not answer, or while no round looked, ended when that began: nobody saw it last any longer.
3. A machine that was launched on top of what is wanted (code `back_to_spot`) is a surplus until another machine of the
   pool is removed, which then goes in its place, or until it ends itself.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from gpuwatch.model.activity import State
from gpuwatch.model.bounds import time_on_record
from gpuwatch.model.cloud_notice import STATE
from gpuwatch.model.decision import LAUNCHED_AT, REMOVALS, SETTLE_TIMEOUT, Done, OpenIntent, Status, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.life import STARTED, End, Life
from gpuwatch.model.measurement import OffersPast
from gpuwatch.policies.spot import records
from gpuwatch.policies.spot.records import BACK_TO_SPOT

# How outcomes of a launch name its machine: accepted, settled, ended before it was a node, and left without a place.
LAUNCHES, SHOWN, ENDED = "the cloud launches ", "the cloud shows ", "was launched and is terminated"
_LAUNCHED = "the cloud launched "
NEVER_RAN = "was accepted, had no place to run, and is left there stopped"
THERE = frozenset({NodeState.RUNNING, NodeState.PENDING, NodeState.UNKNOWN})
_HOWS = frozenset(each.value for each in End)
_GONE = frozenset({NodeState.TERMINATING, NodeState.TERMINATED})
_ENDINGS = frozenset({Verb.LOST, Verb.ENDED})
# How outcomes of a start say why its machine did not run.
DID_NOT_START = "it did not start, "
# The arguments of a record of an end: how it ended, when, and whether it had work; "": nobody knows.
HOW, ENDED_AT, WORKED, WHY = "how", "ended_at", "worked", "why"
# For so long a list may lack a machine that is there.
LATE = timedelta(minutes=3)
_FRESH = timedelta(hours=1)  # after a launch; a machine that falls back to stopped has never run


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What was seen of a machine since it became a node: whether its agent answered, and whether it had work.

    `gone_at` is since when lists lack it, or show it stopped; None: they show it. `hidden_since` is since when no list
    says anything of it, for as long as none has shown it since: its cloud did not answer, or no round looked.
    """

    answered: bool = False
    worked: bool | None = None
    gone_at: datetime | None = None
    hidden_since: datetime | None = None


_UNSEEN = Use()


def lives(
    ended: Iterable[Done], opened: Iterable[OpenIntent], fleet: Fleet, now: datetime, seen: Mapping[str, Use]
) -> tuple[Life, ...]:
    """The life of every machine that was launched or started, oldest first.

    `ended` has what the ledger's last three days have of them, `seen` what was seen of lives, by their keys.
    """
    known, opened = sorted(ended, key=lambda done: (done.at, done.key)), tuple(opened)
    ends = defaultdict[str, list[Done]](list)
    for done in known:
        if ends_a_life(done):
            ends[done.node_id].append(done)
    going, ours = [entry.intent for entry in opened if not entry.resumable], nodes_we_may_remove(opened)
    begun = [_begin_life(done, seen) for done in known if _begins(done)]
    over = _ends_by_starts(begun)
    found = [
        end_life(life, ends.get(life.node_id or "", ()), ours, fleet, now, seen)
        if life.key not in over
        else _end_by_start(life, ends.get(life.node_id or "", ()), over[life.key])
        for life in begun
    ]
    found += [
        Life(key=each.key, pool=each.pool, at=each.at, asked=each.arguments, surplus=each.reason.code == BACK_TO_SPOT)
        for each in going
        if each.verb is Verb.LAUNCH
    ]
    removed = {done.node_id: done for done in known if done.verb in REMOVALS and done.status is Status.SETTLED}
    left = [(done.at, done.pool, done.node_id) for done in removed.values()]
    left += [(each.at, each.pool, each.node_id) for each in going if each.verb in REMOVALS]
    return _with_surplus(found, left)


def ends_a_life(done: Done) -> bool:
    """Whether a finished action is about the end of a machine: it was removed, or may have been, or was seen to go."""
    return done.verb in _ENDINGS or (done.verb in REMOVALS and (done.status is Status.SETTLED or _is_in_doubt(done)))


def _is_in_doubt(done: Done) -> bool:
    """Whether it was given up, and may have been carried out all the same."""
    return done.status is Status.FAILED and done.reached


def nodes_we_may_remove(opened: Iterable[OpenIntent]) -> frozenset[str]:
    """The nodes with a removal of ours that is under way, or may be."""
    return frozenset(entry.intent.node_id for entry in opened if entry.intent.verb in REMOVALS and entry.counts)


def _begins(done: Done) -> bool:
    """Whether a finished action began a life (rule 1)."""
    if done.verb is Verb.START:
        return done.status is Status.SETTLED or (done.status is Status.FAILED and done.reached)
    return done.verb is Verb.LAUNCH and (done.status is Status.SETTLED or done.detail.endswith(ENDED))


def launched_machine(detail: str) -> str | None:
    """The machine that an outcome of a launch names; None: it names none."""
    for begin in (LAUNCHES, _LAUNCHED, SHOWN):
        if detail.startswith(begin):
            made = detail.removeprefix(begin).partition(",")[0]
            return None if " " in made else made  # "no machine with its key"
    return detail.partition(" ")[0] if detail.endswith(ENDED) or f" {NEVER_RAN}" in detail else None


def launch_details(node_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The outcomes of a launch that name this machine: whole, and how others begin."""
    return (f"{LAUNCHES}{node_id}", f"{SHOWN}{node_id}"), (f"{_LAUNCHED}{node_id},", f"{node_id} ")


def _begin_life(done: Done, seen: Mapping[str, Use]) -> Life:
    """The life that a finished launch or start began."""
    failed, start = done.status is Status.FAILED, done.verb is Verb.START
    node_id = done.node_id if start else done.detail.partition(" ")[0] if failed else done.detail.removeprefix(SHOWN)
    use = seen.get(done.key, _UNSEEN)
    begun = (done.reached_at if start and failed else None) or done.at
    return Life(
        key=done.key,
        pool=done.pool,
        at=begun,
        asked={**done.arguments, STARTED: node_id} if start else done.arguments,
        node_id=node_id,
        surplus=done.code == BACK_TO_SPOT,
        end=None if not failed else End.STOPPED if start else End.ENDED,
        ended_at=done.at if failed else None,
        why=done.detail.rpartition(DID_NOT_START)[2] if start and failed else None,
        answered=use.answered,
        worked=False if failed else use.worked,
        recorded=failed,
    )


def _ends_by_starts(begun: Iterable[Life]) -> dict[str, datetime]:
    """When the next start of the same machine ended a life, by the keys of these lives."""
    newest, found = dict[str, Life](), dict[str, datetime]()
    for life in begun:
        before = newest.get(life.node_id or "")
        if life.started and before is not None:
            found[before.key] = life.at
        newest[life.node_id or ""] = life
    return found


def _end_by_start(life: Life, ends: Iterable[Done], until: datetime) -> Life:
    """The life of a machine that was started again then; without a record nobody saw how it ended."""
    if life.end is not None:
        return life
    found = next((done for done in ends if life.at <= done.at <= until and not _is_in_doubt(done)), None)
    if found is None:
        return replace(life, end=End.STOPPED, ended_at=until, recorded=True)
    return as_recorded(life, found)


def end_life(
    life: Life,
    ends: Iterable[Done],
    ours: Collection[str],
    fleet: Fleet,
    now: datetime,
    seen: Mapping[str, Use],
) -> Life:
    """The life with its end, where it has one (rule 2); `ours` are the nodes that a removal of ours may be ending."""
    node_id = life.node_id or ""
    node = fleet.find(node_id)
    if life.end is not None or (node is not None and node.state in THERE):
        return life
    use = seen.get(life.key, _UNSEEN)
    since = use.gone_at or now
    ended_at = use.hidden_since or since
    since_then = [
        done for done in ends if done.at >= life.at and (not _is_in_doubt(done) or since <= done.at + SETTLE_TIMEOUT)
    ]
    newest = max(since_then, key=lambda done: (done.verb in REMOVALS, done.at), default=None)
    if newest is not None:
        return as_recorded(life, newest)
    if node_id in ours:
        return life
    if node is None:
        certain = node_id in fleet.ended or (not fleet.silent and now - since >= LATE)
        return replace(life, end=End.ENDED, ended_at=ended_at) if certain else life
    if node.state is NodeState.STOPPED and life.started and not _is_newer(node, life) and now - since < LATE:
        return life
    if node.state in _GONE or node.state is NodeState.STOPPED:
        end = End.ENDED if node.state in _GONE else End.STOPPED
        return replace(life, end=end, ended_at=ended_at, why=node.failed_start)
    return life


def _is_newer(node: Node, life: Life) -> bool:
    """Whether a list shows a machine as it was after its start, and not as it was before."""
    before = life.asked.get(LAUNCHED_AT)
    return before is not None and node.launched_at is not None and node.launched_at.isoformat() != before


def as_recorded(life: Life, record: Done) -> Life:
    """The life with the end that the ledger has."""
    if record.verb in REMOVALS:
        return replace(life, end=End.REMOVED, ended_at=record.at)
    if record.verb is Verb.LOST:
        worked = True if record.arguments.get(STATE) == State.BUSY.value else life.worked
        return replace(life, end=End.TAKEN, ended_at=record.at, worked=worked, recorded=True)
    about = record.arguments
    how = about.get(HOW, "")
    return replace(
        life,
        end=End(how) if how in _HOWS else End.ENDED,
        ended_at=time_on_record(about.get(ENDED_AT)) or record.at,
        why=about.get(WHY),
        worked={"true": True, "false": False}.get(about.get(WORKED, "")),
        recorded=True,
    )


def _with_surplus(found: list[Life], left: Iterable[tuple[datetime, str, str]]) -> tuple[Life, ...]:
    """Return the lives; of those launched on top of what is wanted a surplus is what rule 3 leaves."""
    extra = {each.node_id or each.key: each for each in found if each.surplus}
    if not extra:
        return tuple(found)
    events = [(each.at, 0, each.pool, name) for name, each in extra.items()]
    events += [(at, 1, pool, node_id) for at, pool, node_id in left]
    lost = [each for each in extra.values() if each.ended_at is not None and each.end is not End.REMOVED]
    events += [(each.ended_at or each.at, 2, each.pool, each.node_id or each.key) for each in lost]
    waiting: dict[str, list[str]] = {}
    for _, kind, pool, name in sorted(events):
        here = waiting.setdefault(pool, [])
        if kind == 0:
            here.append(name)
        elif name in here:
            here.remove(name)
        elif kind == 1 and here:
            here.pop(0)
    keys = {extra[name].key for name in chain.from_iterable(waiting.values())}
    return tuple([replace(each, surplus=each.key in keys) for each in found])


def offers_past(
    recent: Iterable[Done], fleet: Fleet, pool: str, now: datetime, *, ours: Collection[str] = ()
) -> OffersPast:
    """What the ledger's last three days and the fleet say of a pool's offers.

    `ours` are the nodes that a removal of ours may be ending: none of them is a loss.
    """

    def lives(node_id: str) -> bool | None:
        node = fleet.find(node_id)
        if node_id in ours and (node is None or node.state not in THERE):
            return None
        if node is None:
            return None if fleet.silent and node_id not in fleet.ended else False
        return True if node.state in THERE else False if node.state in _GONE else None

    def brought(done: Done) -> tuple[str | None, bool]:
        node_id = done.detail.removeprefix(SHOWN)
        if node_id == done.detail:
            return None, done.detail.endswith(ENDED)
        node = fleet.find(node_id)
        fell_back = node is not None and node.state is NodeState.STOPPED and node.failed_start is not None
        return node_id, fell_back and now - done.at < _FRESH  # later it is a start that failed

    return records.past(recent, pool, now, brought=brought, lives=lives)
