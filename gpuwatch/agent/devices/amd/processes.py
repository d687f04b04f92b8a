"""Who holds a GPU, by the library's list and the kernel's together, and whether that can be everybody."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuwatch.agent.devices.amd.rows import number
from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.model.gpu import GpuProcess, ProcessKind

# The driver's own at rest is about 300 MiB on an MI300X: what is above that is somebody's whom no list shows.
UNSEEN_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """The processes by pid, None if they could not be listed; `partial`: there may be more."""

    processes: tuple[GpuProcess, ...] | None
    partial: bool | None

    @property
    def fields(self) -> dict[str, Any]:
        """As a reading has them."""
        return {"processes": self.processes, "processes_partial": self.partial}


def held_by(listed: object, kernel: Mapping[int, int | None] | None, memory_used_bytes: int | None) -> Holders:
    """Both lists merged by pid. `kernel` is None where KFD could not be asked; then nothing shows that all are here."""
    rows = listed if isinstance(listed, list) else None
    if rows is None and kernel is None:
        return Holders(processes=None, partial=None)
    sizes: dict[int, int | None] = {}
    impossible = False
    for row in rows or ():
        pid = number(row.get("pid")) if isinstance(row, dict) else None
        if pid is None or pid <= 0:
            impossible = True
            continue
        sizes[int(pid)] = _memory(row)
    for pid, size in (kernel or {}).items():
        known = [each for each in (sizes.get(pid), size) if each is not None]
        sizes[pid] = max(known, default=None)
    processes = tuple(GpuProcess(pid=pid, kind=ProcessKind.COMPUTE, memory_bytes=sizes[pid]) for pid in sorted(sizes))
    explained = sum(size or 0 for size in sizes.values())
    unseen = memory_used_bytes is None or memory_used_bytes - explained >= UNSEEN_BYTES
    if unseen and None in sizes.values() and memory_used_bytes is not None:
        unseen = False  # it may well be theirs
    return Holders(processes=processes, partial=kernel is None or impossible or unseen or not in_host_pids())


def _memory(row: Mapping[str, Any]) -> int | None:
    """Device memory of a process, without what it has in the host's."""
    usage = row.get("memory_usage")
    found = number(usage.get("vram_mem")) if isinstance(usage, dict) else None
    return None if found is None else int(found)
