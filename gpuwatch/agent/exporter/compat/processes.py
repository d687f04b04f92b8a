"""What nvitop-exporter shows of a process besides its GPU memory, from its /proc/<pid>/stat when a page is made.

That file holds neither the command line nor the environment, and reading it waits for no lock of the process's memory.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BYTES_PER_KIB = 1024
_MOST_BYTES = 64 * 1024  # each is far below a page
_LOOK_SECONDS = 1.0  # CPU time is counted in ticks of 10 ms: over less than this it is a guess

# Fields of /proc/<pid>/stat counted from the one after the name (proc(5): state is field 3).
_STATE, _UTIME, _STIME, _STARTTIME, _RSS = 0, 14 - 3, 15 - 3, 22 - 3, 24 - 3
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk-sleep",
    "T": "stopped",
    "t": "tracing-stop",
    "Z": "zombie",
    "X": "dead",
    "I": "idle",
    "P": "parked",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One process now; CPU is of one core and may exceed 100, None until two looks are a second apart."""

    status: str | None
    running_seconds: float
    cpu_percent: float | None
    rss_bytes: int
    memory_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """CPU time of a process at a time since boot, and what was worked out then."""

    at_seconds: float
    started_ticks: int  # distinguishes it from a later process with the same pid
    used_ticks: int
    cpu_percent: float | None


class ProcessFigures:
    """Reads what processes use. One that is gone, or that may not be read, is left out."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._looks: dict[int, _Look] = {}

    def __call__(self, pids: Iterable[int]) -> Mapping[int, Figures]:
        """The figures of each; those not asked for this time are forgotten."""
        found: dict[int, Figures] = {}
        looks, self._looks = self._looks, {}
        with suppress(OSError, ValueError, LookupError):
            now = float(self._read("uptime").split()[0])
            total = self._memory_bytes()
            for pid in set(pids):
                with suppress(OSError, ValueError, LookupError):
                    found[pid] = self._figures(pid, now, looks.get(pid), total)
        return found

    def _figures(self, pid: int, now: float, before: _Look | None, total: int | None) -> Figures:
        values = self._read(f"{pid}/stat").rpartition(")")[2].split()  # the name may hold anything, brackets too
        look = _Look(
            at_seconds=now,
            started_ticks=int(values[_STARTTIME]),
            used_ticks=int(values[_UTIME]) + int(values[_STIME]),
            cpu_percent=None,
        )
        if before is not None and before.started_ticks == look.started_ticks:
            look = _next_look(before, look)
        rss = int(values[_RSS]) * _PAGE_BYTES
        self._looks[pid] = look
        return Figures(
            status=_STATES.get(values[_STATE]),
            running_seconds=max(now - look.started_ticks / _TICKS_PER_SECOND, 0.0),
            cpu_percent=look.cpu_percent,
            rss_bytes=rss,
            memory_percent=round(100 * rss / total, 1) if total else None,
        )

    def _memory_bytes(self) -> int | None:
        """The host's memory in bytes."""
        for line in self._read("meminfo").splitlines():
            name, _, size = line.partition(":")
            if name == "MemTotal":
                return int(size.split()[0]) * _BYTES_PER_KIB
        return None

    def _read(self, name: str) -> str:
        opened = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)  # half the time of a file object
        try:
            return os.read(opened, _MOST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(opened)


def _next_look(before: _Look, now: _Look) -> _Look:
    """The new look with its CPU percentage; the old one as long as too little time has passed."""
    seconds = now.at_seconds - before.at_seconds
    if seconds < _LOOK_SECONDS:
        return before
    used = max(now.used_ticks - before.used_ticks, 0) / _TICKS_PER_SECOND
    return _Look(
        at_seconds=now.at_seconds,
        started_ticks=now.started_ticks,
        used_ticks=now.used_ticks,
        cpu_percent=round(100 * used / seconds, 1),
    )
