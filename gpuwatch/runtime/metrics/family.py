"""One metric family: name, type, labels, help, and where its value comes from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuwatch.runtime.metrics.histogram import BUCKET, COUNT, LE, SUM

INFO = "info"
HISTOGRAM = "histogram"
CERTIFICATE = "gpuwatch_tls_certificate_expires_timestamp_seconds"  # of agents and controllers alike
CERTIFICATE_HELP = (
    "Unix time at which the certificate in force of a setting ends; of a list of CAs, the first. Absent where none is."
)
LOGINS_HELP = (
    "Requests refused with a user and a password: wrong (401), limited (429, not looked at after too many wrong ones), "
    "busy (503, too many at a time)."
)
_BASE = ("seconds", "bytes", "ratio", "watts", "joules", "celsius", "hertz", "usd")
UNITS = (*_BASE, "bytes_per_second", "usd_per_hour", "usd_per_week", "seconds_per_week")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric: full name as a query writes it, its type, its labels in order, and where its value comes from.

    `group` is what it can be switched off with; empty where it is always there, as with the controller's.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    help: str
    source: str
    group: str = ""

    @property
    def unit(self) -> str:
        """The unit that the name ends in; empty where it counts things."""
        name = self.name.removesuffix("_total")
        return max((unit for unit in UNITS if name.endswith(f"_{unit}")), key=len, default="")

    @property
    def series(self) -> dict[str, tuple[str, ...]]:
        """The names of its samples with their labels: its own, or those of a histogram's parts."""
        if self.kind != HISTOGRAM:
            return {self.name: self.labels}
        bucket = {f"{self.name}{BUCKET}": (*self.labels, LE)}
        return bucket | {f"{self.name}{part}": self.labels for part in (COUNT, SUM)}


def table_md(families: Iterable[Family]) -> Iterator[str]:
    """The lines of a page's table."""
    yield "| name | type | labels | unit | what | from |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for family in families:
        labels = " ".join(f"`{label}`" for label in family.labels)
        cells = (f"`{family.name}`", family.kind, labels, family.unit, family.help, family.source)
        yield f"| {' | '.join(cells)} |"
