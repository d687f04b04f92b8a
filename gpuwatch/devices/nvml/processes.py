"""Who holds a GPU, out of the driver's three lists."""

from dataclasses import dataclass, replace
from typing import Any

from gpuwatch.devices.nvml.calls import Absence, Alone, Visit
from gpuwatch.model.gpu import GpuProcess, ProcessKind

_LISTS = (("Compute", ProcessKind.COMPUTE), ("MPSCompute", ProcessKind.COMPUTE), ("Graphics", ProcessKind.GRAPHICS))
_NO_PIDS = {0, 0xFFFFFFFF}  # what a process list shows when binding and driver disagree on its struct (535.98)


@dataclass(frozen=True, slots=True)
class Processes(Alone):
    """All lists merged by pid. One list that fails makes the whole unknown."""

    def of(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """The processes in the order of their pids."""
        lists = [(kind, _list(visit, f"nvmlDeviceGet{name}RunningProcesses")) for name, kind in _LISTS]
        if any(rows is Absence.FAILED or _garbage(rows) for _, rows in lists):
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


def _garbage(rows: Any) -> bool:  # noqa: ANN401  pynvml is untyped
    """Whether a list holds impossible pids alone: somebody is there, and nobody knows who."""
    return isinstance(rows, list) and bool(rows) and all(row.pid in _NO_PIDS for row in rows)


def _list(visit: Visit, name: str) -> Any:  # noqa: ANN401  pynvml is untyped
    def version(suffix: str) -> Any:  # noqa: ANN401  likewise
        key = name + suffix
        return visit.once(key, lambda: visit.call(key, key))

    rows = version("_v3")
    if rows is Absence.UNSUPPORTED or (isinstance(rows, list) and any(row.pid in _NO_PIDS for row in rows)):
        older = version("_v2")
        return older if isinstance(older, list) else rows
    return rows
