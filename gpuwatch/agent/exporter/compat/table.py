"""What a dialect is: another exporter's names, units and labels as a table over our readings.

Rules: a row names the field that it shows and the unit that the other exporter gives it in; what was not read has no
sample; what we cannot serve truthfully has no row and stands in `left_out` with the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields

from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.exporter.compat.processes import Figures
from gpuwatch.agent.published import Snapshot
from gpuwatch.model.gpu import GpuInfo, GpuReading, Kind, metrics
from gpuwatch.model.metric import GroupName

MIB = 1 << 20

# From our base unit into the foreign one. Percent of 0.07 is to be 7, not 7.000000000000001.
UNITS: dict[str, Callable[[float], float]] = {
    "": lambda value: value,
    "%": lambda ratio: round(ratio * 100, 9),
    "MiB": lambda count: count / MIB,
    "MiB/s": lambda count: count / MIB,
    "MHz": lambda hertz: hertz / 1e6,
    "mJ": lambda joules: round(joules * 1e3, 3),
    "ns": lambda seconds: round(seconds * 1e9),
    "C": lambda celsius: celsius,
    "W": lambda watts: watts,
    "J": lambda joules: joules,
    "Hz": lambda hertz: hertz,
    "s": lambda seconds: seconds,
    "bytes": lambda count: count,
    "bytes/s": lambda rate: rate,
    "ratio": lambda ratio: ratio,
}

Labels = Mapping[str, str | None]
Sample = tuple[str, Labels, float]


@dataclass(frozen=True, slots=True)
class Row:
    """A foreign metric that is a field of a reading.

    Of a field that maps, `part` is the entry that is meant, and without it the sum of all; of a field that lists
    names, it is the name that gives 1 if it is listed.
    """

    name: str
    source: str
    unit: str
    help: str
    part: str = ""
    kind: Kind = field(default=Kind.GAUGE, kw_only=True)

    @property
    def origin(self) -> str:
        """Where the value comes from, for the documentation."""
        return f"`{self.source}`" + (f" `{self.part}`" if self.part else "")

    def value(self, of: object) -> float | None:
        """In the foreign unit; None where it was not read, or there is no such field."""
        found = getattr(of, self.source, None)
        if isinstance(found, int | float):  # as nearly all are
            return UNITS[self.unit](found)
        if isinstance(found, Mapping):
            found = found.get(self.part) if self.part else sum(found.values()) if found else None
        elif isinstance(found, tuple):
            found = float(self.part in found)
        return None if found is None else UNITS[self.unit](found)


@dataclass(frozen=True, slots=True)
class Extra:
    """A foreign metric that is not a field of a reading; the dialect's `extras` makes its samples."""

    name: str
    origin: str
    unit: str
    help: str
    kind: Kind = field(default=Kind.GAUGE, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A GPU or a part of it: its labels, what holds its values, and the fields that its own parts show instead."""

    labels: Labels
    values: object
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The data of one page."""

    snapshot: Snapshot
    hostname: str
    top_processes: int
    users: View | None = None
    host: Callable[[], Iterable[Sample]] = tuple
    processes: Callable[[Iterable[int]], Mapping[int, Figures]] = lambda _: {}

    def pod_of(self, uuid: str) -> Labels:
        """Namespace, pod and container that hold a GPU, where there is one and only one."""
        held = self.users.held.get(uuid, ()) if self.users is not None else ()
        if len(held) != 1:
            return {}
        return {"namespace": held[0].namespace, "pod": held[0].pod, "container": held[0].container}

    def user_of(self, pid: int) -> str | None:
        """The owner of a process, if known."""
        owner = self.users.owners.get(pid) if self.users is not None else None
        return None if owner is None else owner.user

    def work_of(self, pid: int) -> str | None:
        """What a process belongs to, where others name its program: in brackets, as ps shows what has no command."""
        if self.users is None:
            return None
        owner, workload = self.users.owners.get(pid), self.users.workloads.get(pid)
        if workload is not None:
            names = (workload.namespace, workload.pod, workload.container)
            return f"[{'/'.join(name for name in names if name)}]"
        if owner is None:
            return None
        place = owner.placement
        job = f"slurm job {place.slurm_job}" if place.slurm_job else None
        work = job or place.container_id or place.systemd_unit
        return f"[{work}]" if work else None

    def figures(self, pids: Iterable[int]) -> Mapping[int, Figures]:
        """What processes use, of those only that attribution has found to be the ones that the driver means."""
        return self.processes(pid for pid in pids if self.users is not None and pid in self.users.owners)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One exporter with its metric names. `stands_for` and `labels` are sentences of its documentation page."""

    stands_for: str
    labels: str
    rows: tuple[Row, ...]
    extras: tuple[Extra, ...]
    parts: Callable[[GpuReading, Scene], Iterator[Part]]
    samples: Callable[[Scene], Iterator[Sample]]
    left_out: Mapping[str, str]
    also: tuple[GroupName, ...] = ()  # groups with fields that extras and parts need

    @property
    def groups(self) -> frozenset[GroupName]:
        """The groups of metrics that must be read for it."""
        known = dict(metrics())
        return frozenset(self.also).union(known[row.source].group for row in self.rows if row.source in known)

    @property
    def families(self) -> tuple[Row | Extra, ...]:
        """All metrics that it may have."""
        return (*self.rows, *self.extras)

    @property
    def dormant(self) -> tuple[Row, ...]:
        """Rows with a field that GpuReading does not have yet: they give no sample."""
        known = {each.name for each in fields(GpuReading)}
        return tuple(row for row in self.rows if row.source not in known)


def every_gpu(snapshot: Snapshot) -> list[GpuInfo]:
    """The GPUs that are expected, read or down."""
    return [*(reading.info for reading in snapshot.readings), *(down.info for down in snapshot.downs)]


def largest(reading: GpuReading, most: int) -> list[tuple[int, int]]:
    """Pid and bytes of the processes that hold the most memory; one that computes and draws is one."""
    sizes: dict[int, int] = {}
    for process in reading.processes or ():
        if process.memory_bytes is not None:
            sizes[process.pid] = max(sizes.get(process.pid, 0), process.memory_bytes)
    return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:most]
