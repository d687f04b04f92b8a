"""A test message to listeners, so that their settings are known to be right before the first notice."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from gpuwatch.notify.message import Message, printable
from gpuwatch.notify.send import Delivery, sent
from gpuwatch.notify.settings import NotifySettings, addresses, slack_of
from gpuwatch.notify.transports.errors import DeliveryError
from gpuwatch.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one: where it went, or why it did not."""

    name: str
    arrived: bool
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who sends the test, of which fleet, by which settings."""

    notify: NotifySettings
    fleet: str
    zone: ZoneInfo
    clock: Clock
    who: str


def send_test(sender: Sender, names: Sequence[str], owner: str | None) -> tuple[Result, ...]:
    """Send one to each; nothing of it is written down."""
    return tuple(_results(sender, names, owner))


def _results(sender: Sender, names: Sequence[str], owner: str | None) -> Iterator[Result]:
    settings, member = sender.notify, slack_of(owner, sender.notify)
    message = Message(
        kind="test",
        fleet=printable(sender.fleet),
        made_at=sender.clock.now(),
        zone=sender.zone,
        page=settings.url,
        sent_by=printable(sender.who),
        mentions=() if member is None else (member,),
    )
    for name in names:
        listener = settings.to[name]
        to, copies = addresses(listener, owner, settings)
        if listener.mail.host is not None and not to:
            whom = "without --owner" if owner is None else f"for the owner {owner!r}"
            yield Result(name=name, arrived=False, told=f"there is no address {whom}")
            continue
        parcel = Delivery(message=message, key=f"gpuwatch-test-{secrets.token_hex(12)}", to=to, copies=copies)
        try:
            where = sent(parcel, listener)
        except DeliveryError as error:
            yield Result(name=name, arrived=False, told=f"it did not arrive: {error}")
            continue
        whom = f" to {', '.join((*to, *copies))}" if to else ""
        yield Result(name=name, arrived=True, told=f"sent{whom} ({where})")
