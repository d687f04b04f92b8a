"""PURE: what can be set of mail servers, Slack and webhooks, wherever something is sent to them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MinLen

from gpuwatch.model.setting import STRICT, Contradiction, Setting

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})  # hosts by which only this machine is reached
_PLAIN_HTTP = re.compile(r"http://(?:[^/?#]*@)?(\[[^\]]*\]|[^/:?#]*)", re.IGNORECASE)
ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings:
    """A mail by SMTP: HTML, with the same as text."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    host: Annotated[str | None, Setting("The mail server that takes our mail, such as smtp.example.com.")] = None
    port: Annotated[int, Ge(1), Le(65535), Setting("Its port: 587 for STARTTLS, 465 for TLS, 25 for none.")] = 587
    security: Annotated[
        Literal["starttls", "tls", "none"],
        Setting("starttls and tls check the server's certificate; none encrypts nothing."),
    ] = "starttls"
    tls_ca: Annotated[
        str | None, Setting("CA certificates in PEM that the server's must come from. None: the system's.")
    ] = None
    username: Annotated[str | None, Setting("The user to be there; needs TLS.")] = None
    password_file: Annotated[
        str | None, Setting("The file that holds the user's password and nothing else; read at each mail.")
    ] = None
    sender: Annotated[str, MinLen(3), Setting("The address that the mail comes from.")] = "gpuwatch@localhost"
    to: Annotated[tuple[Annotated[str, MinLen(3)], ...], Setting("The addresses that it goes to.")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackSettings:
    """A message by an incoming webhook of Slack (or of what understands its messages, such as Mattermost)."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    url_file: Annotated[
        str | None, Setting("The file that holds the webhook's URL, which is a secret; read at each message.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """A JSON document by HTTP POST."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    url: Annotated[
        str | None, Setting("Where the JSON document is posted to; any status from 200 to 299 is success.")
    ] = None
    bearer_file: Annotated[
        str | None,
        Setting("The file that holds a bearer token; it goes out over https only, and is read at each post."),
    ] = None
    tls_ca: Annotated[
        str | None, Setting("CA certificates in PEM that the server's must come from. None: the system's.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transports:
    """Mail, Slack or a webhook, whatever is sent."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    mail: MailSettings = field(default_factory=MailSettings)
    slack: SlackSettings = field(default_factory=SlackSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)

    def ways_and(self, **others: str | None) -> tuple[str, ...]:
        """Those that say where to, these and others; right is exactly one."""
        said = {"mail": self.mail.host, "slack": self.slack.url_file, "webhook": self.webhook.url, **others}
        return tuple(way for way, where in said.items() if where is not None)


def in_the_clear(to: Transports) -> str | None:
    """The key by which others on the way could read what goes there; None: they cannot."""
    mail, url = to.mail, to.webhook.url
    if mail.host is not None and mail.security == "none" and mail.host not in LOOPBACK:
        return "mail.security"
    plain = None if url is None else _PLAIN_HTTP.match(url)
    if plain is not None and plain[1].lower() not in LOOPBACK:
        return "webhook.url"
    return None


def of_ways(
    ways: Sequence[str], path: tuple[str, ...], choices: str, beside: Sequence[str] = ()
) -> Iterator[Contradiction]:
    """A destination is one way, and no other; `beside` are keys of it that are none."""
    if len(ways) != 1:
        told = f"names {' and '.join(ways)}" if ways else "says nowhere to"
        keys = (path, *((*path, key) for key in beside))
        yield Contradiction(keys=keys, wrong=f"{'.'.join(path)} {told}", right=f"one of {choices}")


def of_transports(to: Transports, path: tuple[str, ...], *, others: bool = False) -> Iterator[Contradiction]:
    """What is wrong with a destination's mail and webhook; `others` than mail.to may get its mails."""
    where, mail, webhook = ".".join(path), to.mail, to.webhook
    yield from _of_mail(mail, (*path, "mail"), others=others)
    for way, main, said, ca in (
        ("mail", "host", mail.host, mail.tls_ca),
        ("webhook", "url", webhook.url, webhook.tls_ca),
    ):
        if ca is not None and said is None:
            keys = ((*path, way, "tls_ca"), (*path, way, main))
            wrong = f"{where}.{way}.tls_ca is set, and {main} is not"
            yield Contradiction(keys=keys, wrong=wrong, right="both, or neither")
    if webhook.url is not None and not webhook.url.startswith(("http://", "https://")):
        wrong = f"{where}.webhook.url {webhook.url!r} is no URL"
        yield Contradiction(
            keys=((*path, "webhook", "url"),), wrong=wrong, right="a URL such as https://example.com/in"
        )
    if webhook.bearer_file is not None and not (webhook.url or "").startswith("https://"):
        yield Contradiction(
            keys=((*path, "webhook", "bearer_file"), (*path, "webhook", "url")),
            wrong=f"{where}.webhook.bearer_file is set, and its URL is not https: others could read the token",
            right="an https:// URL",
        )


def _of_mail(mail: MailSettings, path: tuple[str, ...], *, others: bool) -> Iterator[Contradiction]:
    where = ".".join(path)
    if mail.host is not None and not mail.to and not others:
        yield Contradiction(
            keys=((*path, "to"), (*path, "host")), wrong=f"{where}.to names nobody", right="[ops@example.com]"
        )
    for key, address in (("sender", mail.sender), *(("to", each) for each in mail.to)):
        if not ADDRESS.fullmatch(address):
            wrong = f"{where}.{key}: {address!r} is no mail address"
            yield Contradiction(keys=((*path, key),), wrong=wrong, right="an address such as ops@example.com")
    if (mail.username is None) != (mail.password_file is None):
        one, other = ("username", "password_file") if mail.password_file is None else ("password_file", "username")
        wrong = f"{where}.{one} is set, and {other} is not"
        yield Contradiction(keys=((*path, other), (*path, one)), wrong=wrong, right="both, or neither")
    if mail.username is not None and mail.security == "none":
        yield Contradiction(
            keys=((*path, "security"), (*path, "username")),
            wrong=f"{where}.security is none, and the password of {mail.username!r} would go out for all to read",
            right="starttls or tls",
        )
