"""The GPUs of this host: finding them, reading each once a cycle, losing and finding them again."""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import pynvml as nvml

from gpuwatch.agent.devices import SourceUnavailableError
from gpuwatch.agent.devices.nvml.calls import DRIVER, DRIVER_GONE, Device, GpuLostError, Table, Visit
from gpuwatch.agent.devices.nvml.events import XidEvents
from gpuwatch.agent.devices.nvml.gpm import release
from gpuwatch.agent.devices.nvml.rows import Tables, absent_links
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuReading
from gpuwatch.model.gpu_identity import order
from gpuwatch.model.metric import SLOW_SECONDS, STEADY_SECONDS
from gpuwatch.model.metric_groups import NAMES, GroupName
from gpuwatch.runtime.clock import Clock

FORGET_SECONDS = 600  # what was not supported may be, once NVLinks are trained or a mode has changed

_STAND_IN = "unidentified-"


@dataclass(slots=True)
class _Gpu:
    """One GPU: its identity, and its device or why there is none."""

    info: GpuInfo
    device: Device | None = None
    cause: DownCause = DownCause.LOST  # this and `detail`: why there is no device
    detail: str = ""
    slow_at: float | None = None  # when the slow rows were read
    steady_at: float | None = None
    steady_reads: int = 0
    listed_at: float | None = None  # when its processes were listed
    listed_memory: int | None = None  # in use then
    asked_at: float = 0.0  # when it was last asked for everything

    def found(self, device: Device, info: GpuInfo) -> None:
        """Note that it answers, for the first time or again."""
        self.info, self.device, self.slow_at = info, device, None
        self.steady_reads = 0
        self.hurry()

    def hurry(self) -> None:
        """Read the steady rows and the processes in the next cycle."""
        self.steady_at = self.listed_at = None

    def steady_due(self, now: float) -> bool:
        """Whether the steady rows must be read: now and then, and twice at first, as activity is a difference."""
        known = self.steady_at is not None and self.steady_reads > 1
        return not known or now - (self.steady_at or 0.0) >= STEADY_SECONDS

    def holders_due(self, now: float, memory: int | None) -> bool:
        """Whether processes must be listed. One that comes or goes changes the memory in use; else now and then."""
        at = self.listed_at
        return at is None or memory is None or memory != self.listed_memory or now - at >= STEADY_SECONDS

    def gone(self, cause: DownCause, detail: str) -> None:
        """Note that it does not answer any more, and why."""
        if self.device is not None:
            release(self.device)
        self.device, self.cause, self.detail = None, cause, detail


