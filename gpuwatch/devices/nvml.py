"""NVIDIA GPUs through NVML. A metric is one field of GpuReading and one row of ROWS.

Rules: a value that the driver does not give in this very cycle is None; what a GPU does not support is not asked again
until the GPU is found anew; a row's next way is tried only where the one before is unsupported or has nothing new,
never after an error; a lost GPU is down while the others are read as ever.
"""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pynvml as nvml

from gpuwatch.clock import Clock
from gpuwatch.devices import SourceUnavailableError
from gpuwatch.model.gpu import CLOCK_EVENTS, DownCause, GpuDown, GpuInfo, GpuProcess, GpuReading, ProcessKind


class Absence(Enum):
    """Why a call gave no value."""

    UNSUPPORTED = "unsupported"  # this GPU or this driver cannot tell
    NOTHING = "nothing"  # nothing new since the last call
    FAILED = "failed"  # it should have answered


class _GpuLostError(Exception):
    """The driver has lost this GPU."""


# pynvml raises its error also for "success" where a list is empty.
_NOTHING = {nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_NO_DATA}
_MISSING = {nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}  # in an older driver
_UNSUPPORTED = {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_DEPRECATED, *_MISSING}
_LOST = {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_GPU_NOT_FOUND}

# Errors of the whole driver: cause for machines, remedy for people. After version_mismatch only a fresh process helps,
# because the old library stays mapped in this one.
_DRIVER = {
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: ("driver_not_loaded", "load it: `modprobe nvidia`, then `dmesg | grep NVRM`"),
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: ("library_not_found", "install the NVIDIA driver or its container runtime"),
    nvml.NVML_ERROR_NO_PERMISSION: ("no_permission", "let this user read and write /dev/nvidiactl and /dev/nvidia*"),
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ("version_mismatch", "after an upgrade, reload the module or reboot"),
    nvml.NVML_ERROR_UNINITIALIZED: ("driver_reloaded", "none needed: it is opened again in the next cycle"),
}
_DRIVER_GONE = set(_DRIVER) - {nvml.NVML_ERROR_NO_PERMISSION}  # while reading, that one is about a single call


@dataclass(slots=True)
class _Gpu:
    """What is remembered of one GPU between cycles: who it is, how to reach it, what it cannot do."""

    info: GpuInfo
    handle: Any = None
    cause: DownCause = DownCause.LOST  # this and `detail`: why there is no handle
    detail: str = ""
    unsupported: set[object] = field(default_factory=set)
    samples_seen: int | None = None  # the driver's time stamp of the newest sample that was looked at

    def found(self, handle: Any, info: GpuInfo) -> None:  # noqa: ANN401  pynvml is untyped
        """It answers, for the first time or again."""
        self.info, self.handle = info, handle
        self.unsupported.clear()
        self.samples_seen = None

    def gone(self, cause: DownCause, detail: str) -> None:
        """It does not answer any more."""
        self.handle, self.cause, self.detail = None, cause, detail


@dataclass(slots=True)
class _Visit:
    """One GPU in one cycle: each driver call is made at most once, however many fields it serves."""

    gpu: _Gpu
    answers: dict[object, Any] = field(default_factory=dict)
    failure: str = ""

    def once(self, key: object, answer: Callable[[], Any]) -> Any:  # noqa: ANN401  pynvml is untyped
        """What `answer` said the first time."""
        if key not in self.answers:
            self.answers[key] = Absence.UNSUPPORTED if key in self.gpu.unsupported else answer()
        return self.answers[key]

    def call(self, key: object, name: str, *args: object) -> Any:  # noqa: ANN401  likewise
        """The answer of a function of pynvml, or an Absence; `key` is what may turn out to be unsupported."""
        try:
            return getattr(nvml, name)(self.gpu.handle, *args)
        except (AttributeError, nvml.NVMLLibraryMismatchError):  # an older binding, an older driver
            self.gpu.unsupported.add(key)
            return Absence.UNSUPPORTED
        except nvml.NVMLError as error:
            return self.judge(key, name, error)

    def judge(self, key: object, name: str, error: nvml.NVMLError) -> Absence:
        """What an error means for the value that was asked for; raises where it means more than that."""
        if error.value in _LOST:
            raise _GpuLostError(f"{name}: {error}") from error
        if error.value in _DRIVER_GONE:
            raise error
        if error.value in _NOTHING:
            return Absence.NOTHING
        if error.value in _UNSUPPORTED:
            self.gpu.unsupported.add(key)
            return Absence.UNSUPPORTED
        self.failure = self.failure or f"{name}: {error}"
        return Absence.FAILED


