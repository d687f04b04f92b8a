"""What the agent's core publishes after a cycle; readers see it whole."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from gpuwatch.agent.activity import Memory
from gpuwatch.agent.activity.pods import PodTracks
from gpuwatch.agent.health.xids import Counts
from gpuwatch.agent.last_busy import Kept
from gpuwatch.model.activity import Evidence, GpuUse, LocalDisks, Tally
from gpuwatch.model.gpu import DownCause, GpuDown, GpuReading
from gpuwatch.model.health import GpuHealth
from gpuwatch.model.verdict import NodeVerdict


class OutOfOrderError(ValueError):
    """A message that cannot follow the ones before it; it counts as garbage, like a broken line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the probe gives nothing: a stable code, a text, and what to do."""

    cause: str
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The agent's own counts."""

    cycles: int = 0
    interruptions: Mapping[str, int] = field(default_factory=dict)
    cycle_duration_seconds: float | None = None
    complete_at: datetime | None = None
    complete_monotonic_seconds: float | None = None
    abandoned: int = 0  # probes that could not be ended and still run
    implausible: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by uuid and field: cycles


def readings_in(entries: Iterable[GpuReading | GpuDown]) -> tuple[GpuReading, ...]:
    """Those of GPUs that were read."""
    return tuple(entry for entry in entries if isinstance(entry, GpuReading))


def implausible_values(before: Statistics, readings: Iterable[GpuReading]) -> Mapping[tuple[str, str], int]:
    """The count of values that could not be true, after one more cycle."""
    found = [(reading.info.uuid, name) for reading in readings for name in reading.implausible]
    if not found:
        return before.implausible
    return {**before.implausible, **{key: before.implausible.get(key, 0) + 1 for key in found}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What the feeding thread publishes for the readers.

    `began_seconds` is when the last whole cycle began, `judged_seconds` when the host's evidence was taken with it.
    """

    version: int = 0
    began_seconds: float | None = None
    judged_seconds: float | None = None
    at: datetime
    monotonic_seconds: float
    readings: tuple[GpuReading, ...] = ()
    downs: tuple[GpuDown, ...] = ()
    active_seconds: Mapping[str, float] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    pods: PodTracks = field(default_factory=PodTracks)
    trouble: Trouble | None = None
    down_cause: DownCause = DownCause.ERROR  # of what a broken cycle did not read
    statistics: Statistics = field(default_factory=Statistics)
    host: tuple[Evidence, ...] = ()
    health: Mapping[str, GpuHealth] = field(default_factory=dict)
    use: Mapping[str, GpuUse] = field(default_factory=dict)
    tally: Tally | None = None
    last_busy: tuple[Kept, ...] = ()
    local_disks: LocalDisks | None = None
    cpu_utilization_ratio: float | None = None

    @property
    def driver_version(self) -> str | None:
        """What all GPUs say that their driver is; None where they differ, as with two makers, or say nothing."""
        found = {reading.info.driver_version for reading in self.readings}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that may be shown now. `version` changes with each cycle; `verdict` is made when it is asked for."""

    version: int
    stale: bool
    readings: tuple[GpuReading, ...]
    downs: tuple[GpuDown, ...]
    active_seconds: Mapping[str, float]
    judge: Callable[[], NodeVerdict] = field(compare=False, repr=False)
    trouble: Trouble | None
    statistics: Statistics
    host: tuple[Evidence, ...]
    xids: Counts
    kernel_log_up: bool | None

    @cached_property
    def verdict(self) -> NodeVerdict:
        """The node's verdict at that moment."""
        return self.judge()
