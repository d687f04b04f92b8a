"""PURE: what can be set of notices to people: who is told of what, by which way, and with which links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt, MinLen

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.notify.transports.settings import ADDRESS, LOOPBACK, Transports, in_the_clear, of_transports, of_ways

EventName = Literal["notice", "withdrawn", "done"]
EVENTS: tuple[EventName, ...] = ("notice", "withdrawn", "done")
TERMINALS = "terminals"  # a destination of its own name
_MEMBER = re.compile(r"[UW][A-Z0-9]{2,}")
_BASE = re.compile(r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?(/[A-Za-z0-9._~/-]*)?")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_PLAIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){0,63}")
_ADDRESS = re.compile(r"([A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*)@([A-Za-z0-9.-]+)")
_LONGEST = 254  # RFC 5321


@dataclass(frozen=True, slots=True, kw_only=True)
class AppriseSettings:
    """Any of the services that apprise knows, as text; needs the extra `gpuwatch[notify]`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    urls_file: Annotated[
        str | None,
        Setting("The file that holds apprise's URLs, one a line, which are secrets; read at each message."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSettings:
    """How an owner is reached."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    mail: Annotated[str | None, Setting("The owner's mail address, for destinations with `owners`.")] = None
    slack: Annotated[
        str | None, Setting("The owner's member id in Slack, such as U024BE7LH, to be mentioned in messages there.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener(Transports):
    """One receiver: the way to it, and what it gets."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    apprise: AppriseSettings = field(default_factory=AppriseSettings)
    owners: Annotated[
        bool, Setting("Mail goes to the owner of the nodes; mail.to, where it names somebody, gets a copy.")
    ] = False
    pools: Annotated[
        tuple[Annotated[str, MinLen(1)], ...], Setting("Only nodes of these pools. Without any: of all pools.")
    ] = ()
    events: Annotated[
        tuple[EventName, ...],
        Setting("notice: it will go. withdrawn: it stays after all. done: it was stopped or terminated."),
    ] = EVENTS

    @property
    def ways(self) -> tuple[str, ...]:
        """Those that say where to; right is exactly one."""
        return self.ways_and(apprise=self.apprise.urls_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings:
    """Messages to people before a node goes, when it stays after all, and when it is gone; in mode enforce alone."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    url: Annotated[
        str | None,
        Setting("Where people reach the controller's page, such as https://gpuwatch.example.com. None: no links."),
    ] = None
    link_key_file: Annotated[
        str | None,
        Setting(
            "The file with the secret, 32 bytes or more, that signs keep links, which need no login. "
            "None: links lead to the page."
        ),
    ] = None
    terminals: Annotated[bool, Setting("Also write on the terminals of the host itself, through its agent.")] = False
    to: Annotated[
        dict[str, Listener],
        Setting("Receivers, by names of your choice. Without any, notifications go to the log alone."),
    ] = field(default_factory=dict)
    owners: Annotated[
        dict[str, OwnerSettings], Setting("How owners are reached, by the value of the tag gpuwatch:owner.")
    ] = field(default_factory=dict)
    owner_mail: Annotated[
        str | None,
        Setting(
            "The mail address of owners that are not listed, such as {owner}@example.com; only for owners made of "
            "letters, digits, dots, dashes and underscores."
        ),
    ] = None
    mail_domains: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "An owner tag that is a mail address is written to if it is in one of these domains: whoever may tag a "
            "machine chooses it."
        ),
    ] = ()
    max_age: Annotated[
        Seconds,
        Gt(0),
        Setting("What is older is not told any more; a notice that is in force is told however old it is."),
    ] = 3600.0


def contradictions(settings: NotifySettings, *, require_told: bool) -> Iterator[Contradiction]:
    """What no bound can tell."""
    yield from _of_links(settings)
    for name, listener in settings.to.items():
        yield from _of_listener(name, listener, settings)
    yield from _of_owners(settings)
    if require_told and not any("notice" in listener.events for listener in settings.to.values()):
        yield Contradiction(
            keys=(("limits", "require_told"), ("notify", "to")),
            wrong="limits.require_told is set, and notify.to tells nobody of a notice: no node would ever go",
            right="somebody in notify.to with `notice` among its events",
        )


def _of_links(settings: NotifySettings) -> Iterator[Contradiction]:
    base = None if settings.url is None else _BASE.fullmatch(settings.url)
    if settings.url is not None and base is None:
        wrong = f"notify.url {settings.url!r} is no URL of a page"
        right = "a URL such as https://gpuwatch.example.com, without user, query and fragment"
        yield Contradiction(keys=(("notify", "url"),), wrong=wrong, right=right)
    if settings.link_key_file is not None and base is not None and base[1] == "http" and base[2] not in LOOPBACK:
        yield Contradiction(
            keys=(("notify", "url"), ("notify", "link_key_file")),
            wrong=f"notify.url {settings.url!r} is not https: others could read the links that need no login",
            right="an https:// URL",
        )
    if settings.link_key_file is not None and settings.url is None:
        yield Contradiction(
            keys=(("notify", "link_key_file"), ("notify", "url")),
            wrong="notify.link_key_file is set, and notify.url is not: links would lead nowhere",
            right="a notify.url such as https://gpuwatch.example.com",
        )


def _of_listener(name: str, listener: Listener, settings: NotifySettings) -> Iterator[Contradiction]:
    path = ("notify", "to", name)
    where = ".".join(path)
    if name == TERMINALS:
        right = "another name, and notify.terminals: true for the hosts' terminals"
        yield Contradiction(keys=(path,), wrong=f"{where}: that name is taken", right=right)
    choices = "mail.host, slack.url_file, webhook.url and apprise.urls_file"
    yield from of_ways(listener.ways, path, choices, ("pools", "events", "owners"))
    yield from of_transports(listener, path, others=listener.owners)
    key = in_the_clear(listener)
    if key is not None and settings.link_key_file is not None and "notice" in listener.events:
        yield Contradiction(
            keys=((*path, *key.split(".")), ("notify", "link_key_file")),
            wrong=f"{where}.{key}: messages go there unencrypted, and others could use the keep links in them",
            right="https or TLS, or no `notice` among its events, or no notify.link_key_file",
        )
    if not listener.events:
        yield Contradiction(
            keys=((*path, "events"),), wrong=f"{where}.events is empty", right=f"some of {', '.join(EVENTS)}"
        )
    if listener.owners and listener.mail.host is None:
        yield Contradiction(
            keys=((*path, "owners"),),
            wrong=f"{where}.owners is set, and only mail goes to owners",
            right="mail.host, or no owners; Slack mentions those of notify.owners by itself",
        )
    mapped = any(owner.mail is not None for owner in settings.owners.values())
    if listener.owners and not (mapped or settings.owner_mail or settings.mail_domains or listener.mail.to):
        yield Contradiction(
            keys=((*path, "owners"), ("notify", "owners")),
            wrong=f"{where}.owners is set, and nothing says what the owners' addresses are",
            right="notify.owners, notify.owner_mail or notify.mail_domains",
        )


def _of_owners(settings: NotifySettings) -> Iterator[Contradiction]:
    for name, owner in settings.owners.items():
        path = ("notify", "owners", name)
        if owner.mail is not None and not ADDRESS.fullmatch(owner.mail):
            wrong = f"{'.'.join(path)}.mail: {owner.mail!r} is no mail address"
            yield Contradiction(keys=((*path, "mail"),), wrong=wrong, right="an address such as ann@example.com")
        if owner.slack is not None and not _MEMBER.fullmatch(owner.slack):
            wrong = f"{'.'.join(path)}.slack: {owner.slack!r} is no member id"
            right = "an id such as U024BE7LH (Slack: profile, Copy member ID)"
            yield Contradiction(keys=((*path, "slack"),), wrong=wrong, right=right)
    if settings.owner_mail is not None:
        local, _, domain = settings.owner_mail.rpartition("@")
        if "{owner}" not in local or not ADDRESS.fullmatch(settings.owner_mail) or not _DOMAIN.fullmatch(domain):
            wrong = f"notify.owner_mail {settings.owner_mail!r} makes no addresses"
            right = "{owner}@example.com, with {owner} before the @"
            yield Contradiction(keys=(("notify", "owner_mail"),), wrong=wrong, right=right)
    for domain in settings.mail_domains:
        if not _DOMAIN.fullmatch(domain):
            wrong = f"notify.mail_domains: {domain!r} is no domain"
            yield Contradiction(keys=(("notify", "mail_domains"),), wrong=wrong, right="a domain such as example.com")


def mail_of(owner: str | None, settings: NotifySettings) -> str | None:
    """The owner's mail address; None: nobody may say what it is."""
    if owner is None:
        return None
    listed = settings.owners.get(owner)
    if listed is not None and listed.mail is not None:
        return listed.mail
    address = _ADDRESS.fullmatch(owner)
    if address is not None:
        allowed = {domain.lower() for domain in settings.mail_domains}
        return owner if address[2].lower() in allowed and len(owner) <= _LONGEST else None
    if settings.owner_mail is not None and _PLAIN.fullmatch(owner):
        return settings.owner_mail.replace("{owner}", owner)
    return None


def slack_of(owner: str | None, settings: NotifySettings) -> str | None:
    """The owner's member id in Slack."""
    listed = None if owner is None else settings.owners.get(owner)
    return None if listed is None else listed.slack


def addresses(
    listener: Listener, owner: str | None, settings: NotifySettings
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of a mail: who it goes to, and who has a copy."""
    address = mail_of(owner, settings) if listener.owners else None
    return (listener.mail.to, ()) if address is None else ((address,), listener.mail.to)
