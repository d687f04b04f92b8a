"""What reports can be told: when they go out, and where to."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.notify.transports.settings import Transports, of_transports, of_ways

_AT = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
FORMATS = ("html", "json", "txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFileSettings:
    """A file for each day."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    path: Annotated[
        str | None,
        Setting("The file, with %Y, %m and %d for the day, such as /srv/reports/%Y-%m-%d.html; .html, .json or .txt."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination(Transports):
    """Where the report goes; one of these."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    file: ReportFileSettings = field(default_factory=ReportFileSettings)

    @property
    def ways(self) -> tuple[str, ...]:
        """Those that say where to; right is exactly one."""
        return self.ways_and(file=self.file.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """The daily report that the controller sends: on the day before, by the clocks of cost.timezone."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    at: Annotated[str, Setting("From when on it is sent, such as 07:00; one that is late is sent when it can be.")] = (
        "07:00"
    )
    to: Annotated[
        dict[str, Destination],
        Setting("Where to, by names of your choice, each once a day. Without any, nothing is sent."),
    ] = field(default_factory=dict)
    leftovers: Annotated[
        bool,
        Setting("Ask the cloud what stopped machines' disks and addresses cost, and take that off what was saved."),
    ] = False


def contradictions(settings: ReportSettings) -> Iterator[Contradiction]:
    """What no bound can tell."""
    if not _AT.fullmatch(settings.at):
        yield Contradiction(
            keys=(("report", "at"),),
            wrong=f"report.at {settings.at!r} is no time of day",
            right="a time from 00:00 to 23:59, in quotes: YAML reads 07:00 without them as a number",
        )
    for name, destination in settings.to.items():
        yield from _of_destination(destination, ("report", "to", name))


def _of_destination(destination: Destination, path: tuple[str, ...]) -> Iterator[Contradiction]:
    yield from of_ways(destination.ways, path, "mail.host, slack.url_file, webhook.url and file.path")
    yield from of_transports(destination, path)
    file = destination.file.path or ".html"
    if file.rpartition(".")[2] not in FORMATS:
        yield Contradiction(
            keys=((*path, "file", "path"),),
            wrong=f"{'.'.join(path)}.file.path {file!r} does not end with a format of reports",
            right="a file that ends with .html, .json or .txt",
        )
