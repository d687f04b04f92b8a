"""Instruments on serial lines of USB: the kernel stamps a terminal's node at each transfer, and anybody may see that.

Without root nobody knows which program reads a line. So it counts for people's programs that are alive and at rest,
unless a service of the machine runs that reads such a line itself (a clock, a power supply).
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gpuwatch.agent.evidence.base import IdleClock, Moment
from gpuwatch.agent.processes.process import Kind, Process

_QUIET_SECONDS = 600.0
_READERS = frozenset({"apcupsd", "conmand", "gpsd", "LCDd", "pppd", "upsd"})


class SerialLines:
    """Remembers the stamps of the adapters that udev lists; a host without one has one missing folder to open."""

    def __init__(self, dev: Path) -> None:
        """No line was looked at yet."""
        self._folder = dev / "serial/by-id"
        self._silence = IdleClock()

    def find_moving(self, now: Moment, processes: Iterable[Process]) -> str | None:
        """The name of a line that moved within ten minutes, unless the machine's own program may have moved it."""
        silent = dict[str, float]()
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    stamp = entry.stat()
                    last = max(stamp.st_atime, stamp.st_mtime)
                    silent[entry.name] = self._silence.seconds(entry.name, last, now)
        self._silence.forget_all_but(silent)
        moving = min((name for name in silent if silent[name] < _QUIET_SECONDS), default=None)
        if moving is None or any(each.name in _READERS and each.kind is Kind.SERVICE for each in processes):
            return None
        return Path(os.path.realpath(self._folder / moving)).name
