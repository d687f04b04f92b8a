"""Settings of the ledger: where it is, and for how long rounds are kept whole."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import parse_qs, urlsplit

from annotated_types import Ge, MinLen

from gpuwatch.ledger.sqlite_files import left_over
from gpuwatch.model.duration import Seconds, format_duration
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.http.address import host_and_port
from gpuwatch.runtime.program import LEDGER_PATH

SCHEMES = ("postgresql", "postgres")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """Where intents and outcomes are written down."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    path: Annotated[
        str,
        MinLen(1),
        Setting("The SQLite file, from this file's folder if relative; its directory must exist and be writable."),
    ] = LEDGER_PATH
    url: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting(
            "A PostgreSQL database instead of the file, such as postgresql://gpuwatch@db.internal/gpuwatch, never with "
            "a password: that is for ~/.pgpass, PGPASSWORD or `url_file`. Several controllers may share it; one leads."
        ),
    ] = None
    url_file: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting("A file, readable by the controller alone, that holds the URL; it may hold a password."),
    ] = None
    leader_timeout: Annotated[
        Seconds,
        Ge(10),
        Setting("PostgreSQL: a leader that says nothing for so long loses the lead to another controller."),
    ] = 300.0
    retention: Annotated[
        Seconds, Ge(86400), Setting("How long rounds that did something are kept whole, and one quiet round an hour.")
    ] = 400 * 86400.0
    quiet_round_retention: Annotated[
        Seconds, Ge(3600), Setting("How long every quiet round is kept whole; then one an hour is.")
    ] = 2 * 86400.0
    hourly_spend_retention: Annotated[
        Seconds,
        Ge(3600),
        Setting(
            "How long after its end a day's spending stays in hours and may still change; then it is one row a node."
        ),
    ] = 86400.0

    @property
    def file(self) -> Path | None:
        """The SQLite file, where it is one."""
        return Path(self.path) if self.url is None and self.url_file is None else None

    @property
    def unwritten(self) -> bool:
        """Whether it is a file that is not there yet, nor was; of one that this user may not look for: no."""
        try:
            return self.file is not None and not self.file.exists() and left_over(self.file) is None
        except OSError:
            return False

    @property
    def place(self) -> str:
        """Where it is, in words that hold no secret."""
        if self.url_file is not None:
            return f"at the URL in {self.url_file}"
        if self.url is None:
            return self.path
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{host_and_port(self.url)}{parts.path}"


def contradictions(settings: LedgerSettings, interval_seconds: float) -> Iterator[Contradiction]:
    """What no single key's bounds can tell; a URL is never repeated, for what may be in it."""
    place = ("ledger", "url") if settings.url is not None else ("ledger", "url_file")
    if settings.url is not None and settings.url_file is not None:
        yield Contradiction(
            keys=(("ledger", "url"), ("ledger", "url_file")),
            wrong="ledger.url and ledger.url_file are both given",
            right="one of them",
        )
    if settings.file is None and settings.path != LEDGER_PATH:
        yield Contradiction(
            keys=(place, ("ledger", "path")),
            wrong=f"{'.'.join(place)} names a PostgreSQL database and ledger.path an SQLite file",
            right="one of them",
        )
    if settings.url is not None and not is_postgresql(settings.url):
        yield Contradiction(
            keys=(("ledger", "url"),),
            wrong="ledger.url is no PostgreSQL URL",
            right="a URL such as postgresql://gpuwatch@db.internal/gpuwatch; an SQLite file goes into ledger.path",
        )
    elif settings.url is not None and _holds_password(settings.url):
        yield Contradiction(
            keys=(("ledger", "url"),),
            wrong="ledger.url holds a password, which others may read in this file",
            right="the URL without it and the password in ~/.pgpass or PGPASSWORD, or the whole URL in ledger.url_file",
        )
    if settings.file is None and settings.leader_timeout <= 2 * interval_seconds:
        limit, interval = format_duration(settings.leader_timeout), format_duration(interval_seconds)
        yield Contradiction(
            keys=(("ledger", "leader_timeout"), ("interval",)),
            wrong=f"ledger.leader_timeout ({limit}) does not exceed two intervals of rounds ({interval} each): "
            "a leader would lose the lead while it waits for its next round",
            right=f"a ledger.leader_timeout above {format_duration(2 * interval_seconds)}",
        )
    if settings.retention < settings.quiet_round_retention:
        kept, quiet = format_duration(settings.retention), format_duration(settings.quiet_round_retention)
        yield Contradiction(
            keys=(("ledger", "retention"), ("ledger", "quiet_round_retention")),
            wrong=f"ledger.retention ({kept}) is shorter than ledger.quiet_round_retention ({quiet})",
            right=f"a ledger.retention of {quiet} or more",
        )


def is_postgresql(url: str) -> bool:
    """Whether it begins as libpq's URLs do."""
    return url.partition("://")[0] in SCHEMES and "://" in url


def _holds_password(url: str) -> bool:
    """Whether a password stands in the URL; one that cannot be taken apart is taken for one that does."""
    try:
        parts = urlsplit(url)
        return parts.password is not None or "password" in parse_qs(parts.query)
    except ValueError:
        return True
