"""What a GPU does and what that costs: work, memory, heat, power, clocks. The first part of a GpuReading."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from gpuwatch.model.metric import Kind, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReading:
    """What changes with the load; ratios are 0 to 1, None is "not known"."""

    utilization_ratio: Annotated[
        float | None,
        Metric(
            "Mean share of time in which a kernel ran, over the driver's samples since the last cycle.",
            "Samples, else UtilizationRates().gpu",
            group="core",
            steady=True,
            judged=True,
        ),
    ] = None
    utilization_max_ratio: Annotated[
        float | None,
        Metric(
            "Highest of the driver's samples since the last cycle: no burst is lost.",
            "Samples, else UtilizationRates().gpu",
            group="core",
            steady=True,
            judged=True,
        ),
    ] = None
    memory_bandwidth_utilization_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in which device memory was read or written; says nothing of how full it is.",
            "UtilizationRates().memory",
            group="core",
            steady=True,
            judged=True,
        ),
    ] = None
    encoder_utilization_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in which the video encoder was at work.",
            "EncoderUtilization",
            group="engines",
            steady=True,
            judged=True,
        ),
    ] = None
    decoder_utilization_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in which the video decoder was at work.",
            "DecoderUtilization",
            group="engines",
            steady=True,
            judged=True,
        ),
    ] = None
    jpeg_utilization_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in which the JPEG engine was at work.",
            "JpgUtilization",
            group="engines",
            steady=True,
            judged=True,
        ),
    ] = None
    ofa_utilization_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in which the optical flow engine was at work.",
            "OfaUtilization",
            group="engines",
            steady=True,
            judged=True,
        ),
    ] = None
    graphics_activity_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in which any engine computed or drew.",
            "GPM GRAPHICS_UTIL (1)",
            group="profiling_detail",
            steady=True,
            judged=True,
        ),
    ] = None
    sm_activity_ratio: Annotated[
        float | None,
        Metric("Share of the multiprocessors at work.", "GPM SM_UTIL (2)", group="profiling", steady=True, judged=True),
    ] = None
    sm_occupancy_ratio: Annotated[
        float | None,
        Metric(
            "Warps resident on the multiprocessors, of the most that fit.",
            "GPM SM_OCCUPANCY (3)",
            group="profiling",
            steady=True,
        ),
    ] = None
    tensor_activity_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in tensor operations.",
            "GPM ANY_TENSOR_UTIL (5)",
            group="profiling",
            steady=True,
            judged=True,
        ),
    ] = None
    dram_activity_ratio: Annotated[
        float | None,
        Metric(
            "Memory bandwidth in use, of the maximum.",
            "GPM DRAM_BW_UTIL (10)",
            group="profiling",
            steady=True,
            judged=True,
        ),
    ] = None
    fp64_activity_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in FP64 operations outside of tensor cores.",
            "GPM FP64_UTIL (11)",
            group="profiling_detail",
            steady=True,
            judged=True,
        ),
    ] = None
    fp32_activity_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in FP32 operations outside of tensor cores.",
            "GPM FP32_UTIL (12)",
            group="profiling_detail",
            steady=True,
            judged=True,
        ),
    ] = None
    fp16_activity_ratio: Annotated[
        float | None,
        Metric(
            "Share of time in FP16 operations outside of tensor cores.",
            "GPM FP16_UTIL (13)",
            group="profiling_detail",
            steady=True,
            judged=True,
        ),
    ] = None
    memory_total_bytes: Annotated[
        int | None, Metric("Size of the device memory.", "MemoryInfo(v2).total", group="core", judged=True)
    ] = None
    memory_used_bytes: Annotated[
        int | None,
        Metric(
            "Device memory held by processes, without what the driver reserves.",
            "MemoryInfo(v2).used",
            group="core",
            judged=True,
        ),
    ] = None
    memory_free_bytes: Annotated[
        int | None, Metric("Device memory free to allocate.", "MemoryInfo(v2).free", group="memory_detail")
    ] = None
    memory_reserved_bytes: Annotated[
        int | None,
        Metric("Device memory kept by driver and firmware.", "MemoryInfo(v2).reserved", group="memory_detail"),
    ] = None
    bar1_total_bytes: Annotated[
        int | None,
        Metric(
            "Size of the window through which PCIe sees device memory.",
            "BAR1MemoryInfo().bar1Total",
            slow=True,
            group="memory_detail",
        ),
    ] = None
    bar1_used_bytes: Annotated[
        int | None,
        Metric("Part of that window that is mapped.", "BAR1MemoryInfo().bar1Used", slow=True, group="memory_detail"),
    ] = None
    temperature_celsius: Annotated[
        float | None, Metric("Core temperature.", "TemperatureV(GPU), else Temperature", group="core", steady=True)
    ] = None
    memory_temperature_celsius: Annotated[
        float | None, Metric("Memory temperature.", "field MEMORY_TEMP (82)", group="core")
    ] = None
    temperature_margin_celsius: Annotated[
        float | None,
        Metric(
            "How far the core is below the temperature at which the driver slows it down.",
            "MarginTemperature",
            slow=True,
            group="core",
        ),
    ] = None
    temperature_limit_margin_celsius: Annotated[
        Mapping[str, float] | None,
        Metric(
            "The margin at which each limit takes effect: shutdown, slowdown, memory_max, gpu_max.",
            "fields 193-196 (T.Limit)",
            label="limit",
            slow=True,
            group="limits",
        ),
    ] = None
    power_watts: Annotated[
        float | None,
        Metric(
            "Power draw of the GPU, averaged by the driver where it can.",
            "field POWER_AVERAGE (185, GPU scope), else PowerUsage",
            group="core",
            judged=True,
        ),
    ] = None
    power_instant_watts: Annotated[
        float | None,
        Metric("Power draw of the GPU at this moment.", "field POWER_INSTANT (186, GPU scope)", group="power_detail"),
    ] = None
    power_module_watts: Annotated[
        float | None,
        Metric(
            "Power draw of the whole module, CPU included on a superchip, averaged.",
            "field 185, module scope",
            group="power_detail",
        ),
    ] = None
    power_module_instant_watts: Annotated[
        float | None,
        Metric("Power draw of the whole module at this moment.", "field 186, module scope", group="power_detail"),
    ] = None
    power_memory_watts: Annotated[
        float | None, Metric("Power draw of the memory, averaged.", "field 185, memory scope", group="power_detail")
    ] = None
    power_memory_instant_watts: Annotated[
        float | None,
        Metric("Power draw of the memory at this moment.", "field 186, memory scope", group="power_detail"),
    ] = None
    power_limit_watts: Annotated[
        float | None, Metric("Power limit in force.", "EnforcedPowerLimit", slow=True, group="core", judged=True)
    ] = None
    power_limit_default_watts: Annotated[
        float | None,
        Metric(
            "Power limit as delivered.",
            "field POWER_DEFAULT_LIMIT (189), else PowerManagementDefaultLimit",
            slow=True,
            group="limits",
        ),
    ] = None
    power_limit_min_watts: Annotated[
        float | None,
        Metric(
            "Lowest power limit that can be set.",
            "field POWER_MIN_LIMIT (187), else PowerManagementLimitConstraints",
            slow=True,
            group="limits",
        ),
    ] = None
    power_limit_max_watts: Annotated[
        float | None,
        Metric(
            "Highest power limit that can be set.",
            "field POWER_MAX_LIMIT (188), else PowerManagementLimitConstraints",
            slow=True,
            group="limits",
        ),
    ] = None
    energy_joules_total: Annotated[
        float | None,
        Metric(
            "Energy drawn since the driver was loaded.",
            "field TOTAL_ENERGY_CONSUMPTION (83)",
            kind=Kind.COUNTER,
            group="core",
            costly=True,
            judged=True,
        ),
    ] = None
    sm_clock_hertz: Annotated[
        float | None,
        Metric("Current clock of the multiprocessors.", "ClockInfo(NVML_CLOCK_SM)", group="core", steady=True),
    ] = None
    memory_clock_hertz: Annotated[
        float | None, Metric("Current clock of the memory.", "ClockInfo(NVML_CLOCK_MEM)", group="clocks", steady=True)
    ] = None
    graphics_clock_hertz: Annotated[
        float | None,
        Metric("Current clock of the graphics engine.", "ClockInfo(NVML_CLOCK_GRAPHICS)", slow=True, group="clocks"),
    ] = None
    video_clock_hertz: Annotated[
        float | None,
        Metric("Current clock of the video engines.", "ClockInfo(NVML_CLOCK_VIDEO)", slow=True, group="clocks"),
    ] = None
    sm_clock_max_hertz: Annotated[
        float | None,
        Metric("Highest clock of the multiprocessors.", "MaxClockInfo(NVML_CLOCK_SM)", slow=True, group="limits"),
    ] = None
    memory_clock_max_hertz: Annotated[
        float | None, Metric("Highest clock of the memory.", "MaxClockInfo(NVML_CLOCK_MEM)", slow=True, group="limits")
    ] = None
    graphics_clock_max_hertz: Annotated[
        float | None,
        Metric("Highest clock of the graphics engine.", "MaxClockInfo(NVML_CLOCK_GRAPHICS)", slow=True, group="limits"),
    ] = None
    video_clock_max_hertz: Annotated[
        float | None,
        Metric("Highest clock of the video engines.", "MaxClockInfo(NVML_CLOCK_VIDEO)", slow=True, group="limits"),
    ] = None
