"""CPU time of the processes that hold a GPU: work that prepares or follows what the GPU does.

A server that polls for requests, or a thread that waits for a GPU in a loop, uses CPU time and does nothing else: no
read, no write, no new page of memory. CPU time without any of these for ten minutes is no work.
"""

import os
import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding
from gpuwatch.agent.evidence.files import moved_bytes, read_small, sees_processes
from gpuwatch.agent.evidence.settings import GpuProcessSettings
from gpuwatch.model.activity import Evidence, State

_UPTIME = re.compile(r"\d+\.\d+", re.ASCII)
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SHORTEST_SPAN_SECONDS = 1.0  # over less, one tick of the clock that CPU time is counted in would look like work
_NOT_ALL = "the agent is in its own PID namespace and does not see all GPU processes: run it with --pid=host"

# Fields of /proc/<pid>/stat counted from the one after the name (proc(5): state is field 3).
_MINFLT, _UTIME, _STIME, _STARTTIME = 10 - 3, 14 - 3, 15 - 3, 22 - 3
_SPIN_SECONDS = 600.0
_PROGRESS_BYTES = 1 << 16  # a server's log line each ten seconds is less than this in ten minutes
_PROGRESS_FAULTS = 256  # new pages: 1 MiB
_SPINS = "they use CPU time, and neither read, write nor touch new memory: they wait in a loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    """One process's CPU time; the start distinguishes it from a later one with the same pid."""

    started_seconds: float  # since boot
    cpu_seconds: float
    faults: int = 0
    moved_bytes: int | None = None  # read and written in any way; None: not readable, which counts as progress


class GpuProcessCpu:
    """Busy while all GPU processes together use more than `busy_cores`."""

    name = "gpu_process_cpu"
    source = "/proc/<pid>/stat of the GPU processes"

    def __init__(self, settings: GpuProcessSettings, roots: Roots) -> None:
        self._limit = settings.busy_cores
        self._roots = roots
        self._looks: deque[tuple[float, Mapping[int, _Used]]] = deque()  # by uptime, oldest first
        self._progress: Mapping[int, _Used] = {}  # as of the last progress
        self._progress_at: float | None = None  # by uptime

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all of them."""
        if now.gpu_pids is None:
            raise UnseenError("which processes hold a GPU is not known")
        looks, self._looks = self._looks, deque()  # what fails leaves nothing to compare with
        uptime = self._read_uptime()
        used: dict[int, _Used] = {}
        for pid in sorted(now.gpu_pids):
            with suppress(FileNotFoundError, ProcessLookupError):
                used[pid] = self._read(pid)
        unseen = len(now.gpu_pids) - len(used)
        while len(looks) > 1 and uptime - looks[1][0] >= _SHORTEST_SPAN_SECONDS:
            looks.popleft()
        self._looks = deque([*looks, (uptime, used)])
        if not now.gpu_pids:
            if not in_host_pids(self._roots.proc):
                raise UnseenError(_NOT_ALL)
            return (self._say(State.IDLE, "no process holds a GPU", 0.0),)
        if not used:
            raise UnseenError(f"{unseen} GPU processes are missing in /proc; let the agent see the host's processes")
        note = f"{unseen} of {len(now.gpu_pids)} GPU processes are not in /proc" if unseen else None
        if not looks or uptime <= looks[0][0]:
            return (self._say(State.UNKNOWN, "looked at for the first time", None),)
        last, before = looks[0]
        spent, new = self._spent_seconds(used, before, last)
        cores = spent / (uptime - last)
        if cores > self._limit:
            if self._spins(used, uptime):
                return (self._say(State.IDLE, _SPINS, cores),)
            return (self._say(State.BUSY, note, cores),)
        if new:
            return (self._say(State.UNKNOWN, f"{new} processes hold a GPU since a moment ago", cores),)
        if not in_host_pids(self._roots.proc):
            return (self._say(State.UNKNOWN, _NOT_ALL, cores),)
        hidden = unseen and not sees_processes(self._roots.proc)  # else they have ended
        return (self._say(State.UNKNOWN if hidden else State.IDLE, note, cores),)

    def _spent_seconds(
        self, present: Mapping[int, _Used], before: Mapping[int, _Used], last: float
    ) -> tuple[float, int]:
        """Seconds of CPU time since the look before, and how many processes there are of which that is not known."""
        spent, new = 0.0, 0
        for pid, used in present.items():
            known = before.get(pid)
            if known is not None and known.started_seconds == used.started_seconds:
                if used.cpu_seconds < known.cpu_seconds:
                    self._looks = deque([self._looks[-1]])
                    raise UnseenError(f"the CPU time of process {pid} went backwards")
                spent += used.cpu_seconds - known.cpu_seconds
            elif used.started_seconds >= last:
                spent += used.cpu_seconds
            else:
                new += 1
        return spent, new

    def _spins(self, used: Mapping[int, _Used], uptime: float) -> bool:
        """Whether these have neither moved bytes nor touched new memory for ten minutes."""
        known = self._progress
        moved = any(
            (last := known.get(pid)) is None
            or last.started_seconds != now.started_seconds
            or now.moved_bytes is None
            or last.moved_bytes is None
            or now.moved_bytes - last.moved_bytes > _PROGRESS_BYTES
            or now.faults - last.faults > _PROGRESS_FAULTS
            for pid, now in used.items()
        )
        if moved or self._progress_at is None:
            self._progress, self._progress_at = dict(used), uptime
        return uptime - self._progress_at >= _SPIN_SECONDS

    def _read_uptime(self) -> float:
        """Seconds since boot, by the clock of the processes' start times."""
        found = _UPTIME.match(read_small(self._roots.proc / "uptime").text)
        if found is None:
            raise UnseenError("/proc/uptime is not what proc(5) says")
        return float(found.group())

    def _read(self, pid: int) -> _Used:
        """One process; its name, which may hold anything, ends at the last bracket."""
        values = read_small(self._roots.proc / str(pid) / "stat").text.rpartition(")")[2].split()
        try:
            utime, stime, started, faults = (int(values[place]) for place in (_UTIME, _STIME, _STARTTIME, _MINFLT))
        except (IndexError, ValueError):
            raise UnseenError(f"/proc/{pid}/stat is not what proc(5) says") from None
        return _Used(
            started_seconds=started / _TICKS_PER_SECOND,
            cpu_seconds=(utime + stime) / _TICKS_PER_SECOND,
            faults=faults,
            moved_bytes=moved_bytes(f"{self._roots.proc}/{pid}"),
        )

    def _say(self, says: State, note: str | None, cores: float | None) -> Evidence:
        return make_finding(self, says, note, observed=cores, limit=self._limit, unit="cores")
