"""nvidia_gpu_exporter's names: nvidia-smi's query fields under `nvidia_smi_`, in SI units and ratios.

Source: utkuozdemir/nvidia_gpu_exporter docs/METRICS.md and the expositions of its integration tests.
"""

from collections.abc import Iterable, Iterator

from gpuwatch.agent.exporter.compat.table import Dialect, Extra, Labels, Part, Row, Sample, Scene, every_gpu
from gpuwatch.model.gpu import CLOCK_EVENTS, GpuInfo, GpuProcess, GpuReading, Kind, ProcessKind

_EVENT_BITS = {name: bit for bit, name in CLOCK_EVENTS.items()}
_NO_DRIVER_MODEL = "[N/A]"  # what nvidia-smi says of it wherever there is no Windows


def _row(field: str, source: str, unit: str = "", part: str = "", kind: Kind = Kind.GAUGE) -> Row:
    """A query field of nvidia-smi; its help is its name, as the exporter has it."""
    return Row(f"nvidia_smi_{field}", source, unit, f"{field} of nvidia-smi.", part, kind=kind)


_ROWS = (
    _row("utilization_gpu_ratio", "utilization_ratio", "ratio"),
    _row("utilization_memory_ratio", "memory_bandwidth_utilization_ratio", "ratio"),
    _row("utilization_encoder_ratio", "encoder_utilization_ratio", "ratio"),
    _row("utilization_decoder_ratio", "decoder_utilization_ratio", "ratio"),
    _row("utilization_jpeg_ratio", "jpeg_utilization_ratio", "ratio"),
    _row("utilization_ofa_ratio", "ofa_utilization_ratio", "ratio"),
    _row("memory_total_bytes", "memory_total_bytes", "bytes"),
    _row("memory_used_bytes", "memory_used_bytes", "bytes"),
    _row("memory_free_bytes", "memory_free_bytes", "bytes"),
    _row("memory_reserved_bytes", "memory_reserved_bytes", "bytes"),
    _row("temperature_gpu", "temperature_celsius", "C"),
    _row("temperature_memory", "memory_temperature_celsius", "C"),
    _row("temperature_gpu_tlimit", "temperature_margin_celsius", "C"),
    _row("power_draw_watts", "power_watts", "W"),
    _row("power_draw_instant_watts", "power_instant_watts", "W"),
    _row("enforced_power_limit_watts", "power_limit_watts", "W"),
    _row("power_default_limit_watts", "power_limit_default_watts", "W"),
    _row("power_min_limit_watts", "power_limit_min_watts", "W"),
    _row("power_max_limit_watts", "power_limit_max_watts", "W"),
    _row("energy_joules_total", "energy_joules_total", "J", kind=Kind.COUNTER),
    _row("clocks_current_graphics_clock_hz", "graphics_clock_hertz", "Hz"),
    _row("clocks_current_sm_clock_hz", "sm_clock_hertz", "Hz"),
    _row("clocks_current_memory_clock_hz", "memory_clock_hertz", "Hz"),
    _row("clocks_current_video_clock_hz", "video_clock_hertz", "Hz"),
    _row("clocks_max_graphics_clock_hz", "graphics_clock_max_hertz", "Hz"),
    _row("clocks_max_sm_clock_hz", "sm_clock_max_hertz", "Hz"),
    _row("clocks_max_memory_clock_hz", "memory_clock_max_hertz", "Hz"),
    _row("clocks_event_reasons_gpu_idle", "clock_events", part="gpu_idle"),
    _row("clocks_event_reasons_applications_clocks_setting", "clock_events", part="applications_clocks"),
    _row("clocks_event_reasons_sw_power_cap", "clock_events", part="sw_power_cap"),
    _row("clocks_event_reasons_hw_slowdown", "clock_events", part="hw_slowdown"),
    _row("clocks_event_reasons_hw_thermal_slowdown", "clock_events", part="hw_thermal_slowdown"),
    _row("clocks_event_reasons_hw_power_brake_slowdown", "clock_events", part="hw_power_brake_slowdown"),
    _row("clocks_event_reasons_sw_thermal_slowdown", "clock_events", part="sw_thermal_slowdown"),
    _row("clocks_event_reasons_sync_boost", "clock_events", part="sync_boost"),
    *(
        _row(f"clocks_event_reasons_counters_{event}_seconds", "clock_event_seconds_total", "s", event)
        for event in (
            "sw_power_cap",
            "sw_thermal_slowdown",
            "hw_thermal_slowdown",
            "hw_power_brake_slowdown",
            "sync_boost",
        )
    ),
    _row("pstate", "performance_state"),
    _row("fan_speed_ratio", "fan_speed_ratio", "ratio"),
    _row("pcie_link_gen_current", "pcie_link_generation"),
    _row("pcie_link_gen_max", "pcie_link_generation_max"),
    _row("pcie_link_width_current", "pcie_link_width"),
    _row("pcie_link_width_max", "pcie_link_width_max"),
    _row("pcie_throughput_tx_bytes_per_second", "pcie_tx_bytes_per_second", "bytes/s"),
    _row("pcie_throughput_rx_bytes_per_second", "pcie_rx_bytes_per_second", "bytes/s"),
    _row("ecc_mode_current", "ecc_mode"),
    _row("ecc_errors_corrected_volatile_total", "ecc_corrected_volatile_errors_total"),
    _row("ecc_errors_corrected_aggregate_total", "ecc_corrected_aggregate_errors_total"),
    _row("ecc_errors_uncorrected_volatile_total", "ecc_uncorrected_volatile_errors_total"),
    _row("ecc_errors_uncorrected_aggregate_total", "ecc_uncorrected_aggregate_errors_total"),
    _row("retired_pages_single_bit_ecc_count", "retired_pages_total", part="single_bit"),
    _row("retired_pages_double_bit_count", "retired_pages_total", part="double_bit"),
    _row("retired_pages_pending", "retired_pages_pending"),
    _row("remapped_rows_correctable", "remapped_rows_total", part="correctable"),
    _row("remapped_rows_uncorrectable", "remapped_rows_total", part="uncorrectable"),
    _row("remapped_rows_pending", "remapped_rows_pending"),
    _row("remapped_rows_failure", "remapped_rows_failure"),
    _row("gpu_recovery_action", "recovery_action"),
    _row("persistence_mode", "persistence_mode"),
    _row("mig_mode_current", "mig_mode"),
    _row("compute_mode", "compute_mode"),
)

