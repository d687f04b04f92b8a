"""PURE: from what the driver shows to what the machine is doing.

Rules, all of them:

1. Any busy evidence makes a GPU busy, and any busy GPU or busy evidence of the host makes its node busy. There are no
   weights.
2. Any doubt (a reading missing, a GPU down, a signal of the host that failed, a gap, a clock jump) makes it unknown,
   unless something else is busy.
3. Memory held while nothing computes is parked; full "utilization" at idle power without arithmetic and memory
   traffic, for `stalled_timeout`, is stalled. Only what is neither is idle.
4. Time counts on the monotonic clock, between two good samples that say the same, at most `max_gap` apart. A change
   starts it again from zero; doubt stops it, and doubt longer than `forget_after` starts it again from zero.
5. Duplicate and out-of-order samples change nothing.
6. A GPU in MIG mode that cannot report its instances' activity (before Hopper), or has no instance, is idle only if
   nothing can run on it: every instance lists its processes and has none, no instance holds memory, and the GPU's power
   is that of rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from gpuwatch.model.duration import Seconds
from gpuwatch.model.fleet import Activity, Evidence, GpuVerdict, State
from gpuwatch.model.gpu import GpuDown, GpuReading, ProcessKind
from gpuwatch.model.gpu_identity import called, order
from gpuwatch.model.mig import MigInstance
from gpuwatch.model.setting import STRICT, Setting

_CLOCK_TOLERANCE_SECONDS = 5.0
_FULL_RATIO = 0.99
_BUSY_LINK_BYTES_PER_SECOND = 50e6  # GPUs at rest that are monitored move less than 1 MB/s, a copy moves GB/s
_REST_POWER_RATIO = 0.25  # A100 and A30 at rest draw 11 to 18 % of their limit, instances or not
_REST_INSTANCE_BYTES = 64 * 1024 * 1024  # the driver's own in an instance is below 32 MiB, a CUDA context above 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRules:
    """Where busy begins. The defaults err towards busy."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    busy_utilization_ratio: Annotated[
        float,
        Gt(0),
        Le(0.1),
        Setting("A utilization sample at or above this share (0.01 = NVML's smallest step) is busy."),
    ] = 0.01
    busy_power_ratio: Annotated[
        float, Gt(0), Le(0.8), Setting("Power at or above this share of the GPU's power limit is busy.")
    ] = 0.35
    held_memory_bytes: Annotated[
        int,
        Gt(0),
        Le(4 * 1024**3),
        Setting("Device memory in use at or above this, in bytes, is held: the GPU is parked, not idle."),
    ] = 512 * 1024 * 1024
    stalled_timeout: Annotated[
        Seconds,
        Ge(60),
        Setting("Full utilization at idle power without memory traffic is called stalled after this long."),
    ] = 600.0
    max_gap: Annotated[
        Seconds,
        Gt(0),
        Le(300),
        Setting("Two samples further apart than this leave a gap, which does not count as idle time."),
    ] = 10.0
    forget_after: Annotated[
        Seconds, Ge(0), Le(300), Setting("Doubt that lasts longer than this starts the idle time again from zero.")
    ] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One complete cycle of the probe. `monotonic_seconds` is when it ended, on the host's monotonic clock.

    `host` is what people and programs do on the host: each entry says busy, idle, or unknown with a note on why.
    """

    at: datetime
    monotonic_seconds: float
    readings: tuple[GpuReading, ...] = ()
    downs: tuple[GpuDown, ...] = ()
    doubt: str | None = None  # why nothing at all could be read
    host: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The state that one sample shows by itself."""

    state: State
    evidence: tuple[Evidence, ...] = ()
    doubt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One state followed over time: the last sure state with the time it has held, and how long doubt has lasted."""

    state: State = State.UNKNOWN
    since: datetime | None = None
    held_seconds: float = 0.0
    doubt_seconds: float = 0.0
    shown: Activity = field(default_factory=lambda: Activity(state=State.UNKNOWN, since=None, held_seconds=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """What is remembered of one GPU between samples."""

    index: int | None
    track: Track = field(default_factory=Track)
    energy_joules: float | None = None
    energy_at_seconds: float = 0.0
    stall_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """All that is remembered of a node between samples; a new agent begins with an empty one."""

    at: datetime | None = None
    monotonic_seconds: float | None = None
    node: Track = field(default_factory=Track)
    by_uuid: Mapping[str, GpuMemory] = field(default_factory=dict)

    @property
    def activity(self) -> Activity:
        """The node's activity."""
        return self.node.shown

    @property
    def gpus(self) -> tuple[GpuVerdict, ...]:
        """The activity of each GPU, by index."""
        ordered = sorted(self.by_uuid.items(), key=lambda item: order(item[0], item[1].index))
        return tuple(GpuVerdict(uuid=uuid, index=gpu.index, activity=gpu.track.shown) for uuid, gpu in ordered)


