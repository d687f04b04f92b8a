"""PURE: every signal that one GPU gives, each by itself, as evidence."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuwatch.agent.activity.doubts import REST_INSTANCE_BYTES, dark
from gpuwatch.agent.activity.holders import lists_all_processes, own_work, people
from gpuwatch.agent.activity.links import LinkRates
from gpuwatch.agent.activity.settings import ActivityRules
from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.gpu import GpuProcess, GpuReading, ProcessKind

_FULL_RATIO = 0.99
# Exactly 0 while nothing runs, also with a context open; a warp for a microsecond in five seconds is 2e-10 (H200).
_ANY_KERNEL = 1e-12
_BUSY_LINK_BYTES_PER_SECOND = 50e6  # GPUs at rest that are monitored move less than 1 MB/s, a copy moves GB/s
_SETTINGS = "agent.activity."
# What AMD's driver has instead of NVML's.
_AMD_SOURCES = {
    "NVML utilization samples": "AMD SMI activity of the compute dies",
    "NVML encoder, decoder, JPEG and optical flow utilization": "AMD SMI activity of the video and JPEG engines",
    "NVML power and energy": "AMD SMI power and energy",
    "NVML memory info v2": "AMD SMI memory in use",
    "NVML process list": "AMD SMI process list and the kernel's KFD",
}


@dataclass(slots=True)
class _Notes:
    """Collects one GPU's evidence."""

    reading: GpuReading
    worker: WorkOwner | None  # whose work it must be: the only process of people
    found: list[Evidence] = field(default_factory=list)

    def take(  # noqa: PLR0913  the fields of one finding
        self,
        name: str,
        observed: float,
        limit: float,
        *,
        unit: str,
        source: str,
        above: State = State.BUSY,
        setting: str | None = None,
        owner: WorkOwner | None = None,
        note: str | None = None,
    ) -> None:
        """Note a signal: `above` from `limit` on, else idle; owner and setting are of what is not idle."""
        says = above if observed >= limit else State.IDLE
        entry = Evidence(
            name=f"gpu{self.reading.info.index}.{name}",
            says=says,
            observed=observed,
            limit=limit,
            unit=unit,
            source=_of_vendor(source, self.reading),
            note=note,
            owner=None if says is State.IDLE else owner or self.worker,
            setting=None if says is State.IDLE or setting is None else _SETTINGS + setting,
        )
        self.found.append(entry)


def _of_vendor(source: str, reading: GpuReading) -> str:
    """Where a signal comes from, in the words of the GPU's own driver."""
    return _AMD_SOURCES.get(source, source) if reading.info.vendor == "amd" else source


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """What a reading shows only with what was known before it."""

    mean_watts: float | None  # since the last sample
    busy_watts: float | None  # from which power is a sign of work
    links: LinkRates


def evidence_of(
    reading: GpuReading, derived: Derived, own: frozenset[int], rules: ActivityRules
) -> tuple[Evidence, ...]:
    """Every signal that this GPU gives. `own` are the pids of the machine's own processes."""
    holders = people(reading, own)
    notes = _Notes(
        reading, WorkOwner(pid=holders[0].pid) if len(holders) == 1 and lists_all_processes(reading) else None
    )
    for name, ratio in _kernels(reading):
        if ratio is not None:
            notes.take(name, ratio, _ANY_KERNEL, unit="ratio", source="NVML GPM")
    for name, ratio, source in _ratios(reading):
        if ratio is not None:
            limit, setting = rules.busy_utilization_ratio, "busy_utilization_ratio"
            notes.take(name, ratio, limit, unit="ratio", source=source, setting=setting)
    for name, amount, limit, unit, above in _amounts(reading, derived.links):
        if amount is not None:
            source = "NVML GPM, else counters" if above is State.BUSY else "NVML, of the instance"
            notes.take(name, amount, limit, unit=unit, source=source, above=above)
    watts = [power for power in (reading.power_watts, derived.mean_watts) if power is not None]
    if watts and derived.busy_watts is not None:
        source = "NVML power and energy"
        notes.take("power", max(watts), derived.busy_watts, unit="watts", source=source, setting="busy_power_ratio")
    if reading.memory_used_bytes is not None:
        _note_memory(notes, reading.memory_used_bytes, holders, rules)
    if reading.processes is not None:
        _note_processes(notes, holders, own)
    return tuple(notes.found)


def _note_memory(notes: _Notes, used: int, holders: tuple[GpuProcess, ...], rules: ActivityRules) -> None:
    """Memory that no process holds (the page cache of a Grace Hopper, a leak) or the machine's own is not parked."""
    above, note = State.PARKED, None
    if used >= rules.held_memory_bytes and not holders and lists_all_processes(notes.reading):
        own = [process.pid for process in notes.reading.processes or ()]
        above, note = State.IDLE, own_work(own) if own else "held by no process"
    notes.take(
        "memory_used",
        float(used),
        float(rules.held_memory_bytes),
        unit="bytes",
        source="NVML memory info v2",
        above=above,
        setting="held_memory_bytes",
        owner=_largest(holders) if used >= rules.held_memory_bytes else None,
        note=note,
    )