_MIG_ROWS = (
    Row("nvidia_smi_mig_memory_total_bytes", "memory_total_bytes", "bytes", "Memory of the GPU instance."),
    Row("nvidia_smi_mig_memory_used_bytes", "memory_used_bytes", "bytes", "Memory in use."),
    Row("nvidia_smi_mig_memory_free_bytes", "memory_free_bytes", "bytes", "Memory free."),
    Row("nvidia_smi_mig_graphics_activity_ratio", "graphics_activity_ratio", "ratio", "Graphics activity."),
    Row("nvidia_smi_mig_sm_activity_ratio", "sm_activity_ratio", "ratio", "SM activity."),
    Row("nvidia_smi_mig_sm_occupancy_ratio", "sm_occupancy_ratio", "ratio", "SM occupancy."),
    Row("nvidia_smi_mig_tensor_activity_ratio", "tensor_activity_ratio", "ratio", "Tensor activity."),
)

_EXTRAS = (
    Extra("nvidia_smi_gpu_info", "who the GPU is", "", "A metric with a constant '1' value labeled by gpu uuid, name…"),
    Extra("nvidia_smi_index", "the GPU's index", "", "index of nvidia-smi."),
    Extra("nvidia_smi_count", "the GPUs expected", "", "count of nvidia-smi."),
    Extra("nvidia_smi_clocks_event_reasons_active", "`clock_events` as the driver's bits", "", "All clock events."),
    Extra("nvidia_smi_compute_apps", "`processes` that compute", "", "Number of processes with a compute context."),
    Extra(
        "nvidia_smi_compute_app_info",
        "`processes` that compute, the largest `top_processes`",
        "",
        "A metric with a constant '1' value: a process with a compute context.",
    ),
    Extra(
        "nvidia_smi_compute_app_used_memory_bytes",
        "`processes`, the largest `top_processes`",
        "bytes",
        "GPU memory used by the process.",
    ),
    Extra("nvidia_smi_mig_info", "`mig_instances`", "", "A metric with a constant '1' value: a MIG device."),
    *(Extra(row.name, f"`mig_instances` {row.origin}", row.unit, row.help) for row in _MIG_ROWS),
    Extra("nvidia_smi_xid_errors_total", "the XIDs counted", "", "XID errors observed.", kind=Kind.COUNTER),
    Extra(
        "nvidia_smi_xid_last_timestamp_seconds",
        "when each XID was last reported",
        "s",
        "Unix timestamp of the most recent XID error.",
    ),
    Extra(
        "nvidia_smi_compute_apps_last_collect_success",
        "1 if `processes` of every GPU expected could be listed",
        "",
        "Whether the most recent per-process collection succeeded (1) or not (0).",
    ),
    Extra(
        "nvidia_smi_last_collect_success",
        "1 if the last cycle was whole, is fresh and read every GPU expected",
        "",
        "Whether the most recent collection succeeded (1) or not (0).",
    ),
    Extra(
        "nvidia_smi_last_collect_success_timestamp_seconds",
        "the end of the last whole cycle",
        "s",
        "Unix timestamp of the most recent successful collection.",
    ),
    Extra(
        "nvidia_smi_last_collect_duration_seconds",
        "what that cycle took",
        "s",
        "Duration of the most recent collection.",
    ),
)