def fold(memory: Memory, sample: Sample, rules: ActivityRules) -> Memory:
    """The memory after one more sample. Cost: O(GPUs)."""
    gap = 0.0 if memory.monotonic_seconds is None else sample.monotonic_seconds - memory.monotonic_seconds
    if memory.monotonic_seconds is not None and gap <= 0:
        return memory
    jump = 0.0
    if memory.at is not None:
        jump = abs((sample.at - memory.at).total_seconds() - gap)
    doubt = sample.doubt
    if jump > _CLOCK_TOLERANCE_SECONDS:
        doubt = doubt or f"the wall clock jumped by {jump:.0f} s against the monotonic clock"
        gap = max(gap, jump)

    gpus: dict[str, GpuMemory] = {}
    judged: list[Judgement] = []
    for reading in sample.readings:
        known = memory.by_uuid.get(reading.info.uuid, GpuMemory(index=reading.info.index))
        gpu, judgement = _fold_gpu(known, reading, sample, gap, doubt, rules)
        gpus[reading.info.uuid] = gpu
        judged.append(judgement)
    missing = {down.info.uuid: (down.info.index, f"{down.cause.value}: {down.detail}") for down in sample.downs}
    for uuid, known in memory.by_uuid.items():
        missing.setdefault(uuid, (known.index, doubt or "it is no longer listed by the driver"))
    for uuid, (index, why) in missing.items():
        if uuid in gpus:
            continue
        known = replace(memory.by_uuid.get(uuid, GpuMemory(index=index)), index=index)
        judgement = Judgement(state=State.UNKNOWN, doubt=f"{called(uuid, index)}: {why}")
        gpus[uuid] = replace(known, track=_advance(known.track, judgement, sample.at, gap, rules), stall_seconds=0.0)
        judged.append(judgement)

    judged += [_judge_host(entry) for entry in sample.host if entry.says in {State.BUSY, State.UNKNOWN}]
    combined = _combine(judged, doubt)
    if combined.state not in {State.BUSY, State.UNKNOWN}:
        seen = tuple(entry for entry in sample.host if entry.says is State.IDLE)
        combined = replace(combined, evidence=combined.evidence + seen)
    node = _advance(memory.node, combined, sample.at, gap, rules)
    return Memory(at=sample.at, monotonic_seconds=sample.monotonic_seconds, node=node, by_uuid=gpus)


def _fold_gpu(
    known: GpuMemory, reading: GpuReading, sample: Sample, gap: float, doubt: str | None, rules: ActivityRules
) -> tuple[GpuMemory, Judgement]:
    """Fold one GPU's reading: its new memory and its state."""
    evidence = _evidence(reading, _mean_power(known, reading, sample.monotonic_seconds), rules)
    stalling = gap <= rules.max_gap and _looks_stalled(reading, evidence, rules)
    stall_seconds = known.stall_seconds + gap if stalling else 0.0
    judgement = _judge(reading, evidence, stalled=stall_seconds >= rules.stalled_timeout, doubt=doubt)
    energy = reading.energy_joules_total
    return GpuMemory(
        index=reading.info.index,
        track=_advance(known.track, judgement, sample.at, gap, rules),
        energy_joules=energy,
        energy_at_seconds=sample.monotonic_seconds,
        stall_seconds=stall_seconds,
    ), judgement


def _mean_power(known: GpuMemory, reading: GpuReading, monotonic_seconds: float) -> float | None:
    """Mean watts since the last sample from the energy counter: it sees through gaps. None after a counter reset."""
    if known.energy_joules is None or reading.energy_joules_total is None:
        return None
    joules, seconds = reading.energy_joules_total - known.energy_joules, monotonic_seconds - known.energy_at_seconds
    return joules / seconds if joules >= 0 and seconds > 0 else None


