"""How much the host's disks and network cards move, from the kernel's counters between two looks.

Only real devices count (those with a `device` in sysfs): partitions, loops, RAM disks, device mappers, bridges, veth
and the like show the same bytes again, or bytes that never left memory.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.agent.host.files import listed, read_small
from gpuwatch.agent.host.knobs import DiskKnobs, NetworkKnobs
from gpuwatch.agent.host.protocol import HostSignal, Moment, Roots, UnseenError, say, several
from gpuwatch.model.fleet import Evidence, State

_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own (Documentation/admin-guide/iostats.rst)


class _Rate:
    """Bytes moved per second since the look before."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._at_seconds: float | None = None
        self._moved: Mapping[str, int] = {}

    def judge(self, signal: HostSignal, moved: Mapping[str, int], now: Moment) -> Evidence:
        """What the counters of all devices say, compared with those of the look before."""
        last, before = self._at_seconds, self._moved
        self._at_seconds, self._moved = now.monotonic_seconds, moved
        if last is None or now.monotonic_seconds <= last:
            return self._say(signal, State.UNKNOWN, "looked at for the first time", None)
        grown = {name: moved[name] - before[name] for name in moved.keys() & before.keys()}
        rate = sum(max(0, each) for each in grown.values()) / (now.monotonic_seconds - last)
        new = sorted(name for name in moved if grown.get(name, -1) < 0)
        if rate > self._limit:
            return self._say(signal, State.BUSY, several(sorted(name for name in grown if grown[name] > 0)), rate)
        if new:
            return self._say(signal, State.UNKNOWN, f"new, or counting from zero again: {several(new)}", rate)
        return self._say(signal, State.IDLE, None, rate)

    def forget(self) -> None:
        """Begin again: what could not be read leaves no number to compare with."""
        self._at_seconds = None

    def _say(self, signal: HostSignal, says: State, note: str | None, rate: float | None) -> Evidence:
        return say(signal, says, note, observed=rate, limit=self._limit, unit="bytes per second")


class Disk:
    """Busy while the real disks together read and write more than the limit."""

    name = "disk"
    source = "/proc/diskstats, whole real disks"

    def __init__(self, knobs: DiskKnobs, roots: Roots) -> None:
        self._rate = _Rate(knobs.busy_bytes_per_second)
        self._roots = roots

    def look(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all disks; a machine without one moves nothing to or from it."""
        try:
            real = _real(self._roots.sys / "block")
            moved = self._moved(real)
        except (OSError, UnseenError):
            self._rate.forget()
            raise
        if not real:
            return (say(self, State.IDLE, "there is no local disk"),)
        return (self._rate.judge(self, moved, now),)

    def _moved(self, real: frozenset[str]) -> dict[str, int]:
        """Bytes read and written by disk, since the boot."""
        path = self._roots.proc / "diskstats"
        moved = {}
        for line in read_small(path).text.splitlines():
            values = line.split()
            try:
                if values[2] in real:
                    moved[values[2]] = (int(values[5]) + int(values[9])) * _SECTOR_BYTES
            except (IndexError, ValueError):
                raise UnseenError(f"{path} has a line that is none of it: {line[:80]!r}") from None
        if real - moved.keys():
            raise UnseenError(f"{path} does not list {several(sorted(real - moved.keys()))}")
        return moved


class Network:
    """Busy while the real network cards together receive and send more than the limit."""

    name = "network"
    source = "/proc/net/dev, real network cards"

    def __init__(self, knobs: NetworkKnobs, roots: Roots) -> None:
        self._rate = _Rate(knobs.busy_bytes_per_second)
        self._roots = roots

    def look(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all cards; a machine that has none to be seen is looked at from within a container."""
        try:
            moved = self._moved(_real(self._roots.sys / "class/net"))
        except (OSError, UnseenError):
            self._rate.forget()
            raise
        return (self._rate.judge(self, moved, now),)

    def _moved(self, real: frozenset[str]) -> dict[str, int]:
        """Bytes in and out by card, since the boot."""
        if not real:
            raise UnseenError("no real network card is to be seen; give the agent the host's network")
        path = self._roots.proc / "net/dev"
        moved = {}
        for line in read_small(path).text.splitlines()[2:]:
            name, _, rest = line.partition(":")
            values = rest.split()
            try:
                if name.strip() in real:
                    moved[name.strip()] = int(values[0]) + int(values[8])
            except (IndexError, ValueError):
                raise UnseenError(f"{path} has a line that is none of it: {line[:80]!r}") from None
        if real - moved.keys():
            raise UnseenError(f"{path} does not list {several(sorted(real - moved.keys()))}")
        return moved


def _real(folder: Path) -> frozenset[str]:
    """The devices of a class that stand for hardware, a virtual machine's included."""
    return frozenset(path.name for path in listed(folder) if os.path.lexists(path / "device"))
