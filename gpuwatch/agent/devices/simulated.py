"""GPUs that exist only in a script: their readings follow from a load profile, faults come when the script says so.

Everything is consistent and nothing is random at reading time: means and maxima cover all of the time since the last
reading, energy is the integral of power, temperature follows power, and a lost GPU says what NVML says.

A script is YAML (see docs/examples/simulated.yaml). Times count from the probe's start; durations like 90s, 5m, 2h:

    gpus:                                # one entry for each GPU
      - name: NVIDIA L4                  # optional, as memory_total_bytes and power_limit_watts
        repeat: 1h                       # optional: the life begins again
        life:                            # phases in order; at rest before the first
          - {at: 0s, utilization_ratio: 0.9, memory_bytes: 12000000000}
          - {at: 20m, memory_bytes: 12000000000}            # holds its memory, computes nothing
          - {at: 30m}                                       # idle
          - {at: 40m, utilization_ratio: 1.0, stalled: true}
        lost: [{begin: 45m, end: 50m}]   # GPU is lost
        hang: [{begin: 55m, end: 56m}]   # reading it blocks until the end
    driver_missing: [{begin: 2h, end: 2h5m}]   # nothing can be read
    silence: [{begin: 3h, end: 3h1m}]          # the whole probe says nothing until the end
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwatch.agent.devices import SourceUnavailableError
from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile, Phase
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuProcess, GpuReading, ProcessKind
from gpuwatch.runtime.clock import Clock

DRIVER_VERSION = "550.54.15"
_RESERVED_BYTES = 600 * 1024 * 1024  # what driver and firmware keep
_IDLE_POWER_RATIO = 0.15  # Acme's A100: 60 W of 400 W
_FULL_POWER_RATIO = 0.95
_AMBIENT_CELSIUS = 28.0
_CELSIUS_AT_LIMIT = 45.0  # above ambient, at the power limit
_THERMAL_SECONDS = 60.0
_SMALLEST_SAMPLE_RATIO = 0.01  # NVML samples are whole percents: a mean above zero holds at least one of 1 %
_IDLE_CLOCK_HERTZ = 210e6
_BUSY_CLOCK_HERTZ = 1410e6
_MEMORY_CLOCK_HERTZ = 1215e6


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """One GPU: who it is, what it does, and when it fails."""

    info: GpuInfo
    load_profile: LoadProfile
    memory_total_bytes: int = 24 * 1024**3
    power_limit_watts: float = 300.0
    lost: Intervals = field(default_factory=Intervals)
    hang: Intervals = field(default_factory=Intervals)


@dataclass(slots=True)
class _Last:
    """What the reading before left behind; the phase then in force lasts `until`."""

    seconds: float
    until: float
    phase: Phase
    processes: tuple[GpuProcess, ...]
    celsius: float
    joules: float


class SimulatedSource:
    """A DeviceSource over simulated GPUs. The load profiles begin at `origin_seconds` on the clock's monotonic time."""

    def __init__(
        self,
        gpus: Sequence[SimulatedGpu],
        clock: Clock,
        *,
        origin_seconds: float = 0.0,
        driver_missing: Intervals | None = None,
        silence: Intervals | None = None,
    ) -> None:
        """Nothing has been read yet; energy counts from the origin on."""
        self._gpus = {gpu.info.uuid: gpu for gpu in gpus}
        self._infos = tuple(gpu.info for gpu in gpus)
        self._clock = clock
        self._origin = origin_seconds
        self._driver_missing = driver_missing or Intervals()
        self._silence = silence or Intervals()
        self._last: dict[str, _Last] = {}

    def gpus(self) -> tuple[GpuInfo, ...]:
        """All GPUs of the script; during a silence it answers only at its end."""
        self._block(self._silence)
        if self._driver_missing.end_of_interval(self._now()) is not None:
            raise SourceUnavailableError(
                "driver_not_loaded", "the script has taken the driver away", "wait until the script brings it back"
            )
        return self._infos

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """The reading by the load profile, over the time since the last one."""
        simulated = self._gpus[gpu.uuid]
        self._block(simulated.hang)
        now = self._now()
        if simulated.lost.end_of_interval(now) is not None:
            return GpuDown(info=gpu, at=self._clock.now(), cause=DownCause.LOST, detail="GPU is lost")
        return self._reading(simulated, now)

    def close(self) -> None:
        """Do nothing: a simulation holds no device."""

    def _now(self) -> float:
        return self._clock.monotonic() - self._origin

    def _block(self, spans: Intervals) -> None:
        """Hang, as a driver call does."""
        until = spans.end_of_interval(self._now())
        if until is not None:
            self._clock.sleep(until - self._now())

    def _reading(self, gpu: SimulatedGpu, now: float) -> GpuReading:
        last = self._last.get(gpu.info.uuid)
        if last is None:
            last = self._last[gpu.info.uuid] = _first(gpu, now)
        phase = last.phase
        mean = peak = phase.utilization_ratio
        elapsed = now - last.seconds
        if elapsed > 0:
            last.joules += _watts(gpu, 0.0) * elapsed
            if now < last.until:
                work_seconds = 0.0 if phase.stalled else mean * elapsed
            else:
                mean = min(1.0, max(0.0, gpu.load_profile.load_seconds(last.seconds, now) / elapsed))
                peak = gpu.load_profile.peak(last.seconds, now)
                work_seconds = gpu.load_profile.work_seconds(last.seconds, now)
                phase, last.until = gpu.load_profile.phase_at(now)
                last.phase, last.processes = phase, _processes(gpu, phase)
            last.joules += (_watts(gpu, 1.0) - _watts(gpu, 0.0)) * work_seconds
            target = _settled_celsius(gpu, phase)
            last.celsius = target + (last.celsius - target) * math.exp(-elapsed / _THERMAL_SECONDS)
            last.seconds = now
        work = _work(phase)
        return GpuReading(
            info=gpu.info,
            at=self._clock.now(),
            utilization_ratio=mean,
            utilization_max_ratio=max(peak, _SMALLEST_SAMPLE_RATIO) if peak > 0 else 0.0,
            memory_bandwidth_utilization_ratio=round(0.6 * work, 4),
            memory_total_bytes=gpu.memory_total_bytes,
            memory_used_bytes=phase.memory_bytes,
            memory_free_bytes=max(0, gpu.memory_total_bytes - _RESERVED_BYTES - phase.memory_bytes),
            memory_reserved_bytes=_RESERVED_BYTES,
            temperature_celsius=last.celsius,
            memory_temperature_celsius=last.celsius + 4.0,
            power_watts=_watts(gpu, work),
            power_limit_watts=gpu.power_limit_watts,
            energy_joules_total=last.joules,
            sm_clock_hertz=_BUSY_CLOCK_HERTZ if last.processes else _IDLE_CLOCK_HERTZ,
            memory_clock_hertz=_MEMORY_CLOCK_HERTZ,
            ecc_uncorrected_volatile_errors_total=0,
            ecc_uncorrected_aggregate_errors_total=0,
            clock_events=() if last.processes else ("gpu_idle",),
            processes=last.processes,
        )