_NOT_READ = "not read"
_LEFT_OUT = {
    "nvidia_smi_power_limit_watts": "the limit set is not read, only the one in force: enforced_power_limit_watts",
    "nvidia_smi_power_draw_average_watts": "power_draw_watts is the driver's average where it makes one, and a reading"
    " does not show whether it did",
    "nvidia_smi_clocks_throttle_reasons_*": "their name on drivers before R535; use clocks_event_reasons_*",
    "nvidia_smi_clocks_event_reasons_supported": _NOT_READ,
    "nvidia_smi_command_exit_code": "no command is run; use last_collect_success",
    "nvidia_smi_nvml_return_code": "the agent names causes: gpuwatch_probe_down_info",
    "nvidia_smi_failed_scrapes_total": "cycles that never began are not counted; use last_collect_success",
    "nvidia_smi_ecc_errors_*_device_memory, _dram, _sram*": "not read; the totals are",
    "nvidia_smi_remapped_rows_histogram_*": _NOT_READ,
    "nvidia_smi_pcie_link_gen_gpucurrent, _gpumax, _hostmax": "not read; pcie_link_gen_current and _max are",
    "nvidia_smi_mig_memory_reserved_bytes": _NOT_READ,
    "nvidia_smi_mig_pcie_throughput_*": _NOT_READ,
    "nvidia_smi_fabric_state, _fabric_*": "not read; the panel Fabric State of 14574 takes that for `No NVLink fabric`",
    "nvidia_smi_name": "a text read as a number there (`NVIDIA H200` is 200); use gpu_info",
    "nvidia_smi_serial": "as the row above",
    "nvidia_smi_compute_cap, _pci_*, _inforom_*, _platform_*, _encoder_stats_*, _display_*, _accounting_*,"
    " _gsp_mode_*, _c2c_mode, _edpp_*, _protected_memory_*, _ecc_mode_pending, _mig_mode_pending": _NOT_READ,
}


def _uuid(uuid: str) -> str:
    """In lower case, without the prefix."""
    return uuid.lower().removeprefix("gpu-")


def _parts(reading: GpuReading, _: Scene) -> Iterator[Part]:
    yield Part(labels={"uuid": _uuid(reading.info.uuid)}, values=reading)


