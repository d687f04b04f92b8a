"""Who holds a GPU, out of the driver's three lists."""

from dataclasses import dataclass, replace
from typing import Any

from gpuwatch.agent.devices.nvml.calls import Absence, Visit, Way
from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.model.gpu import GpuProcess, ProcessKind

_LISTS = (("Compute", ProcessKind.COMPUTE), ("MPSCompute", ProcessKind.COMPUTE), ("Graphics", ProcessKind.GRAPHICS))
_NO_PIDS = {0, 0xFFFFFFFF}  # what a process list shows when binding and driver disagree on its struct (535.98)
_NO_INSTANCE = 0xFFFFFFFF  # nvml.h: a process outside of MIG


@dataclass(frozen=True, slots=True)
class Processes(Way):
    """All lists merged by pid. One list that fails makes the whole unknown."""

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """The processes in the order of their pids."""
        lists = _lists(visit)
        if any(rows is Absence.FAILED or _garbage(rows) for _, rows in lists):
            return Absence.FAILED
        if lists[0][1] is Absence.UNSUPPORTED:  # compute is what counts; the others may well be missing
            return Absence.UNSUPPORTED
        found: dict[int, GpuProcess] = {}
        for kind, rows in lists:
            for row in [] if isinstance(rows, Absence) else rows:
                if row.pid not in _NO_PIDS:
                    process = _process(row, kind)
                    found[row.pid] = _merge_rows(found.get(row.pid, process), process)
        return tuple(found[pid] for pid in sorted(found))


@dataclass(frozen=True, slots=True)
class Partial(Way):
    """Whether processes may hold the GPU that the lists do not show, or not with an id that can be true."""

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """NOTHING where they are not listed at all."""
        lists = [rows for _, rows in _lists(visit)]
        if lists[0] is Absence.UNSUPPORTED or Absence.FAILED in lists:
            return Absence.NOTHING
        impossible = any(row.pid in _NO_PIDS for rows in lists if isinstance(rows, list) for row in rows)
        return impossible or not in_host_pids()


def compute_pids(visit: Visit) -> set[int] | None:
    """The pids that compute on a MIG device; None where they cannot all be listed."""
    lists = [rows for kind, rows in _lists(visit) if kind is ProcessKind.COMPUTE]
    if lists[0] is Absence.UNSUPPORTED or any(rows is Absence.FAILED for rows in lists):
        return None
    return {row.pid for rows in lists if isinstance(rows, list) for row in rows}


def _lists(visit: Visit) -> list[tuple[ProcessKind, Any]]:
    """Each of the driver's lists."""
    return [(kind, _list(visit, f"nvmlDeviceGet{name}RunningProcesses")) for name, kind in _LISTS]


def _process(row: Any, kind: ProcessKind) -> GpuProcess:  # noqa: ANN401  pynvml is untyped
    """One row of a list."""
    within = [None if number == _NO_INSTANCE else number for number in (row.gpuInstanceId, row.computeInstanceId)]
    return GpuProcess(
        pid=row.pid,
        kind=kind,
        memory_bytes=row.usedGpuMemory,
        gpu_instance=within[0],
        compute_instance=within[1],
    )


def _merge_rows(known: GpuProcess, new: GpuProcess) -> GpuProcess:
    """Two rows of one process; of two different MIG instances neither is the one it runs in."""
    sizes = [size for size in (known.memory_bytes, new.memory_bytes) if size is not None]
    same = known.gpu_instance == new.gpu_instance
    return replace(
        known,
        memory_bytes=max(sizes, default=None),
        gpu_instance=known.gpu_instance if same else None,
        compute_instance=known.compute_instance if same and known.compute_instance == new.compute_instance else None,
    )


def _garbage(rows: Any) -> bool:  # noqa: ANN401  pynvml is untyped
    """Whether a list holds only impossible pids: there are processes, but it is unknown which."""
    return isinstance(rows, list) and bool(rows) and all(row.pid in _NO_PIDS for row in rows)


def _list(visit: Visit, name: str) -> Any:  # noqa: ANN401  pynvml is untyped
    def version(suffix: str) -> Any:  # noqa: ANN401  as above
        key = name + suffix
        return visit.once(key, lambda: visit.call(key, key))

    rows = version("_v3")
    if rows is Absence.UNSUPPORTED or (isinstance(rows, list) and any(row.pid in _NO_PIDS for row in rows)):
        older = version("_v2")
        return older if isinstance(older, list) else rows
    return rows
