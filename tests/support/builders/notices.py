"""Notices for tests: events as the ledger has them, a controller's ledger with some, and the job that sends them."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope

from gpuwatch.cli.deliveries import make_notifier
from gpuwatch.clouds.named import start_command
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.config.settings import Settings
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import Intent, Reason, Status, Verb
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.notify.delivery import DeliveryJob
from gpuwatch.notify.message import MessageContext
from gpuwatch.notify.notifier import Notifier
from gpuwatch.notify.settings import NotifySettings
from gpuwatch.notify.transports.mail import MailSettings
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_node
from tests.support.real.alerting import Mails

GRACE = timedelta(minutes=10)
POOLS = {"default": PoolRules(idle=IdleRules(grace_period=GRACE.total_seconds()))}
SEEN = Evidence(name="gpu0.utilization_max", says=State.IDLE, observed=0.0, limit=0.01, unit="ratio", source="NVML")


def an_event(verb: Verb = Verb.NOTICE, node_id: str = "i-1", key: str = "k1", **other: object) -> Event:
    """Something that was settled now, at a machine of ann's."""
    known: dict[str, object] = {
        "pool": "default",
        "owner": "ann",
        "usd_per_hour": Decimal("32.7726"),
        "reason": Reason(code="candidate", sentence="It has been idle for 2h, longer than 30m.", evidence=(SEEN,)),
        "intended_at": NOW,
        "at": NOW,
        **other,
    }
    return Event(verb=verb, node_id=node_id, key=key, **known)  # type: ignore[arg-type]  # of the fields' types


def a_machine(node_id: str = "i-1", **other: object) -> Node:
    """A machine that people know by a name."""
    facts: dict[str, Any] = {"name": "trainer", "owner": "ann", "instance_type": "p4d.24xlarge", **other}
    return a_node(node_id, **facts)


def about(*nodes: Node, rules: Rulebook | None = None, **other: object) -> MessageContext:
    """What there is to know."""
    known: dict[str, object] = {
        "fleet_name": "lab",
        "start_command": start_command({"": CloudSettings()}),
        "zone": ZoneInfo("Europe/Berlin"),
        "now": NOW,
        **other,
    }
    fleet = Fleet(observed_at=NOW, nodes=nodes or (a_machine(),))
    return MessageContext(fleet=fleet, rules=rules or Rulebook(pools=POOLS), **known)  # type: ignore[arg-type]  # likewise


@dataclass(slots=True)
class Office:
    """A controller's ledger in a file, and its deliveries, which can be restarted with nothing but the ledger."""

    folder: Path
    notify: NotifySettings
    nodes: Sequence[Node] = (a_machine(),)
    clock: ManualClock = field(default_factory=lambda: ManualClock(wall=NOW))
    leads: bool = True
    settings: Settings = field(init=False)
    ledger: Ledger = field(init=False)
    counts: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The ledger is there, and its controller has it open."""
        settings = LedgerSettings(path=str(self.folder / "ledger.db"))
        self.settings = Settings(mode="enforce", fleet="lab", ledger=settings, notify=self.notify, pools=POOLS)
        self.ledger = Ledger.connect(settings)

    def notifier(self) -> Notifier:
        """After a start."""
        return make_notifier(
            self.settings,
            self.clock,
            lambda: Fleet(observed_at=self.clock.now(), nodes=tuple(self.nodes)),
            lambda *counted: self.counts.append(counted),
        )

    def job(self, notifier: Notifier | None = None) -> DeliveryJob:
        """Its deliveries, after a start."""
        sources = [notifier or self.notifier()]
        return DeliveryJob(ledger=self.settings.ledger, leads=lambda: self.leads, sources=sources)

    def does(self, verb: Verb, node_id: str = "i-1", *, owner: str | None = "ann", code: str = "candidate") -> Intent:
        """An intent that is carried out at once."""
        reason = Reason(code=code, sentence=f"It is {verb.value} time.", evidence=(SEEN,))
        now = self.clock.now()
        intent = self.ledger.intend(verb, node_id, "default", now, reason, 1, owner=owner, usd_per_hour=Decimal("1.50"))
        self.ledger.settle(intent, Status.SETTLED, "done", now)
        return intent

    def told_at(self, node_id: str = "i-1") -> datetime | None:
        """When a message about the notice in force first reached somebody."""
        notice = self.ledger.view(self.clock.now()).notice(node_id)
        return None if notice is None else notice.told_at

    def close(self) -> None:
        """Let go of the file."""
        self.ledger.close()


class Post(Mails):
    """A mail server that knows nobody called mallory."""

    async def handle_RCPT(self, _s: object, _t: object, envelope: Envelope, to: str, _o: object) -> str:  # noqa: N802
        """Its answer to a recipient."""
        if to.startswith("mallory@"):
            return "550 nobody of that name"
        envelope.rcpt_tos.append(to)
        return "250 OK"


@contextmanager
def post() -> Iterator[tuple[MailSettings, Post]]:
    """On loopback, without TLS."""
    mails = Post()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Controller(mails, hostname="127.0.0.1", port=port)
    server.start()
    try:
        yield MailSettings(host="127.0.0.1", port=port, security="none", sender="gpuwatch@example.com"), mails
    finally:
        server.stop()
