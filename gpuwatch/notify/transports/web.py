"""JSON by HTTP POST, to a webhook or to Slack; no redirect is followed, and no error holds a secret."""

import json
import re
import ssl
import urllib.request
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from gpuwatch.model.setting import Contradiction, Setting
from gpuwatch.notify.transports.base import (
    LOOPBACK,
    Delivery,
    DeliveryError,
    Transport,
    in_words,
    is_plain_http,
    one_without_other,
    secret,
)
from gpuwatch.notify.transports.harmless import harmless_text
from gpuwatch.runtime.http import address
from gpuwatch.runtime.http.client import opener

_TIMEOUT_SECONDS = 30.0
_LARGEST_ANSWER = 16 << 20
_URL = re.compile(r"https?://\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebTransport(Transport):
    """The settings that every transport over HTTP has."""

    bearer_file: Annotated[
        str | None,
        Setting("The file that holds a bearer token; it is sent over https only, and read at each request."),
    ] = None
    tls_ca: Annotated[
        str | None, Setting("CA certificates in PEM that the server's must come from. None: the system's.")
    ] = None

    @abstractmethod
    def addresses(self) -> Sequence[str]:
        """The URLs that it goes to."""

    def contradictions(self, path: tuple[str, ...], *, owners: bool) -> Iterator[Contradiction]:
        """No valid URL, or a token that others could read."""
        del owners
        urls = self.addresses()
        if self.tls_ca is not None and not urls:
            yield one_without_other(path, "tls_ca", self.target)
        for url in urls:
            right = "a URL such as https://example.com/in"
            yield from address.contradictions(
                (*path, self.target), url, right=right, login="its bearer_file", named=True
            )
        if self.bearer_file is not None and not (urls and all(url.startswith("https://") for url in urls)):
            yield Contradiction(
                keys=((*path, "bearer_file"), (*path, self.target)),
                wrong=f"{'.'.join(path)}.bearer_file is set, and {self.target} is not https: "
                "others could read the token",
                right="an https:// URL",
            )

    def unencrypted_setting(self) -> str | None:
        """The URLs' setting, where one of them is plain HTTP to another machine."""
        return self.target if any(map(is_plain_http, self.addresses())) else None

    def request(self, url: str, document: object = None, headers: Mapping[str, str] | None = None) -> bytes:
        """The answer to a POST of the document, or without one to a GET; success is a status from 200 to 299.

        Raises:
            DeliveryError: the request failed.

        """
        token = {} if self.bearer_file is None else {"Authorization": f"Bearer {secret(self.bearer_file)}"}
        with in_words():
            context = ssl.create_default_context(cafile=self.tls_ca) if self.tls_ca is not None else None
        return post(url, document, {**(headers or {}), **token}, context)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(WebTransport):
    """A JSON document by HTTP POST."""

    target: ClassVar[str] = "url"

    url: Annotated[
        str | None, Setting("Where the JSON document is posted to; any status from 200 to 299 is success.")
    ] = None

    def addresses(self) -> Sequence[str]:
        """Return the URL as the only address."""
        return () if self.url is None else (self.url,)

    def send(self, delivery: Delivery) -> str:
        """Post the document; the host that it went to."""
        url = self.url or ""
        self.request(url, delivery.content.document(delivery.key), {"Idempotency-Key": delivery.key})
        return urlsplit(url).hostname or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretUrlTransport(Transport):
    """A chat with a webhook: its URL is a secret."""

    target: ClassVar[str] = "url_file"

    url_file: Annotated[
        str | None, Setting("The file that holds the webhook's URL, which is a secret; read at each message.")
    ] = None

    def url(self) -> str:
        """The URL of this message.

        Raises:
            DeliveryError: it cannot be read, or others could read what is sent there.

        """
        url = secret(self.url_file)
        if not is_safe(url):
            raise DeliveryError(f"{self.url_file} does not hold an https:// URL without user and password")
        return url


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackSettings(SecretUrlTransport):
    """Plain text to an incoming webhook of Slack, or of a service that accepts its messages, such as Mattermost."""

    def send(self, delivery: Delivery) -> str:
        """Post the text: docs.slack.dev/messaging/sending-messages-using-incoming-webhooks."""
        post(self.url(), slack_message(delivery), {"Idempotency-Key": delivery.key})
        return "Slack"


def slack_message(delivery: Delivery) -> dict[str, str]:
    """The text with mentions. Names come from others: nothing in them becomes a link or a mention."""
    content = delivery.content
    text = harmless_text(f"{content.title}\n\n{content.chat()}")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    calls = " ".join(f"<@{member}>" for member in delivery.mentions)
    linked = _URL.sub(r"<\g<0>>", text)  # only ours are left: names hold no "://"
    return {"text": f"{calls} {linked}".strip(), "parse": "none"}


def is_safe(url: str) -> bool:
    """Whether others cannot read what is sent there."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    secret = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    return secret and address.is_web_address(url)


def post(url: str, document: object, headers: Mapping[str, str], context: ssl.SSLContext | None = None) -> bytes:
    """The answer to a POST of the document, or to a GET where it is None.

    Raises:
        DeliveryError: the request failed, or its status is not from 200 to 299.

    """
    sent = {"User-Agent": "gpuwatch", **headers}
    body: Any = None
    if document is not None:
        sent["Content-Type"] = "application/json"
        body = json.dumps(document).encode()
    try:
        request = urllib.request.Request(url, body, sent)  # noqa: S310  checked by the settings
    except ValueError:
        raise DeliveryError("the address is not a valid URL") from None
    with in_words(request.full_url), opener(context).open(request, timeout=_TIMEOUT_SECONDS) as answer:
        content: bytes = answer.read(_LARGEST_ANSWER)
        return content
