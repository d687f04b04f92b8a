"""dcgm-exporter's names: its default-counters.csv, what is enabled there and what is often enabled besides.

Source: NVIDIA/dcgm-exporter etc/default-counters.csv and internal/pkg/rendermetrics at 4.6 to 4.8.
"""

from collections.abc import Iterator
from dataclasses import fields

from gpuwatch.agent.exporter.compat.table import Dialect, Extra, Part, Row, Sample, Scene, every_gpu
from gpuwatch.model.gpu import GpuInfo, GpuReading, Kind
from gpuwatch.model.health import XIDS
from gpuwatch.model.mig import MigInstance

_COUNTER = Kind.COUNTER
_OF_INSTANCES = frozenset(each.name for each in fields(MigInstance))

_ROWS = (
    Row("DCGM_FI_DEV_SM_CLOCK", "sm_clock_hertz", "MHz", "SM clock frequency (in MHz)."),
    Row("DCGM_FI_DEV_MEM_CLOCK", "memory_clock_hertz", "MHz", "Memory clock frequency (in MHz)."),
    Row("DCGM_FI_DEV_MEMORY_TEMP", "memory_temperature_celsius", "C", "Memory temperature (in C)."),
    Row("DCGM_FI_DEV_GPU_TEMP", "temperature_celsius", "C", "GPU temperature (in C)."),
    Row("DCGM_FI_DEV_POWER_USAGE", "power_watts", "W", "Power draw (in W)."),
    Row(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "energy_joules_total",
        "mJ",
        "Total energy consumption since the driver was loaded (in mJ).",
        kind=_COUNTER,
    ),
    Row("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "pcie_replays_total", "", "Total number of PCIe retries.", kind=_COUNTER),
    Row("DCGM_FI_DEV_GPU_UTIL", "utilization_ratio", "%", "GPU utilization (in %)."),
    Row("DCGM_FI_DEV_MEM_COPY_UTIL", "memory_bandwidth_utilization_ratio", "%", "Memory utilization (in %)."),
    Row("DCGM_FI_DEV_ENC_UTIL", "encoder_utilization_ratio", "%", "Encoder utilization (in %)."),
    Row("DCGM_FI_DEV_DEC_UTIL", "decoder_utilization_ratio", "%", "Decoder utilization (in %)."),
    Row("DCGM_FI_DEV_FB_FREE", "memory_free_bytes", "MiB", "Framebuffer memory free (in MiB)."),
    Row("DCGM_FI_DEV_FB_USED", "memory_used_bytes", "MiB", "Framebuffer memory used (in MiB)."),
    Row("DCGM_FI_DEV_FB_RESERVED", "memory_reserved_bytes", "MiB", "Framebuffer memory reserved (in MiB)."),
    Row(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "remapped_rows_total",
        "",
        "Number of remapped rows for uncorrectable errors.",
        "uncorrectable",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "remapped_rows_total",
        "",
        "Number of remapped rows for correctable errors.",
        "correctable",
        kind=_COUNTER,
    ),
    Row("DCGM_FI_DEV_ROW_REMAP_FAILURE", "remapped_rows_failure", "", "Whether remapping of rows has failed."),
    Row(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "graphics_activity_ratio",
        "ratio",
        "Ratio of time the graphics engine is active.",
    ),
    Row("DCGM_FI_PROF_SM_ACTIVE", "sm_activity_ratio", "ratio", "Ratio of the multiprocessors at work."),
    Row("DCGM_FI_PROF_SM_OCCUPANCY", "sm_occupancy_ratio", "ratio", "Ratio of warps resident on the multiprocessors."),
    Row(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_activity_ratio", "ratio", "Ratio of time the tensor pipe is active."
    ),
    Row("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "fp64_activity_ratio", "ratio", "Ratio of time the FP64 pipe is active."),
    Row("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "fp32_activity_ratio", "ratio", "Ratio of time the FP32 pipe is active."),
    Row("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "fp16_activity_ratio", "ratio", "Ratio of time the FP16 pipe is active."),
    Row("DCGM_FI_PROF_DRAM_ACTIVE", "dram_activity_ratio", "ratio", "Ratio of time the memory interface is active."),
    Row("DCGM_FI_PROF_PCIE_TX_BYTES", "pcie_tx_bytes_per_second", "bytes/s", "Rate of data sent over PCIe."),
    Row("DCGM_FI_PROF_PCIE_RX_BYTES", "pcie_rx_bytes_per_second", "bytes/s", "Rate of data received over PCIe."),
    Row("DCGM_FI_PROF_NVLINK_TX_BYTES", "nvlink_tx_bytes_per_second", "bytes/s", "Rate of data sent over NVLink."),
    Row("DCGM_FI_PROF_NVLINK_RX_BYTES", "nvlink_rx_bytes_per_second", "bytes/s", "Rate of data received over NVLink."),
    Row(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "ecc_corrected_volatile_errors_total",
        "",
        "Total number of single-bit volatile ECC errors.",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "ecc_uncorrected_volatile_errors_total",
        "",
        "Total number of double-bit volatile ECC errors.",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        "ecc_corrected_aggregate_errors_total",
        "",
        "Total number of single-bit persistent ECC errors.",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "ecc_uncorrected_aggregate_errors_total",
        "",
        "Total number of double-bit persistent ECC errors.",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_RETIRED_SBE",
        "retired_pages_total",
        "",
        "Total number of retired pages due to single-bit errors.",
        "single_bit",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_RETIRED_DBE",
        "retired_pages_total",
        "",
        "Total number of retired pages due to double-bit errors.",
        "double_bit",
        kind=_COUNTER,
    ),
    Row("DCGM_FI_DEV_RETIRED_PENDING", "retired_pages_pending", "", "Whether pages wait to be retired.", kind=_COUNTER),
    Row(
        "DCGM_FI_DEV_POWER_VIOLATION",
        "clock_event_seconds_total",
        "ns",
        "Throttling duration due to power constraints (in ns).",
        "sw_power_cap",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
        "clock_event_seconds_total",
        "ns",
        "Throttling duration due to sync-boost constraints (in ns).",
        "sync_boost",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "nvlink_replay_errors_total",
        "",
        "Total number of NVLink retries, of all links.",
        kind=_COUNTER,
    ),
    Row(
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "nvlink_recovery_errors_total",
        "",
        "Total number of NVLink recovery errors, of all links.",
        kind=_COUNTER,
    ),
)

_XID_ERRORS = "DCGM_FI_DEV_XID_ERRORS"
_EXTRAS = (
    Extra(
        _XID_ERRORS,
        "the XID last reported, with `err_code` and our `err_msg`; absent without an XID",
        "",
        "Value of the last XID error encountered.",
    ),
)

_LEFT_OUT = {
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "said to be a counter and seen to be a rate, in MB/s or KB/s depending on who"
    " is asked; use DCGM_FI_PROF_NVLINK_TX_BYTES and _RX_BYTES",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "a guest's license is not read, and 0 would mean that it is missing",
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": "a default before 4.0; the driver waits 20 ms for it; use"
    " DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": "as DCGM_FI_DEV_PCIE_TX_THROUGHPUT; use DCGM_FI_PROF_PCIE_RX_BYTES",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "the driver's newer counters separate hardware and software, and overlap; use"
    " gpuwatch_gpu_clock_event_seconds_total",
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": "off by default there; not read",
    "DCGM_FI_DEV_LOW_UTIL_VIOLATION": "off by default there; not read",
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": "off by default there; not read",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "drivers count CRC errors by link, not by flit and data; use"
    " gpuwatch_gpu_nvlink_crc_errors_total",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "as the row above",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0": "as DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL; use"
    " gpuwatch_gpu_nvlink_link_tx_bytes_total and _rx_",
    "DCGM_EXP_XID_ERRORS_COUNT": "counts of a window are no counters; use gpuwatch_gpu_xid_errors_total",
    "DCGM_EXP_CLOCK_EVENTS_COUNT": "counts of a window are no counters; use gpuwatch_gpu_clock_event_seconds_total",
    "DCGM_EXP_GPU_HEALTH_STATUS": "it is DCGM's own verdict; ours is gpuwatch_gpu_health",
    "DCGM_EXP_P2P_STATUS": "off by default there; not read",
}


def _labels(info: GpuInfo, scene: Scene) -> dict[str, str | None]:
    return {
        "gpu": info.key[1],
        "UUID": info.uuid,
        "pci_bus_id": info.pci_bus_id,
        "device": None if info.index is None else f"nvidia{info.index}",
        "modelName": info.name,
        "Hostname": scene.hostname,  # its name until 2026, which most dashboards and alerts still use
        "hostname": scene.hostname,
        "DCGM_FI_DRIVER_VERSION": info.driver_version,
    }


def _parts(reading: GpuReading, scene: Scene) -> Iterator[Part]:
    """The GPU, and where MIG splits it each instance; what those have themselves the GPU does not show as well."""
    labels = _labels(reading.info, scene)
    instances = reading.mig_instances or ()
    if not instances:
        yield Part(labels={**labels, **scene.pod_of(reading.info.uuid)}, values=reading)
        return
    yield Part(labels=labels, values=reading, hidden=_OF_INSTANCES)
    for instance in instances:  # their pods cannot be distinguished, so no pod is named
        profile = instance.devices[0].profile if instance.devices else None
        yield Part(labels={**labels, "GPU_I_PROFILE": profile, "GPU_I_ID": str(instance.id)}, values=instance)


def _samples(scene: Scene) -> Iterator[Sample]:
    """The last XID of each GPU, which a GPU that is lost because of it still shows."""
    xids = scene.snapshot.xids
    for info in every_gpu(scene.snapshot):
        reported = [(count.last_at, xid) for (uuid, xid), count in xids.items() if uuid == info.uuid]
        if reported:
            _, last = max(reported)
            error = {"err_code": str(last), "err_msg": XIDS[last].sentence if last in XIDS else "Unknown Error"}
            yield _XID_ERRORS, {**_labels(info, scene), **scene.pod_of(info.uuid), **error}, last


DIALECT = Dialect(
    stands_for="NVIDIA dcgm-exporter 4.x (Grafana dashboard 12239)",
    labels="`gpu`, `UUID`, `pci_bus_id`, `device`, `modelName`, `Hostname` and `hostname`,"
    " `DCGM_FI_DRIVER_VERSION`; `GPU_I_PROFILE` and `GPU_I_ID` of a MIG instance; `namespace`, `pod`, `container`"
    " where one and only one is known to hold the whole GPU",
    rows=_ROWS,
    extras=_EXTRAS,
    parts=_parts,
    samples=_samples,
    left_out=_LEFT_OUT,
    also=("mig", "mig_detail"),
)
