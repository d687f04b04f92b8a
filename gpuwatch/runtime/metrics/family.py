"""One metric family: name, type, labels, help, and where its value comes from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

INFO = "info"
CERTIFICATE = "gpuwatch_tls_certificate_expires_timestamp_seconds"  # of agents and controllers alike
CERTIFICATE_HELP = (
    "Unix time at which the certificate in force of a setting ends; of a list of CAs, the first. Absent where none is."
)
LOGINS_HELP = (
    "Requests refused with a user and a password: wrong (401), limited (429, not looked at after too many wrong ones), "
    "busy (503, too many at a time)."
)
_UNITS = frozenset({"seconds", "bytes", "ratio", "watts", "joules", "celsius", "hertz"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric: full name as a query writes it, its type, its labels in order, and where its value comes from."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    help: str
    source: str

    @property
    def unit(self) -> str:
        """The base unit that the name ends in; empty where it counts things."""
        last = self.name.removesuffix("_total").rsplit("_", 1)[-1]
        return last if last in _UNITS else ""


def table_md(families: Iterable[Family]) -> Iterator[str]:
    """The lines of a page's table."""
    yield "| name | type | labels | unit | what | from |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for family in families:
        labels = " ".join(f"`{label}`" for label in family.labels)
        cells = (f"`{family.name}`", family.kind, labels, family.unit, family.help, family.source)
        yield f"| {' | '.join(cells)} |"
