"""Pure: the facts of a message. All text that comes from outside is made printable here."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from zoneinfo import ZoneInfo

from gpuwatch.clouds.provider import StartCommand
from gpuwatch.guard.settings import Rulebook
from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import REMOVALS, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.kubernetes import Pod, is_workload, workload_id
from gpuwatch.model.promise import Notice
from gpuwatch.model.verbs import RECORDS
from gpuwatch.notify.due_messages import name_of
from gpuwatch.notify.settings import EventName
from gpuwatch.notify.wording import LONGEST, Language, printable
from gpuwatch.policies.idle_settings import TERMINATE_AFTER, IdleRules
from gpuwatch.policies.kubernetes.idle_pods import GPUS, HOW, PODS
from gpuwatch.policies.kubernetes.workload_words import back, keep_command, workload_of_id

_REMOVALS = {verb.value: verb for verb in REMOVALS}
_OFF = frozenset({NodeState.STOPPED, NodeState.TERMINATED})
_NAMED = 3  # pods of a workload
_KEPT_FOR = timedelta(days=1)  # beyond the announced time, by the command that a notice shows


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLine:
    """What a message says of nodes and workloads alike; `due` is the earliest time of the action that it announces."""

    key: str
    node_id: str
    pool: str
    owner: str | None
    usd_per_hour: Decimal | None
    at: datetime
    due: datetime | None
    code: str
    why: str
    evidence: tuple[Evidence, ...]
    approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(MessageLine):
    """The facts of one node.

    `verb` is the planned action, or the one that was carried out; None: it depends on the node's state when the time
    comes. `start` is the command that starts a stopped node again, `still_billed` why a node that was stopped still
    costs what it did. `proved` is False of a stop that may have been somebody else's. `before` is what ran before it.
    """

    name: str
    instance_type: str | None
    region: str | None
    gpu_count: int | None
    verb: Verb | None
    local_disks: bool
    snooze_url: str | None
    start: str | None
    still_billed: str | None = None
    proved: bool = True
    before: str | None = None

    @property
    def asleep(self) -> bool:
        """Whether the node is stopped already, and its disks are to be deleted."""
        return self.code == TERMINATE_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLine(MessageLine):
    """The facts of one workload.

    `how` is what becomes of it, as its annotation said; None: its notice is withdrawn. `pods` and `gpus` are those that
    it holds, or held; None: not known. `on` names some of its pods with their nodes. `back` is the command that brings
    it back, `keep` the one that keeps it: both are kubectl's.
    """

    workload: str
    cluster: str
    namespace: str
    kind: str
    name: str
    how: str | None
    pods: int | None
    gpus: float | None
    on: tuple[str, ...]
    local_data: tuple[str, ...]
    back: str | None
    keep: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: nodes with the same event, or workloads of a cluster."""

    kind: EventName | Literal["test"]
    fleet: str
    made_at: datetime
    zone: ZoneInfo
    page: str | None = None
    lines: tuple[Line, ...] = ()
    workloads: tuple[WorkloadLine, ...] = ()
    sent_by: str = ""  # of a test
    language: Language = "en"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContext:
    """What a message needs besides the events. `link` gives the snooze link of a notice, valid until a time."""

    fleet: Fleet
    fleet_name: str
    rules: Rulebook
    start_command: StartCommand
    zone: ZoneInfo
    now: datetime
    page: str | None = None
    language: Language = "en"
    notices: Mapping[str, Notice] = field(default_factory=dict)  # in force, by their keys
    link: Callable[[Event, datetime], str | None] = lambda *_: None


def compose_message(events: Sequence[Event], context: MessageContext) -> Message:
    """Events of one kind as a message: all of them about machines, or all about workloads."""
    return Message(
        kind=name_of(events[0]),
        fleet=printable(context.fleet_name),
        made_at=context.now,
        zone=context.zone,
        page=context.page,
        language=context.language,
        lines=tuple(_line(event, context) for event in events if not is_workload(event.node_id)),
        workloads=tuple(_workload(event, context) for event in events if is_workload(event.node_id)),
    )


def due_at(event: Event, context: MessageContext) -> datetime:
    """The earliest time of a notice's action; where people are to be reached first, the grace period starts then."""
    promise, notice = event.promise, context.notices.get(event.key)
    seconds = context.rules.pool(event.pool).idle.grace_period if promise is None else promise.grace_seconds
    due = event.at + timedelta(seconds=seconds) if promise is None else promise.due(event.at)
    waits = promise is not None and (promise.heard or promise.delivery_seconds is not None)
    if not (waits or context.rules.limits.require_notification):
        return due
    reached_at = context.now if notice is None or notice.told_at is None else notice.told_at
    return max(due, reached_at + timedelta(seconds=seconds))


def verb_of(event: Event, context: MessageContext) -> Verb | None:
    """The action of a notice; None: it has no readable promise, and the action depends on the node's state."""
    if event.verb in REMOVALS:
        return event.verb
    if is_workload(event.node_id):
        return Verb.RELEASE
    if event.promise is not None:
        return Verb(event.promise.action)
    if event.reason.code == TERMINATE_AFTER:
        return Verb.TERMINATE
    node, rules = context.fleet.find(event.node_id), context.rules.pool(event.pool).idle
    choice = None if node is None else _choice(rules, node.activity.state)
    if choice is not None:
        return choice
    every = (rules.action, rules.occupied, rules.parked, rules.stalled)
    choices = {_REMOVALS[each] for each in every if each in _REMOVALS}
    return choices.pop() if len(choices) == 1 else None


