"""What clouds take by themselves: which nodes are no capacity any more, and the records of it in the ledger.

Rules: the record comes before what follows from it, as an intent does. It is written once for each notice, and again
when its deadline moves or the work is saved. A notice ends with one record: the node was taken, or it was not. A node
that no list shows is taken only after its deadline, and while every cloud answers.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from gpuwatch.controller.context import ControllerContext
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import LedgerValueError
from gpuwatch.model.activity import State
from gpuwatch.model.bounds import time_on_record
from gpuwatch.model.cloud_notice import (
    BY,
    BY_AGENT,
    CHECKPOINT,
    GPUS,
    LOST_GPU_SECONDS,
    SEEN,
    SINCE,
    STATE,
    CloudNotice,
    Interruption,
    arguments_of,
    standing,
)
from gpuwatch.model.decision import LAUNCHED_AT, REMOVALS, Done, Intent, LedgerView, Observation, Reason, Status, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.life import MEMBER_OF
from gpuwatch.policies.spot.records import CAPACITY, OFFER
from gpuwatch.policies.spot.settings import Offers

log = logging.getLogger(__name__)

_RUNS = frozenset({NodeState.RUNNING, NodeState.PENDING})
_DOWN = frozenset({NodeState.STOPPED, NodeState.TERMINATED})
# By these words of its reason a record is the first of its notice, or a later one.
FIRST, AGAIN = "interruption", "interruption_moved"


def with_notices(fleet: Fleet, ledger: LedgerView, now: datetime) -> Fleet:
    """The fleet; each node that its cloud is about to take has that notice."""
    recorded = {each.node_id: each for each in ledger.interruptions}
    told = [
        node
        for node in fleet.nodes
        if node.announced or ((verdict := node.signal.verdict) is not None and verdict.cloud_notices is not None)
    ]
    if recorded:
        known = set(map(id, told))
        told += [node for node in fleet.nodes if node.id in recorded and id(node) not in known]
    found = {node.id: notice for node in told if (notice := _notice(node, recorded, now)) is not None}
    if not found:
        return fleet
    nodes = [replace(node, cloud_notice=found[node.id]) if node.id in found else node for node in fleet.nodes]
    return replace(fleet, nodes=tuple(nodes))


def _notice(node: Node, recorded: Mapping[str, Interruption], now: datetime) -> CloudNotice | None:
    """The notice by which a node is no capacity; a word about an earlier life of the machine is no word about it."""
    known = recorded.get(node.id)
    before = None if known is None or not _same_life(node, known) else known
    told = None if node.verdict is None else node.verdict.cloud_notices
    if before is None:
        return standing(told, node.announced, None, now)
    by_agent = before.arguments.get(BY) == BY_AGENT
    return standing(told, node.announced, before.notice, now, by_agent=by_agent)


def _said_by(node: Node) -> dict[str, str]:
    """That its agent said its notice, for the record; {} where it did not, or says nothing now."""
    told = None if node.verdict is None else node.verdict.cloud_notices
    kind = None if node.cloud_notice is None else node.cloud_notice.kind
    return {BY: BY_AGENT} if any(each.kind == kind for each in told or ()) else {}


def _same_life(node: Node, known: Interruption) -> bool:
    """Whether nobody has started the machine since; a launch time that cannot be read says nothing."""
    before = time_on_record(known.arguments.get(LAUNCHED_AT))
    if node.sight is not None and node.launched_at is not None:  # its cloud does not say it: a new process forgets it
        return node.launched_at <= known.since
    return before is None or node.launched_at is None or node.launched_at == before


def unrecorded_notices(rules: Rulebook, fleet: Fleet, ledger: LedgerView, now: datetime) -> list[Done]:
    """The notices that this round sees first, as the records that they become: the next offer is chosen after them."""
    known = {each.node_id: each for each in ledger.interruptions}
    fresh = [node for node in fleet.nodes if node.cloud_notice is not None and node.enrolled]
    return [
        Done(
            key=node.id,
            verb=Verb.INTERRUPTION,
            node_id=node.id,
            pool=node.pool,
            status=Status.SETTLED,
            at=now,
            arguments=_payment_arguments(rules, node),
        )
        for node in fresh
        if node.id not in known or not _same_life(node, known[node.id])
    ]


def _payment_arguments(rules: Rulebook, node: Node) -> dict[str, str]:
    """How a node is paid for, and the offer that it is from."""
    sources = rules.pool(node.pool).sources
    offers = sources.offers if isinstance(sources, Offers) else {}
    names = [name for name, each in offers.items() if each.has(node)]
    return {CAPACITY: node.capacity_type.value, **({OFFER: names[0]} if names else {})}


def record(parts: ControllerContext, observation: Observation, round_id: int) -> tuple[Intent, ...]:
    """Write down what the clouds take, and what became of what they announced."""
    known = {each.node_id: each for each in observation.ledger.interruptions}
    written: list[Intent] = []
    for node in observation.fleet.nodes:
        if node.cloud_notice is not None and node.enrolled:
            with _for_itself(node.id):
                before = known.get(node.id)
                before = before if before is not None and _same_life(node, before) else None
                if before is None or _news(before.notice, node.cloud_notice):
                    written.append(_announcement_record(parts, observation, node, before, round_id))
    for each in known.values():
        with _for_itself(each.node_id):
            ended = _how_it_ended(observation, each)
            if ended is not None:
                written.append(_end_record(parts, observation, each, *ended, round_id))
    return tuple(written)


@contextmanager
def _for_itself(node_id: str) -> Iterator[None]:
    """Let a notice that cannot be read, or that the ledger cannot hold, cost its own record alone."""
    try:
        yield
    except (LedgerValueError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        log.exception("The cloud's notice about %s cannot be written down", node_id)


def _news(before: CloudNotice, now: CloudNotice) -> bool:
    """Whether a notice says something else than its record. A checkpoint that is missing now is still one."""
    old, new = arguments_of(before), arguments_of(now)
    return bool({name for name in new if name != SEEN and new[name] != old.get(name)})


def _announcement_record(
    parts: ControllerContext, observation: Observation, node: Node, before: Interruption | None, round_id: int
) -> Intent:
    """One record of a notice."""
    notice, now = node.cloud_notice, observation.now
    assert notice is not None  # noqa: S101  the caller has looked
    arguments = {
        **(before.arguments if before is not None else {}),
        **arguments_of(notice),
        **_said_by(node),
        GPUS: str(node.known_gpus),
        STATE: node.activity.state.value,
        **_payment_arguments(parts.rules, node),
        SINCE: (now if before is None else before.since).isoformat(),
    }
    if node.launched_at is not None:
        arguments[LAUNCHED_AT] = node.launched_at.isoformat()
    if node.group is not None:
        arguments[MEMBER_OF] = node.group
    when = "at once" if notice.deadline is None else f"at {format_time(notice.deadline)}"
    sentence = (
        f"Its cloud takes it {when} ({notice.kind}, {notice.action}). Keep and protect hold for gpuwatch's own "
        "removals, not for the cloud's."
    )
    reason = Reason(code=FIRST if before is None else AGAIN, sentence=sentence)
    made = Record(verb=Verb.INTERRUPTION, node_id=node.id, pool=node.pool, reason=reason, arguments=arguments)
    return write_record(parts, replace(made, owner=node.owner), round_id)


def _how_it_ended(observation: Observation, each: Interruption) -> tuple[Verb, str] | None:
    """How a notice on record ended; None: it stands, or nobody knows yet."""
    node = observation.fleet.find(each.node_id)
    ours = observation.ledger.open_for(each.node_id)
    if ours is not None and ours.intent.verb in REMOVALS:
        return None
    if any(
        done.verb in REMOVALS
        and done.node_id == each.node_id
        and done.status is Status.SETTLED
        and done.at >= each.since
        for done in observation.ledger.recent
    ):
        return Verb.SPARED, "gpuwatch has removed it before its cloud did."
    if node is None:
        gone = not observation.fleet.silent and observation.now >= each.notice.at
        return (Verb.LOST, "Its cloud has taken it.") if gone else None
    if node.state in _DOWN:
        return Verb.LOST, f"Its cloud has taken it: it is {node.state.value}."
    if node.state in _RUNS and node.cloud_notice is None:
        return Verb.SPARED, "Its cloud has not taken it: it counts again."
    return None


def _end_record(
    parts: ControllerContext, observation: Observation, each: Interruption, verb: Verb, sentence: str, round_id: int
) -> Intent:
    """The record that ends a notice, with what was lost."""
    arguments = dict(each.arguments)
    if verb is Verb.LOST:
        seconds = _lost_gpu_seconds(each, observation.now)
        if seconds is None:
            sentence += " How much work is lost is not known: nothing said when it was saved."
        else:
            sentence += f" {seconds / 3600:.1f} GPU-hours of work since its last checkpoint are lost."
            arguments[LOST_GPU_SECONDS] = f"{seconds:.0f}"
    reason = Reason(code=verb.value, sentence=sentence)
    made = Record(verb=verb, node_id=each.node_id, pool=each.pool, reason=reason, arguments=arguments)
    return write_record(parts, made, round_id)


def _lost_gpu_seconds(each: Interruption, now: datetime) -> float | None:
    """Seconds of all its GPUs since the last checkpoint; of a machine that was idle none; None: not known."""
    if each.arguments.get(STATE) == State.IDLE.value:
        return 0.0
    saved, gpus = each.notice.checkpoint_at, each.arguments.get(GPUS, "0")
    if saved is None or CHECKPOINT not in each.arguments or not gpus.isdecimal():
        return None
    return max(0.0, (min(now, each.notice.at) - saved).total_seconds()) * int(gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that a record says."""

    verb: Verb
    node_id: str
    pool: str
    reason: Reason
    arguments: Mapping[str, str]
    owner: str | None = None
    usd_per_hour: Decimal | None = None


def write_record(parts: ControllerContext, made: Record, round_id: int) -> Intent:
    """One record; a power cut in its midst leaves an open intent, which the next round settles."""
    now = parts.clock.now()
    intent = parts.ledger.intend(
        made.verb,
        made.node_id,
        made.pool,
        now,
        made.reason,
        round_id,
        arguments=made.arguments,
        owner=made.owner,
        usd_per_hour=made.usd_per_hour,
    )
    parts.ledger.settle(intent, Status.SETTLED, "it is written down", now)
    return intent