def _work(phase: Phase) -> float:
    """The share of full power that a phase draws above rest."""
    return 0.0 if phase.stalled else phase.utilization_ratio


def _watts(gpu: SimulatedGpu, work: float) -> float:
    return gpu.power_limit_watts * (_IDLE_POWER_RATIO + work * (_FULL_POWER_RATIO - _IDLE_POWER_RATIO))


def _settled_celsius(gpu: SimulatedGpu, phase: Phase) -> float:
    """Where the temperature goes if a phase lasts."""
    return _AMBIENT_CELSIUS + _CELSIUS_AT_LIMIT * _watts(gpu, _work(phase)) / gpu.power_limit_watts


def _first(gpu: SimulatedGpu, now: float) -> _Last:
    """Before the first reading: the energy drawn since the origin, a settled temperature."""
    phase, until = gpu.load_profile.phase_at(now)
    joules = _watts(gpu, 0.0) * now + (_watts(gpu, 1.0) - _watts(gpu, 0.0)) * gpu.load_profile.work_seconds(0.0, now)
    return _Last(now, until, phase, _processes(gpu, phase), _settled_celsius(gpu, phase), joules)


def _processes(gpu: SimulatedGpu, phase: Phase) -> tuple[GpuProcess, ...]:
    """The memory shared out evenly; the same load profile gives the same pids."""
    count = phase.process_count
    if count == 0:
        return ()
    each, first = phase.memory_bytes // count, 4000 + 100 * (gpu.info.index or 0)
    return tuple(
        GpuProcess(pid=first + i, kind=ProcessKind.COMPUTE, memory_bytes=each + (phase.memory_bytes % count) * (i == 0))
        for i in range(count)
    )


def gpu_info(name: str, index: int, host: str) -> GpuInfo:
    """A GPU's identity, the same for the same host and index."""
    words = random.Random(f"{host}/{index}").getrandbits(128).to_bytes(16, "big").hex()
    uuid = f"GPU-{words[:8]}-{words[8:12]}-{words[12:16]}-{words[16:20]}-{words[20:]}"
    bus = f"00000000:{0x10 + index:02X}:00.0"
    return GpuInfo(uuid=uuid, index=index, name=name, pci_bus_id=bus, driver_version=DRIVER_VERSION)


def open_simulated(script: Path | None, seed: int, clock: Clock) -> SimulatedSource:
    """The script's GPUs, or two with a mixed life without a script; the seed decides their uuids and that life.

    Raises:
        ScriptError: the script cannot be played; the text names file, key, value and remedy.

    """
    if script is None:
        host = f"simulated-{seed}"
        gpus = [
            SimulatedGpu(info=gpu_info("Simulated GPU", i, host), load_profile=_mixed_profile(seed, i))
            for i in range(2)
        ]
        return SimulatedSource(gpus, clock, origin_seconds=clock.monotonic())
    from gpuwatch.agent.devices.scenario import read_script  # noqa: PLC0415  only a script needs its reader

    scenario = read_script(script)
    gpus = [
        SimulatedGpu(
            info=gpu_info(gpu.name, index, f"{script.name}-{seed}"),
            load_profile=gpu.load_profile,
            memory_total_bytes=gpu.memory_total_bytes,
            power_limit_watts=gpu.power_limit_watts,
            lost=gpu.lost,
            hang=gpu.hang,
        )
        for index, gpu in enumerate(scenario.gpus)
    ]
    return SimulatedSource(
        gpus,
        clock,
        origin_seconds=clock.monotonic(),
        driver_missing=scenario.driver_missing,
        silence=scenario.silence,
    )


def _mixed_profile(seed: int, index: int) -> LoadProfile:
    """Work, held memory and rest in turn, ten seconds to five minutes each, repeating after an hour."""
    chance = random.Random(f"{seed}/{index}")
    phases: list[Phase] = []
    at = 0.0
    while at < 3600:  # noqa: PLR2004  an hour
        held = chance.randrange(2, 16) * 1024**3
        kind = chance.choice(("work", "hold", "rest"))
        load = round(chance.uniform(0.2, 1.0), 2) if kind == "work" else 0.0
        phases.append(Phase(at=at, utilization_ratio=load, memory_bytes=0 if kind == "rest" else held))
        at += chance.randrange(10, 301)
    return LoadProfile(phases, max(3600.0, at))
