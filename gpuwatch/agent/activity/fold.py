"""PURE: one more sample of a node, folded into its memory."""

from dataclasses import replace
from datetime import datetime

from gpuwatch.agent.activity.days import HUM
from gpuwatch.agent.activity.doubts import doubt_of_rest, unread
from gpuwatch.agent.activity.holders import excuse_own_work, holders_after, lists_all_processes, people
from gpuwatch.agent.activity.links import counters_of, rates_of
from gpuwatch.agent.activity.loops import hold_loop, pause, paused_of
from gpuwatch.agent.activity.memory import GpuMemory, Judgement, Memory, Paused, Sample, Track
from gpuwatch.agent.activity.rest_power import busy_watts, learn_rest_power, sees_work
from gpuwatch.agent.activity.settings import ActivityRules
from gpuwatch.agent.activity.signals import Derived, evidence_of, looks_stalled
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.gpu import DownCause, GpuReading
from gpuwatch.model.gpu_identity import STAND_IN, gpu_name

_CLOCK_TOLERANCE_SECONDS = 5.0
_SPINNING = "gpu_process_cpu"
_WITNESSES = frozenset({"people", "processes"})
# A driver that calls a GPU lost for so long is not on its way to reset, reload or give it back.
LOST_SECONDS = 600.0
_OF_NO_USE = frozenset({DownCause.LOST, DownCause.RESET})  # nobody computes there until a reset or a reboot
_ORDER = (State.BUSY, State.UNKNOWN, State.STALLED, State.PARKED, State.OCCUPIED, State.IDLE)


def fold(memory: Memory, sample: Sample, rules: ActivityRules) -> Memory:
    """The memory after one more sample. Cost: O(GPUs and their processes)."""
    if memory.monotonic_seconds is not None and sample.monotonic_seconds <= memory.monotonic_seconds:
        return memory
    gap, doubt = elapsed_seconds(memory, sample)
    gpus: dict[str, GpuMemory] = {}
    read: list[tuple[GpuReading, Judgement]] = []
    for reading in sample.readings:
        known = memory.by_uuid.get(reading.info.uuid, GpuMemory(index=reading.info.index))
        gpu, judgement = _fold_gpu(known, reading, sample, gap, doubt, rules)
        gpus[reading.info.uuid] = gpu
        read.append((reading, judgement))
    missing = {down.info.uuid: (down.info.index, f"{down.cause.value}: {down.detail}") for down in sample.downs}
    for uuid, known in memory.by_uuid.items():
        if uuid.startswith(STAND_IN) and uuid not in missing:
            continue  # the GPU that it stood for has said its name
        missing.setdefault(uuid, (known.index, doubt or "it is no longer listed by the driver"))
    lost = {down.info.uuid for down in sample.downs if down.cause in _OF_NO_USE}
    unseen: list[Judgement] = []
    others: list[Judgement] = [judgement for _, judgement in read]
    for uuid, (index, why) in missing.items():
        if uuid in gpus:
            continue
        judgement = Judgement(state=State.UNKNOWN, doubt=f"{gpu_name(uuid, index)}: {why}")
        known = memory.by_uuid.get(uuid, GpuMemory(index=index))
        gpus[uuid] = gpu = replace(
            _fold_missing(known, index, judgement, sample, gap, rules),
            lost_seconds=_lost_seconds(known, gap, rules) if uuid in lost else None,
        )
        unseen.append(judgement)
        others += () if (gpu.lost_seconds or 0.0) >= LOST_SECONDS and _sees_people(sample) else (judgement,)

    host = _of_spinning(sample, read) if not unseen else sample.host
    on_host = [host_judgement(entry) for entry in host if entry.says is not State.IDLE]
    judged = [judgement for _, judgement in read] + unseen + on_host
    loop, judgement = hold_loop(memory.loop, _listing(combine_judgements(judged, doubt), host), gap)
    node = advance(memory.node, judgement, sample.at, gap, rules, visits=True)
    rest = _listing(combine_judgements((others if read else unseen) + on_host, doubt), host)
    without = advance(memory.others, rest, sample.at, gap, rules, visits=True)
    at = sample.monotonic_seconds
    return Memory(at=sample.at, monotonic_seconds=at, node=node, others=without, by_uuid=gpus, loop=loop)


