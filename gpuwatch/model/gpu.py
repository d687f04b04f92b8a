"""One GPU as its driver shows it. The annotated fields of GpuReading are the metric catalogue.

Exporter, METRICS.md and tests are driven from the annotations: a new metric is one field here and one row in
`devices/nvml.py`. Rules: base units, named in the field; None is "not known or not supported" and is never exported;
0.0 is a measured zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Annotated, get_args, get_type_hints


class Kind(StrEnum):
    """How Prometheus treats a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the catalogue: what a field means and which driver call it comes from."""

    kind: Kind = Kind.GAUGE
    help: str
    source: str


class ProcessKind(StrEnum):
    """What a process does with the GPU, as the driver lists it."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds a GPU. Memory in bytes, None where the driver does not say. Source: the v3 process lists."""

    pid: int
    kind: ProcessKind
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """Who a GPU is: static facts, exported once on an info metric. Key by uuid; the index may change over reboots."""

    uuid: str
    index: int
    name: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    vbios_version: str | None = None


class DownCause(StrEnum):
    """Why a GPU that should be there gives no reading."""

    LOST = "lost"
    HANG = "hang"
    DRIVER = "driver"
    ERROR = "error"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDown:
    """A GPU that is expected and could not be read, with the cause and the driver's own words."""

    info: GpuInfo
    at: datetime
    cause: DownCause
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What one GPU showed in one cycle; `at` is wall-clock UTC.

    `clock_events` are names of `CLOCK_EVENTS`; an empty tuple is a measured "none". `processes` empty is a measured
    "nobody", None is "could not be listed".
    """

    info: GpuInfo
    at: datetime
    utilization_ratio: Annotated[
        float | None,
        Metric(
            help="Mean share of time in which at least one kernel ran, over the driver's samples since the last cycle.",
            source="nvmlDeviceGetSamples(NVML_GPU_UTILIZATION_SAMPLES), else nvmlDeviceGetUtilizationRates().gpu",
        ),
    ] = None
    utilization_max_ratio: Annotated[
        float | None,
        Metric(
            help="Highest of the driver's utilization samples since the last cycle, so that no burst is lost.",
            source="nvmlDeviceGetSamples(NVML_GPU_UTILIZATION_SAMPLES), else nvmlDeviceGetUtilizationRates().gpu",
        ),
    ] = None
    memory_bandwidth_utilization_ratio: Annotated[
        float | None,
        Metric(
            help="Share of time in which device memory was read or written; says nothing of how full it is.",
            source="nvmlDeviceGetUtilizationRates().memory",
        ),
    ] = None
    memory_total_bytes: Annotated[
        int | None, Metric(help="Size of the device memory.", source="nvmlDeviceGetMemoryInfo(version 2).total")
    ] = None
    memory_used_bytes: Annotated[
        int | None,
        Metric(
            help="Device memory held by processes, without what the driver reserves.",
            source="nvmlDeviceGetMemoryInfo(version 2).used",
        ),
    ] = None
    memory_free_bytes: Annotated[
        int | None, Metric(help="Device memory free to allocate.", source="nvmlDeviceGetMemoryInfo(version 2).free")
    ] = None
    memory_reserved_bytes: Annotated[
        int | None,
        Metric(help="Device memory kept by driver and firmware.", source="nvmlDeviceGetMemoryInfo(version 2).reserved"),
    ] = None
    temperature_celsius: Annotated[
        float | None,
        Metric(
            help="Core temperature.",
            source="nvmlDeviceGetTemperatureV(NVML_TEMPERATURE_GPU), else nvmlDeviceGetTemperature",
        ),
    ] = None
    memory_temperature_celsius: Annotated[
        float | None, Metric(help="Memory temperature.", source="field NVML_FI_DEV_MEMORY_TEMP (82)")
    ] = None
    power_watts: Annotated[
        float | None,
        Metric(
            help="Power draw of the GPU, averaged by the driver where it can.",
            source="field NVML_FI_DEV_POWER_AVERAGE (185, GPU scope), else nvmlDeviceGetPowerUsage",
        ),
    ] = None
    power_limit_watts: Annotated[
        float | None,
        Metric(help="Power limit in force.", source="nvmlDeviceGetEnforcedPowerLimit"),
    ] = None
    energy_joules_total: Annotated[
        float | None,
        Metric(
            kind=Kind.COUNTER,
            help="Energy drawn since the driver was loaded.",
            source="field NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION (83)",
        ),
    ] = None
    sm_clock_hertz: Annotated[
        float | None,
        Metric(help="Current clock of the multiprocessors.", source="nvmlDeviceGetClockInfo(NVML_CLOCK_SM)"),
    ] = None
    memory_clock_hertz: Annotated[
        float | None, Metric(help="Current clock of the memory.", source="nvmlDeviceGetClockInfo(NVML_CLOCK_MEM)")
    ] = None
    ecc_uncorrected_volatile_errors_total: Annotated[
        int | None,
        Metric(
            kind=Kind.COUNTER,
            help="Uncorrectable memory errors since the driver was loaded.",
            source="field NVML_FI_DEV_ECC_DBE_VOL_TOTAL (4)",
        ),
    ] = None
    ecc_uncorrected_aggregate_errors_total: Annotated[
        int | None,
        Metric(
            kind=Kind.COUNTER,
            help="Uncorrectable memory errors over the life of the board.",
            source="field NVML_FI_DEV_ECC_DBE_AGG_TOTAL (6)",
        ),
    ] = None
    clock_events: tuple[str, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None


# nvml.h: nvmlClocksEventReason*. gpu_idle and applications_clocks are states, not faults.
CLOCK_EVENTS: dict[int, str] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clocks",
}


def metrics() -> Iterator[tuple[str, Metric]]:
    """Each measured field of GpuReading with its row of the catalogue, in the order of declaration."""
    hints = get_type_hints(GpuReading, include_extras=True)
    for field in fields(GpuReading):
        for extra in get_args(hints[field.name])[1:]:
            if isinstance(extra, Metric):
                yield field.name, extra
