"""How much each GPU did lately, for scaling: plain means over the samples of the last minute, kept as sums."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuwatch.model.fleet import GpuUse
from gpuwatch.model.gpu import GpuReading

_OVER_SECONDS = 60.0
_PART_SECONDS = 5.0

_Sums = dict[tuple[str, str], tuple[int, float]]  # by GPU and measure: how many samples, and their sum


@dataclass(frozen=True, slots=True)
class _Part:
    begin: float
    sums: _Sums = field(default_factory=dict)


class RecentUtilization:
    """Fed with each cycle's readings; costs O(GPUs) a cycle and a dozen sums for each of them."""

    def __init__(self) -> None:
        """Begin without a sample."""
        self._parts: deque[_Part] = deque()

    def look(self, ended: float, readings: Iterable[GpuReading]) -> Mapping[str, GpuUse]:
        """The use of each GPU that was read in the cycle that ended then, on the monotonic clock."""
        while self._parts and self._parts[0].begin <= ended - _OVER_SECONDS:
            self._parts.popleft()
        if not self._parts or self._parts[-1].begin <= ended - _PART_SECONDS:
            self._parts.append(_Part(ended))
        sums = self._parts[-1].sums
        read = []
        for reading in readings:
            read.append(reading.info.uuid)
            for name, value in _measured(reading):
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
        )

    def _mean(self, uuid: str, name: str) -> float | None:
        told = [part.sums[uuid, name] for part in self._parts if (uuid, name) in part.sums]
        return sum(total for _, total in told) / sum(count for count, _ in told) if told else None


def _measured(reading: GpuReading) -> tuple[tuple[str, float | None], ...]:
    """What one reading says of each measure."""
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    memory = used / total if used is not None and total else None
    return (
        ("utilization_ratio", reading.utilization_ratio),
        ("memory_used_ratio", memory),
        ("sm_active_ratio", reading.sm_activity_ratio),
    )
