"""A test message to receivers, so that mistakes in the settings show before the first notice."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from gpuwatch.notify.formats import Notification
from gpuwatch.notify.message import Message
from gpuwatch.notify.settings import NotifySettings, addresses, slack_of
from gpuwatch.notify.transports.base import Delivery, DeliveryError
from gpuwatch.notify.wording import printable
from gpuwatch.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result for one receiver: where the message went, or why it did not arrive."""

    name: str
    arrived: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SentDocument:
    """The result for each receiver."""

    deliveries: list[Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who sends the test, from which fleet, with which settings."""

    notify: NotifySettings
    fleet: str
    zone: ZoneInfo
    clock: Clock
    who: str


def send_test(sender: Sender, names: Sequence[str], owner: str | None) -> Iterator[Result]:
    """Send one message to each; nothing is recorded."""
    settings, member, now = sender.notify, slack_of(owner, sender.notify), sender.clock.now()
    message = Message(
        kind="test",
        fleet=printable(sender.fleet),
        made_at=now,
        zone=sender.zone,
        page=settings.url,
        language=settings.language,
        sent_by=printable(sender.who),
    )
    for name in names:
        receiver = settings.receivers[name]
        to, copies = addresses(receiver, owner, settings)
        if receiver.mail.host is not None and not to:
            missing = "without --owner" if owner is None else f"for the owner {owner!r}"
            yield Result(name=name, arrived=False, text=f"there is no address {missing}")
            continue
        delivery = Delivery(
            key=f"gpuwatch-test-{secrets.token_hex(12)}",
            at=now,
            day=now.astimezone(sender.zone).date(),
            content=Notification(message),
            to=to,
            copies=copies,
            mentions=() if member is None else (member,),
        )
        try:
            where = receiver.transport.send(delivery)
        except DeliveryError as error:
            yield Result(name=name, arrived=False, text=f"it did not arrive: {error}")
            continue
        sent_to = f" to {', '.join((*to, *copies))}" if to else ""
        yield Result(name=name, arrived=True, text=f"sent{sent_to} ({where})")
