"""Pure: what a message is about, before it is put into words. All that comes from outside is made printable here."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal
from zoneinfo import ZoneInfo

from gpuwatch.guard.rulebook import Rulebook
from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.decision import REMOVALS, Verb
from gpuwatch.model.fleet import Evidence, Fleet, Node, State
from gpuwatch.model.promise import Notice
from gpuwatch.notify.due_messages import name_of
from gpuwatch.notify.settings import EventName
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.printable import legible

LADDER = "ladder"  # the reason's code where what was stopped long ago is to be terminated
_LONGEST = 200  # of a name; of a sentence several times that
_START: Mapping[str, str] = {"aws": "aws ec2 start-instances --instance-ids {node}{region}"}
_REMOVALS = {verb.value: verb for verb in REMOVALS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is told of one node.

    `verb` is what will be, or was, done; None: stopped or terminated, by what it does when the time comes. `due` is the
    earliest time of it, `start` the command that brings a stopped node back.
    """

    key: str
    node_id: str
    name: str
    pool: str
    owner: str | None
    instance_type: str | None
    region: str | None
    gpu_count: int | None
    usd_per_hour: Decimal | None
    at: datetime
    verb: Verb | None
    due: datetime | None
    code: str
    why: str
    evidence: tuple[Evidence, ...]
    local_disks: bool
    approval: bool
    keep_url: str | None
    start: str | None

    @property
    def asleep(self) -> bool:
        """Whether the node is stopped, and its disks are what will go."""
        return self.code == LADDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: several nodes of which the same is to be told."""

    kind: EventName | Literal["test"]
    fleet: str
    made_at: datetime
    zone: ZoneInfo
    page: str | None = None
    lines: tuple[Line, ...] = ()
    sent_by: str = ""  # of a test
    mentions: tuple[str, ...] = ()  # member ids in Slack


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What there is to know beside the events. `link` gives the keep link of a notice that is good until a time."""

    fleet: Fleet
    fleet_name: str
    rules: Rulebook
    provider: str
    zone: ZoneInfo
    now: datetime
    page: str | None = None
    notices: Mapping[str, Notice] = field(default_factory=dict)  # in force, by their keys
    link: Callable[[Event, datetime], str | None] = lambda *_: None


def composed(events: Sequence[Event], about: About, mentions: tuple[str, ...] = ()) -> Message:
    """Events of one kind as a message."""
    return Message(
        kind=name_of(events[0]),
        fleet=printable(about.fleet_name),
        made_at=about.now,
        zone=about.zone,
        page=about.page,
        lines=tuple(_line(event, about) for event in events),
        mentions=mentions,
    )


def due_at(event: Event, about: About) -> datetime:
    """When what a notice promised happens at the earliest: where people must be told, that time counts."""
    promise, notice = event.promise, about.notices.get(event.key)
    seconds = about.rules.pool(event.pool).idle.notice if promise is None else promise.grace_seconds
    due = event.at + timedelta(seconds=seconds) if promise is None else promise.due(event.at)
    if not (about.rules.limits.require_told or (promise is not None and promise.heard)):
        return due
    told_at = about.now if notice is None or notice.told_at is None else notice.told_at
    return max(due, told_at + timedelta(seconds=seconds))


def verb_of(event: Event, about: About) -> Verb | None:
    """What a notice promised; None: nothing that can be read, and it depends on what the node will be doing."""
    if event.verb in REMOVALS:
        return event.verb
    if event.promise is not None:
        return Verb(event.promise.action)
    if event.reason.code == LADDER:
        return Verb.TERMINATE
    node, rules = about.fleet.find(event.node_id), about.rules.pool(event.pool).idle
    choice = None if node is None else _choice(rules, node.activity.state)
    if choice is not None:
        return choice
    choices = {_REMOVALS[each] for each in (rules.then, rules.parked, rules.stalled) if each in _REMOVALS}
    return choices.pop() if len(choices) == 1 else None


def _choice(rules: IdleRules, state: State) -> Verb | None:
    said = {State.IDLE: rules.then, State.PARKED: rules.parked, State.STALLED: rules.stalled}
    return _REMOVALS.get(said.get(state, ""))


def _approved_first(event: Event, about: About) -> bool:
    """Whether an operator must approve: the notice said so, or the pool does by now."""
    told = event.promise is not None and event.promise.approval
    return told or about.rules.pool(event.pool).approval


def printable(words: str, longest: int = _LONGEST) -> str:
    """Words of others on one line that no reader takes for a link, a command's end or a line of ours."""
    plain = legible(" ".join(words.split())).replace("://", ": //").replace("`", "'")
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def _said(words: str | None) -> str | None:
    return printable(words) if words else None


def _line(event: Event, about: About) -> Line:
    node, notice = about.fleet.find(event.node_id), event.verb is Verb.NOTICE
    due = due_at(event, about) if notice else None
    return Line(
        key=event.key,
        node_id=printable(event.node_id),
        name="" if node is None else printable(node.name),
        pool=printable(event.pool),
        owner=_said(event.owner),
        instance_type=None if node is None else _said(node.instance_type),
        region=None if node is None else _said(node.region),
        gpu_count=None if node is None else node.gpu_count,
        usd_per_hour=event.usd_per_hour,
        at=event.at,
        verb=None if event.verb is Verb.WITHDRAW else verb_of(event, about),
        due=due,
        code=event.reason.code,
        why=printable(event.reason.sentence, 5 * _LONGEST),
        evidence=event.reason.evidence,
        local_disks=node is not None and node.instance_store,
        approval=notice and _approved_first(event, about),
        keep_url=None if due is None else about.link(event, due),
        start=_start(event.node_id, node, about.provider) if event.verb is Verb.STOP else None,
    )


def _start(node_id: str, node: Node | None, provider: str) -> str | None:
    if provider not in _START:
        return None
    # Quoted last: what makes words printable would end the quotes.
    region = "" if node is None else f" --region {shlex.quote(printable(node.region))}"
    return _START[provider].format(node=shlex.quote(printable(node_id)), region=region)
