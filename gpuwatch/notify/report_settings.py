"""The settings of the daily report: when it is sent, and where to."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.notify.transports import registry
from gpuwatch.notify.transports.registry import ReportTransports

_AT = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


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
        Setting("Ask the cloud what stopped machines' disks and addresses cost, and subtract that from the savings."),
    ] = False


def contradictions(settings: ReportSettings) -> Iterator[Contradiction]:
    """What no single setting's bounds can check."""
    if not _AT.fullmatch(settings.at):
        yield Contradiction(
            keys=(("report", "at"),),
            wrong=f"report.at {settings.at!r} is not a time of day",
            right="a time from 00:00 to 23:59, in quotes: YAML reads 07:00 without them as a number",
        )
    for name, receiver in settings.receivers.items():
        yield from registry.contradictions(receiver, ("report", "receivers", name))
