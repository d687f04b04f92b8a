"""What every transport is made of: what it is given to send, its settings, and the errors of a failed delivery."""

import re
import smtplib
import urllib.error
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from http.client import HTTPException
from typing import Any, ClassVar, Protocol

from gpuwatch.model.setting import STRICT, Contradiction
from gpuwatch.runtime.network_errors import network_text
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.secrets import read_secret_text

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})  # hosts by which only this machine is reached
_LONGEST_REPLY = 400  # of what a mail server says, in an error
_PLAIN_HTTP = re.compile(r"http://(?:[^/?#]*@)?(\[[^\]]*\]|[^/:?#]*)", re.IGNORECASE)


class DeliveryError(Exception):
    """The message did not arrive, as far as is known; the text says why on one line and holds no secret."""

    def __init__(self, why: str) -> None:
        """`why` may quote a server's answer."""
        super().__init__(legible(why))


class RecipientsRefusedError(DeliveryError):
    """The mail server accepts mail, but not for these recipients."""


class Content(Protocol):
    """A notification or a report; each transport takes the form that it can show."""

    @property
    def title(self) -> str:
        """Return what it is about in one line."""
        ...

    def text(self) -> str:
        """The whole content as plain text."""
        ...

    def chat(self, *, links: bool = True) -> str:
        """A shorter text for chats and phones; without snooze links where others could read them."""
        ...

    def html(self, *, mail: bool) -> str:
        """A page, or the body of a mail."""
        ...

    def document(self, key: str) -> Mapping[str, Any]:
        """The content as JSON for programs."""
        ...

    def parts(self) -> Sequence["Content"]:
        """The content of each node by itself, in the order of the document's nodes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A content on its way to one receiver; `key` is the same at each try, so that the receiver can drop a repeat.

    `day` is the day that the content is about. `to` and `copies` are mail addresses, `mentions` Slack member ids.
    """

    key: str
    at: datetime
    day: date
    content: Content
    to: Sequence[str] = ()
    copies: Sequence[str] = ()
    mentions: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport(ABC):
    """The settings of one way to send something, and the sending.

    A subclass adds its settings, names the one that says where to in `target`, and implements `send`.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    target: ClassVar[str]
    resolves: ClassVar[bool] = False  # whether a notice stays open there until it is withdrawn or done

    def contradictions(self, path: tuple[str, ...], *, owners: bool) -> Iterator[Contradiction]:
        """What is wrong with the settings; with `owners`, mail goes to the owners of nodes."""
        del path, owners
        yield from ()

    def unencrypted_setting(self) -> str | None:
        """The setting because of which others could read messages on their way; None: they cannot."""
        return None

    @abstractmethod
    def send(self, delivery: Delivery) -> str:
        """Send it and return where it went, for people.

        Raises:
            RecipientsRefusedError: the mail server accepts mail for none of the addresses.
            DeliveryError: it did not arrive.

        """


def is_plain_http(url: str) -> bool:
    """Whether others could read what is sent to this URL."""
    found = _PLAIN_HTTP.match(url)
    return found is not None and found[1].lower() not in LOOPBACK


def one_without_other(path: tuple[str, ...], one: str, other: str) -> Contradiction:
    """`one` is set and `other` is not."""
    wrong = f"{'.'.join(path)}.{one} is set, and {other} is not"
    return Contradiction(keys=((*path, one), (*path, other)), wrong=wrong, right="both, or neither")


@contextmanager
def in_words(url: str = "") -> Iterator[None]:
    """Turn what sending to a URL may raise into a `DeliveryError`, which names its host and port alone."""
    try:
        yield
    except smtplib.SMTPResponseException as error:
        reply = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise DeliveryError(f"the mail server answered {error.smtp_code} {reply[:_LONGEST_REPLY]}") from None
    except smtplib.SMTPRecipientsRefused as error:
        refused = ", ".join(error.recipients)
        raise RecipientsRefusedError(f"the mail server does not accept mail for {refused}") from None
    except urllib.error.HTTPError as error:
        error.close()
        raise DeliveryError(f"the server answered HTTP {error.code}") from None
    except urllib.error.URLError as error:
        why = network_text(error, url) or getattr(error.reason, "strerror", None) or error.reason
        raise DeliveryError(f"the server was not reached: {why}") from None
    except HTTPException as error:  # its text may hold the URL
        raise DeliveryError(network_text(error, url) or f"the HTTP request failed ({type(error).__name__})") from None
    except (OSError, smtplib.SMTPException) as error:
        words = network_text(error, url) or f"{type(error).__name__}: {error.strerror or error}"
        raise DeliveryError(words) from None
    except ValueError as error:  # http.client's repeats a header, and with it the token
        why = f"an address, a password or a token holds characters that cannot be sent ({type(error).__name__})"
        raise DeliveryError(why) from None


def secret(path: str | None) -> str:
    """The content of a secret file, or what a reference leads to; read at each use.

    Raises:
        DeliveryError: it cannot be read, or holds nothing.

    """
    try:
        text = read_secret_text(path or "")
    except OSError as error:
        raise DeliveryError(f"{path} cannot be read: {error.strerror}") from None
    if not text:
        raise DeliveryError(f"{path} holds nothing")
    return text
