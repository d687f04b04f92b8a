"""Which notifications are due: notices, withdrawals and what was done, to each receiver and on the hosts' terminals."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from gpuwatch.clouds.provider import StartCommand
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.observe.wall_client import HostNote, send_to_hosts
from gpuwatch.controller.web.snooze_link import Claim, secret_of, snooze_url
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Fleet, NodeState
from gpuwatch.model.kubernetes import is_workload
from gpuwatch.notify.delivery import Due, Outbox, Record, key_of
from gpuwatch.notify.due_messages import (
    TOO_OLD,
    Filter,
    History,
    due_messages,
    name_of,
    unexplained_withdrawals,
    withdrawn,
)
from gpuwatch.notify.formats import Notification
from gpuwatch.notify.message import MessageContext, compose_message, due_at, verb_of
from gpuwatch.notify.settings import WALL, NotifySettings, Receiver, addresses, slack_of
from gpuwatch.notify.transports.base import Delivery
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.secrets import read_secret

log = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS = 15.0
_LONGEST_WAIT_SECONDS = 600.0
_AFTERWARDS = timedelta(minutes=10)  # for so long events that became too old are still read, to record them as dropped
_LINK_LIFE = timedelta(days=1)  # after the earliest time of the stop: the guard may delay it


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Sends what happened to the nodes of the last round.

    `fleet` is that of the last round, None before it. `count` gets the receiver, the name and the result of each event.
    """

    notify: NotifySettings
    signals: ObserveSettings  # how agents are asked to write on terminals
    fleet_name: str
    rules: Rulebook
    start_command: StartCommand
    zone: ZoneInfo
    clock: Clock
    fleet: Callable[[], Fleet | None]
    count: Callable[[str, str, str], None] = lambda *_: None
    outbox: Outbox = field(init=False)
    _unaddressed: set[tuple[str, str]] = field(default_factory=set)
    _seen: Fleet | None = None
    _left: bool = True  # whether something waits for another try

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        backoff: Backoff[object] = Backoff(
            clock=self.clock, first_seconds=_FIRST_WAIT_SECONDS, longest_seconds=_LONGEST_WAIT_SECONDS
        )
        self.outbox = Outbox(clock=self.clock, backoff=backoff)

    def pending(self) -> bool:
        """Whether there was a round since the last look, or something waits for another try."""
        fleet = self.fleet()
        return fleet is not None and (fleet is not self._seen or self._left)

    def deliver(self, ledger: Ledger) -> None:
        """Send what is due to each receiver, and record what will not be sent."""
        fleet = self.fleet()
        if fleet is None:
            return
        self._left = True
        now, settings, left = self.clock.now(), self.notify, False
        history, context = self._history(ledger, fleet, now)
        self._forget(history)
        for name, receiver in settings.receivers.items():
            wanted = Filter(name=name, events=frozenset(receiver.events), pools=frozenset(receiver.pools))
            due, dropped = due_messages(history, wanted, now, timedelta(seconds=settings.max_age))
            for each in dropped:
                ledger.messages.keep(each.event.key, name, now, reached=False, detail=each.why)
                self.count(name, name_of(each.event), "given_up" if each.why == TOO_OLD else "superseded")
                log.info("The %s of %s is not sent to %s: %s.", each.event.verb, each.event.node_id, name, each.why)
            left |= self._send(ledger, name, receiver, due, context)
        if settings.wall:
            self._write_on_hosts(ledger, history, context)  # a host without users is asked again after the next round
        self._left, self._seen = left, fleet

    def _forget(self, history: History) -> None:
        """Forget failures of events that are over."""
        names, keys = [*self.notify.receivers, WALL], {event.key for event in history.events}
        owners = {event.owner for event in history.events} | {None}
        self._unaddressed &= {(key, name) for key in keys for name in names}
        self.outbox.backoff.forget_all_but({*names, *((name, group) for name in names for group in (*owners, *keys))})

    def _history(self, ledger: Ledger, fleet: Fleet, now: datetime) -> tuple[History, MessageContext]:
        """What happened, and what is known about it.

        Events are read first: a notice that ends before the second read is not sent, and one that begins between the
        reads is sent by the next tick.
        """
        events = ledger.messages.events(now - timedelta(seconds=self.notify.max_age) - _AFTERWARDS)
        view = ledger.view(now, recent=timedelta(0))
        notices = {each.key: _notice_of(ledger, each) for each in unexplained_withdrawals(events)}
        keys = [*(each.key for each in events), *notices.values()]
        recorded = ledger.messages.recorded_messages(keys) if keys else frozenset()
        in_force = {each.key: each for each in view.notices}
        context = MessageContext(
            fleet=fleet,
            fleet_name=self.fleet_name,
            rules=self.rules,
            start_command=self.start_command,
            zone=self.zone,
            now=now,
            page=self.notify.url,
            language=self.notify.language,
            notices=in_force,
        )
        return History(events=events, in_force=in_force.keys(), recorded=recorded, notices=notices), context

    def _send(
        self, ledger: Ledger, name: str, receiver: Receiver, events: Sequence[Event], context: MessageContext
    ) -> bool:
        """One message for each kind of event, and each owner where mail goes to owners; whether one is left to try.

        Those about machines and about workloads are apart.
        """
        left = False
        groups: dict[tuple[str, str | None, bool], list[Event]] = {}
        for event in events:
            whose = event.owner if receiver.owners else None
            groups.setdefault((name_of(event), whose, is_workload(event.node_id)), []).append(event)
        for (kind, owner, _), group in groups.items():
            if self.outbox.waits(name, owner):
                left = True
                continue
            if receiver.mail.host is not None and not addresses(receiver, owner, self.notify)[0]:
                self._without_address(name, owner, group)
                continue
            due = Due(
                receiver=name,
                transport=receiver.transport,
                what=f"{kind} of {', '.join(event.node_id for event in group)}",
                make=partial(self._delivery, name, receiver, group, context),
                records=partial(self._records, name, group),
                group=owner,
            )
            if not self.outbox.send(ledger, due):
                left = True
                self._count(name, group, "failed")
        return left

    def _delivery(self, name: str, receiver: Receiver, events: Sequence[Event], context: MessageContext) -> Delivery:
        """One message with its addresses; where mail goes to owners, all events have the same owner."""
        settings = self.notify
        to, copies = addresses(receiver, events[0].owner if receiver.owners else None, settings)
        mentions = [slack_of(owner, settings) for owner in dict.fromkeys(event.owner for event in events)]
        message = compose_message(events, replace(context, link=_links(settings, name, receiver)))
        return Delivery(
            key=key_of("notice", name, *sorted(event.key for event in events)),
            at=message.made_at,
            day=message.made_at.astimezone(self.zone).date(),
            content=Notification(message),
            to=to,
            copies=copies,
            mentions=[member for member in mentions if member is not None],
        )

    def _without_address(self, name: str, owner: str | None, events: Sequence[Event]) -> None:
        """Warn once per process; corrected settings end it, and then the notice is sent."""
        fresh = [event for event in events if (event.key, name) not in self._unaddressed]
        if not fresh:
            return
        self._unaddressed |= {(event.key, name) for event in fresh}
        self._count(name, fresh, "nobody")
        nodes = ", ".join(event.node_id for event in fresh)
        log.warning(
            "%s has no mail address for %s (%s): see notify.owners, notify.owner_mail, mail.to.",
            name,
            "nodes without an owner" if owner is None else f"the owner {owner!r}",
            nodes,
        )

    def _records(self, name: str, events: Sequence[Event], at: datetime, where: str) -> list[Record]:
        """One record for each event of a message that arrived."""
        self._count(name, events, "reached")

        def record(key: str, ledger: Ledger) -> None:
            ledger.messages.keep(key, name, at, reached=True, detail=where)

        return [partial(record, event.key) for event in events]

    def _write_on_hosts(self, ledger: Ledger, history: History, context: MessageContext) -> None:
        """On the terminals of each host; users who log in later see it as long as the notice is in force."""
        backoff = self.outbox.backoff
        wanted = Filter(name=WALL, events=frozenset({"notice", "withdrawn"}), pools=frozenset())
        due, dropped = due_messages(history, wanted, context.now, timedelta(seconds=self.notify.max_age))
        for each in dropped:
            ledger.messages.keep(each.event.key, WALL, context.now, reached=False, detail=each.why)
        events = [event for event in due if backoff.is_over((WALL, event.key)) and runs(event, context.fleet)]
        notes = [host_note(event, context, withdrawn(history)) for event in events]
        answers = send_to_hosts(self.signals, self.clock, notes)
        for event, why in zip(events, answers, strict=True):
            if why is None:
                backoff.note_success((WALL, event.key))
                # Not as reached: a terminal does not prove that somebody sits there (limits.require_notification).
                detail = "on the host's terminals"
                ledger.messages.keep(event.key, WALL, context.now, reached=False, detail=detail)
            else:
                backoff.note_failure((WALL, event.key))
                log.info("The %s of %s reached no terminal: %s", event.verb, event.node_id, why)
            self._count(WALL, [event], "reached" if why is None else "failed")

    def _count(self, name: str, events: Sequence[Event], result: str) -> None:
        for event in events:
            self.count(name, name_of(event), result)


