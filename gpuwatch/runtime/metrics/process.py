"""What the running process uses, under the names that all Prometheus clients give it."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuwatch.runtime.metrics.family import Family

_NAMES = {
    "process_cpu_seconds_total": ("counter", "CPU time of {of}{without}."),
    "process_resident_memory_bytes": ("gauge", "Resident memory of {of}{without}."),
    "process_start_time_seconds": ("gauge", "Unix time at which {of} started."),
    "process_open_fds": ("gauge", "Open file descriptors of {of}{without}."),
    "process_max_fds": ("gauge", "How many file descriptors {of} may have open."),
}
_BOOTED = re.compile(rb"^btime (\d+)$", re.MULTILINE)
_MOST_FILES = re.compile(rb"^Max open files +(\d+) ", re.MULTILINE)


def process_families(of: str, without: str = "") -> Iterator[Family]:
    """The catalogue's rows, of what is called that, and has another process for a part of its work."""
    for name, (kind, text) in _NAMES.items():
        yield Family(name=name, kind=kind, help=text.format(of=of, without=without), source="/proc")


class ProcessFigures:
    """Reads them from /proc. What cannot be read has no sample."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Only what stays as it is, is read already."""
        self._proc = proc
        self._ticks, self._page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        self._booted: float | None = None
        with suppress(OSError):
            booted = _BOOTED.search((proc / "stat").read_bytes())
            self._booted = float(booted[1]) if booted else None

    def samples(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Yield every sample of the process."""
        own = self._proc / "self"
        with suppress(OSError):
            # proc(5) counts its fields from 1; the second one, in brackets, holds any characters.
            fields = (own / "stat").read_bytes().rpartition(b")")[2].split()
            user, system, start, pages = (float(fields[number - 3]) for number in (14, 15, 22, 24))
            yield "process_resident_memory_bytes", (), pages * self._page_bytes
            if self._booted is not None:
                yield "process_start_time_seconds", (), self._booted + start / self._ticks
            yield "process_cpu_seconds_total", (), user / self._ticks + system / self._ticks
        with suppress(OSError):
            yield "process_open_fds", (), float(sum(1 for _ in os.scandir(own / "fd")))
            most = _MOST_FILES.search((own / "limits").read_bytes())
            if most is not None:
                yield "process_max_fds", (), float(most[1])
