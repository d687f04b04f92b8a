"""nvitop-exporter's names: GPUs, the processes that hold them, and the host.

Source: XuehaiPan/nvitop nvitop-exporter/nvitop_exporter/exporter.py at 1.5.
"""

from collections.abc import Iterator

from gpuwatch.agent.exporter.compat.host import FAMILIES as HOST
from gpuwatch.agent.exporter.compat.table import (
    MIB,
    Dialect,
    Extra,
    Labels,
    Part,
    Row,
    Sample,
    Scene,
    every_gpu,
    largest,
)
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

_STAT = "/proc/<pid>/stat of those that attribution has found"

_EXTRAS = (
    Extra("nvitop_info", "the driver and the number of GPUs", "", "NVITOP Prometheus Exporter."),
    Extra(
        "gpu_memory_percent_Percentage",
        "`memory_used_bytes` of `memory_total_bytes`",
        "%",
        "GPU memory percent (%).",
    ),
    *(
        Extra(
            f"gpu_nvlink_mean_{way}_throughput_MiBps",
            f"`nvlink_{way}_bytes_per_second` by the links of `nvlink_link_{way}_bytes_total`",
            "MiB/s",
            f"GPU mean NVLink {word} throughput (MiB/s).",
        )
        for way, word in (("tx", "transmit"), ("rx", "receive"))
    ),
    Extra("process_info_info", "`processes`, the largest `top_processes`", "", "Process information."),
    Extra("process_gpu_memory_MiB", "`processes`, the largest `top_processes`", "MiB", "Process GPU memory (MiB)."),
    Extra("process_running_time_Second", _STAT, "s", "Process running time (s)."),
    Extra("process_cpu_percent_Percentage", f"{_STAT}, over a second or more", "%", "Process CPU percent (%)."),
    Extra("process_rss_memory_MiB", _STAT, "MiB", "Process resident memory (MiB)."),
    Extra("process_memory_percent_Percentage", _STAT, "%", "Process resident memory of the host's memory (%)."),
    *HOST,
)

_LEFT_OUT = {
    "gpu_nvlink_tx_throughput_MiBps": "by link there are counters: rate(gpuwatch_gpu_nvlink_link_tx_bytes_total[1m])",
    "gpu_nvlink_rx_throughput_MiBps": "by link there are counters: rate(gpuwatch_gpu_nvlink_link_rx_bytes_total[1m])",
    "process_gpu_sm_utilization_Percentage": "what the driver says each process uses is not read (a further call per"
    " GPU, and none with MIG); the columns %SM, %GMBW, %ENC and %DEC of 22589 stay empty",
    "process_gpu_memory_utilization_Percentage": "as the row above",
    "process_gpu_encoder_utilization_Percentage": "as the row above",
    "process_gpu_decoder_utilization_Percentage": "as the row above",
    'MIG devices as GPUs of their own (`index="0:1"`)': "their numbers are not kept; the GPU itself is shown",
}
_UNKNOWN_USER = "N/A"  # as nvitop has it: a dashboard that selects by user loses what has no such label


def _labels(reading: GpuReading, scene: Scene) -> dict[str, str | None]:
    info = reading.info
    return {"hostname": scene.hostname, "index": info.key[1], "devicename": info.name, "uuid": info.uuid}


def _parts(reading: GpuReading, scene: Scene) -> Iterator[Part]:
    yield Part(labels=_labels(reading, scene), values=reading)


def _samples(scene: Scene) -> Iterator[Sample]:
    gpus = every_gpu(scene.snapshot)
    if gpus:
        versions = {"driver_version": gpus[0].driver_version, "cuda_driver_version": gpus[0].cuda_version}
        yield "nvitop_info", {"hostname": scene.hostname, "device_count": str(len(gpus)), **versions}, 1
    for reading in scene.snapshot.readings:
        yield from _gpu_samples(reading, _labels(reading, scene))
    yield from _process_samples(scene)
    for name, labels_of_host, value in scene.host():
        yield name, {"hostname": scene.hostname, **labels_of_host}, value


def _gpu_samples(reading: GpuReading, labels: Labels) -> Iterator[Sample]:
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    if used is not None and total:
        yield "gpu_memory_percent_Percentage", labels, round(100 * used / total, 1)
    for way, rate, links in (
        ("tx", reading.nvlink_tx_bytes_per_second, reading.nvlink_link_tx_bytes_total),
        ("rx", reading.nvlink_rx_bytes_per_second, reading.nvlink_link_rx_bytes_total),
    ):
        if rate is not None and links:
            yield f"gpu_nvlink_mean_{way}_throughput_MiBps", labels, rate / len(links) / MIB


def _process_samples(scene: Scene) -> Iterator[Sample]:
    """A process on several GPUs is on each of them, with what it uses of the host as often, as nvitop has it."""
    holders = [
        (reading, pid, size)
        for reading in scene.snapshot.readings
        for pid, size in largest(reading, scene.top_processes)
    ]
    figures = scene.figures(pid for _, pid, _ in holders)
    for reading, pid, size in holders:
        user = scene.user_of(pid) or _UNKNOWN_USER
        labels = {**_labels(reading, scene), "pid": str(pid), "username": user}
        of_host = figures.get(pid)
        status = None if of_host is None else of_host.status
        yield "process_info_info", {**labels, "status": status, "command": scene.work_of(pid)}, 1
        yield "process_gpu_memory_MiB", labels, size / MIB
        if of_host is None:
            continue
        yield "process_running_time_Second", labels, of_host.running_seconds
        yield "process_rss_memory_MiB", labels, of_host.rss_bytes / MIB
        if of_host.cpu_percent is not None:
            yield "process_cpu_percent_Percentage", labels, of_host.cpu_percent
        if of_host.memory_percent is not None:
            yield "process_memory_percent_Percentage", labels, of_host.memory_percent


DIALECT = Dialect(
    stands_for="nvitop-exporter 1.5 (Grafana dashboard 22589)",
    labels="`hostname` (a name, where theirs is an address by default), `index`, `devicename`, `uuid`. Processes"
    " also have `pid` and `username` (`N/A` where it is not known). `process_info_info` has the `status` of /proc."
    " **`command` is never the command line**, which may hold secrets. It says what attribution knows the process to"
    " belong to, in brackets: `[namespace/pod/container]`, `[slurm job 4711]`, `[3f8a…]` for a container or"
    " `[unit.service]`, or there is no such label. The host's have only `hostname`, with `interface`,"
    " `partition` or `mountpoint`",
    rows=_ROWS,
    extras=_EXTRAS,
    parts=_parts,
    samples=_samples,
    left_out=_LEFT_OUT,
    also=("throughput", "nvlink_links"),
)
