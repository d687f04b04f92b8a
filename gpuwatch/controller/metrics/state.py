"""What metrics are made of: the last good round, counts since the process began, and how a family gets its series."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuwatch.controller.context import Round
from gpuwatch.model.decision import Observation
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.metrics.family import Family

Value = tuple[tuple[str, ...], float]
Series = Callable[["MetricsState"], Iterable[Value]]
Certificates = Callable[[], Iterable[tuple[str, datetime]]]
ROUND = "the last round that saw the fleet"


@dataclass(slots=True, kw_only=True)
class MetricsState:
    """All that pages are made of: the last good round, and counts since the process began."""

    mode: str
    fleet: str
    clock: Clock
    last: Round | None = None
    duration_seconds: float | None = None
    ended_at: datetime | None = None
    leading: bool = False
    ledger_ok: bool | None = None  # None before the first round
    certificates: Certificates = tuple
    logins: Callable[[], Mapping[str, int]] = dict
    counts: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)

    def count(self, name: str, labels: Iterable[str], by: float = 1) -> None:
        """Add to a counter."""
        counts = self.counts.setdefault(name, {})
        counts[tuple(labels)] = counts.get(tuple(labels), 0) + by

    @property
    def observation(self) -> Observation | None:
        """What the last good round saw."""
        return None if self.last is None else self.last.observation


def counted(name: str) -> Series:
    """A counter of this process."""
    return lambda state: [(labels, float(count)) for labels, count in sorted(state.counts.get(name, {}).items())]


def gauge(name: str, labels: tuple[str, ...], text: str, source: str, series: Series) -> tuple[Family, Series]:
    """A family that goes up and down, and its series."""
    return Family(name=f"gpuwatch_{name}", kind="gauge", labels=labels, help=text, source=source), series


def counter(name: str, labels: tuple[str, ...], text: str, source: str) -> tuple[Family, Series]:
    """A family that counts since the process began."""
    family = Family(name=f"gpuwatch_{name}", kind="counter", labels=labels, help=text, source=source)
    return family, counted(name.removeprefix("controller_").removesuffix("_total"))