def _lost_seconds(known: GpuMemory, gap: float, rules: ActivityRules) -> float:
    """For how long the driver has called a GPU lost, sample by sample: a gap begins it again."""
    return 0.0 if known.lost_seconds is None or gap > rules.max_gap else known.lost_seconds + gap


def _sees_people(sample: Sample) -> bool:
    """Whether the host's people and processes were looked at: nothing else shows what held a GPU that is lost."""
    return {entry.name for entry in sample.host} >= _WITNESSES


def elapsed_seconds(memory: Memory, sample: Sample) -> tuple[float, str | None]:
    """Seconds since the last sample, and why all of this one is in doubt: nothing was read, or a clock jumped."""
    gap = 0.0 if memory.monotonic_seconds is None else sample.monotonic_seconds - memory.monotonic_seconds
    jump = 0.0 if memory.at is None else abs((sample.at - memory.at).total_seconds() - gap)
    if jump <= _CLOCK_TOLERANCE_SECONDS:
        return gap, sample.doubt
    jumped = f"the wall clock jumped by {jump:.0f} s against the monotonic clock"
    return max(gap, jump), sample.doubt or jumped


def _fold_gpu(
    known: GpuMemory, reading: GpuReading, sample: Sample, gap: float, doubt: str | None, rules: ActivityRules
) -> tuple[GpuMemory, Judgement]:
    """Fold one GPU's reading: its new memory and its state."""
    now, own = sample.monotonic_seconds, sample.service_pids
    mean_power = _mean_power(known, reading, now)
    counters = counters_of(reading, known.links, now)
    derived = Derived(
        mean_watts=mean_power,
        busy_watts=busy_watts(reading, known.rest, rules),
        links=rates_of(reading, known.links, counters),
    )
    raw = evidence_of(reading, derived, own, rules)
    holders = holders_after(known.holders, reading, own, now)
    evidence = excuse_own_work(raw, known.holders, holders, rules)
    stalling = gap <= rules.max_gap and evidence is raw and looks_stalled(reading, evidence, rules)
    stall_seconds = known.stall_seconds + gap if stalling else 0.0
    judgement = _judge(reading, evidence, stalled=stall_seconds >= rules.stalled_timeout, doubt=doubt)
    quiet = doubt is None and gap <= rules.max_gap and _shows_only_power(reading, raw)
    power = mean_power if mean_power is not None else reading.power_watts
    return GpuMemory(
        index=reading.info.index,
        track=advance(known.track, judgement, sample.at, gap, rules),
        energy_joules=reading.energy_joules_total,
        energy_at_seconds=known.energy_at_seconds if _same_energy(known, reading) else now,
        stall_seconds=stall_seconds,
        rest=learn_rest_power(known.rest, reading, power, gap, quiet=quiet),
        holders=holders,
        links=counters,
    ), judgement


def _fold_missing(
    known: GpuMemory, index: int | None, judgement: Judgement, sample: Sample, gap: float, rules: ActivityRules
) -> GpuMemory:
    """A GPU without a reading: what counted up to now begins again, what is known of it stays."""
    return replace(
        known,
        index=index,
        track=advance(known.track, judgement, sample.at, gap, rules),
        stall_seconds=0.0,
        rest=replace(known.rest, stretch=None),
        holders=replace(known.holders, looked_seconds=None),
    )


def _shows_only_power(reading: GpuReading, evidence: tuple[Evidence, ...]) -> bool:
    """Whether all that could have shown work was read and said idle, but for power."""
    others = (entry for entry in evidence if entry.unit != "watts")
    return sees_work(reading) and unread(reading) is None and all(entry.says is not State.BUSY for entry in others)


def _mean_power(known: GpuMemory, reading: GpuReading, monotonic_seconds: float) -> float | None:
    """Mean watts since the energy counter was read before: it sees through gaps.

    None after a reset of the counter, and in samples in which it was not read again.
    """
    if known.energy_joules is None or reading.energy_joules_total is None or _same_energy(known, reading):
        return None
    joules, seconds = reading.energy_joules_total - known.energy_joules, monotonic_seconds - known.energy_at_seconds
    return joules / seconds if joules >= 0 and seconds > 0 else None


def _same_energy(known: GpuMemory, reading: GpuReading) -> bool:
    """Whether the counter is as it was: it is read every few seconds, and each GPU draws power."""
    return reading.energy_joules_total == known.energy_joules


