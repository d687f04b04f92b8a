"""A test message to listeners, so that their settings are known to be right before the first notice."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from gpuwatch.clock import Clock
from gpuwatch.delivery.errors import DeliveryError
from gpuwatch.notify.message import Message, printable
from gpuwatch.notify.owners import addresses, slack_of
from gpuwatch.notify.sending import Parcel, sent
from gpuwatch.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one: where it went, or why it did not."""

    name: str
    arrived: bool
    told: str


def tried(settings: Settings, clock: Clock, names: Sequence[str], owner: str | None, who: str) -> tuple[Result, ...]:
    """Send one to each; nothing of it is written down."""
    return tuple(_results(settings, clock, names, owner, who))


def _results(settings: Settings, clock: Clock, names: Sequence[str], owner: str | None, who: str) -> Iterator[Result]:
    knobs, member = settings.notify, slack_of(owner, settings.notify)
    message = Message(
        kind="test",
        fleet=printable(settings.fleet),
        made_at=clock.now(),
        zone=ZoneInfo(settings.cost.timezone),
        page=knobs.url,
        sent_by=printable(who),
        mentions=() if member is None else (member,),
    )
    for name in names:
        listener = knobs.to[name]
        to, copies = addresses(listener, owner, knobs)
        if listener.mail.host is not None and not to:
            whom = "without --owner" if owner is None else f"for the owner {owner!r}"
            yield Result(name=name, arrived=False, told=f"there is no address {whom}")
            continue
        parcel = Parcel(message=message, key=f"gpuwatch-test-{secrets.token_hex(12)}", to=to, copies=copies)
        try:
            where = sent(parcel, listener)
        except DeliveryError as error:
            yield Result(name=name, arrived=False, told=f"it did not arrive: {error}")
            continue
        whom = f" to {', '.join((*to, *copies))}" if to else ""
        yield Result(name=name, arrived=True, told=f"sent{whom} ({where})")