def _choice(rules: IdleRules, state: State) -> Verb | None:
    owned = {State.OCCUPIED: rules.occupied, State.PARKED: rules.parked, State.STALLED: rules.stalled}
    choices = {State.IDLE: rules.action, **owned}
    return _REMOVALS.get(choices.get(state, ""))


def _approved_first(event: Event, context: MessageContext) -> bool:
    """Whether an operator must approve: the notice said so, or the pool's settings do now."""
    promised = event.promise is not None and event.promise.approval
    return promised or context.rules.pool(event.pool).approval


def _printable(text: str | None) -> str | None:
    return printable(text) if text else None


def _line_fields(event: Event, context: MessageContext) -> dict[str, Any]:
    """The fields of every line."""
    notice = event.verb is Verb.NOTICE
    return {
        "key": event.key,
        "node_id": printable(event.node_id),
        "pool": printable(event.pool),
        "owner": _printable(event.owner),
        "usd_per_hour": event.usd_per_hour,
        "at": event.at,
        "due": due_at(event, context) if notice else None,
        "code": event.reason.code,
        "why": printable(event.reason.sentence, 5 * LONGEST),
        "evidence": event.reason.evidence,
        "approval": notice and _approved_first(event, context),
    }


def _line(event: Event, context: MessageContext) -> Line:
    node, told = context.fleet.find(event.node_id), _line_fields(event, context)
    if event.verb not in REMOVALS and (node is None or (node.state in _OFF and not node.billed_though_stopped)):
        told["usd_per_hour"] = None  # it costs nothing by the hour
    return Line(
        **told,
        name="" if node is None else printable(node.name),
        instance_type=None if node is None else _printable(node.instance_type),
        region=None if node is None else _printable(node.region),
        gpu_count=None if node is None else node.gpu_count,
        verb=None if event.verb in {Verb.WITHDRAW, *RECORDS} else verb_of(event, context),
        local_disks=node is not None and node.local_data,
        snooze_url=None if told["due"] is None else context.link(event, told["due"]),
        still_billed=_still_billed(event, node),
        proved=event.proved or event.verb is not Verb.STOP,
        before=_printable(event.before) if event.verb in REMOVALS else None,
        start=_start(event.node_id, node, context.start_command) if event.verb is Verb.STOP else None,
    )


def _workload(event: Event, context: MessageContext) -> WorkloadLine:
    name = workload_of_id(printable(event.node_id, 5 * LONGEST))
    if name is None:
        raise ValueError(f"{event.node_id} is no workload")
    found, told, how = tuple(_its_pods(event.node_id, context.fleet)), _line_fields(event, context), _how(event)
    pods = _count(event, PODS, len(found))
    return WorkloadLine(
        **told,
        workload=str(name),
        cluster=name.cluster,
        namespace=name.namespace,
        kind=name.kind,
        name=name.name,
        how=how,
        pods=pods,
        gpus=_number(event, GPUS, sum(pod.gpus for pod, _ in found)),
        on=tuple(printable(f"{pod} on {node}") for pod, node in found[:_NAMED]),
        local_data=tuple(printable(f"{pod} ({pod.local_data})") for pod, _ in found if pod.local_data is not None),
        back=None if how is None else back(name, how, pods),
        keep=None if told["due"] is None else keep_command(name, told["due"].astimezone(UTC) + _KEPT_FOR),
    )


def _still_billed(event: Event, node: Node | None) -> str | None:
    """Why a machine that was stopped goes on costing by the hour."""
    if event.verb is not Verb.STOP or node is None or node.still_billed is None:
        return None
    return printable(node.still_billed)


def _start(node_id: str, node: Node | None, command: StartCommand) -> str | None:
    # Quoted last: what makes words printable would end the quotes.
    region = None if node is None else shlex.quote(printable(node.region))
    return command("" if node is None else node.cloud, shlex.quote(printable(node_id)), region)


def _how(event: Event) -> str | None:
    """What is to happen to it, or has happened."""
    if event.verb is Verb.WITHDRAW:
        return None
    return event.arguments.get(HOW) or (None if event.promise is None else event.promise.action)


def _its_pods(workload: str, fleet: Fleet) -> Iterator[tuple[Pod, str]]:
    """Its pods that hold GPUs as the last round saw them, with the names of their nodes."""
    for known in (node.kubernetes for node in fleet.nodes if node.kubernetes is not None):
        for pod in known.gpu_pods:
            if workload_id(known.cluster, pod.workload) == workload:
                yield pod, known.name


def _number(event: Event, key: str, seen: float) -> float | None:
    """What the intent counted; else what the last round saw, where it saw any."""
    try:
        return float(event.arguments[key])
    except (KeyError, ValueError):
        return seen or None


def _count(event: Event, key: str, seen: int) -> int | None:
    found = _number(event, key, seen)
    return None if found is None else int(found)
