"""The settings of notifications and of the daily report: who gets which, by which transport, and with which links."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt, MinLen

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.notify.transports import registry
from gpuwatch.notify.transports.base import LOOPBACK
from gpuwatch.notify.transports.mail import ADDRESS
from gpuwatch.notify.transports.registry import NotificationTransports, ReportTransports
from gpuwatch.notify.wording import Language
from gpuwatch.runtime.http.address import shown_address

EventName = Literal["notice", "withdrawn", "done", "interruption", "left_alone"]
EVENTS: tuple[EventName, ...] = ("notice", "withdrawn", "done", "interruption", "left_alone")
_OF_NOTICES: tuple[EventName, ...] = ("notice", "withdrawn", "done")  # a notice, and what ends it
WALL = "wall"  # the destination of notices on hosts' terminals; no receiver has its name
_AT = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_MEMBER = re.compile(r"[UW][A-Z0-9]{2,}")
_BASE = re.compile(r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?(/[A-Za-z0-9._~/-]*)?")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_PLAIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){0,63}")
_ADDRESS = re.compile(r"([A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*)@([A-Za-z0-9.-]+)")
_LONGEST = 254  # RFC 5321
_LONGEST_DELIVERY = 43200.0  # a notice that waited for a day would be out of date


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSettings:
    """How an owner is reached."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    mail: Annotated[str | None, Setting("The owner's mail address, for destinations with `owners`.")] = None
    slack: Annotated[
        str | None, Setting("The owner's member id in Slack, such as U024BE7LH, to be mentioned in messages there.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver(NotificationTransports):
    """One receiver: its transport, and what it gets."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    owners: Annotated[bool, Setting("Mail goes to the owner of the nodes; the addresses of mail.to get a copy.")] = (
        False
    )
    pools: Annotated[
        tuple[Annotated[str, MinLen(1)], ...], Setting("Only nodes of these pools. Without any: of all pools.")
    ] = ()
    events: Annotated[
        tuple[EventName, ...],
        Setting(
            "notice: a stop is planned. withdrawn: the notice no longer holds. done: it was stopped or terminated. "
            "interruption: its cloud is about to take it. left_alone: somebody has undone its stops twice, or what "
            "is started or launched does not last, or what is wanted is not started. []: budgets alone."
        ),
    ] = EVENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings:
    """Messages to people before a node is stopped, after it, and if it stays after all; in mode enforce only.

    Receivers that a budget names get messages about its thresholds in both modes.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    url: Annotated[
        str | None,
        Setting("Where people reach the controller's page, such as https://gpuwatch.example.com. None: no links."),
    ] = None
    link_key_file: Annotated[
        str | None,
        Setting(
            "The file with the secret, 32 bytes or more, that signs snooze links, which need no login. "
            "None: links lead to the page."
        ),
    ] = None
    wall: Annotated[bool, Setting("Also write on the terminals of the host itself, through its agent.")] = False
    language: Annotated[
        Language, Setting("The language of messages to people. The JSON of webhooks is in English in any case.")
    ] = "en"
    receivers: Annotated[
        dict[str, Receiver],
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
            "An owner tag that is a mail address is used only if it is in one of these domains, because everybody who "
            "may tag a machine can choose it."
        ),
    ] = ()
    max_age: Annotated[
        Seconds,
        Gt(0),
        Setting(
            "Older messages are not sent any more; a notice in force is sent however old it is. If no message about a "
            "notice was delivered, its grace period begins after this time, 12 hours at most."
        ),
    ] = 3600.0

    def delivery_seconds(self, pools: Iterable[str]) -> dict[str, float]:
        """How long the grace of a notice waits for its first message, by the pools with a receiver of notices."""
        takers = [each for each in self.receivers.values() if "notice" in each.events]
        longest = min(self.max_age, _LONGEST_DELIVERY)
        return {pool: longest for pool in pools if any(not each.pools or pool in each.pools for each in takers)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """The daily report that the controller sends: on the day before, by the clocks of cost.timezone."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    at: Annotated[
        str, Setting("The time from which on it is sent, such as 07:00; a late one is sent as soon as possible.")
    ] = "07:00"
    receivers: Annotated[
        dict[str, ReportTransports],
        Setting("Receivers, by names of your choice; each gets it once a day. Without any, nothing is sent."),
    ] = field(default_factory=dict)
    unused: Annotated[
        bool,
        Setting("Ask the cloud what disks and what is left over cost; what stopped machines cost is no saving."),
    ] = False


def contradictions(
    settings: NotifySettings, budgets: Mapping[str, Budget], *, require_notification: bool
) -> Iterator[Contradiction]:
    """What no single setting's bounds can check."""
    yield from _of_links(settings)
    told = {name for budget in budgets.values() for name in budget.notify}
    for name, receiver in settings.receivers.items():
        yield from _of_receiver(name, receiver, settings, budgets=name in told)
    yield from _of_budgets(budgets, settings)
    yield from _of_owners(settings)
    if require_notification and not any("notice" in receiver.events for receiver in settings.receivers.values()):
        yield Contradiction(
            keys=(("limits", "require_notification"), ("notify", "receivers")),
            wrong="limits.require_notification is set, but no receiver gets notices: nothing can stop",
            right="a receiver in notify.receivers with `notice` among its events",
        )


def _of_links(settings: NotifySettings) -> Iterator[Contradiction]:
    base = None if settings.url is None else _BASE.fullmatch(settings.url)
    if settings.url is not None and base is None:
        wrong = f"notify.url {shown_address(settings.url)!r} is not a valid URL of a page"
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


def _of_budgets(budgets: Mapping[str, Budget], settings: NotifySettings) -> Iterator[Contradiction]:
    """Receivers of budgets that are not there, or that have no address for a message that is about no node."""
    for name, budget in budgets.items():
        for each in budget.notify:
            receiver, where = settings.receivers.get(each), f"budgets.{name}.notify"
            if receiver is None:
                yield Contradiction(
                    keys=(("budgets", name, "notify"), ("notify", "receivers")),
                    wrong=f"{where}: {each!r} is not a receiver",
                    right=f"names of notify.receivers, which has {', '.join(settings.receivers) or 'none'}",
                )
            elif receiver.mail.host is not None and not addresses(receiver, budget.owner, settings)[0]:
                yield Contradiction(
                    keys=(("budgets", name, "notify"), ("notify", "receivers", each, "mail", "to")),
                    wrong=f"{where}: {each!r} has no mail address for this budget, which belongs to no owner with one",
                    right=f"notify.receivers.{each}.mail.to, or another receiver",
                )


def _of_receiver(name: str, receiver: Receiver, settings: NotifySettings, *, budgets: bool) -> Iterator[Contradiction]:
    path = ("notify", "receivers", name)
    where = ".".join(path)
    if name == WALL:
        right = "another name, and notify.wall: true for the hosts' terminals"
        yield Contradiction(keys=(path,), wrong=f"{where}: this name is reserved", right=right)
    yield from registry.contradictions(receiver, path, owners=receiver.owners, others=("pools", "events", "owners"))
    for way in receiver.chosen:
        yield from _of_transport(way, receiver, path, settings)
    if not receiver.events and not budgets:
        yield Contradiction(
            keys=((*path, "events"),),
            wrong=f"{where}.events is empty, and no budget names it",
            right=f"some of {', '.join(EVENTS)}",
        )
    if receiver.owners and receiver.mail.host is None:
        yield Contradiction(
            keys=((*path, "owners"),),
            wrong=f"{where}.owners is set, and only mail goes to owners",
            right="mail.host, or no owners; Slack mentions the owners of notify.owners without it",
        )
    mapped = any(owner.mail is not None for owner in settings.owners.values())
    if receiver.owners and not (mapped or settings.owner_mail or settings.mail_domains or receiver.mail.to):
        yield Contradiction(
            keys=((*path, "owners"), ("notify", "owners")),
            wrong=f"{where}.owners is set, and no setting gives the owners' addresses",
            right="notify.owners, notify.owner_mail or notify.mail_domains",
        )


def _of_transport(
    way: str, receiver: Receiver, path: tuple[str, ...], settings: NotifySettings
) -> Iterator[Contradiction]:
    transport, where = receiver.by_name[way], f"{'.'.join(path)}.{way}"
    key = transport.unencrypted_setting()
    if key is not None and settings.link_key_file is not None and "notice" in receiver.events:
        yield Contradiction(
            keys=((*path, way, key), ("notify", "link_key_file")),
            wrong=f"{where}.{key}: messages go there unencrypted, and others could use the snooze links in them",
            right="https or TLS, or no `notice` among its events, or no notify.link_key_file",
        )
    missing = [event for event in _OF_NOTICES if event not in receiver.events]
    if transport.resolves and "notice" in receiver.events and missing:
        yield Contradiction(
            keys=((*path, "events"), (*path, way)),
            wrong=f"{'.'.join(path)}.events lacks {' and '.join(missing)}: a notice would stay open in {way}",
            right=f"events: [{', '.join(EVENTS)}], or no notice among them",
        )


def _of_owners(settings: NotifySettings) -> Iterator[Contradiction]:
    for name, owner in settings.owners.items():
        path = ("notify", "owners", name)
        if owner.mail is not None and not ADDRESS.fullmatch(owner.mail):
            wrong = f"{'.'.join(path)}.mail: {owner.mail!r} is not a mail address"
            yield Contradiction(keys=((*path, "mail"),), wrong=wrong, right="an address such as ann@example.com")
        if owner.slack is not None and not _MEMBER.fullmatch(owner.slack):
            wrong = f"{'.'.join(path)}.slack: {owner.slack!r} is not a member id"
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
            wrong = f"notify.mail_domains: {domain!r} is not a domain"
            yield Contradiction(keys=(("notify", "mail_domains"),), wrong=wrong, right="a domain such as example.com")


def mail_of(owner: str | None, settings: NotifySettings) -> str | None:
    """The owner's mail address; None: the settings do not give one."""
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
    receiver: Receiver, owner: str | None, settings: NotifySettings
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The addresses of a mail, and of its copies."""
    address = mail_of(owner, settings) if receiver.owners else None
    return (receiver.mail.to, ()) if address is None else ((address,), receiver.mail.to)


def report_contradictions(settings: ReportSettings) -> Iterator[Contradiction]:
    """What no single setting's bounds can check."""
    if not _AT.fullmatch(settings.at):
        yield Contradiction(
            keys=(("report", "at"),),
            wrong=f"report.at {settings.at!r} is not a time of day",
            right="a time from 00:00 to 23:59, in quotes: YAML reads 07:00 without them as a number",
        )
    for name, receiver in settings.receivers.items():
        yield from registry.contradictions(receiver, ("report", "receivers", name))