def _judge(reading: GpuReading, evidence: tuple[Evidence, ...], *, stalled: bool, doubt: str | None) -> Judgement:
    """One GPU's state by rules 1 to 3."""
    busy = any(entry.says is State.BUSY for entry in evidence)
    if busy:
        return Judgement(state=State.STALLED if stalled else State.BUSY, evidence=evidence)
    if doubt is None:
        doubt = unread(reading) or doubt_of_rest(reading, evidence)
    if doubt is not None:
        return Judgement(state=State.UNKNOWN, evidence=evidence, doubt=f"GPU {reading.info.index}: {doubt}")
    parked = any(entry.says is State.PARKED for entry in evidence)
    return Judgement(state=State.PARKED if parked else State.IDLE, evidence=evidence)


def _of_spinning(sample: Sample, read: list[tuple[GpuReading, Judgement]]) -> tuple[Evidence, ...]:
    """Rule 8: the host's evidence, in which the CPU time of GPU processes that can only be waiting says stalled."""
    if all(judgement.state is not State.STALLED for _, judgement in read):
        return sample.host
    for reading, judgement in read:
        if judgement.state is not State.STALLED and (
            not lists_all_processes(reading) or people(reading, sample.service_pids)
        ):
            return sample.host
    return tuple(
        replace(entry, says=State.STALLED, note="every GPU that it can be about is stalled: it spins while it waits")
        if entry.name == _SPINNING and entry.says is State.BUSY
        else entry
        for entry in sample.host
    )


def host_judgement(entry: Evidence) -> Judgement:
    """A signal of the host that does not say idle."""
    doubt = f"{entry.name}: {entry.note or 'it could not be seen'}" if entry.says is State.UNKNOWN else None
    return Judgement(state=entry.says, evidence=(entry,), doubt=doubt, passes=doubt is not None and entry.name == HUM)


def combine_judgements(judged: list[Judgement], doubt: str | None) -> Judgement:
    """The node's state: the first of the order that any of its parts has."""
    if not judged:
        return Judgement(state=State.UNKNOWN, doubt=doubt or "no GPU is listed")
    for state in _ORDER:
        having = [judgement for judgement in judged if judgement.state is state]
        if having:
            evidence = tuple(entry for judgement in having for entry in judgement.evidence if entry.says is state)
            passes = all(judgement.passes for judgement in having)
            return Judgement(state=state, evidence=evidence, doubt=having[0].doubt, passes=passes)
    raise AssertionError(judged)


def _listing(node: Judgement, host: tuple[Evidence, ...]) -> Judgement:
    """The node's state with what people want to see besides: who is there, and who was looked for."""
    if node.state in {State.BUSY, State.UNKNOWN}:
        return node
    kinds = (State.OCCUPIED, State.IDLE) if node.state in {State.STALLED, State.PARKED} else (State.IDLE,)
    return replace(
        node, evidence=node.evidence + tuple(entry for kind in kinds for entry in host if entry.says is kind)
    )


def advance(
    track: Track, judgement: Judgement, at: datetime, gap: float, rules: ActivityRules, *, visits: bool = False
) -> Track:
    """Rule 4: let time count, stop or start again. `visits` is whether a visit only pauses what it interrupts."""
    state, evidence = judgement.state, judgement.evidence
    doubt_seconds = track.doubt_seconds
    if gap > rules.max_gap:
        doubt_seconds += gap
    if state is State.UNKNOWN:
        shown = track.shown
        since = shown.since if shown.state is State.UNKNOWN and shown.since is not None else at
        lasting = doubt_seconds if gap > rules.max_gap or judgement.passes else doubt_seconds + gap
        shown = Activity(state=state, since=since, held_seconds=0.0, evidence=evidence, doubt=judgement.doubt)
        return replace(track, doubt_seconds=lasting, shown=shown)
    paused: tuple[Paused, ...] = ()
    if doubt_seconds > rules.forget_after:
        since, held = at, 0.0
    elif state is not track.state:
        goes_on = paused_of(track, state, gap) if visits else None
        since, held = (at, 0.0) if goes_on is None else (goes_on.since, goes_on.held_seconds)
        paused = pause(track, state, gap) if visits else ()
    else:
        covered = gap <= rules.max_gap and track.shown.state is state
        since, held = track.since or at, track.held_seconds + (gap if covered else 0.0)
        paused = pause(track, state, gap)
    shown = Activity(state=state, since=since, held_seconds=held, evidence=evidence)
    return Track(state=state, since=since, held_seconds=held, doubt_seconds=0.0, paused=paused, shown=shown)
