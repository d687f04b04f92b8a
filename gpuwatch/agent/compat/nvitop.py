"""nvitop-exporter's names: GPUs, the processes that hold them, and the host beside them.

Source: XuehaiPan/nvitop nvitop-exporter/nvitop_exporter/exporter.py at 1.5.
"""

from collections.abc import Iterator

from gpuwatch.agent.compat.host import FAMILIES as HOST
from gpuwatch.agent.compat.table import MIB, Dialect, Extra, Part, Row, Sample, Scene, every_gpu, largest
from gpuwatch.model.gpu import GpuReading

_ROWS = (
    Row("gpu_utilization_Percentage", "utilization_ratio", "%", "GPU utilization (%)."),
    Row(
        "gpu_memory_utilization_Percentage",
        "memory_bandwidth_utilization_ratio",
        "%",
        "GPU memory utilization (%).",
    ),
    Row("gpu_encoder_utilization_Percentage", "encoder_utilization_ratio", "%", "GPU encoder utilization (%)."),
    Row("gpu_decoder_utilization_Percentage", "decoder_utilization_ratio", "%", "GPU decoder utilization (%)."),
    Row("gpu_memory_total_MiB", "memory_total_bytes", "MiB", "GPU memory total (MiB)."),
    Row("gpu_memory_used_MiB", "memory_used_bytes", "MiB", "GPU memory used (MiB)."),
    Row("gpu_memory_free_MiB", "memory_free_bytes", "MiB", "GPU memory free (MiB)."),
    Row("gpu_clock_sm_MHz", "sm_clock_hertz", "MHz", "GPU SM clock (MHz)."),
    Row("gpu_clock_memory_MHz", "memory_clock_hertz", "MHz", "GPU memory clock (MHz)."),
    Row("gpu_clock_graphics_MHz", "graphics_clock_hertz", "MHz", "GPU graphics clock (MHz)."),
    Row("gpu_clock_video_MHz", "video_clock_hertz", "MHz", "GPU video clock (MHz)."),
    Row("gpu_power_usage_W", "power_watts", "W", "GPU power usage (W)."),
    Row("gpu_power_limit_W", "power_limit_watts", "W", "GPU power limit (W)."),
    Row("gpu_temperature_C", "temperature_celsius", "C", "GPU temperature (C)."),
    Row("gpu_fan_speed_Percentage", "fan_speed_ratio", "%", "GPU fan speed (%)."),
    Row("gpu_pcie_tx_throughput_MiBps", "pcie_tx_bytes_per_second", "MiB/s", "GPU PCIe transmit throughput (MiB/s)."),
    Row("gpu_pcie_rx_throughput_MiBps", "pcie_rx_bytes_per_second", "MiB/s", "GPU PCIe receive throughput (MiB/s)."),
    Row(
        "gpu_nvlink_total_tx_throughput_MiBps",
        "nvlink_tx_bytes_per_second",
        "MiB/s",
        "GPU total NVLink transmit throughput (MiB/s).",
    ),
    Row(
        "gpu_nvlink_total_rx_throughput_MiBps",
        "nvlink_rx_bytes_per_second",
        "MiB/s",
        "GPU total NVLink receive throughput (MiB/s).",
    ),
)

_EXTRAS = (
    Extra("nvitop_info", "the driver and the number of GPUs", "", "NVITOP Prometheus Exporter."),
    Extra(
        "gpu_memory_percent_Percentage",
        "`memory_used_bytes` of `memory_total_bytes`",
        "%",
        "GPU memory percent (%).",
    ),
    Extra(
        "process_info_info",
        "`processes`, the largest `top_processes`, without `command` and `status`",
        "",
        "Process information.",
    ),
    Extra("process_gpu_memory_MiB", "`processes`, the largest `top_processes`", "MiB", "Process GPU memory (MiB)."),
    *HOST,
)

_LEFT_OUT = {
    "gpu_nvlink_mean_tx_throughput_MiBps": "links in use are not counted; the totals are there",
    "gpu_nvlink_mean_rx_throughput_MiBps": "likewise",
    "gpu_nvlink_tx_throughput_MiBps": "by link there are counters: gpuwatch_gpu_nvlink_link_tx_bytes_total",
    "gpu_nvlink_rx_throughput_MiBps": "by link there are counters: gpuwatch_gpu_nvlink_link_rx_bytes_total",
    "process_running_time_Second": "not read",
    "process_cpu_percent_Percentage": "not read",
    "process_rss_memory_MiB": "not read",
    "process_memory_percent_Percentage": "not read",
    "process_gpu_sm_utilization_Percentage": "not read; so are the other process_gpu_*_utilization_Percentage",
    "process_info_info{command, status}": "command lines hold secrets and are never shown; the status is not read",
    "host_disk_usage_*": "asking a network file system that hangs would hang the page",
    'MIG devices as GPUs of their own (`index="0:1"`)': "the GPU itself is shown",
}


def _labels(reading: GpuReading, scene: Scene) -> dict[str, str | None]:
    info = reading.info
    return {"hostname": scene.hostname, "index": str(info.index), "devicename": info.name, "uuid": info.uuid}


def _parts(reading: GpuReading, scene: Scene) -> Iterator[Part]:
    yield Part(labels=_labels(reading, scene), values=reading)


def _samples(scene: Scene) -> Iterator[Sample]:
    gpus = every_gpu(scene.snapshot)
    if gpus:
        told = {"driver_version": gpus[0].driver_version, "cuda_driver_version": gpus[0].cuda_version}
        yield "nvitop_info", {"hostname": scene.hostname, "device_count": str(len(gpus)), **told}, 1
    for reading in scene.snapshot.readings:
        labels = _labels(reading, scene)
        used, total = reading.memory_used_bytes, reading.memory_total_bytes
        if used is not None and total:
            yield "gpu_memory_percent_Percentage", labels, round(100 * used / total, 1)
        for pid, size in largest(reading, scene.top_processes):
            whose = {**labels, "pid": str(pid), "username": scene.user_of(pid)}
            yield "process_info_info", whose, 1
            yield "process_gpu_memory_MiB", whose, size / MIB
    for name, labels_of_host, value in scene.host():
        yield name, {"hostname": scene.hostname, **labels_of_host}, value


DIALECT = Dialect(
    stands_for="nvitop-exporter 1.5 (Grafana dashboard 22589)",
    labels_told="`hostname` (a name, where theirs is an address by default), `index`, `devicename`, `uuid`; processes"
    " also `pid`, and `username` where it is known; the host's only `hostname`, with `interface` or `partition`",
    rows=_ROWS,
    extras=_EXTRAS,
    parts=_parts,
    samples=_samples,
    left_out=_LEFT_OUT,
)