@dataclass(frozen=True, slots=True)
class Call:
    """A value out of the answer of one function of pynvml, given the device and `args`."""

    name: str
    convert: Callable[[Any], Any]
    args: tuple[object, ...] = ()

    def of(self, visit: _Visit) -> Any:  # noqa: ANN401  likewise
        """The converted answer."""
        key = (self.name, self.args)
        answer = visit.once(key, lambda: visit.call(key, self.name, *self.args))
        return answer if isinstance(answer, Absence) else self.convert(answer)


# nvmlValueType_t in its order: which member of the union holds the value.
_UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _number(value_type: int, union: Any) -> Any:  # noqa: ANN401  pynvml is untyped
    return getattr(union, _UNION[value_type]) if value_type < len(_UNION) else None


@dataclass(frozen=True, slots=True)
class Field:
    """A value of nvmlDeviceGetFieldValues; those of all rows travel in one call."""

    id: int
    convert: Callable[[Any], Any]
    scope: int = 0

    def of(self, visit: _Visit) -> Any:  # noqa: ANN401  likewise
        """This field's entry, judged by its own return code."""
        key = (self.id, self.scope)
        if key in visit.gpu.unsupported:
            return Absence.UNSUPPORTED
        entries = visit.once("fields", lambda: _batch(visit))
        if isinstance(entries, Absence):
            return entries
        entry = entries[key]
        if entry.nvmlReturn != nvml.NVML_SUCCESS:
            unheard_of = entry.nvmlReturn == nvml.NVML_ERROR_INVALID_ARGUMENT  # an id newer than this driver
            code = nvml.NVML_ERROR_NOT_SUPPORTED if unheard_of else entry.nvmlReturn
            return visit.judge(key, f"field {self.id}", nvml.NVMLError(code))
        number = _number(entry.valueType, entry.value)
        return None if number is None else self.convert(number)


def _batch(visit: _Visit) -> Any:  # noqa: ANN401  pynvml is untyped
    wanted = [key for key in FIELDS if key not in visit.gpu.unsupported]
    answer = visit.call("fields", "nvmlDeviceGetFieldValues", wanted)
    return answer if isinstance(answer, Absence) else {(entry.fieldId, entry.scopeId): entry for entry in answer}


@dataclass(frozen=True, slots=True)
class Samples:
    """The driver's utilization samples since the last cycle, folded into one ratio."""

    fold: Callable[[Sequence[float]], float]

    def of(self, visit: _Visit) -> Any:  # noqa: ANN401  likewise
        """The fold; NOTHING in the first cycle, whose backlog is older than anything that was asked for."""
        percents = visit.once("samples", lambda: _fresh_percents(visit))
        return percents if isinstance(percents, Absence) else self.fold(percents) / 100


def _fresh_percents(visit: _Visit) -> list[float] | Absence:
    gpu, seen = visit.gpu, visit.gpu.samples_seen
    answer = visit.call("samples", "nvmlDeviceGetSamples", nvml.NVML_GPU_UTILIZATION_SAMPLES, seen or 0)
    if answer is Absence.NOTHING:
        gpu.samples_seen = seen or 0
    if isinstance(answer, Absence):
        return answer
    value_type, samples = answer
    fresh = [sample for sample in samples if sample.timeStamp > (seen or 0)]
    gpu.samples_seen = max((sample.timeStamp for sample in fresh), default=seen or 0)
    percents = [_number(value_type, sample.sampleValue) for sample in fresh]
    valid = [percent for percent in percents if _ratio(percent) is not None]
    return valid if valid and seen is not None else Absence.NOTHING


_LISTS = (("Compute", ProcessKind.COMPUTE), ("MPSCompute", ProcessKind.COMPUTE), ("Graphics", ProcessKind.GRAPHICS))
_NO_PIDS = {0, 0xFFFFFFFF}  # what a process list shows when binding and driver disagree on its struct (535.98)


