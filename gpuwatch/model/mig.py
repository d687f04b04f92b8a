"""A part of a GPU that MIG has split off. Its annotated fields are metrics, like those of GpuReading."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from gpuwatch.model.metric import Metric, metrics_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """A compute instance, as programs address it by its uuid; `profile` is its size, such as 1g.10gb."""

    uuid: str
    compute_instance: int
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """A GPU instance: what owns memory and engines, shared by its compute instances. `id` is the driver's.

    `process_count` is by its own process lists, None where one of them could not be had. `activity_unsupported`: this
    GPU cannot tell the activity of instances (before Hopper).
    """

    id: int
    devices: tuple[MigDevice, ...] = ()
    process_count: int | None = None
    activity_unsupported: bool = False
    memory_total_bytes: Annotated[
        int | None, Metric("Device memory installed.", "MemoryInfo(v2).total", group="mig")
    ] = None
    memory_used_bytes: Annotated[
        int | None, Metric("Device memory in use.", "MemoryInfo(v2).used", group="mig", judged=True)
    ] = None
    memory_free_bytes: Annotated[
        int | None, Metric("Device memory free.", "MemoryInfo(v2).free", group="mig_detail")
    ] = None
    graphics_activity_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in which any engine computed or drew.",
            "GPM GRAPHICS_UTIL (1)",
            group="mig_detail",
            judged=True,
        ),
    ] = None
    sm_activity_ratio: Annotated[
        float | None,
        Metric("Share of the instance's multiprocessors at work.", "GPM SM_UTIL (2)", group="mig", judged=True),
    ] = None
    sm_occupancy_ratio: Annotated[
        float | None, Metric("Warps resident, of the most that fit.", "GPM SM_OCCUPANCY (3)", group="mig_detail")
    ] = None
    tensor_activity_ratio: Annotated[
        float | None, Metric("Share of time in tensor operations.", "GPM ANY_TENSOR_UTIL (5)", group="mig_detail")
    ] = None
    dram_activity_ratio: Annotated[
        float | None,
        Metric("Memory bandwidth in use, of the maximum.", "GPM DRAM_BW_UTIL (10)", group="mig_detail", judged=True),
    ] = None


def mig_metrics() -> Iterator[tuple[str, Metric]]:
    """Each measured field of MigInstance."""
    return metrics_of(MigInstance)
