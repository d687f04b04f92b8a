"""Messages to people go out by themselves, beside the rounds and from the leader alone.

What is to be told follows from the ledger at each look, so that a crash or another leader neither loses nor repeats
anything but what was on its way: that comes a second time, with the same Message-ID or Idempotency-Key. It runs on a
thread and a connection of its own; no round ever waits for a mail server.
"""

import hashlib
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.observe.wall_client import HostNote, told_on_hosts
from gpuwatch.controller.web.keep_link import Claim, keep_url, secret_of
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.sent_messages import Event
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, NodeState
from gpuwatch.notify.due_messages import TOO_OLD, Past, Wanted, due_messages, name_of, unexplained, withdrawn
from gpuwatch.notify.message import About, composed, due_at, verb_of
from gpuwatch.notify.send import Delivery, sent
from gpuwatch.notify.settings import TERMINALS, Listener, NotifySettings, addresses, slack_of
from gpuwatch.notify.transports.errors import DeliveryError, RecipientsRefusedError
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.secrets import read_secret

log = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS = 15.0
_LONGEST_WAIT_SECONDS = 600.0
_AFTERWARDS = timedelta(minutes=10)  # for so long what became too old is still found, to be written down as given up
_LINK_LIFE = timedelta(days=1)  # after the time at which the node may go: it may be held back


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Asked every few seconds; tells whoever has not been told.

    `fleet` is that of the last round, None before it; `count` is told of each event's destination, name and result.
    """

    notify: NotifySettings
    ledger: LedgerSettings
    signals: ObserveSettings  # how agents are asked to write on terminals
    fleet_name: str
    rules: Rulebook
    provider: str
    zone: ZoneInfo
    clock: Clock
    leads: Callable[[], bool]
    fleet: Callable[[], Fleet | None]
    count: Callable[[str, str, str], None] = lambda *_: None
    _patience: Backoff[Hashable] = field(init=False)
    _unrecorded: dict[tuple[str, str], tuple[datetime, str]] = field(default_factory=dict)
    _unaddressed: set[tuple[str, str]] = field(default_factory=set)
    _looked: Fleet | None = None
    _left: bool = True  # whether something waits for another try

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        self._patience = Backoff(
            clock=self.clock, first_seconds=_FIRST_WAIT_SECONDS, longest_seconds=_LONGEST_WAIT_SECONDS
        )

    def tick(self) -> None:
        """Tell what is to be told; what goes wrong is a line in the log, and is tried again later."""
        fleet = self.fleet() if self.leads() else None
        if fleet is None or (fleet is self._looked and not self._left):
            return  # nothing is done between two rounds
        self._left = True
        try:
            ledger = Ledger.connect(self.ledger, controls_only=True)
        except LedgerError as error:
            log.warning("Messages wait: %s", error)
            return
        try:
            self._left = self._tell(ledger, fleet)
            self._looked = fleet
        except LedgerError as error:
            log.warning("Messages wait: %s", error)
        except Exception:
            log.exception("Messages wait; they are tried again.")
        finally:
            ledger.close()

    def _tell(self, ledger: Ledger, fleet: Fleet) -> bool:
        """Whether something is left for another try."""
        self._record_late(ledger)
        now, settings = self.clock.now(), self.notify
        past, about = self._past(ledger, fleet, now)
        self._forget(past)
        left = False
        for name, listener in settings.to.items():
            wanted = Wanted(name=name, events=frozenset(listener.events), pools=frozenset(listener.pools))
            tell, moot = due_messages(past, wanted, now, timedelta(seconds=settings.max_age))
            for each in moot:
                ledger.messages.keep(each.event.key, name, now, reached=False, detail=each.why)
                self.count(name, name_of(each.event), "given_up" if each.why == TOO_OLD else "moot")
                log.info("%s is not told of the %s of %s: %s.", name, each.event.verb, each.event.node_id, each.why)
            left |= self._tell_one(ledger, name, listener, tell, about)
        if settings.terminals:
            self._tell_hosts(ledger, past, about)  # who is not there is looked for again after the next round
        return left

    def _forget(self, past: Past) -> None:
        """What was remembered of events that are over."""
        names, keys = [*self.notify.to, TERMINALS], {event.key for event in past.events}
        whose = {event.owner for event in past.events} | {None}
        self._unaddressed &= {(key, name) for key in keys for name in names}
        self._patience.forget_all_but({*names, *((name, what) for name in names for what in (*whose, *keys))})

    def _past(self, ledger: Ledger, fleet: Fleet, now: datetime) -> tuple[Past, About]:
        """What has happened, and what there is to know about it.

        Events come first: what is over by the second look is not told, what begins between them is the next tick's.
        """
        events = ledger.messages.events(now - timedelta(seconds=self.notify.max_age) - _AFTERWARDS)
        view = ledger.view(now, recent=timedelta(0))
        notices = {each.key: _notice_of(ledger, each) for each in unexplained(events)}
        keys = [*(each.key for each in events), *notices.values()]
        told = ledger.messages.told(keys) if keys else frozenset()
        in_force = {each.key: each for each in view.notices}
        about = About(
            fleet=fleet,
            fleet_name=self.fleet_name,
            rules=self.rules,
            provider=self.provider,
            zone=self.zone,
            now=now,
            page=self.notify.url,
            notices=in_force,
        )
        return Past(events=events, in_force=in_force.keys(), told=told, notices=notices), about

    def _tell_one(self, ledger: Ledger, name: str, listener: Listener, events: Sequence[Event], about: About) -> bool:
        """One message for each kind of event, and each owner where mail goes to owners; whether one is left to try."""
        left = False
        groups: dict[tuple[str, str | None], list[Event]] = {}
        for event in events:
            groups.setdefault((name_of(event), event.owner if listener.owners else None), []).append(event)
        for (kind, owner), group in groups.items():
            if not (self._patience.over(name) and self._patience.over((name, owner))):
                left = True
                continue
            to, copies = addresses(listener, owner, self.notify)
            if listener.mail.host is not None and not to:
                self._nobody(name, owner, group)
                continue
            try:
                where = self._sent(name, listener, group, about, to, copies)
            except DeliveryError as error:
                # An address that is refused keeps nobody else's message back.
                what = (name, owner) if isinstance(error, RecipientsRefusedError) else name
                why = str(error)
            except Exception:
                log.exception("The %s to %s could not be made.", kind, name)
                what, why = (name, owner), "it could not be made"
            else:
                self._patience.worked(name)
                self._patience.worked((name, owner))
                self._record(ledger, name, group, self.clock.now(), where)
                nodes = ", ".join(event.node_id for event in group)
                log.info("%s was told of the %s of %s (%s).", name, kind, nodes, where)
                continue
            wait, left = format_duration(self._patience.failed(what)), True
            self._count(name, group, "failed")
            log.warning("The %s did not get to %s: %s. Next try in %s.", kind, name, why, wait)
        return left

    def _sent(
        self,
        name: str,
        listener: Listener,
        events: Sequence[Event],
        about: About,
        to: Sequence[str],
        copies: Sequence[str],
    ) -> str:
        """Where one message went."""
        settings = self.notify
        owners = dict.fromkeys(event.owner for event in events)
        mentions = [slack_of(owner, settings) for owner in owners]
        linked = replace(about, link=_links(settings, name, listener))
        message = composed(events, linked, tuple(each for each in mentions if each is not None))
        return sent(Delivery(message=message, key=key_of(name, events), to=to, copies=copies), listener)

    def _nobody(self, name: str, owner: str | None, events: Sequence[Event]) -> None:
        """Told once a process: who mends the settings ends it, and the notice is told after all."""
        fresh = [event for event in events if (event.key, name) not in self._unaddressed]
        if not fresh:
            return
        self._unaddressed |= {(event.key, name) for event in fresh}
        self._count(name, fresh, "nobody")
        whose = "nodes without an owner" if owner is None else f"the owner {owner!r}"
        nodes = ", ".join(event.node_id for event in fresh)
        log.warning(
            "%s has no mail address for %s (%s): see notify.owners, notify.owner_mail, mail.to.", name, whose, nodes
        )

    def _record(self, ledger: Ledger, name: str, events: Sequence[Event], at: datetime, where: str) -> None:
        """What arrived; whatever becomes of the ledger now, this process sends it once."""
        self._unrecorded.update({(event.key, name): (at, where) for event in events})
        self._count(name, events, "reached")
        self._record_late(ledger)

    def _record_late(self, ledger: Ledger) -> None:
        for (key, name), (at, where) in tuple(self._unrecorded.items()):
            ledger.messages.keep(key, name, at, reached=True, detail=where)
            del self._unrecorded[key, name]

    def _tell_hosts(self, ledger: Ledger, past: Past, about: About) -> None:
        """On the terminals of each host; whoever is not there now may be later, as long as the notice is in force."""
        wanted = Wanted(name=TERMINALS, events=frozenset({"notice", "withdrawn"}), pools=frozenset())
        tell, moot = due_messages(past, wanted, about.now, timedelta(seconds=self.notify.max_age))
        for each in moot:
            ledger.messages.keep(each.event.key, TERMINALS, about.now, reached=False, detail=each.why)
        events = [event for event in tell if self._patience.over((TERMINALS, event.key)) and runs(event, about.fleet)]
        notes = [host_note(event, about, withdrawn(past)) for event in events]
        answers = told_on_hosts(self.signals, self.clock, notes)
        for event, why in zip(events, answers, strict=True):
            if why is None:
                self._patience.worked((TERMINALS, event.key))
                # Not as reached: somebody's terminal is no proof that somebody sits there (limits.require_told).
                detail = "on the host's terminals"
                ledger.messages.keep(event.key, TERMINALS, about.now, reached=False, detail=detail)
            else:
                self._patience.failed((TERMINALS, event.key))
                log.info("Nobody at %s was told of its %s: %s", event.node_id, event.verb, why)
            self._count(TERMINALS, [event], "reached" if why is None else "failed")

    def _count(self, name: str, events: Sequence[Event], result: str) -> None:
        for event in events:
            self.count(name, name_of(event), result)


def key_of(name: str, events: Sequence[Event]) -> str:
    """The same for each try of one message to one destination, and for no other."""
    told = "\n".join([name, *sorted(event.key for event in events)])
    return f"gpuwatch-notice-{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def _notice_of(ledger: Ledger, withdrawal: Event) -> str:
    """The key of the notice that it took back; empty where the ledger no longer tells."""
    for entry in ledger.history(withdrawal.node_id):  # newest first
        settled = any(outcome.status is Status.SETTLED for outcome in entry.outcomes)
        if entry.intent.verb is Verb.NOTICE and settled and entry.intent.at <= withdrawal.intended_at:
            return entry.intent.key
    return ""


def _links(settings: NotifySettings, name: str, listener: Listener) -> Callable[[Event, datetime], str | None]:
    """Makes keep links; without them a message is better than none."""
    if settings.url is None or settings.link_key_file is None:
        return lambda *_: None
    base = settings.url
    try:
        secret = secret_of(read_secret(settings.link_key_file), "notify.link_key_file")
    except (OSError, ValueError) as error:
        log.warning("Messages go out without keep links: %s", error)
        return lambda *_: None

    def link(event: Event, due: datetime) -> str:
        whom = event.owner if listener.owners and event.owner else name
        claim = Claim(node_id=event.node_id, key=event.key, whom=whom, until=due + _LINK_LIFE)
        return keep_url(base, secret, claim)

    return link


def runs(event: Event, fleet: Fleet) -> bool:
    """Whether there is a host whose agent can be asked."""
    node = fleet.find(event.node_id)
    return node is not None and node.state is NodeState.RUNNING


def host_note(event: Event, about: About, notices: Mapping[str, str]) -> HostNote:
    """Of a notice, or that it is withdrawn; where it depends what will be done, the worse is said."""
    node = about.fleet.find(event.node_id)
    if node is None:
        raise ValueError(f"{event.node_id} is not in the fleet")
    if event.verb is Verb.WITHDRAW:
        return HostNote(node=node, key=notices[event.key], stop_at=None)
    due = due_at(event, about)
    if verb_of(event, about) is Verb.STOP:
        return HostNote(node=node, key=event.key, stop_at=due, verb=Verb.STOP)
    return HostNote(node=node, key=event.key, stop_at=due, verb=Verb.TERMINATE)