def _evidence(reading: GpuReading, mean_power_watts: float | None, rules: ActivityRules) -> tuple[Evidence, ...]:
    """Every signal that this GPU gives, each by itself."""
    found: list[Evidence] = []

    def note(name: str, observed: float, limit: float, unit: str, source: str, above: State) -> None:
        says = above if observed >= limit else State.IDLE
        label = f"gpu{reading.info.index}.{name}"
        found.append(Evidence(name=label, says=says, observed=observed, limit=limit, unit=unit, source=source))

    ratios: list[tuple[str, float | None, str]] = [
        (
            "utilization_max",
            _highest(reading.utilization_ratio, reading.utilization_max_ratio),
            "NVML utilization samples",
        ),
        ("engines", _highest(*_engines(reading)), "NVML encoder, decoder, JPEG and optical flow utilization"),
        ("sm_activity", reading.sm_activity_ratio, "NVML GPM"),
        ("graphics_activity", reading.graphics_activity_ratio, "NVML GPM"),
        ("dram_activity", reading.dram_activity_ratio, "NVML GPM"),
    ]
    for part in reading.mig_instances or ():
        ratios.append((f"mig{part.id}.sm_activity", part.sm_activity_ratio, "NVML GPM"))
        ratios.append((f"mig{part.id}.graphics_activity", part.graphics_activity_ratio, "NVML GPM"))
        ratios.append((f"mig{part.id}.dram_activity", part.dram_activity_ratio, "NVML GPM"))
    for name, ratio, source in ratios:
        if ratio is not None:
            note(name, ratio, rules.busy_utilization_ratio, "ratio", source, State.BUSY)
    for name, amount, limit, unit, above in _amounts(reading):
        if amount is not None:
            note(name, amount, limit, unit, "NVML GPM" if above is State.BUSY else "NVML, of the instance", above)
    watts = [power for power in (reading.power_watts, mean_power_watts) if power is not None]
    if watts and reading.power_limit_watts is not None:
        limit = rules.busy_power_ratio * reading.power_limit_watts
        note("power", max(watts), limit, "watts", "NVML power and energy", State.BUSY)
    if reading.memory_used_bytes is not None:
        limit = float(rules.held_memory_bytes)
        note("memory_used", float(reading.memory_used_bytes), limit, "bytes", "NVML memory info v2", State.PARKED)
    if reading.processes is not None:
        computing = sum(process.kind is ProcessKind.COMPUTE for process in reading.processes)
        computing = max(computing, sum(part.process_count or 0 for part in reading.mig_instances or ()))
        note("compute_processes", float(computing), 1.0, "processes", "NVML process list", State.PARKED)
    return tuple(found)


def _amounts(reading: GpuReading) -> Iterator[tuple[str, float | None, float, str, State]]:
    """Traffic of the links, and memory and processes of MIG instances without activity figures; each with its limit."""
    pcie = _highest(reading.pcie_tx_bytes_per_second, reading.pcie_rx_bytes_per_second)
    nvlink = _highest(reading.nvlink_tx_bytes_per_second, reading.nvlink_rx_bytes_per_second)
    yield "pcie", pcie, _BUSY_LINK_BYTES_PER_SECOND, "bytes per second", State.BUSY
    yield "nvlink", nvlink, _BUSY_LINK_BYTES_PER_SECOND, "bytes per second", State.BUSY
    for part in _dark(reading):
        yield f"mig{part.id}.memory_used", part.memory_used_bytes, _REST_INSTANCE_BYTES, "bytes", State.UNKNOWN
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


def _looks_stalled(reading: GpuReading, evidence: tuple[Evidence, ...], rules: ActivityRules) -> bool:
    """Full utilization at idle power, no arithmetic and no memory traffic. An unknown value is no sign of it."""
    if reading.utilization_ratio is None or reading.memory_bandwidth_utilization_ratio is None:
        return False
    if reading.power_watts is None or reading.power_limit_watts is None:
        return False
    calculated = _highest(
        *_engines(reading),
        reading.tensor_activity_ratio,
        reading.fp64_activity_ratio,
        reading.fp32_activity_ratio,
        reading.fp16_activity_ratio,
    )
    return (
        reading.utilization_ratio >= _FULL_RATIO
        and reading.memory_bandwidth_utilization_ratio <= 0.0
        and (calculated is None or calculated < rules.busy_utilization_ratio)
        and all(entry.says is not State.BUSY for entry in evidence if entry.unit in {"watts", "bytes per second"})
    )


def _judge(reading: GpuReading, evidence: tuple[Evidence, ...], *, stalled: bool, doubt: str | None) -> Judgement:
    """One GPU's state by rules 1 to 3."""
    busy = any(entry.says is State.BUSY for entry in evidence)
    if busy:
        return Judgement(state=State.STALLED if stalled else State.BUSY, evidence=evidence)
    if doubt is None:
        doubt = _unread(reading) or _unrested(reading, evidence)
    if doubt is not None:
        return Judgement(state=State.UNKNOWN, evidence=evidence, doubt=f"GPU {reading.info.index}: {doubt}")
    parked = any(entry.says is State.PARKED for entry in evidence)
    return Judgement(state=State.PARKED if parked else State.IDLE, evidence=evidence)


