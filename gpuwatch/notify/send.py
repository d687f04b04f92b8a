"""A message on its way to one listener: by mail, Slack, a webhook, or any service that apprise knows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuwatch.notify.formats import as_document, as_html, as_slack, as_text, subject
from gpuwatch.notify.message import Message
from gpuwatch.notify.settings import Listener
from gpuwatch.notify.transports import apprise
from gpuwatch.notify.transports.mail import Email, mailed
from gpuwatch.notify.transports.webhook import posted, slacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message with its addresses, where it is a mail; `key` is the same at each try."""

    message: Message
    key: str
    to: Sequence[str] = ()
    copies: Sequence[str] = ()


def sent(parcel: Delivery, listener: Listener) -> str:
    """Where it went, for people.

    Raises:
        RecipientsRefusedError: the mail server takes no mail for these addresses.
        DeliveryError: it did not arrive.

    """
    (way,) = listener.ways
    return _WAYS[way](parcel, listener)


def _mail(parcel: Delivery, listener: Listener) -> str:
    message = parcel.message
    letter = Email(
        key=parcel.key,
        at=message.made_at,
        subject=subject(message),
        text=as_text(message),
        html=as_html(message),
    )
    return mailed(letter, listener.mail, parcel.to, parcel.copies)


def _slack(parcel: Delivery, listener: Listener) -> str:
    return slacked(as_slack(parcel.message), listener.slack, parcel.key)


def _webhook(parcel: Delivery, listener: Listener) -> str:
    return posted(as_document(parcel.message, parcel.key), listener.webhook, parcel.key)


def _apprise(parcel: Delivery, listener: Listener) -> str:
    message = parcel.message
    unlinked = replace(message, lines=tuple(replace(line, keep_url=None) for line in message.lines))
    return apprise.told(subject(message), as_text(message), as_text(unlinked), listener.apprise)


_WAYS: Mapping[str, Callable[[Delivery, Listener], str]] = {
    "mail": _mail,
    "slack": _slack,
    "webhook": _webhook,
    "apprise": _apprise,
}
