"""Drivers of seven generations of GPUs, written from the structures and constants of nvidia-ml-py and NVIDIA's pages.

It stands beside `nvml_stub/` and shares nothing with it, so that a mistake in one is not in both. It takes the place of
the library within pynvml. What NVIDIA says about a call ("for Ampere or newer") decides who supports it; where nothing
is said, only Hopper does, if an H200 was seen to. All figures of one unit are the same number, `RAW`, in the driver's
own units.
"""

import ctypes
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pynvml as nvml

# By the driver's unit.
RAW = {"%": 37, "°C": 61, "mW": 412_500, "mJ": 98_765_000, "MHz": 1410, "ns": 5_500_000_000, "KiB": 2048, "MiB/s": 96}
RAW |= {"bytes": 7_340_032, "count": 3, "flag": 1, "generation": 4, "lanes": 16}

TURING, AMPERE, ADA, HOPPER, BLACKWELL = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One product: its architecture, NVLinks, and what its board has."""

    name: str
    architecture: int
    links: int = 0
    fabric: bool = False  # of NVSwitches, which GPUs since Hopper report
    hbm: bool = True
    mig: bool = True
    grace: bool = False


GENERATIONS = {
    each.name: each
    for each in (
        Generation(name="T4", architecture=TURING, hbm=False, mig=False),
        Generation(name="A100", architecture=AMPERE, links=12),
        Generation(name="L40S", architecture=ADA, hbm=False, mig=False),
        Generation(name="H100", architecture=HOPPER, links=18, fabric=True),
        Generation(name="B200", architecture=BLACKWELL, links=18, fabric=True),
        Generation(name="GB200", architecture=BLACKWELL, links=18, fabric=True, grace=True),
        Generation(name="GB300", architecture=BLACKWELL, links=18, fabric=True, grace=True),
    )
}

_UINT, _ULL, _INT = 1, 3, 5
_EVERY_LINK = 0xFFFFFFFF
_UNIT_OF_FIELD = {83: "mJ", 74: "ns", 76: "ns", 269: "ns", 270: "ns", 271: "ns", 82: "°C", 1: "flag"}
_UNIT_OF_FIELD |= dict.fromkeys((185, 186, 187, 188, 189), "mW") | dict.fromkeys((193, 194, 195, 196), "°C")
_UNIT_OF_FIELD |= dict.fromkeys((138, 139), "KiB") | dict.fromkeys((197, 198, 202, 204), "bytes")
_UNIT_OF_FIELD |= dict.fromkeys((31, 144, 145), "flag")


class Library:
    """What pynvml finds in the place of libnvidia-ml.so.1. A function that is not there is an AttributeError."""

    def __init__(self, generation: Generation) -> None:
        """One GPU of that generation."""
        self._gpu = generation
        self._clock = 0
        for name, unit in _PLAIN.items():
            setattr(self, name, _answer(RAW[unit], ctypes.c_int if unit == "°C" else ctypes.c_uint))
        for name in ("nvmlInitWithFlags", "nvmlShutdown", "nvmlGpmSampleFree", "nvmlGpmSampleAlloc"):
            setattr(self, name, lambda *_: nvml.NVML_SUCCESS)
        for name in ("Compute", "Graphics", "MPSCompute"):
            setattr(self, f"nvmlDeviceGet{name}RunningProcesses_v3", lambda *_: nvml.NVML_SUCCESS)
        for name, supported in (
            ("nvmlDeviceGetFanSpeed", False),  # all seven are cooled by their host's fans
            ("nvmlDeviceGetMigMode", generation.mig),
            ("nvmlDeviceGetMarginTemperature", generation.architecture >= ADA),
            ("nvmlDeviceGetSramEccErrorStatus", generation.architecture >= AMPERE),
        ):
            if not supported:
                setattr(self, name, lambda *_: nvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlErrorString(self, _: Any) -> bytes:  # noqa: N802, ANN401  as NVML has it
        """The words for a code."""
        return b"an error"

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802, ANN401  as above
        """One GPU."""
        return _set(count, 1)

    def nvmlDeviceGetHandleByIndex_v2(self, *_: Any) -> int:  # noqa: N802, ANN401  as above
        """The GPU: its handle means nothing here."""
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetUUID(self, _: Any, text: Any, __: Any) -> int:  # noqa: N802, ANN401  as above
        """Who it is."""
        text.value = b"GPU-0f0f0f0f-1111-2222-3333-444444444444"
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetName(self, _: Any, text: Any, __: Any) -> int:  # noqa: N802, ANN401  as above
        """The product."""
        text.value = f"NVIDIA {self._gpu.name}".encode()
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetUtilizationRates(self, _: Any, rates: Any) -> int:  # noqa: N802, ANN401  as above
        """Of the GPU and its memory."""
        rates._obj.gpu = rates._obj.memory = RAW["%"]
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetSamples(self, _: Any, __: Any, ___: Any, kind: Any, count: Any, samples: Any) -> int:  # noqa: N802, ANN401  as above
        """One new sample at each call."""
        _set(count, 1)
        if samples is not None:
            self._clock += 1
            entry = nvml.c_nvmlSample_t.from_buffer(samples)
            entry.timeStamp, entry.sampleValue.uiVal = self._clock, RAW["%"]
            _set(kind, _UINT)
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetMemoryInfo_v2(self, _: Any, memory: Any) -> int:  # noqa: N802, ANN401  as above
        """Version 2 tells what the driver reserves."""
        if memory._obj.version != nvml.nvmlMemory_v2:
            return int(nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        for member in ("total", "used", "free", "reserved"):
            setattr(memory._obj, member, RAW["bytes"])
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetBAR1MemoryInfo(self, _: Any, memory: Any) -> int:  # noqa: N802, ANN401  as above
        """The window through which PCIe sees the memory."""
        memory._obj.bar1Total = memory._obj.bar1Used = RAW["bytes"]
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetTemperatureV(self, _: Any, reading: Any) -> int:  # noqa: N802, ANN401  as above
        """Of the core."""
        reading._obj.temperature = RAW["°C"]
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetMarginTemperature(self, _: Any, reading: Any) -> int:  # noqa: N802, ANN401  as above
        """Degrees to the nearest limit."""
        reading._obj.marginTemperature = RAW["°C"]
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetSramEccErrorStatus(self, _: Any, status: Any) -> int:  # noqa: N802, ANN401  as above
        """Past the threshold."""
        if status._obj.version != nvml.nvmlEccSramErrorStatus_v1:
            return int(nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        status._obj.bThresholdExceeded = RAW["flag"]
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetGpuFabricInfoV(self, _: Any, fabric: Any) -> int:  # noqa: N802, ANN401  as above
        """Joined, and well but for its bandwidth; a GPU without a fabric answers, too: not supported."""
        info, mask = fabric._obj, "NVML_GPU_FABRIC_HEALTH_MASK"
        if info.version not in {nvml.nvmlGpuFabricInfo_v2, nvml.nvmlGpuFabricInfo_v3}:
            return int(nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        if not self._gpu.fabric:
            info.state = nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
            return int(nvml.NVML_SUCCESS)
        info.state, info.status, info.healthMask = nvml.NVML_GPU_FABRIC_STATE_COMPLETED, nvml.NVML_SUCCESS, 0
        for word, value in (
            ("DEGRADED_BW", "TRUE"),
            ("ROUTE_RECOVERY", "FALSE"),
            ("ROUTE_UNHEALTHY", "FALSE"),
            ("ACCESS_TIMEOUT_RECOVERY", "FALSE"),
            ("INCORRECT_CONFIGURATION", "NONE"),
        ):
            info.healthMask |= getattr(nvml, f"{mask}_{word}_{value}") << getattr(nvml, f"{mask}_SHIFT_{word}")
        return int(nvml.NVML_SUCCESS)

    def nvmlGpmQueryDeviceSupport(self, _: Any, support: Any) -> int:  # noqa: N802, ANN401  as above
        """Hopper or newer."""
        support._obj.isSupportedDevice = int(self._gpu.architecture >= HOPPER)
        return int(nvml.NVML_SUCCESS)

    def nvmlGpmSampleGet(self, *_: Any) -> int:  # noqa: N802, ANN401  as above
        """Nothing to do."""
        return int(nvml.NVML_SUCCESS)

    def nvmlGpmMetricsGet(self, request: Any) -> int:  # noqa: N802, ANN401  as above
        """Percents, and rates in MiB/s."""
        rates = {20, 21, 60, 61, 100, 101}
        for entry in request._obj.metrics[: request._obj.numMetrics]:
            entry.nvmlReturn, entry.value = nvml.NVML_SUCCESS, RAW["MiB/s" if entry.metricId in rates else "%"]
        return int(nvml.NVML_SUCCESS)

    def nvmlDeviceGetFieldValues(self, _: Any, count: Any, buffer: Any) -> int:  # noqa: N802, ANN401  as above
        """Each entry has its own code."""
        for entry in (nvml.c_nvmlFieldValue_t * count.value).from_buffer(buffer):
            if not self._has(entry.fieldId, entry.scopeId):
                entry.nvmlReturn = nvml.NVML_ERROR_NOT_SUPPORTED
                continue
            raw = self._gpu.links if entry.fieldId == nvml.NVML_FI_DEV_NVLINK_LINK_COUNT else 0
            raw = raw or RAW[_UNIT_OF_FIELD.get(entry.fieldId, "count")]
            entry.nvmlReturn, entry.valueType, entry.value.ullVal = nvml.NVML_SUCCESS, _ULL, raw
            if 193 <= entry.fieldId <= 196:
                entry.valueType, entry.value.siVal = _INT, raw
        return int(nvml.NVML_SUCCESS)

    def _has(self, field: int, scope: int) -> bool:
        """Whether NVIDIA's header gives this field to this generation."""
        gpu, link = self._gpu, scope < self._gpu.links
        switch: dict[Collection[int], bool] = {
            (1, 3, 4, 5, 6, 74, 76, 83, 94, 187, 188, 189, 269, 270, 271): True,
            (29, 30, 31): gpu.architecture == TURING,  # since Ampere rows are remapped
            (142, 143, 144, 145): gpu.architecture >= AMPERE,
            (38, 45, 52): gpu.architecture == AMPERE and gpu.links > 0,
            (82,): gpu.hbm,
            (91,): gpu.links > 0,
            (138, 139): (gpu.architecture in {AMPERE, HOPPER}) and gpu.links > 0 and (link or scope == _EVERY_LINK),
            (161, 162, 163): gpu.architecture == HOPPER and link,
            (202, 204, 208, 211, 215, 219): gpu.architecture == BLACKWELL and link,
            (193, 194, 195, 196): gpu.architecture >= ADA,
            (197, 198, 230, *range(173, 184)): gpu.architecture == HOPPER,  # seen, not said
        }
        if (field, scope) == (185, 2):
            return gpu.architecture == HOPPER  # seen, not said
        if field in {185, 186}:
            average = gpu.architecture >= ADA or field == 186
            return average if scope == 0 else scope == 1 and gpu.grace
        return next((there for fields, there in switch.items() if field in fields), False)


