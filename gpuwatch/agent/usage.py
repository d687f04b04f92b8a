"""What the agent sums up over cycles: use by state and energy since its start, and utilization of the last minute."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from gpuwatch.agent.activity import Memory
from gpuwatch.model.activity import GpuUse, State, Tally
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.health import GpuHealth, Health

_OVER_SECONDS = 60.0
_PART_SECONDS = 5.0

_Sums = dict[tuple[str, str], tuple[int, float]]  # by GPU and measure: how many samples, and their sum
_NONE = (0, 0.0)


class UsageCounters:
    """Fed with each cycle; costs O(GPUs) a cycle. Time counts between two cycles at most `max_gap` seconds apart."""

    def __init__(self, since: datetime, max_gap: float) -> None:
        """Begin at zero; `since` names this run."""
        self._since = since
        self._max_gap = max_gap
        self._ended: float | None = None
        self._node: dict[str, float] = {}
        self._gpus: dict[str, float] = {}
        self._joules = 0.0
        self._joules_seconds = 0.0
        self._energy: dict[str, tuple[float, float]] = {}  # by GPU: when, and the driver's counter

    def add_cycle(
        self, ended: float, memory: Memory, readings: Iterable[GpuReading], health: Mapping[str, GpuHealth]
    ) -> Tally:
        """The tally after the cycle that ended then, on the monotonic clock."""
        elapsed, self._ended = ended - (ended if self._ended is None else self._ended), ended
        if 0 < elapsed <= self._max_gap:
            _count(self._node, memory.activity.state, elapsed)
            for uuid, gpu in memory.by_uuid.items():
                state = gpu.track.shown.state
                ill = uuid in health and health[uuid].state is Health.FAILING
                _count(self._gpus, "down" if ill and state is not State.BUSY else state, elapsed)
        for reading in readings:
            if reading.energy_joules_total is not None:
                self._measure(reading.info.uuid, ended, reading.energy_joules_total)
        return Tally(
            since=self._since,
            node_seconds=dict(self._node),
            gpu_seconds=dict(self._gpus),
            joules=self._joules,
            joules_gpu_seconds=self._joules_seconds,
        )

    def _measure(self, uuid: str, ended: float, joules: float) -> None:
        """The driver's counter sees through gaps; if it started again, that stretch is not measured.

        It is read every few seconds: while it is as it was, neither energy nor time has been measured.
        """
        then, before = self._energy.get(uuid, (ended, joules))
        if joules == before and uuid in self._energy:
            return
        self._energy[uuid] = ended, joules
        if joules >= before:
            self._joules += joules - before
            self._joules_seconds += ended - then


def _count(seconds: dict[str, float], state: str, elapsed: float) -> None:
    seconds[state] = seconds.get(state, 0.0) + elapsed


@dataclass(frozen=True, slots=True)
class _Part:
    begin: float
    sums: _Sums = field(default_factory=dict)


class RecentUtilization:
    """Fed with each cycle's readings; costs O(GPUs) a cycle and a dozen sums for each of them."""

    def __init__(self) -> None:
        """Begin without a sample."""
        self._parts: deque[_Part] = deque()
        self._earlier: _Sums = {}  # of all parts but the last

    def add_cycle(self, ended: float, readings: Iterable[GpuReading]) -> Mapping[str, GpuUse]:
        """The use of each GPU that was read in the cycle that ended then, on the monotonic clock."""
        known = len(self._parts)
        while self._parts and self._parts[0].begin <= ended - _OVER_SECONDS:
            self._parts.popleft()
        if not self._parts or self._parts[-1].begin <= ended - _PART_SECONDS:
            self._parts.append(_Part(ended))
            known = 0
        if len(self._parts) != known:
            self._earlier = _add_sums(part.sums for part in islice(self._parts, len(self._parts) - 1))
        sums = self._parts[-1].sums
        read = []
        for reading in readings:
            read.append(reading.info.uuid)
            for name, value in _measured_figures(reading):
                if value is not None:
                    count, total = sums.get((reading.info.uuid, name), (0, 0.0))
                    sums[reading.info.uuid, name] = count + 1, total + value
        over = ended - self._parts[0].begin
        return {uuid: self._use(uuid, over) for uuid in read}

    def _use(self, uuid: str, over: float) -> GpuUse:
        return GpuUse(
            over_seconds=over,
            utilization_ratio=self._mean(uuid, "utilization_ratio"),
            memory_used_ratio=self._mean(uuid, "memory_used_ratio"),
            sm_active_ratio=self._mean(uuid, "sm_active_ratio"),
            power_limit_watts=self._mean(uuid, "power_limit_watts"),
        )

    def _mean(self, uuid: str, name: str) -> float | None:
        earlier, now = self._earlier.get((uuid, name), _NONE), self._parts[-1].sums.get((uuid, name), _NONE)
        count = earlier[0] + now[0]
        return (earlier[1] + now[1]) / count if count else None


def _add_sums(parts: Iterable[_Sums]) -> _Sums:
    """The sums of several parts together."""
    added: _Sums = {}
    for part in parts:
        for key, (count, total) in part.items():
            before = added.get(key, _NONE)
            added[key] = before[0] + count, before[1] + total
    return added


def _measured_figures(reading: GpuReading) -> tuple[tuple[str, float | None], ...]:
    """The figures of one reading, by name."""
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    memory = used / total if used is not None and total else None
    return (
        ("utilization_ratio", reading.utilization_ratio),
        ("memory_used_ratio", memory),
        ("sm_active_ratio", reading.sm_activity_ratio),
        ("power_limit_watts", reading.power_limit_watts),
    )