def _notice_of(ledger: Ledger, withdrawal: Event) -> str:
    """The key of the notice that was withdrawn; empty where the ledger no longer has it."""
    for entry in ledger.history(withdrawal.node_id):  # newest first
        settled = any(outcome.status is Status.SETTLED for outcome in entry.outcomes)
        if entry.intent.verb is Verb.NOTICE and settled and entry.intent.at <= withdrawal.intended_at:
            return entry.intent.key
    return ""


def _links(settings: NotifySettings, name: str, receiver: Receiver) -> Callable[[Event, datetime], str | None]:
    """Makes snooze links; a message without links is better than no message."""
    if settings.url is None or settings.link_key_file is None:
        return lambda *_: None
    base = settings.url
    try:
        secret = secret_of(read_secret(settings.link_key_file), "notify.link_key_file")
    except (OSError, ValueError) as error:
        log.warning("Messages are sent without snooze links: %s", error)
        return lambda *_: None

    def link(event: Event, due: datetime) -> str:
        who = event.owner if receiver.owners and event.owner else name
        claim = Claim(node_id=event.node_id, key=event.key, whom=who, until=due + _LINK_LIFE)
        return snooze_url(base, secret, claim)

    return link


def runs(event: Event, fleet: Fleet) -> bool:
    """Whether the node runs, so that its agent can be asked."""
    node = fleet.find(event.node_id)
    return node is not None and node.state is NodeState.RUNNING


def host_note(event: Event, context: MessageContext, notices: Mapping[str, str]) -> HostNote:
    """The note for a notice or a withdrawal; where the action is not known yet, it names the worse one."""
    node = context.fleet.find(event.node_id)
    if node is None:
        raise ValueError(f"{event.node_id} is not in the fleet")
    if event.verb is Verb.WITHDRAW:
        return HostNote(node=node, key=notices[event.key], stop_at=None)
    due = due_at(event, context)
    if verb_of(event, context) is Verb.STOP:
        return HostNote(node=node, key=event.key, stop_at=due, verb=Verb.STOP)
    return HostNote(node=node, key=event.key, stop_at=due, verb=Verb.TERMINATE)