_PLAIN = {
    "nvmlDeviceGetEncoderUtilization": "%",
    "nvmlDeviceGetDecoderUtilization": "%",
    "nvmlDeviceGetJpgUtilization": "%",
    "nvmlDeviceGetOfaUtilization": "%",
    "nvmlDeviceGetPowerUsage": "mW",
    "nvmlDeviceGetEnforcedPowerLimit": "mW",
    "nvmlDeviceGetClockInfo": "MHz",
    "nvmlDeviceGetMaxClockInfo": "MHz",
    "nvmlDeviceGetPerformanceState": "count",
    "nvmlDeviceGetCurrPcieLinkGeneration": "generation",
    "nvmlDeviceGetMaxPcieLinkGeneration": "generation",
    "nvmlDeviceGetCurrPcieLinkWidth": "lanes",
    "nvmlDeviceGetMaxPcieLinkWidth": "lanes",
    "nvmlDeviceGetPersistenceMode": "flag",
    "nvmlDeviceGetComputeMode": "count",
    "nvmlDeviceGetMigMode": "flag",
    "nvmlDeviceGetMaxMigDeviceCount": "count",
}


def _set(place: Any, value: int) -> int:  # noqa: ANN401  pynvml is untyped
    place._obj.value = value
    return int(nvml.NVML_SUCCESS)


def _answer(value: int, _: type) -> Callable[..., int]:
    """A function that writes one number to each of its places."""

    def function(*arguments: Any) -> int:  # noqa: ANN401  as above
        for place in arguments:
            if hasattr(place, "_obj"):
                place._obj.value = value
        return int(nvml.NVML_SUCCESS)

    return function
