"""The GPUs of AMD's driver: finding them, reading each once a cycle, losing and finding them again.

The library opens all GPUs at once, and none alone. So a GPU that hangs when it is read is left alone; one that hangs
when the library is opened holds up all others. A GPU that answers nothing is asked again after the library was closed
and opened, because the library keeps the paths of sysfs that it found first.

The binding repeats the library's structures, and one of another release reads them wrongly. So the two facts that keep
a busy GPU from looking idle are also asked of the kernel: who holds it (`kfd`), and how busy it is (gpu_busy_percent).
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuwatch.agent.devices import HUNG, SourceUnavailableError
from gpuwatch.agent.devices.amd import kfd
from gpuwatch.agent.devices.amd.library import ask_if_supported, load, unavailable, words
from gpuwatch.agent.devices.amd.processes import Holders, held_by
from gpuwatch.agent.devices.amd.rows import DriverGoneError, Tables, Visit
from gpuwatch.agent.devices.buses import amd_bus_ids, busy_file, canonical
from gpuwatch.agent.devices.messages import Step
from gpuwatch.agent.devices.plausible import impossible_sizes
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuReading
from gpuwatch.model.gpu_identity import STAND_IN, order
from gpuwatch.model.metric import GROUP_NAMES, SLOW_SECONDS, STEADY_SECONDS, GroupName
from gpuwatch.runtime.clock import Clock

REOPEN_SECONDS = 60.0  # from try to try, while a GPU does not answer


@dataclass(slots=True)
class _Gpu:
    """One GPU: its identity, its handle, or why it is missing; what was read of it, and when."""

    info: GpuInfo
    handle: Any = None
    kfd_ids: frozenset[str] = frozenset()
    cause: DownCause = DownCause.LOST
    detail: str = ""
    read_at: dict[str, float] = field(default_factory=dict)  # by table
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    implausible: dict[str, frozenset[str]] = field(default_factory=dict)
    listed_memory: int | None = None  # in use when its processes were listed

    def note_loss(self, cause: DownCause, detail: str) -> None:
        """Note that it does not answer any more, and why."""
        self.handle, self.cause, self.detail = None, cause, detail
        self.read_at.clear()

    def due(self, table: str, seconds: float, now: float) -> bool:
        """Whether a table must be read."""
        return table not in self.read_at or now - self.read_at[table] >= seconds


class AmdSource:
    """The GPUs of AMD's driver on this host. The library is kept open between cycles."""

    def __init__(
        self,
        clock: Clock,
        groups: Collection[GroupName] = GROUP_NAMES,
        *,
        barred: Iterable[GpuInfo] = (),
        root: Path = Path("/"),
        tell: Callable[[Step], None] = lambda _: None,
    ) -> None:
        """Touch nothing yet: the library is loaded and opened by the first `gpus()`.

        What only other `groups` of metrics show is not read. `barred` are never read. /proc and /sys are under `root`.
        `tell` hears of each step that may hang, before it.
        """
        self.whole = True
        self._tables = Tables.for_groups(groups)
        self._clock = clock
        self._barred = {info.uuid: info for info in barred}
        self._root = root
        self._tell = tell
        self._library: Any = None
        self._opened_at: float | None = None  # None: the library is not open
        self._gpus: dict[str, _Gpu] = {}

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that the library lists or ever listed, by index; one without a known uuid has a stand-in.

        Raises:
            SourceUnavailableError: the binding is missing, or the library cannot be opened.

        """
        self.whole = True
        now = self._clock.monotonic()
        silent = any(gpu.handle is None and uuid not in self._barred for uuid, gpu in self._gpus.items())
        if self._opened_at is not None and silent and now - self._opened_at >= REOPEN_SECONDS:
            self.close()
        if self._opened_at is None:
            self._open(now)
        infos = {uuid: gpu.info for uuid, gpu in self._gpus.items()}
        infos = {**self._barred, **infos}
        return tuple(sorted(infos.values(), key=lambda info: order(info.uuid, info.index)))

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """Read one GPU once.

        Raises:
            SourceUnavailableError: the driver is gone.

        """
        at = self._clock.now()
        if gpu.uuid in self._barred:
            return GpuDown(info=gpu, at=at, cause=DownCause.HANG, detail=HUNG)
        known = self._gpus.get(gpu.uuid) or _Gpu(info=gpu, cause=DownCause.MISSING, detail="never listed here")
        try:
            values = {} if known.handle is None else self._measure(known)
        except DriverGoneError as error:
            self.close()
            remedy = "none needed: it is opened again in the next cycle"
            raise SourceUnavailableError("driver_reloaded", str(error), remedy) from error
        if known.handle is None:
            return GpuDown(info=known.info, at=at, cause=known.cause, detail=known.detail)
        return _reading(known.info, at, values)

    def hurry(self) -> None:
        """Read in the next cycle what is not read in each."""
        for gpu in self._gpus.values():
            for table in ("steady", "holders"):
                gpu.read_at.pop(table, None)

    def close(self) -> None:
        """Release the devices; the library stays mapped until the process ends."""
        if self._opened_at is not None:
            self._opened_at = None
            for gpu in self._gpus.values():
                if gpu.handle is not None:
                    gpu.note_loss(DownCause.DRIVER, "the driver was released")
            ask_if_supported(self._library.amdsmi_shut_down)

    def _measure(self, gpu: _Gpu) -> dict[str, Any]:
        """The value of each row; a GPU that answers nothing is gone."""
        now = self._clock.monotonic()
        visit = Visit(self._library, gpu.handle, busy_file(self._root, gpu.info.pci_bus_id))

        def read(table: str, rows: Mapping[str, Any]) -> None:
            before = set(visit.implausible)
            gpu.values[table], gpu.read_at[table] = visit.read(rows), now
            gpu.implausible[table] = frozenset(visit.implausible - before)

        read("fast", self._tables.fast)
        steady, slow = gpu.due("steady", STEADY_SECONDS, now), gpu.due("slow", SLOW_SECONDS, now)
        if steady:
            read("steady", self._tables.steady)
        if slow:
            read("slow", self._tables.slow)
        if not visit.answered:
            self._note_loss(gpu, visit.failure)
            return {}
        memory = gpu.values["fast"].get("memory_used_bytes")
        listed = gpu.due("holders", STEADY_SECONDS, now) or memory is None or memory != gpu.listed_memory
        if listed:
            gpu.values["holders"] = self._holders(gpu, visit, memory).fields
            gpu.read_at["holders"], gpu.listed_memory = now, memory
        self.whole = self.whole and steady and listed
        values = {name: value for table in gpu.values.values() for name, value in table.items()}
        wrong = impossible_sizes(values)
        implausible = wrong.union(*gpu.implausible.values())
        return values | dict.fromkeys(wrong) | {"implausible": tuple(sorted(implausible))}

    def _holders(self, gpu: _Gpu, visit: Visit, memory: int | None) -> Holders:
        listed = visit.ask("amdsmi_get_gpu_process_list")
        return held_by(listed, kfd.holders(self._root, gpu.kfd_ids), memory)

    def _note_loss(self, gpu: _Gpu, failure: str) -> None:
        bus = gpu.info.pci_bus_id
        there = bus is None or bus in amd_bus_ids(self._root) or not amd_bus_ids(self._root)
        detail = failure or "AMD SMI answers nothing about it"
        gpu.note_loss(DownCause.ERROR if there else DownCause.LOST, detail if there else f"it is off the bus: {detail}")

    def _open(self, now: float) -> None:
        """Load the binding, open the library, and find the GPUs."""
        self._tell(Step(what="init"))
        self._library = self._library or load(self._root)
        try:
            self._library.amdsmi_init()
            self._opened_at = now
            handles = list(self._library.amdsmi_get_processor_handles())
        except Exception as error:
            self.close()
            raise unavailable(error) from error
        seen = Counter[str]()
        found = {self._find(index, handle, seen) for index, handle in enumerate(handles)}
        self._gpus = {uuid: gpu for uuid, gpu in self._gpus.items() if uuid in found or not uuid.startswith(STAND_IN)}
        for uuid in self._gpus.keys() - found:
            gpu = self._gpus[uuid]
            gpu.note_loss(DownCause.MISSING, "AMD SMI no longer lists it")
            gpu.info = replace(gpu.info, index=None)

    def _find(self, index: int, handle: Any, seen: Counter[str]) -> str:  # noqa: ANN401  amdsmi is untyped
        """Who a listed GPU is; returns its uuid, or the stand-in of one that does not say it."""
        place = ask_if_supported(self._library.amdsmi_get_gpu_device_bdf, handle)
        bus = canonical(place) if isinstance(place, str) else None
        barred = next((info for info in self._barred.values() if _is_at(info, index, bus)), None)
        if barred is not None:
            return barred.uuid
        self._tell(Step(what="gpu", index=index, pci_bus_id=bus))
        try:
            uuid = str(self._library.amdsmi_get_gpu_device_uuid(handle))
        except Exception as error:  # noqa: BLE001  the binding lets errors of its own parsing through
            uuid = f"{STAND_IN}{bus or index}"
            gpu = self._gpus.setdefault(uuid, _Gpu(info=GpuInfo(uuid=uuid, index=index, vendor="amd", pci_bus_id=bus)))
            gpu.note_loss(DownCause.ERROR, f"amdsmi_get_gpu_device_uuid: {words(error)}")
            return uuid
        uuid = self._own_name(uuid, seen)
        gpu = self._gpus.setdefault(uuid, _Gpu(info=GpuInfo(uuid=uuid, index=index, vendor="amd")))
        gpu.handle, gpu.info = handle, _identify(self._library, handle, uuid, index, bus)
        gpu.kfd_ids = kfd.gpu_ids(self._root, bus) if bus is not None else frozenset()
        gpu.read_at.clear()
        return uuid

    @staticmethod
    def _own_name(uuid: str, seen: Counter[str]) -> str:
        """A uuid that only one GPU has: the partitions of one chip share theirs in most releases of ROCm."""
        seen[uuid] += 1
        return uuid if seen[uuid] == 1 else f"{uuid}-p{seen[uuid] - 1}"


def _is_at(info: GpuInfo, index: int, bus: str | None) -> bool:
    """Whether a GPU is the one at this place."""
    return info.pci_bus_id == bus if bus is not None and info.pci_bus_id is not None else info.index == index


def _reading(info: GpuInfo, at: datetime, values: Mapping[str, Any]) -> GpuReading:
    return GpuReading(info=info, at=at, **values)


def _identify(library: Any, handle: Any, uuid: str, index: int, bus: str | None) -> GpuInfo:  # noqa: ANN401  amdsmi is untyped
    def fact(function: str, *keys: str) -> str | None:
        answer: Any = None
        with contextlib.suppress(AttributeError):  # an older binding
            answer = ask_if_supported(getattr(library, function), handle)
        found = (answer.get(key) for key in keys) if isinstance(answer, dict) else ()
        return next((text for text in found if isinstance(text, str) and text not in {"", "N/A"}), None)

    return GpuInfo(
        uuid=uuid,
        index=index,
        name=fact("amdsmi_get_gpu_asic_info", "market_name") or fact("amdsmi_get_gpu_board_info", "product_name"),
        pci_bus_id=bus,
        driver_version=fact("amdsmi_get_gpu_driver_info", "driver_version"),
        vbios_version=fact("amdsmi_get_gpu_vbios_info", "part_number", "version"),
        serial=fact("amdsmi_get_gpu_board_info", "product_serial"),
        vendor="amd",
    )
