"""What reports can be told: when they go out, and where to."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MinLen

from gpuwatch.model.knobs import STRICT, Contradiction, Knob

_AT = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
FORMATS = ("html", "md", "json", "txt")
_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailKnobs:
    """A mail by SMTP: HTML, with the same as text."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    host: Annotated[str | None, Knob("The mail server that takes our mail, such as smtp.example.com.")] = None
    port: Annotated[int, Ge(1), Le(65535), Knob("Its port: 587 for STARTTLS, 465 for TLS, 25 for none.")] = 587
    security: Annotated[
        Literal["starttls", "tls", "none"],
        Knob("starttls and tls check the server's certificate; none encrypts nothing."),
    ] = "starttls"
    tls_ca: Annotated[
        str | None, Knob("CA certificates in PEM that the server's must come from. None: the system's.")
    ] = None
    username: Annotated[str | None, Knob("The user to be there; needs TLS.")] = None
    password_file: Annotated[
        str | None, Knob("The file that holds the user's password and nothing else; read at each mail.")
    ] = None
    sender: Annotated[str, MinLen(3), Knob("The address that the mail comes from.")] = "gpuwatch@localhost"
    to: Annotated[tuple[Annotated[str, MinLen(3)], ...], Knob("The addresses that it goes to.")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackKnobs:
    """A message by an incoming webhook of Slack (or of what understands its messages, such as Mattermost)."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    url_file: Annotated[
        str | None, Knob("The file that holds the webhook's URL, which is a secret; read at each message.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookKnobs:
    """The report as JSON by HTTP POST."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    url: Annotated[str | None, Knob("Where the JSON document is posted to; any status from 200 to 299 is success.")] = (
        None
    )
    bearer_file: Annotated[
        str | None, Knob("The file that holds a bearer token; it goes out over https only, and is read at each post.")
    ] = None
    tls_ca: Annotated[
        str | None, Knob("CA certificates in PEM that the server's must come from. None: the system's.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKnobs:
    """A file for each day."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    path: Annotated[
        str | None,
        Knob(
            "The file, with %Y, %m and %d for the day, such as /srv/reports/%Y-%m-%d.html; .html, .md, .json or .txt."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the report goes; one of these."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    mail: MailKnobs = field(default_factory=MailKnobs)
    slack: SlackKnobs = field(default_factory=SlackKnobs)
    webhook: WebhookKnobs = field(default_factory=WebhookKnobs)
    file: FileKnobs = field(default_factory=FileKnobs)

    @property
    def ways(self) -> tuple[str, ...]:
        """Those that say where to; right is exactly one."""
        said = {
            "mail": self.mail.host,
            "slack": self.slack.url_file,
            "webhook": self.webhook.url,
            "file": self.file.path,
        }
        return tuple(way for way, where in said.items() if where is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKnobs:
    """The daily report that the controller sends: on the day before, by the clocks of cost.timezone."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    at: Annotated[str, Knob("From when on it is sent, such as 07:00; one that is late is sent when it can be.")] = (
        "07:00"
    )
    to: Annotated[
        dict[str, Destination],
        Knob("Where to, by names of your choice, each once a day. Without any, nothing is sent."),
    ] = field(default_factory=dict)
    leftovers: Annotated[
        bool, Knob("Ask the cloud what stopped machines' disks and addresses cost, and take that off what was saved.")
    ] = False


def contradictions(knobs: ReportKnobs) -> Iterator[Contradiction]:
    """What no bound can tell."""
    if not _AT.fullmatch(knobs.at):
        yield Contradiction(
            keys=(("report", "at"),),
            wrong=f"report.at {knobs.at!r} is no time of day",
            right="a time from 00:00 to 23:59, in quotes: YAML reads 07:00 without them as a number",
        )
    for name, destination in knobs.to.items():
        yield from _of_destination(destination, ("report", "to", name))


def _of_destination(destination: Destination, path: tuple[str, ...]) -> Iterator[Contradiction]:
    where, ways = ".".join(path), destination.ways
    if len(ways) != 1:
        told = f"names {' and '.join(ways)}" if ways else "says nowhere to"
        right = "one of mail.host, slack.url_file, webhook.url and file.path"
        yield Contradiction(keys=(path,), wrong=f"{where} {told}", right=right)
    yield from _of_mail(destination.mail, (*path, "mail"))
    for way, main, said, ca in (
        ("mail", "host", destination.mail.host, destination.mail.tls_ca),
        ("webhook", "url", destination.webhook.url, destination.webhook.tls_ca),
    ):
        if ca is not None and said is None:
            keys = ((*path, way, "tls_ca"), (*path, way, main))
            wrong = f"{where}.{way}.tls_ca is set, and {main} is not"
            yield Contradiction(keys=keys, wrong=wrong, right="both, or neither")
    webhook, suffix = destination.webhook, (destination.file.path or ".html").rpartition(".")[2]
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
    if suffix not in FORMATS:
        yield Contradiction(
            keys=((*path, "file", "path"),),
            wrong=f"{where}.file.path ends with {suffix!r}",
            right=f"a file that ends with .{', .'.join(FORMATS)}",
        )


def _of_mail(mail: MailKnobs, path: tuple[str, ...]) -> Iterator[Contradiction]:
    where = ".".join(path)
    if mail.host is not None and not mail.to:
        yield Contradiction(
            keys=((*path, "to"), (*path, "host")), wrong=f"{where}.to names nobody", right="[ops@example.com]"
        )
    for key, address in (("sender", mail.sender), *(("to", each) for each in mail.to)):
        if not _ADDRESS.fullmatch(address):
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