class NvmlSource:
    """The GPUs of this host. One NVML client is kept open, so that the driver stays loaded between cycles."""

    def __init__(self, clock: Clock, groups: Collection[GroupName] = NAMES) -> None:
        """Touch nothing yet: the driver is opened by the first `gpus()`, and again after it was gone.

        What only other `groups` of metrics show is not read.
        """
        self._tables = Tables.of(groups)
        self.whole = True
        self._clock = clock
        self._gpus: dict[str, _Gpu] = {}
        self._count = 0
        self._open = False
        self._events = XidEvents()

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that the driver lists or ever listed, by index; one lost before it gave its uuid has a stand-in."""
        self.whole = True
        try:
            if not self._open:
                nvml.nvmlInit()
                self._open, self._count = True, -1
            count = nvml.nvmlDeviceGetCount()
            if count != self._count or any(gpu.device is None for gpu in self._gpus.values()):
                self._enumerate(count)
        except nvml.NVMLError as error:
            raise self._failed(error) from error
        return tuple(sorted((gpu.info for gpu in self._gpus.values()), key=lambda info: order(info.uuid, info.index)))

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """Read one GPU once."""
        at = self._clock.now()
        known = self._gpus.get(gpu.uuid) or _Gpu(info=gpu, cause=DownCause.MISSING, detail="never listed here")
        values = dict[str, Any]()
        try:
            if known.device is not None:
                values = self._measure(known, known.device)
        except GpuLostError as lost:
            known.gone(DownCause.LOST, str(lost))
        except nvml.NVMLError as error:
            raise self._failed(error) from error
        if known.device is None:
            return GpuDown(info=known.info, at=at, cause=known.cause, detail=known.detail)
        self._events.watch(known.info.uuid, known.device, self._clock.monotonic())
        return GpuReading(info=known.info, at=at, **values)

    def hurry(self) -> None:
        """Read in the next cycle what is not read in each."""
        for gpu in self._gpus.values():
            gpu.hurry()

    def events(self) -> tuple[tuple[str, int], ...]:
        """XIDs of the GPUs that have been read, since the last call."""
        return self._events.take(self._clock.monotonic())

    def close(self) -> None:
        """Release the driver; its library stays mapped until the process ends."""
        if self._open:
            self._open = False
            self._events.close()
            for gpu in self._gpus.values():
                gpu.gone(DownCause.DRIVER, "the driver was released")
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _measure(self, gpu: _Gpu, device: Device) -> dict[str, Any]:
        """The value of each row; a GPU that answers nothing but errors is gone."""
        now = self._clock.monotonic()
        tables = self._tables
        visits: list[Visit] = []
        if gpu.slow_at is None or now - gpu.asked_at >= FORGET_SECONDS:
            device.forget()
            device.unsupported |= absent_links(tables, device, now)
            gpu.asked_at = now
        asked: dict[str, Any] = {}

        def read(table: Table) -> dict[str, Any]:
            visits.append(Visit(device, table, now))
            values = visits[-1].read()  # nothing of the last time outlives a failure
            asked.update(values)
            return values

        if gpu.slow_at is None or now - gpu.slow_at >= SLOW_SECONDS:
            device.slow, gpu.slow_at = read(tables.slow), now
        fast, whole = read(tables.fast), True
        if gpu.steady_due(now):
            device.steady, gpu.steady_at = read(tables.steady), now
            gpu.steady_reads = 0 if visits[-1].failure else gpu.steady_reads + 1
        else:
            whole = False
        if gpu.holders_due(now, memory := fast.get("memory_used_bytes")):
            device.holders, gpu.listed_memory = read(tables.holders), memory
            gpu.listed_at = None if visits[-1].failure else now
        else:
            whole = False
        self.whole = self.whole and whole
        failure = next((visit.failure for visit in visits if visit.failure), "")
        if failure and all(value is None for value in asked.values()):
            gpu.gone(DownCause.ERROR, failure)
        return device.slow | device.steady | device.holders | fast

    def _failed(self, error: nvml.NVMLError) -> SourceUnavailableError:
        if error.value in DRIVER:
            self.close()
        cause, remedy = DRIVER.get(error.value, ("nvml_error", "look at `nvidia-smi` and `dmesg | grep NVRM`"))
        return SourceUnavailableError(cause, f"NVML error {error.value}: {error}", remedy)

    def _enumerate(self, count: int) -> None:
        listed = [self._find(index) for index in range(count)]
        self._gpus = {uuid: gpu for uuid, gpu in self._gpus.items() if uuid in listed or not uuid.startswith(_STAND_IN)}
        for uuid in self._gpus.keys() - set(listed):
            missing = self._gpus[uuid]
            missing.gone(DownCause.MISSING, "the driver no longer lists it")
            if missing.info.index is not None and missing.info.index < count:
                missing.info = replace(missing.info, index=None)  # it is another one's now
        self._count = count

    def _find(self, index: int) -> str:
        """Open the GPU that the driver lists there; returns its uuid, or that of the GPU last seen there."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            if error.value in DRIVER_GONE:
                raise
            stand_in = GpuInfo(uuid=f"{_STAND_IN}{index}", index=index)
            info = next((gpu.info for gpu in self._gpus.values() if gpu.info.index == index), stand_in)
            gpu = self._gpus.setdefault(info.uuid, _Gpu(info=info))
            barred = error.value == nvml.NVML_ERROR_NO_PERMISSION
            gpu.gone(DownCause.ERROR if barred else DownCause.LOST, f"nvmlDeviceGetHandleByIndex({index}): {error}")
            return info.uuid
        gpu = self._gpus.setdefault(uuid, _Gpu(info=GpuInfo(uuid=uuid, index=index)))
        if gpu.device is None:
            gpu.found(Device(handle=handle), _identify(handle, uuid, index))
        else:
            gpu.device.handle = handle
        gpu.info = replace(gpu.info, index=index)
        return str(uuid)


def _identify(handle: Any, uuid: str, index: int) -> GpuInfo:  # noqa: ANN401  pynvml is untyped
    cuda = _answer(nvml.nvmlSystemGetCudaDriverVersion)
    return GpuInfo(
        uuid=uuid,
        index=index,
        name=_answer(nvml.nvmlDeviceGetName, handle),
        pci_bus_id=_answer(lambda: str(nvml.nvmlDeviceGetPciInfo_v3(handle).busId)),
        driver_version=_answer(nvml.nvmlSystemGetDriverVersion),
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        vbios_version=_answer(nvml.nvmlDeviceGetVbiosVersion, handle),
        serial=_answer(nvml.nvmlDeviceGetSerial, handle),
    )


def _answer(question: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401  pynvml is untyped
    with contextlib.suppress(nvml.NVMLError):
        return question(*args)
    return None