def _samples(scene: Scene) -> Iterator[Sample]:
    snapshot = scene.snapshot
    count = len(every_gpu(snapshot))
    for reading in snapshot.readings:
        labels = {"uuid": _uuid(reading.info.uuid)}
        yield "nvidia_smi_gpu_info", _info(reading.info), 1
        if reading.info.index is not None:
            yield "nvidia_smi_index", labels, reading.info.index
        yield "nvidia_smi_count", labels, count
        if reading.clock_events is not None:
            bits = sum(_EVENT_BITS.get(event, 0) for event in reading.clock_events)
            yield "nvidia_smi_clocks_event_reasons_active", labels, bits
        if reading.processes is not None:
            yield from _app_samples(reading.processes, scene, labels)
        yield from _mig_samples(reading)
    for (uuid, xid), heard in snapshot.xids.items():
        labels = {"uuid": _uuid(uuid), "xid": str(xid)}
        yield "nvidia_smi_xid_errors_total", labels, heard.total
        yield "nvidia_smi_xid_last_timestamp_seconds", labels, heard.last_at.timestamp()
    whole = snapshot.version > 0 and not snapshot.stale and snapshot.trouble is None and not snapshot.downs
    yield "nvidia_smi_last_collect_success", {}, whole
    listed = whole and all(reading.processes is not None for reading in snapshot.readings)
    yield "nvidia_smi_compute_apps_last_collect_success", {}, listed
    statistics = snapshot.statistics
    if statistics.complete_at is not None:
        yield "nvidia_smi_last_collect_success_timestamp_seconds", {}, statistics.complete_at.timestamp()
    if statistics.cycle_duration_seconds is not None:
        yield "nvidia_smi_last_collect_duration_seconds", {}, statistics.cycle_duration_seconds


def _app_samples(processes: Iterable[GpuProcess], scene: Scene, of_gpu: Labels) -> Iterator[Sample]:
    """The processes that compute; one without a known memory size comes last."""
    sizes = {process.pid: process.memory_bytes for process in processes if process.kind is ProcessKind.COMPUTE}
    yield "nvidia_smi_compute_apps", of_gpu, len(sizes)
    for pid, size in sorted(sizes.items(), key=_by_size)[: scene.top_processes]:
        labels = {**of_gpu, "pid": str(pid), "process_name": scene.work_of(pid)}
        yield "nvidia_smi_compute_app_info", labels, 1
        if size is not None:
            yield "nvidia_smi_compute_app_used_memory_bytes", labels, size


def _by_size(item: tuple[int, int | None]) -> tuple[bool, int, int]:
    """The largest first, the unknown last."""
    pid, size = item
    return size is None, -(size or 0), pid


def _info(info: GpuInfo) -> dict[str, str | None]:
    return {
        "uuid": _uuid(info.uuid),
        "name": info.name,
        "driver_model_current": _NO_DRIVER_MODEL,
        "driver_model_pending": _NO_DRIVER_MODEL,
        "vbios_version": info.vbios_version,
        "driver_version": info.driver_version,
        "pci_bus_id": info.pci_bus_id,
        "serial": info.serial,
        "index": info.key[1],
        "cuda_version": info.cuda_version,
    }


def _mig_samples(reading: GpuReading) -> Iterator[Sample]:
    """Each MIG device once, and what a GPU instance's devices share once as well."""
    for instance in reading.mig_instances or ():
        labels = {"uuid": _uuid(reading.info.uuid), "gpu_instance_id": str(instance.id)}
        for device in instance.devices:
            about = {
                "mig_uuid": device.uuid,
                "compute_instance_id": str(device.compute_instance),
                "profile": device.profile,
            }
            yield "nvidia_smi_mig_info", {**labels, **about}, 1
        for row in _MIG_ROWS:
            value = row.value(instance)
            if value is not None:
                yield row.name, labels, value


DIALECT = Dialect(
    stands_for="nvidia_gpu_exporter (Grafana dashboards 14574 and 25547)",
    labels="`uuid`, in lower case and without `GPU-`; `nvidia_smi_gpu_info` also has `name`,"
    " `driver_model_current`, `driver_model_pending`, `vbios_version`, `driver_version`, `pci_bus_id`, `serial`,"
    " `index`, `cuda_version`, but not `compute_cap` and `pci_sub_device_id`, which are not read. XIDs have `xid`, MIG"
    " instances `gpu_instance_id`. Processes have `pid`. **`process_name` is never the program's path**, which may hold"
    " anything. It says in brackets what attribution knows the process to belong to: `[namespace/pod/container]`,"
    " `[slurm job 4711]`, `[3f8a…]` for a container or `[unit.service]`, or there is no such label",
    rows=_ROWS,
    extras=_EXTRAS,
    parts=_parts,
    samples=_samples,
    left_out=_LEFT_OUT,
    also=("mig", "mig_detail"),
)