def _note_processes(notes: _Notes, holders: tuple[GpuProcess, ...], own: frozenset[int]) -> None:
    """The compute processes, without the machine's own; an instance may know of more than the GPU lists."""
    reading = notes.reading
    computing = [process for process in reading.processes or () if process.kind is ProcessKind.COMPUTE]
    services = [process.pid for process in computing if process.pid in own]
    counted = sum(part.process_count or 0 for part in reading.mig_instances or ())
    others = max(len(computing), counted) - len(services)
    notes.take(
        "compute_processes",
        float(others),
        1.0,
        unit="processes",
        source="NVML process list",
        above=State.PARKED,
        owner=_largest(tuple(process for process in holders if process.kind is ProcessKind.COMPUTE))
        if others
        else None,
        note=own_work(services) if services and not others else None,
    )


def _largest(holders: tuple[GpuProcess, ...]) -> WorkOwner | None:
    """The process that holds the most memory."""
    largest = max(holders, key=lambda process: process.memory_bytes or 0, default=None)
    return None if largest is None else WorkOwner(pid=largest.pid)


def _kernels(reading: GpuReading) -> Iterator[tuple[str, float | None]]:
    """Multiprocessors at work: the driver counts their cycles, so that no kernel is too short to be seen."""
    yield "sm_activity", reading.sm_activity_ratio
    for part in reading.mig_instances or ():
        yield f"mig{part.id}.sm_activity", part.sm_activity_ratio


def _ratios(reading: GpuReading) -> Iterator[tuple[str, float | None, str]]:
    """Shares of time at work."""
    samples = _highest(reading.utilization_ratio, reading.utilization_max_ratio)
    yield "utilization_max", samples, "NVML utilization samples"
    yield "engines", _highest(*_engines(reading)), "NVML encoder, decoder, JPEG and optical flow utilization"
    yield "graphics_activity", reading.graphics_activity_ratio, "NVML GPM"
    yield "dram_activity", reading.dram_activity_ratio, "NVML GPM"
    for part in reading.mig_instances or ():
        yield f"mig{part.id}.graphics_activity", part.graphics_activity_ratio, "NVML GPM"
        yield f"mig{part.id}.dram_activity", part.dram_activity_ratio, "NVML GPM"


def _amounts(reading: GpuReading, links: LinkRates) -> Iterator[tuple[str, float | None, float, str, State]]:
    """Traffic of the links, and memory and processes of MIG instances without activity figures; each with its limit."""
    yield "pcie", links.pcie, _BUSY_LINK_BYTES_PER_SECOND, "bytes per second", State.BUSY
    yield "nvlink", links.nvlink, _BUSY_LINK_BYTES_PER_SECOND, "bytes per second", State.BUSY
    for part in dark(reading):
        yield f"mig{part.id}.memory_used", part.memory_used_bytes, REST_INSTANCE_BYTES, "bytes", State.UNKNOWN
        yield f"mig{part.id}.processes", part.process_count, 1, "processes", State.UNKNOWN


def _engines(reading: GpuReading) -> tuple[float | None, ...]:
    """The engines that do not count in the GPU's utilization."""
    return (
        reading.encoder_utilization_ratio,
        reading.decoder_utilization_ratio,
        reading.jpeg_utilization_ratio,
        reading.ofa_utilization_ratio,
    )


def _highest(*ratios: float | None) -> float | None:
    """The highest of the known values, None without any."""
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def looks_stalled(reading: GpuReading, evidence: tuple[Evidence, ...], rules: ActivityRules) -> bool:
    """Full utilization at idle power, no arithmetic and no memory traffic. An unknown value is no such sign.

    Idle power is below `busy_power_ratio` of the limit here, whatever the GPU draws at rest: a kernel on a single
    multiprocessor of a small card draws no more than that card at rest.
    """
    if reading.utilization_ratio is None or reading.memory_bandwidth_utilization_ratio is None:
        return False
    if reading.power_watts is None or reading.power_limit_watts is None:
        return False
    worked = _highest(
        *_engines(reading),
        reading.dram_activity_ratio,
        reading.tensor_activity_ratio,
        reading.fp64_activity_ratio,
        reading.fp32_activity_ratio,
        reading.fp16_activity_ratio,
    )
    usual = rules.busy_power_ratio * reading.power_limit_watts
    return (
        reading.utilization_ratio >= _FULL_RATIO
        and reading.memory_bandwidth_utilization_ratio <= 0.0
        and (worked is None or worked < rules.busy_utilization_ratio)
        and all(entry.says is not State.BUSY for entry in evidence if entry.unit == "bytes per second")
        and all((entry.observed or 0.0) < usual for entry in evidence if entry.unit == "watts")
    )
