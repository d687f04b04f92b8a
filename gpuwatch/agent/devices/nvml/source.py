"""The GPUs of this host: finding them, reading each once a cycle, losing and finding them again.

A GPU that hangs any call about it must not be touched, not even to ask who it is. Where there is one, NVML is opened
without attaching GPUs, and each of the others is opened by its own PCI bus id: that initialises this GPU alone
(nvmlDeviceGetHandleByPciBusId_v2; the lookup by uuid may initialise others). Else GPUs are opened by their index.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml as nvml

from gpuwatch.agent.devices import HUNG, SourceUnavailableError
from gpuwatch.agent.devices.buses import bus_ids, canonical
from gpuwatch.agent.devices.messages import Step
from gpuwatch.agent.devices.nvml.calls import DRIVER, DRIVER_GONE, LOST, SHUT, Device, GpuLostError, Table, Visit
from gpuwatch.agent.devices.nvml.events import XidEvents
from gpuwatch.agent.devices.nvml.gpm import release
from gpuwatch.agent.devices.nvml.rows import Tables, absent_links
from gpuwatch.agent.devices.plausible import impossible_sizes
from gpuwatch.model.gpu import RECOVERY_ACTIONS, DownCause, GpuDown, GpuInfo, GpuReading
from gpuwatch.model.gpu_identity import STAND_IN, order
from gpuwatch.model.metric import COSTLY_SECONDS, GROUP_NAMES, SLOW_SECONDS, STEADY_SECONDS, GroupName
from gpuwatch.runtime.clock import Clock

FORGET_SECONDS = 600  # what was not supported may be, once NVLinks are trained or a mode has changed

_UUID = re.compile(r"[0-9A-Za-z-]{8,96}")  # of Tegra without the GPU-
_NO_ATTACH = 2  # NVML_INIT_FLAG_NO_ATTACH


@dataclass(slots=True)
class _Gpu:
    """One GPU: its identity, and its device or why it is missing."""

    info: GpuInfo
    device: Device | None = None
    cause: DownCause = DownCause.LOST  # this and `detail`: why there is no device
    detail: str = ""
    slow_at: float | None = None  # when the slow rows were read
    costly_at: float | None = None
    steady_at: float | None = None
    steady_reads: int = 0
    listed_at: float | None = None  # when its processes were listed
    listed_memory: int | None = None  # in use then
    asked_at: float = 0.0  # when it was last asked for everything

    def note_answer(self, device: Device, info: GpuInfo) -> None:
        """Note that it answers, for the first time or again."""
        self.info, self.device, self.slow_at = info, device, None
        self.steady_reads = 0
        self.hurry()

    def hurry(self) -> None:
        """Read the costly and the steady rows and the processes in the next cycle."""
        self.costly_at = self.steady_at = self.listed_at = None

    def steady_due(self, now: float) -> bool:
        """Whether the steady rows must be read: now and then, and twice at first, as activity is a difference."""
        known = self.steady_at is not None and self.steady_reads > 1
        return not known or now - (self.steady_at or 0.0) >= STEADY_SECONDS

    def costly_due(self, now: float) -> bool:
        """Whether the costly rows must be read."""
        return self.costly_at is None or now - self.costly_at >= COSTLY_SECONDS

    def holders_due(self, now: float, memory: int | None) -> bool:
        """Whether processes must be listed. One that comes or goes changes the memory in use; else now and then."""
        at = self.listed_at
        return at is None or memory is None or memory != self.listed_memory or now - at >= STEADY_SECONDS

    def note_loss(self, cause: DownCause, detail: str) -> None:
        """Note that it does not answer any more, and why."""
        if self.device is not None:
            release(self.device)
        self.device, self.cause, self.detail = None, cause, detail


class NvmlSource:
    """The GPUs of this host. One NVML client is kept open, so that the driver stays loaded between cycles."""

    def __init__(
        self,
        clock: Clock,
        groups: Collection[GroupName] = GROUP_NAMES,
        *,
        barred: Iterable[GpuInfo] = (),
        known: Iterable[GpuInfo] = (),
        attach: bool = True,
        root: Path = Path("/"),
        tell: Callable[[Step], None] = lambda _: None,
    ) -> None:
        """Touch nothing yet: the driver is opened by the first `gpus()`, and again after it was gone.

        What only other `groups` of metrics show is not read. `barred` are never touched; each has a PCI bus id or at
        least an index. `known` are other GPUs that there were. Without `attach` NVML is opened without attaching GPUs,
        as it also is while one is barred. /proc and /sys are under `root`. `tell` hears of each step that may hang,
        before it.
        """
        self._tables = Tables.for_groups(groups)
        self.whole = True
        self._clock = clock
        self._barred = {info.uuid: info for info in barred}
        self._known = {bus: info for info in known if (bus := canonical(info.pci_bus_id or "")) is not None}
        self._attach = attach and not self._barred
        self._root = root
        self._tell = tell
        self._gpus: dict[str, _Gpu] = {}
        self._seen = set[str]()  # in this listing
        self._gone: set[str] = set()  # barred, and no longer there
        self._count = 0
        self._open = False
        self._events = XidEvents()

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that the driver lists or ever listed, by index; one without a known uuid has a stand-in."""
        self.whole = True
        try:
            self._init()
            count = nvml.nvmlDeviceGetCount()
            if count != self._count or any(gpu.device is None for gpu in self._gpus.values()):
                self._enumerate(count)
        except nvml.NVMLError as error:
            raise self._failure(error) from error
        infos = [gpu.info for gpu in self._gpus.values()]
        infos += [info for uuid, info in self._barred.items() if uuid not in self._gone]
        return tuple(sorted(infos, key=lambda info: order(info.uuid, info.index)))

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """Read one GPU once."""
        at = self._clock.now()
        if gpu.uuid in self._barred:
            return GpuDown(info=gpu, at=at, cause=DownCause.HANG, detail=HUNG)
        known = self._gpus.get(gpu.uuid) or _Gpu(info=gpu, cause=DownCause.MISSING, detail="never listed here")
        values = dict[str, Any]()
        try:
            if known.device is not None:
                values = self._measure(known, known.device)
        except GpuLostError as lost:
            known.note_loss(DownCause.LOST, str(lost))
        except nvml.NVMLError as error:
            raise self._failure(error) from error
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
                gpu.note_loss(DownCause.DRIVER, "the driver was released")
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

        def read(name: str, table: Table) -> dict[str, Any]:
            visits.append(Visit(device, table, now))
            values = visits[-1].read()  # nothing of the last time outlives a failure
            device.implausible[name] = frozenset(visits[-1].implausible)
            asked.update(values)
            return values

        if gpu.slow_at is None or now - gpu.slow_at >= SLOW_SECONDS:
            device.slow, gpu.slow_at = read("slow", tables.slow), now
        fast, whole = read("fast", tables.fast), True
        if steady := gpu.steady_due(now):
            device.steady, gpu.steady_at = read("steady", tables.steady), now
            gpu.steady_reads = 0 if visits[-1].failure else gpu.steady_reads + 1
            device.implausible.pop("links", None)
        else:
            whole = False
            if device.steady.get("pcie_tx_bytes_per_second") is None:  # then the verdict rests on the counters
                device.steady |= read("links", tables.links)
        if gpu.costly_due(now):
            device.costly = read("costly", tables.costly)
            gpu.costly_at = None if visits[-1].failure else now
        else:
            whole = False
        if gpu.holders_due(now, memory := fast.get("memory_used_bytes")):
            device.holders, gpu.listed_memory = read("holders", tables.holders), memory
            gpu.listed_at = None if visits[-1].failure else now
        else:
            whole = False
        self.whole = self.whole and whole
        failure = next((visit.failure for visit in visits if visit.failure), "")
        needs_reset = any(visit.needs_reset for visit in visits)
        if failure and all(value is None for value in asked.values()):
            gpu.note_loss(DownCause.RESET if needs_reset else DownCause.ERROR, failure)
        values = device.slow | device.costly | device.steady | device.holders | fast
        if needs_reset:
            values["recovery_action"] = values.get("recovery_action") or RECOVERY_ACTIONS.index("reset")
        wrong = impossible_sizes(values)
        implausible = wrong.union(*device.implausible.values())
        told = {"clock_events_read": steady, "implausible": tuple(sorted(implausible))}
        return values | dict.fromkeys(wrong) | told

    def _failure(self, error: nvml.NVMLError) -> SourceUnavailableError:
        if error.value in DRIVER:
            self.close()
        cause, remedy = DRIVER.get(error.value, ("nvml_error", "look at `nvidia-smi` and `dmesg | grep NVRM`"))
        return SourceUnavailableError(cause, f"NVML error {error.value}: {error}", remedy)

    def _init(self) -> None:
        """Open the driver if it is not; one that shows no GPU without attached GPUs attaches them."""
        if self._open and not self._attach and self._is_blind():
            self.close()
            self._attach = True
        if not self._open:
            self._tell(Step(what="init"))
            nvml.nvmlInitWithFlags(0 if self._attach else _NO_ATTACH)
            self._open, self._count = True, -1

    def _is_blind(self) -> bool:
        """Whether nothing can be read, though there is a GPU that may be: each says an error, or none is listed."""
        if self._gpus:
            return all(map(_is_mute, self._gpus.values()))
        return not self._barred and bool(bus_ids(self._root))

    def _enumerate(self, count: int) -> None:
        placed = all(info.pci_bus_id for info in self._barred.values())
        self._seen.clear()
        listed = list(self._by_bus() if self._barred and placed else self._by_index(count))
        self._gpus = {uuid: gpu for uuid, gpu in self._gpus.items() if uuid in listed or not uuid.startswith(STAND_IN)}
        for uuid in self._gpus.keys() - set(listed):
            missing = self._gpus[uuid]
            missing.note_loss(DownCause.MISSING, "the driver no longer lists it")
            if missing.info.index is not None and missing.info.index < count:
                missing.info = replace(missing.info, index=None)  # it is another one's now
        self._count = count

    def _by_index(self, count: int) -> Iterator[str]:
        """Open each GPU by its number but those that are barred; then their places are what the others leave."""
        barred = {info.index for info in self._barred.values()}
        for index in range(count):
            if index not in barred:
                infos = [*(gpu.info for gpu in self._gpus.values()), *self._known.values()]
                there = next((info for info in infos if info.index == index), None)
                expected = there or GpuInfo(uuid=f"{STAND_IN}{index}", index=index)
                yield self._find(expected, "nvmlDeviceGetHandleByIndex", index)
        lacking = sorted((info for info in self._barred.values() if not info.pci_bus_id), key=_by_index)
        taken = {gpu.info.pci_bus_id for gpu in self._gpus.values()} | {
            info.pci_bus_id for info in self._barred.values()
        }
        left = [bus for bus in bus_ids(self._root) if bus not in taken] if lacking else []
        if len(left) == len(lacking):
            for info, bus in zip(lacking, left, strict=True):
                self._barred[info.uuid] = replace(info, pci_bus_id=bus)

    def _by_bus(self) -> Iterator[str]:
        """Open each GPU by its place on the bus but those that are barred."""
        barred = {canonical(info.pci_bus_id or ""): uuid for uuid, info in self._barred.items()}
        there = bus_ids(self._root)
        self._gone = {uuid for bus, uuid in barred.items() if there and bus not in there}
        known = self._known | {gpu.info.pci_bus_id: gpu.info for gpu in self._gpus.values() if gpu.info.pci_bus_id}
        for bus in sorted({*there, *known} - barred.keys()):
            expected = known.get(bus) or GpuInfo(uuid=f"{STAND_IN}{bus}", index=None, pci_bus_id=bus)
            try:
                yield self._find(expected, "nvmlDeviceGetHandleByPciBusId", bus.encode())
            except _NotListedError:
                continue

    def _find(self, expected: GpuInfo, function: str, place: int | bytes) -> str:
        """Open the GPU that the driver lists there; returns its uuid, or that of the GPU last seen there."""
        uuid = None if expected.uuid.startswith(STAND_IN) else expected.uuid
        self._tell(Step(what="gpu", index=expected.index, pci_bus_id=expected.pci_bus_id, uuid=uuid))
        by_bus = isinstance(place, bytes)
        try:
            handle = getattr(nvml, function)(place)
            uuid, index = nvml.nvmlDeviceGetUUID(handle), expected.index
            if by_bus:
                index = nvml.nvmlDeviceGetIndex(handle)
        except nvml.NVMLError as error:
            if error.value in DRIVER_GONE:
                raise
            # Without attached GPUs a driver may know of none: that is no proof that the GPU is gone.
            there = not self._attach and expected.pci_bus_id in (bus_ids(self._root) or (expected.pci_bus_id,))
            if by_bus and error.value == nvml.NVML_ERROR_NOT_FOUND and not there:
                raise _NotListedError from error
            where = place.decode() if isinstance(place, bytes) else place
            return self._unknown(expected, self._why_unknown(error.value), f"{function}({where}): {error}")
        except UnicodeDecodeError:
            uuid, index = "", expected.index
        another = uuid in self._barred or uuid in self._seen
        if another or not _UUID.fullmatch(uuid):
            what = "that of another GPU" if another else "no uuid"
            return self._unknown(expected, DownCause.ERROR, f"nvmlDeviceGetUUID answers {uuid[:96]!r}, which is {what}")
        self._seen.add(uuid)
        gpu = self._gpus.setdefault(uuid, _Gpu(info=GpuInfo(uuid=uuid, index=index)))
        if gpu.device is None:
            gpu.note_answer(Device(handle=handle), _identify(handle, uuid, index))
        else:
            gpu.device.handle = handle
        gpu.info = replace(gpu.info, index=index)
        return uuid

    def _why_unknown(self, code: int) -> DownCause:
        """Why a GPU with that error does not say who it is. Without attached GPUs an error may be of all of them."""
        if code == nvml.NVML_ERROR_RESET_REQUIRED:
            return DownCause.RESET
        lost = code not in SHUT and (self._attach or code in LOST)
        return DownCause.LOST if lost else DownCause.ERROR

    def _unknown(self, expected: GpuInfo, cause: DownCause, detail: str) -> str:
        """Note that the GPU which is expected at a place does not say who it is."""
        gpu = self._gpus.setdefault(expected.uuid, _Gpu(info=expected))
        gpu.note_loss(cause, detail)
        return expected.uuid


class _NotListedError(Exception):
    """The driver has no GPU at that place."""


def _is_mute(gpu: _Gpu) -> bool:
    """Whether a GPU gives nothing but errors, none of which says that it is lost."""
    return gpu.device is None and gpu.cause is DownCause.ERROR


def _by_index(info: GpuInfo) -> int:
    return info.index or 0


def _identify(handle: Any, uuid: str, index: int | None) -> GpuInfo:  # noqa: ANN401  pynvml is untyped
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
    with contextlib.suppress(nvml.NVMLError, UnicodeDecodeError):
        return question(*args)
    return None
