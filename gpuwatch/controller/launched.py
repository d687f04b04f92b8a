"""Machines that were launched or started: what is seen of each from round to round, and the record of an end by itself.

The ledger keeps how a machine ended that neither gpuwatch nor a notice of its cloud removed, so that a restart loses
nothing. What was seen of a machine that is there a new process does not know: then nobody knows whether it had work.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain

from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.interruptions import Record, write_record
from gpuwatch.model.activity import State
from gpuwatch.model.bounds import bounded_text
from gpuwatch.model.decision import Done, Intent, Observation, Reason, Status, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.life import MEMBER_OF, End, Life
from gpuwatch.policies.lasting import LAUNCHES, STARTS, resting_sources
from gpuwatch.policies.lives import ENDED_AT, HOW, THERE, WHY, WORKED, Use, lives
from gpuwatch.policies.members import NEWEST, lives_of_members, note_members, raised_groups
from gpuwatch.policies.starts import WITHHELD

_WATCHED = timedelta(minutes=10)  # whoever first looks later does not know what was before
SOURCE = "source"  # what rests, in a record of that
_NO_WORK = frozenset({State.IDLE, State.UNKNOWN})


def launched_lives(
    parts: ControllerContext, seen: Observation, ended: Iterable[Done], looked_at: datetime | None
) -> tuple[Life, ...]:
    """The lives of what was launched or started in the last three days, with what this process has seen.

    `looked_at` is when it looked last; None: it has just begun.
    """
    known, uses = list(ended), parts.memory.uses
    found = lives(known, seen.ledger.open_intents, seen.fleet, seen.now, uses)
    fresh = {
        life.key: _seen_now(life, seen, uses.get(life.key), looked_at) for life in found if life.node_id is not None
    }
    if fresh == uses:
        return found
    uses.clear()
    uses |= fresh
    return lives(known, seen.ledger.open_intents, seen.fleet, seen.now, uses)


def members_of_groups(
    parts: ControllerContext, seen: Observation, ended: Iterable[Done], looked_at: datetime | None
) -> Mapping[str, tuple[Life, ...]]:
    """The lives of what groups have made since gpuwatch raised their sizes, with what this process has seen."""
    done, memory = list(ended), parts.memory
    raised = raised_groups(done)
    if not raised and not memory.members:
        return {}
    now, fleet = seen.now, seen.fleet
    known = note_members(memory.members, raised, fleet, now)
    known = {key: replace(each, use=_seen_now(each.life, seen, each.use, looked_at)) for key, each in known.items()}
    found = lives_of_members(known, done, seen.ledger.open_intents, fleet, now)
    over = {each.key for lives in found.values() for each in lives if each.recorded}
    memory.members = {key: each for key, each in known.items() if key not in over}
    return found


def _seen_now(life: Life, seen: Observation, known: Use | None, looked_at: datetime | None) -> Use:
    """What is known of a machine with this round; what it does after that life is no news."""
    blind = None if looked_at is None or known is None or seen.now - looked_at <= _WATCHED else looked_at
    node = seen.fleet.find(life.node_id or "")
    watched = seen.now - life.at <= _WATCHED
    before = known or Use(worked=False if watched else None)
    if life.recorded or life.end is End.REMOVED:
        return before
    if node is None or node.state not in THERE:
        hidden = before.hidden_since or (blind if before.gone_at is None else None)
        return replace(before, gone_at=before.gone_at or seen.now, hidden_since=hidden)
    works = node.activity.state not in _NO_WORK
    hidden = (before.hidden_since or blind or seen.now) if node.state is NodeState.UNKNOWN else None
    answered = before.answered or node.verdict is not None
    return Use(answered=answered, worked=True if works else before.worked, hidden_since=hidden)


def record_ends(parts: ControllerContext, observation: Observation, round_id: int) -> tuple[Intent, ...]:
    """Write down each end that is not in the ledger yet; of what a cloud has announced there are other records."""
    announced = {each.node_id for each in observation.ledger.interruptions}
    every = chain(observation.lives, *observation.members.values())
    news = [each for each in every if each.end in {End.STOPPED, End.ENDED} and not each.recorded]
    news = [each for each in news if each.node_id not in announced]
    return tuple(_record_end(parts, life, round_id) for life in news)


def record_rests(parts: ControllerContext, observation: Observation, round_id: int) -> tuple[Intent, ...]:
    """Write down once of each source that it rests: people get a message about that, an owner about a machine's starts.

    It is said again once the source has lasted, or was resumed, and does not last after that.
    """
    known = [done for done in parts.memory.ended.by_key.values() if done.verb is Verb.LEFT_ALONE]
    told = {(done.arguments.get(SOURCE), done.at) for done in known}
    made, rests = list[Intent](), tuple(resting_sources(observation))
    withheld = told_of_starts(parts, {WITHHELD}) if rests else frozenset()
    for source, what, rest in rests:
        last, name = rest.failed[-1], bounded_text(" ".join(sorted(f"{key}={value}" for key, value in source)))
        begun = (
            rest.failed[0].at if len(rest.failed) < NEWEST // 2 else None
        )  # of a longer row nobody knows the beginning
        if any(each == name and (begun is None or at >= begun) for each, at in told):
            continue
        target = last.asked.get(MEMBER_OF) or last.node_id or last.key
        if last.started and target in withheld:
            continue  # its owner knows
        node = observation.fleet.find(target) if last.started else None
        reason = Reason(code=STARTS if last.started else LAUNCHES, sentence=f"{what} for a time. {rest.sentence}.")
        record = Record(verb=Verb.LEFT_ALONE, node_id=target, pool=last.pool, reason=reason, arguments={SOURCE: name})
        made.append(write_record(parts, replace(record, owner=None if node is None else node.owner), round_id))
    return tuple(made)


def told_of_starts(parts: ControllerContext, codes: Collection[str]) -> frozenset[str]:
    """The machines about which people got a message of one of these codes, and that were not started since."""
    newest = dict[str, Verb]()
    for done in sorted(parts.memory.ended.by_key.values(), key=lambda each: each.at):
        said = done.verb is Verb.LEFT_ALONE and done.code in codes
        if said or (done.verb is Verb.START and done.status is Status.SETTLED):
            newest[done.node_id] = done.verb
    return frozenset(node_id for node_id, verb in newest.items() if verb is Verb.LEFT_ALONE)


def _record_end(parts: ControllerContext, life: Life, round_id: int) -> Intent:
    """Write down one end."""
    assert life.end is not None and life.ended_at is not None  # noqa: S101, PT018  the caller has looked
    after = "" if life.lasted is None else f" after {format_duration(life.lasted.total_seconds())} as a node"
    how = "stopped" if life.end is End.STOPPED else "ended"
    idle = "; it never had work" if life.worked is False else ""
    begun = "its group" if life.member else "gpuwatch"
    begun += " had started it" if life.started else " had launched it"
    why = "" if life.why is None else f" Its cloud says {life.why}."
    who = " and gpuwatch" if life.member else " and"
    sentence = f"It {how} by itself{after}{idle}: {begun}{who} has not removed it.{why}"
    about = {
        HOW: life.end.value,
        ENDED_AT: life.ended_at.isoformat(),
        WORKED: "" if life.worked is None else str(life.worked).lower(),
        **({} if life.why is None else {WHY: life.why}),
        **life.asked,
    }
    reason = Reason(code=Verb.ENDED.value, sentence=sentence)
    made = Record(verb=Verb.ENDED, node_id=life.node_id or "", pool=life.pool, reason=reason, arguments=about)
    return write_record(parts, made, round_id)
