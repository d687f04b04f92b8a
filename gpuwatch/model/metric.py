"""What a metric of the catalogue is: an annotation on the field of a reading that holds it; and the metrics' groups.

`agent.metrics` switches groups on and off, and `collect[]` asks for them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Literal, get_args, get_type_hints

GroupName = Literal[
    "core",
    "profiling",
    "clock_events",
    "pcie",
    "nvlink",
    "ecc",
    "health",
    "processes",
    "mig",
    "host",
    "rdma",
    "clocks",
    "limits",
    "engines",
    "profiling_detail",
    "power_detail",
    "memory_detail",
    "ecc_detail",
    "pcie_detail",
    "nvlink_links",
    "throughput",
    "modes",
    "mig_detail",
]
Chosen = Literal["default", "all", GroupName]
GROUP_NAMES: tuple[GroupName, ...] = get_args(GroupName)
SLOW_SECONDS = 30
COSTLY_SECONDS = 10
STEADY_SECONDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What a group shows. Our alerts, recording rules and dashboards need the default ones alone."""

    about: str
    default: bool = False


GROUPS: dict[GroupName, Group] = {
    "core": Group(
        about="Who the GPUs are, whether they are read, use, activity, memory, heat, power; the machine's verdict, the "
        "agent and its probe. Always on.",
        default=True,
    ),
    "profiling": Group(about="How much of the chip works: SMs, tensor cores, memory (Hopper and newer).", default=True),
    "clock_events": Group(about="What holds the clocks down, as time.", default=True),
    "pcie": Group(about="Bytes over PCIe, and packets sent again.", default=True),
    "nvlink": Group(about="Bytes and errors over all NVLinks of a GPU together.", default=True),
    "ecc": Group(about="Memory errors since the driver was loaded, and memory replaced.", default=True),
    "health": Group(about="The health verdict with its causes, XIDs, what the driver asks for.", default=True),
    "processes": Group(about="Who uses the GPUs, with their memory.", default=True),
    "mig": Group(about="MIG instances with their memory and activity.", default=True),
    "host": Group(
        about="Evidence of the host, snoozes, the cloud's facts and notices, the agent's own cost and sight.",
        default=True,
    ),
    "rdma": Group(about="Ports of InfiniBand, RoCE and EFA: link, speed, bytes, errors.", default=True),
    "clocks": Group(about="The other clocks, and each of the driver's reasons for the current ones."),
    "limits": Group(about="Limits and maxima, which hardly change: power, temperatures, clocks."),
    "engines": Group(about="Video, JPEG and optical flow engines."),
    "profiling_detail": Group(about="Any engine's activity, and arithmetic by precision (Hopper and newer)."),
    "power_detail": Group(about="Power at this moment, of the module, of the memory."),
    "memory_detail": Group(about="Free and reserved memory, the window through which PCIe sees it."),
    "ecc_detail": Group(about="Memory errors over the life of the board."),
    "pcie_detail": Group(about="PCIe generation and lanes with their maxima, and errors by kind."),
    "nvlink_links": Group(about="Bytes and errors of each NVLink: most of the series of a GPU with 18 links."),
    "throughput": Group(
        about="Rates of PCIe and NVLink as the driver has them, which rate() of the counters gives too; C2C."
    ),
    "modes": Group(about="Modes, the performance state, since when the health is what it is."),
    "mig_detail": Group(about="More of each MIG instance."),
}
DEFAULT_GROUPS: frozenset[GroupName] = frozenset(name for name, group in GROUPS.items() if group.default)
_ALWAYS: frozenset[GroupName] = frozenset({"core"})


def chosen_groups(names: Iterable[Chosen]) -> frozenset[GroupName]:
    """The groups that a list in the settings stands for; `core` is always there."""
    words: dict[str, frozenset[GroupName]] = {"default": DEFAULT_GROUPS, "all": frozenset(GROUP_NAMES)}
    return _ALWAYS.union(*(words.get(name) or frozenset({name}) for name in names))  # type: ignore[arg-type]  # no word


class Kind(StrEnum):
    """How Prometheus treats a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the catalogue: what a field means and which driver call it comes from.

    With a `label` the field maps that label's values to measurements. A `slow` one is read every SLOW_SECONDS, a
    `costly` one every COSTLY_SECONDS, a `steady` one every STEADY_SECONDS, and shown in between; a read that fails ends
    that at once. What no exported `group` has is not read, unless it is `judged`: activity, health or the tally of use
    rest on it.
    """

    help: str
    source: str
    group: GroupName = field(kw_only=True)
    kind: Kind = field(default=Kind.GAUGE, kw_only=True)
    label: str = field(default="", kw_only=True)
    slow: bool = field(default=False, kw_only=True)
    costly: bool = field(default=False, kw_only=True)
    steady: bool = field(default=False, kw_only=True)
    judged: bool = field(default=False, kw_only=True)

    @property
    def every_seconds(self) -> int | None:
        """How often it is read; None: in every cycle."""
        if self.slow:
            return SLOW_SECONDS
        return COSTLY_SECONDS if self.costly else STEADY_SECONDS if self.steady else None


def metrics_of(reading: type) -> Iterator[tuple[str, Metric]]:
    """Each measured field of a reading with its row of the catalogue, in the order of declaration."""
    hints = get_type_hints(reading, include_extras=True)
    for each in fields(reading):
        for extra in get_args(hints[each.name])[1:]:
            if isinstance(extra, Metric):
                yield each.name, extra


def fields_read(reading: type, groups: Collection[GroupName]) -> frozenset[str]:
    """The measured fields of a reading that are read where these groups are exported."""
    return frozenset(name for name, metric in metrics_of(reading) if metric.judged or metric.group in groups)