class Processes:
    """Who holds the GPU: all lists merged by pid. One list that fails makes the whole unknown."""

    def of(self, visit: _Visit) -> Any:  # noqa: ANN401  likewise
        """The processes in the order of their pids."""
        lists = [(kind, _list(visit, f"nvmlDeviceGet{name}RunningProcesses")) for name, kind in _LISTS]
        if any(rows is Absence.FAILED for _, rows in lists):
            return Absence.FAILED
        if lists[0][1] is Absence.UNSUPPORTED:  # compute is what counts; the others may well be missing
            return Absence.UNSUPPORTED
        found: dict[int, GpuProcess] = {}
        for kind, rows in lists:
            for row in [] if isinstance(rows, Absence) else rows:
                if row.pid not in _NO_PIDS:
                    known = found.setdefault(row.pid, GpuProcess(pid=row.pid, kind=kind))
                    sizes = [size for size in (known.memory_bytes, row.usedGpuMemory) if size is not None]
                    found[row.pid] = replace(known, memory_bytes=max(sizes, default=None))
        return tuple(found[pid] for pid in sorted(found))


def _list(visit: _Visit, name: str) -> Any:  # noqa: ANN401  pynvml is untyped
    def version(suffix: str) -> Any:  # noqa: ANN401  likewise
        key = name + suffix
        return visit.once(key, lambda: visit.call(key, key))

    rows = version("_v3")
    if rows is Absence.UNSUPPORTED or (isinstance(rows, list) and any(row.pid in _NO_PIDS for row in rows)):
        older = version("_v2")
        return older if isinstance(older, list) else rows
    return rows


def _ratio(percent: float | None) -> float | None:
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None  # noqa: PLR2004  percent


def _milli(value: float) -> float:
    return value / 1000


def _events(mask: int) -> tuple[str, ...]:
    return tuple(name for bit, name in CLOCK_EVENTS.items() if mask & bit)


# How a value is learnt: `of` gives it in base units, None where the driver's answer cannot be true, or an Absence.
Way = Call | Field | Samples | Processes
_RATES = "nvmlDeviceGetUtilizationRates"
_CORE = (nvml.NVML_TEMPERATURE_GPU,)
_STAND_IN = "unidentified-"


def _memory(member: str) -> tuple[Way, ...]:
    version_2 = (nvml.nvmlMemory_v2,)  # version 1 counts what the driver reserves as used
    return (Call("nvmlDeviceGetMemoryInfo", lambda memory: getattr(memory, member), version_2),)


def _clock(kind: int) -> Way:
    return Call("nvmlDeviceGetClockInfo", lambda megahertz: megahertz * 1e6, (kind,))


ROWS: dict[str, tuple[Way, ...]] = {
    "utilization_ratio": (Samples(statistics.fmean), Call(_RATES, lambda rates: _ratio(rates.gpu))),
    "utilization_max_ratio": (Samples(max), Call(_RATES, lambda rates: _ratio(rates.gpu))),
    "memory_bandwidth_utilization_ratio": (Call(_RATES, lambda rates: _ratio(rates.memory)),),
    "memory_total_bytes": _memory("total"),
    "memory_used_bytes": _memory("used"),
    "memory_free_bytes": _memory("free"),
    "memory_reserved_bytes": _memory("reserved"),
    "temperature_celsius": (
        Call("nvmlDeviceGetTemperatureV", float, _CORE),
        Call("nvmlDeviceGetTemperature", float, _CORE),
    ),
    "memory_temperature_celsius": (Field(nvml.NVML_FI_DEV_MEMORY_TEMP, float),),
    "power_watts": (
        Field(nvml.NVML_FI_DEV_POWER_AVERAGE, _milli, scope=nvml.NVML_POWER_SCOPE_GPU),
        Call("nvmlDeviceGetPowerUsage", _milli),
    ),
    "power_limit_watts": (Call("nvmlDeviceGetEnforcedPowerLimit", _milli),),
    "energy_joules_total": (Field(nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, _milli),),
    "sm_clock_hertz": (_clock(nvml.NVML_CLOCK_SM),),
    "memory_clock_hertz": (_clock(nvml.NVML_CLOCK_MEM),),
    "ecc_uncorrected_volatile_errors_total": (Field(nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, int),),
    "ecc_uncorrected_aggregate_errors_total": (Field(nvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL, int),),
    "clock_events": (
        Call("nvmlDeviceGetCurrentClocksEventReasons", _events),
        Call("nvmlDeviceGetCurrentClocksThrottleReasons", _events),  # its name before R535
    ),
    "processes": (Processes(),),
}
FIELDS = tuple((way.id, way.scope) for ways in ROWS.values() for way in ways if isinstance(way, Field))


def _value(visit: _Visit, ways: tuple[Way, ...]) -> Any:  # noqa: ANN401  the row knows the type
    for way in ways:
        value = way.of(visit)
        if value is Absence.FAILED:
            return None
        if not isinstance(value, Absence):
            return value
    return None


