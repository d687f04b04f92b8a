"""A host as the sizing tables assume it: H100 GPUs with 18 NVLinks and one process each, on a page of the agent."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.attribution.process import Owner
from gpuwatch.agent.devices.messages import Cycle, End, Message, Reading
from gpuwatch.agent.devices.nvml.calls import Each
from gpuwatch.agent.devices.nvml.rows import ROWS
from gpuwatch.agent.evidence.registry import SIGNALS
from gpuwatch.agent.exporter.catalogue import FAMILIES
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.gpu import GpuInfo, GpuProcess, GpuReading, ProcessKind, metrics
from gpuwatch.model.metric import GROUP_NAMES, GroupName
from gpuwatch.runtime.clock import ManualClock

GPUS = 8
LINKS = 18
# What an H100 without MIG does not have: fans, retired pages (before Ampere), NVLink 5, C2C.
_LACKING = re.compile(r"fan_|retired_|nvlink_(receive|integrity|effective)_|c2c_")
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? \S+")
_CYCLES = 2


@cache
def series(group: GroupName) -> tuple[int, int]:
    """Series of that group: of each GPU, and of the host beside them."""
    of_gpu, of_host = Counter[str](), Counter[str]()
    group_of = {each: family.group for family in FAMILIES.values() for each in family.series}
    for name, labels in _samples():
        if 'uuid="' not in labels:
            of_host[group_of[name]] += 1
        elif 'gpu="0"' in labels:
            of_gpu[group_of[name]] += 1
    return of_gpu[group], of_host[group]


def total(groups: Collection[GroupName]) -> tuple[int, int]:
    """Series of these groups together: of each GPU, and of the host beside them."""
    counts = [series(group) for group in GROUP_NAMES if group in groups]
    return sum(gpu for gpu, _ in counts), sum(host for _, host in counts)


def _samples() -> Iterator[tuple[str, str]]:
    """The name and labels of each sample of the whole page."""
    for line in page().splitlines():
        found = _SAMPLE.fullmatch(line)
        if found is not None and not line.startswith("#"):
            yield found[1], found[2] or ""


@cache
def page(groups: frozenset[GroupName] = frozenset(GROUP_NAMES)) -> str:
    """What a scrape of that host shows."""
    clock = ManualClock()
    host = tuple(
        Evidence(name=name, says=State.BUSY, observed=None, limit=None, unit="", source="") for name in SIGNALS
    )
    core = AgentCore(
        node_id="i-0123456789abcdef0",
        clock=clock,
        rules=ActivityRules(),
        interval_seconds=1.0,
        stale_after_seconds=8.0,
        host=lambda _: host,
    )
    for seq in range(_CYCLES):
        clock.advance(1.0)
        core.ingest_messages(_cycle(seq, clock))
    placement = Placement(systemd_unit="train.service")
    owners = {1000 + index: Owner(user="ada", placement=placement) for index in range(GPUS)}
    view = View(monotonic_seconds=clock.monotonic(), owners=owners, dead=frozenset())
    exporter = Exporter(core, clock, node_id=core.node_id, top_processes=16, users=lambda: view, groups=groups)
    return exporter.page("").body.decode()


def _cycle(seq: int, clock: ManualClock) -> Iterator[Message]:
    readings = [_reading(index, clock) for index in range(GPUS)]
    now = clock.monotonic()
    yield Cycle(seq=seq, monotonic_seconds=now, gpus=tuple(reading.info for reading in readings))
    for reading in readings:
        yield Reading(seq=seq, reading=reading)
    yield End(seq=seq, monotonic_seconds=now, duration_seconds=0.1)


def _reading(index: int, clock: ManualClock) -> GpuReading:
    """A GPU at work."""
    values: dict[str, Any] = {
        name: _by_label(name) if metric.label else 0 for name, metric in metrics() if not _LACKING.match(name)
    }
    values |= {"utilization_ratio": 1.0, "clock_events": (), "processes_partial": False}
    process = GpuProcess(pid=1000 + index, kind=ProcessKind.COMPUTE, memory_bytes=1 << 30)
    info = GpuInfo(
        uuid=f"GPU-8f9a3b1c-0000-0000-0000-{index:012}",
        index=index,
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"00000000:{index + 1:02X}:00.0",
        driver_version="580.65.06",
        cuda_version="13.0",
        vbios_version="96.00.30.00.01",
        serial=f"{index:013}",
    )
    return replace(GpuReading(info=info, at=clock.now(), **values), processes=(process,))


def _by_label(name: str) -> dict[str, float]:
    """A value for each label that the driver has one for."""
    (each,) = ROWS[name]
    if not isinstance(each, Each):
        raise TypeError(f"{name} maps labels, but its row does not")
    return {label: 1.0 for label in each.ways if not label.isdecimal() or int(label) < LINKS}
