"""One GPU as its driver shows it. The annotated fields of GpuReading are the metric catalogue.

Exporter, METRICS.md and tests are driven from the annotations: a new metric is one field here and one row in
`agent/devices/nvml/rows.py`. Rules: base units, named in the field; None is "not known or not supported" and is never
exported; 0.0 is a measured zero. A source without a prefix is a function nvmlDeviceGet...
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from gpuwatch.model.gpu_identity import DownCause, GpuDown, GpuInfo, GpuProcess, ProcessKind
from gpuwatch.model.gpu_links import LinkReading
from gpuwatch.model.metric import Kind, Metric, metrics_of
from gpuwatch.model.mig import MigInstance

__all__ = [
    "CLOCK_EVENTS",
    "COMPUTE_MODES",
    "RECOVERY_ACTIONS",
    "DownCause",
    "GpuDown",
    "GpuInfo",
    "GpuProcess",
    "GpuReading",
    "Kind",
    "Metric",
    "ProcessKind",
    "metrics",
]

# nvml.h: NVML_GPU_RECOVERY_ACTION_*.
RECOVERY_ACTIONS = (
    "none",
    "reset",
    "reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
# nvml.h: NVML_COMPUTEMODE_*.
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")


def _numbered_names(what: str, names: tuple[str, ...]) -> str:
    return f"{what}: {', '.join(f'{number} {name}' for number, name in enumerate(names))}."


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading(LinkReading):
    """What one GPU showed in one cycle; `at` is wall-clock UTC.

    `clock_events` are names of `CLOCK_EVENTS`; an empty tuple is a measured "none". `clock_events_read`: they and their
    counters were read in this cycle, else they are of an earlier one. `processes` empty is a measured
    "nobody", None is "could not be listed"; with `processes_partial` there may be more processes. `mig_instances` is
    None on a GPU that MIG does not split, or if they could not all be listed. `implausible` names the fields without a
    value because the driver's could not be true.
    """

    info: GpuInfo
    at: datetime
    clock_event_seconds_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Time for which this has held the clocks down, by the names of gpuwatch_gpu_clock_event_active.",
            "fields 74, 76, 269, 270, 271",
            label="event",
            kind=Kind.COUNTER,
            group="clock_events",
            steady=True,
            judged=True,
        ),
    ] = None
    performance_state: Annotated[
        int | None,
        Metric(
            "P-state, 0 (fastest) to 15; an idle data centre GPU may well stay in 0.",
            "PerformanceState",
            judged=True,
            slow=True,
            group="modes",
        ),
    ] = None
    fan_speed_ratio: Annotated[
        float | None, Metric("Intended speed of the fan, of its maximum.", "FanSpeed", slow=True, group="core")
    ] = None
    ecc_corrected_volatile_errors_total: Annotated[
        int | None,
        Metric(
            "Corrected memory errors since the driver was loaded.",
            "field ECC_SBE_VOL_TOTAL (3)",
            kind=Kind.COUNTER,
            slow=True,
            group="ecc",
            judged=True,
        ),
    ] = None
    ecc_corrected_aggregate_errors_total: Annotated[
        int | None,
        Metric(
            "Corrected memory errors over the life of the board.",
            "field ECC_SBE_AGG_TOTAL (5)",
            kind=Kind.COUNTER,
            slow=True,
            group="ecc_detail",
        ),
    ] = None
    ecc_uncorrected_volatile_errors_total: Annotated[
        int | None,
        Metric(
            "Uncorrectable memory errors since the driver was loaded.",
            "field ECC_DBE_VOL_TOTAL (4)",
            kind=Kind.COUNTER,
            slow=True,
            group="ecc",
            judged=True,
        ),
    ] = None
    ecc_uncorrected_aggregate_errors_total: Annotated[
        int | None,
        Metric(
            "Uncorrectable memory errors over the life of the board.",
            "field ECC_DBE_AGG_TOTAL (6)",
            kind=Kind.COUNTER,
            slow=True,
            group="ecc_detail",
        ),
    ] = None
    sram_threshold_exceeded: Annotated[
        int | None,
        Metric(
            "1 if on-chip memory (SRAM) had more uncorrectable errors than NVIDIA's field diagnosis allows.",
            "SramEccErrorStatus().bThresholdExceeded",
            slow=True,
            group="ecc_detail",
            judged=True,
        ),
    ] = None
    retired_pages_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Memory pages retired for single_bit or double_bit errors (before Ampere).",
            "fields 29, 30",
            label="cause",
            kind=Kind.COUNTER,
            slow=True,
            group="ecc",
        ),
    ] = None
    retired_pages_pending: Annotated[
        int | None,
        Metric(
            "1 if pages are retired only at the next reset.",
            "field RETIRED_PENDING (31)",
            slow=True,
            group="ecc",
            judged=True,
        ),
    ] = None
    remapped_rows_total: Annotated[
        Mapping[str, float] | None,
        Metric(
            "Memory rows replaced for correctable or uncorrectable errors (Ampere and newer).",
            "fields 142, 143",
            label="cause",
            kind=Kind.COUNTER,
            slow=True,
            group="ecc",
        ),
    ] = None
    remapped_rows_pending: Annotated[
        int | None,
        Metric(
            "1 if rows are replaced only at the next reset.",
            "field REMAPPED_PENDING (144)",
            slow=True,
            group="ecc",
            judged=True,
        ),
    ] = None
    remapped_rows_failure: Annotated[
        int | None,
        Metric(
            "1 if a row could not be replaced: the board is to be exchanged.",
            "field REMAPPED_FAILURE (145)",
            slow=True,
            group="ecc",
            judged=True,
        ),
    ] = None
    recovery_action: Annotated[
        int | None,
        Metric(
            _numbered_names("What the driver asks for", RECOVERY_ACTIONS),
            "field GET_GPU_RECOVERY_ACTION (230)",
            group="health",
            judged=True,
        ),
    ] = None
    ecc_mode: Annotated[
        int | None,
        Metric("1 if memory errors are detected and corrected.", "field ECC_CURRENT (1)", slow=True, group="modes"),
    ] = None
    persistence_mode: Annotated[
        int | None,
        Metric(
            "1 if the driver keeps the GPU initialised while nobody uses it.",
            "PersistenceMode",
            slow=True,
            group="modes",
        ),
    ] = None
    mig_mode: Annotated[
        int | None,
        Metric("1 if the GPU is split by MIG.", "MigMode().currentMode", slow=True, group="modes", judged=True),
    ] = None
    compute_mode: Annotated[
        int | None, Metric(_numbered_names("Who may compute", COMPUTE_MODES), "ComputeMode", slow=True, group="modes")
    ] = None
    clock_events: tuple[str, ...] | None = None
    clock_events_read: bool = True
    processes: tuple[GpuProcess, ...] | None = None
    processes_partial: bool | None = None
    mig_instances: tuple[MigInstance, ...] | None = None
    implausible: tuple[str, ...] = ()


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
    return metrics_of(GpuReading)