class NvmlSource:
    """The GPUs of this host. One NVML client is kept open, so that the driver stays loaded between cycles."""

    def __init__(self, clock: Clock) -> None:
        """Touch nothing yet: the driver is opened by the first `gpus()`, and again after it was gone."""
        self._clock = clock
        self._gpus: dict[str, _Gpu] = {}
        self._count = 0
        self._open = False

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that the driver lists or ever listed, by index; one lost before it gave its uuid has a stand-in."""
        try:
            if not self._open:
                nvml.nvmlInit()
                self._open, self._count = True, -1
            count = nvml.nvmlDeviceGetCount()
            if count != self._count or any(gpu.handle is None for gpu in self._gpus.values()):
                self._enumerate(count)
        except nvml.NVMLError as error:
            raise self._failed(error) from error
        return tuple(sorted((gpu.info for gpu in self._gpus.values()), key=lambda info: (info.index, info.uuid)))

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """One cycle of one GPU."""
        at = self._clock.now()
        known = self._gpus.get(gpu.uuid) or _Gpu(info=gpu, cause=DownCause.MISSING, detail="never listed here")
        visit, values = _Visit(known), dict[str, Any]()
        try:
            if known.handle is not None:
                values = {name: _value(visit, ways) for name, ways in ROWS.items()}
        except _GpuLostError as lost:
            known.gone(DownCause.LOST, str(lost))
        except nvml.NVMLError as error:
            raise self._failed(error) from error
        if visit.failure and all(value is None for value in values.values()):
            known.gone(DownCause.ERROR, visit.failure)
        if known.handle is None:
            return GpuDown(info=known.info, at=at, cause=known.cause, detail=known.detail)
        return GpuReading(info=known.info, at=at, **values)

    def close(self) -> None:
        """Let go of the driver; the library itself stays mapped until the process ends."""
        if self._open:
            self._open = False
            for gpu in self._gpus.values():
                gpu.gone(DownCause.DRIVER, "the driver was let go of")
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _failed(self, error: nvml.NVMLError) -> SourceUnavailableError:
        if error.value in _DRIVER:
            self.close()
        cause, remedy = _DRIVER.get(error.value, ("nvml_error", "look at `nvidia-smi` and `dmesg | grep NVRM`"))
        return SourceUnavailableError(cause, f"NVML error {error.value}: {error}", remedy)

    def _enumerate(self, count: int) -> None:
        listed = [self._find(index) for index in range(count)]
        self._gpus = {uuid: gpu for uuid, gpu in self._gpus.items() if uuid in listed or not uuid.startswith(_STAND_IN)}
        for uuid in self._gpus.keys() - set(listed):
            self._gpus[uuid].gone(DownCause.MISSING, "the driver no longer lists it")
        self._count = count

    def _find(self, index: int) -> str:
        """Take hold of the GPU that the driver lists there; its uuid, or that of the one last seen there."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            if error.value in _DRIVER_GONE:
                raise
            stand_in = GpuInfo(uuid=f"{_STAND_IN}{index}", index=index)
            info = next((gpu.info for gpu in self._gpus.values() if gpu.info.index == index), stand_in)
            gpu = self._gpus.setdefault(info.uuid, _Gpu(info=info))
            barred = error.value == nvml.NVML_ERROR_NO_PERMISSION
            gpu.gone(DownCause.ERROR if barred else DownCause.LOST, f"nvmlDeviceGetHandleByIndex({index}): {error}")
            return info.uuid
        gpu = self._gpus.setdefault(uuid, _Gpu(info=GpuInfo(uuid=uuid, index=index)))
        if gpu.handle is None:
            gpu.found(handle, _identify(handle, uuid, index))
        gpu.handle, gpu.info = handle, replace(gpu.info, index=index)
        return str(uuid)


def _identify(handle: Any, uuid: str, index: int) -> GpuInfo:  # noqa: ANN401  pynvml is untyped
    cuda = _told(nvml.nvmlSystemGetCudaDriverVersion)
    return GpuInfo(
        uuid=uuid,
        index=index,
        name=_told(nvml.nvmlDeviceGetName, handle),
        pci_bus_id=_told(lambda: str(nvml.nvmlDeviceGetPciInfo_v3(handle).busId)),
        driver_version=_told(nvml.nvmlSystemGetDriverVersion),
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        vbios_version=_told(nvml.nvmlDeviceGetVbiosVersion, handle),
    )


def _told(question: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401  likewise
    with contextlib.suppress(nvml.NVMLError):
        return question(*args)
    return None
