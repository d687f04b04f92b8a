"""Every transport, one field each. A new one is a file here and a field below."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

from gpuwatch.model.setting import STRICT, Contradiction
from gpuwatch.notify.transports.alertmanager import AlertmanagerSettings
from gpuwatch.notify.transports.apprise import AppriseSettings
from gpuwatch.notify.transports.base import Transport
from gpuwatch.notify.transports.file import FileSettings
from gpuwatch.notify.transports.mail import MailSettings
from gpuwatch.notify.transports.robots import DingTalkSettings, FeishuSettings, WeComSettings
from gpuwatch.notify.transports.web import SlackSettings, WebhookSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Transports:
    """The transports that can carry notifications and reports; a receiver has exactly one."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    mail: MailSettings = field(default_factory=MailSettings)
    slack: SlackSettings = field(default_factory=SlackSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    dingtalk: DingTalkSettings = field(default_factory=DingTalkSettings)
    wecom: WeComSettings = field(default_factory=WeComSettings)
    feishu: FeishuSettings = field(default_factory=FeishuSettings)
    apprise: AppriseSettings = field(default_factory=AppriseSettings)

    @property
    def by_name(self) -> Mapping[str, Transport]:
        """Every transport by its name in the settings."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Transport)}

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names of the transports with a target; exactly one is right."""
        return tuple(name for name, each in self.by_name.items() if getattr(each, each.target))

    @property
    def transport(self) -> Transport:
        """Return the one transport that is chosen."""
        (name,) = self.chosen
        return self.by_name[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTransports(Transports):
    """One receiver of notifications; exactly one transport is set."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    alertmanager: AlertmanagerSettings = field(default_factory=AlertmanagerSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTransports(Transports):
    """One receiver of the daily report; exactly one transport is set."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    file: FileSettings = field(default_factory=FileSettings)


def contradictions(
    to: Transports, path: tuple[str, ...], *, owners: bool = False, others: tuple[str, ...] = ()
) -> Iterator[Contradiction]:
    """What is wrong with a receiver's transports; `others` are the receiver's settings that are no transports."""
    if len(to.chosen) != 1:
        wrong = f"names {' and '.join(to.chosen)}" if to.chosen else "has no transport"
        targets = [f"{name}.{each.target}" for name, each in to.by_name.items()]
        keys = (path, *((*path, key) for key in others))
        right = f"one of {', '.join(targets[:-1])} and {targets[-1]}"
        yield Contradiction(keys=keys, wrong=f"{'.'.join(path)} {wrong}", right=right)
    for name, each in to.by_name.items():
        yield from each.contradictions((*path, name), owners=owners)
