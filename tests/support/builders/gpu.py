"""Values for tests, so that a test reads like the sentence it checks: what it does not name is idle and healthy."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gpuwatch.agent.activity import Sample
from gpuwatch.agent.devices.messages import Cycle, Down, End, Message, Reading
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuProcess, GpuReading, ProcessKind

START = datetime(2026, 1, 5, tzinfo=UTC)  # where ManualClock begins, too
GIB = 1 << 30


def a_gpu(index: int = 0) -> GpuInfo:
    """Who a GPU is."""
    return GpuInfo(
        uuid=f"GPU-{index}",
        index=index,
        name="NVIDIA Test 80GB",
        pci_bus_id=f"00000000:{index + 1:02X}:00.0",
        driver_version="580.65.06",
    )


def a_process(pid: int, memory_bytes: int | None = GIB, kind: ProcessKind = ProcessKind.COMPUTE) -> GpuProcess:
    """A process that holds a GPU."""
    return GpuProcess(pid=pid, kind=kind, memory_bytes=memory_bytes)


def a_reading(gpu: int = 0, **measured: Any) -> GpuReading:  # noqa: ANN401  any field of GpuReading
    """A GPU at rest, but for what is named."""
    at_rest: dict[str, Any] = {
        "utilization_ratio": 0.0,
        "utilization_max_ratio": 0.0,
        "memory_bandwidth_utilization_ratio": 0.0,
        "memory_total_bytes": 80 * GIB,
        "memory_used_bytes": 0,
        "power_watts": 70.0,
        "power_limit_watts": 700.0,
        "clock_events": ("gpu_idle",),
        "processes": (),
    }
    return GpuReading(info=a_gpu(gpu), at=START, **{**at_rest, **measured})


def a_busy_reading(gpu: int = 0, **measured: Any) -> GpuReading:  # noqa: ANN401  likewise
    """A GPU at work."""
    return a_reading(gpu, **{"utilization_ratio": 0.8, "utilization_max_ratio": 1.0, "power_watts": 600.0, **measured})


def a_down(gpu: int = 0, cause: DownCause = DownCause.LOST, detail: str = "GPU is lost") -> GpuDown:
    """A GPU that could not be read."""
    return GpuDown(info=a_gpu(gpu), at=START, cause=cause, detail=detail)


def a_sample(
    seconds: float, *entries: GpuReading | GpuDown, doubt: str | None = None, wall_jump_seconds: float = 0.0
) -> Sample:
    """A cycle that ended so many seconds after the start, on clocks that agree but for the jump."""
    return Sample(
        at=START + timedelta(seconds=seconds + wall_jump_seconds),
        monotonic_seconds=1000.0 + seconds,
        readings=tuple(entry for entry in entries if isinstance(entry, GpuReading)),
        downs=tuple(entry for entry in entries if isinstance(entry, GpuDown)),
        doubt=doubt,
    )


def a_cycle(seq: int, monotonic_seconds: float, *entries: GpuReading | GpuDown) -> list[Message]:
    """What the probe says in one cycle that ended at that moment."""
    parts: list[Message] = [
        Reading(seq=seq, reading=entry) if isinstance(entry, GpuReading) else Down(seq=seq, down=entry)
        for entry in entries
    ]
    return [
        Cycle(seq=seq, monotonic_seconds=monotonic_seconds - 0.01, gpus=tuple(entry.info for entry in entries)),
        *parts,
        End(seq=seq, monotonic_seconds=monotonic_seconds, duration_seconds=0.01),
    ]
