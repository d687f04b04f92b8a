"""What the agent counts for accounting: seconds of the node and of its GPUs by state, and joules, since it began."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from gpuwatch.agent.activity import Memory
from gpuwatch.model.fleet import State, Tally
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.health import GpuHealth, Health


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

    def look(
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
        """The driver's counter sees through gaps; where it began anew, that stretch is not measured."""
        then, before = self._energy.get(uuid, (ended, joules))
        self._energy[uuid] = ended, joules
        if joules >= before:
            self._joules += joules - before
            self._joules_seconds += ended - then


def _count(seconds: dict[str, float], state: str, elapsed: float) -> None:
    seconds[state] = seconds.get(state, 0.0) + elapsed