def _judge_host(entry: Evidence) -> Judgement:
    """A signal of the host that is busy or in doubt; an idle one is not judged here."""
    doubt = f"{entry.name}: {entry.note or 'it could not be seen'}" if entry.says is State.UNKNOWN else None
    return Judgement(state=entry.says, evidence=(entry,), doubt=doubt)


def _unread(reading: GpuReading) -> str | None:
    """Which signal is missing that idleness needs. With MIG the figures of the instances count, not the GPU's."""
    if reading.mig_mode == 1 or reading.mig_instances is not None:
        if reading.mig_instances is None:
            return "its MIG instances could not be listed"
        if any(part.sm_activity_ratio is None and not part.activity_unsupported for part in reading.mig_instances):
            return "the activity of its MIG instances could not be read"
    elif reading.utilization_ratio is None and reading.utilization_max_ratio is None:
        return "its utilization could not be read"
    if reading.processes is None:
        return "its processes could not be listed"
    if reading.processes_partial:
        return "not all processes that hold it can be seen; the agent needs the host's PID namespace (--pid=host)"
    return None


def _dark(reading: GpuReading) -> tuple[MigInstance, ...]:
    """The MIG instances of which this GPU cannot report the activity."""
    parts = reading.mig_instances or ()
    return tuple(part for part in parts if part.sm_activity_ratio is None and part.activity_unsupported)


def _unrested(reading: GpuReading, evidence: tuple[Evidence, ...]) -> str | None:
    """Rule 6: why a GPU is not proven to be at rest that has no MIG instance, or cannot report their activity.

    Called after `_unread`, so the lists are complete.
    """
    dark = _dark(reading)
    if reading.mig_instances is None or (reading.mig_instances and not dark):
        return None
    for part in dark:
        called = f"MIG instance {part.id}"
        if part.process_count is None:
            return f"the processes of {called} could not be listed, and the GPU does not report its activity"
        if part.process_count:
            return f"{called} is held by a process, and the GPU does not report its activity"
        if part.memory_used_bytes is None or part.memory_used_bytes > _REST_INSTANCE_BYTES:
            return f"the memory of {called} is above that of rest, and the GPU does not report its activity"
    if reading.processes:
        return "a process holds it, and it does not report the activity of its MIG instances"
    watts = [entry for entry in evidence if entry.unit == "watts" and entry.observed is not None]
    limit = reading.power_limit_watts
    if limit is None or not watts or any((entry.observed or 0.0) > _REST_POWER_RATIO * limit for entry in watts):
        return "its power is above that of rest, and it does not report the activity of its MIG instances"
    return None


def _combine(judged: list[Judgement], doubt: str | None) -> Judgement:
    """The node's state: the first of this order that any GPU has."""
    if not judged:
        return Judgement(state=State.UNKNOWN, doubt=doubt or "no GPU is listed")
    for state in (State.BUSY, State.UNKNOWN, State.STALLED, State.PARKED, State.IDLE):
        having = [judgement for judgement in judged if judgement.state is state]
        if having:
            evidence = tuple(entry for judgement in having for entry in judgement.evidence if entry.says is state)
            return Judgement(state=state, evidence=evidence, doubt=having[0].doubt)
    raise AssertionError(judged)


def _advance(track: Track, judgement: Judgement, at: datetime, gap: float, rules: ActivityRules) -> Track:
    """Rule 4: let time count, stop or start again."""
    state, evidence = judgement.state, judgement.evidence
    doubt_seconds = track.doubt_seconds
    if gap > rules.max_gap:
        doubt_seconds += gap
    if state is State.UNKNOWN:
        shown = track.shown
        since = shown.since if shown.state is State.UNKNOWN and shown.since is not None else at
        lasting = doubt_seconds if gap > rules.max_gap else doubt_seconds + gap
        shown = Activity(state=state, since=since, held_seconds=0.0, evidence=evidence, doubt=judgement.doubt)
        return replace(track, doubt_seconds=lasting, shown=shown)
    if state is not track.state or doubt_seconds > rules.forget_after:
        since, held = at, 0.0
    else:
        covered = gap <= rules.max_gap and track.shown.state is state
        since, held = track.since or at, track.held_seconds + (gap if covered else 0.0)
    shown = Activity(state=state, since=since, held_seconds=held, evidence=evidence)
    return Track(state=state, since=since, held_seconds=held, doubt_seconds=0.0, shown=shown)
