"""The host as nvitop-exporter shows it: CPU, memory, load, network and disks, from /proc when a page is made.

Real network cards and whole real disks only (those with a `device` in sysfs): the rest of them show the same bytes
again, and there may be any number. Of file systems only those that answer from memory, each once: one on a network may
hang, and so may every path below it.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath

from gpuwatch.agent.exporter.compat.table import MIB, Extra, Sample

_PROC = "/proc"
_STATVFS = "statvfs of local file systems, each device where it is mounted first"
_KIB_PER_MIB = 1024
_SECTORS_PER_MIB = 2048  # of 512 bytes, whatever the disk's own (Documentation/admin-guide/iostats.rst)
_COUNTED_ELSEWHERE = 8  # guest times, which are in user and nice as well (proc_stat(5))
_ON_DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "vfat"})
_NEVER_HANG = _ON_DISKS | {"overlay", "tmpfs", "devtmpfs", "rootfs", "ramfs"}
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a space in a name of /proc/mounts is \040

FAMILIES = (
    Extra("host_uptime_Second", _PROC, "s", "Host uptime (s)."),
    Extra("host_cpu_percent_Percentage", _PROC, "%", "Host CPU percent (%), since the page before."),
    Extra("host_virtual_memory_total_MiB", _PROC, "MiB", "Host virtual memory total (MiB)."),
    Extra("host_virtual_memory_used_MiB", _PROC, "MiB", "Host virtual memory used (MiB)."),
    Extra("host_virtual_memory_free_MiB", _PROC, "MiB", "Host virtual memory free (MiB)."),
    Extra("host_virtual_memory_percent_Percentage", _PROC, "%", "Host virtual memory percent (%)."),
    Extra("host_swap_memory_total_MiB", _PROC, "MiB", "Host swap total (MiB)."),
    Extra("host_swap_memory_used_MiB", _PROC, "MiB", "Host swap used (MiB)."),
    Extra("host_swap_memory_free_MiB", _PROC, "MiB", "Host swap free (MiB)."),
    Extra("host_swap_memory_percent_Percentage", _PROC, "%", "Host swap percent (%)."),
    Extra("host_load_average_1m_Percentage", _PROC, "", "Host load average for the last minute."),
    Extra("host_load_average_5m_Percentage", _PROC, "", "Host load average for the last 5 minutes."),
    Extra("host_load_average_15m_Percentage", _PROC, "", "Host load average for the last 15 minutes."),
    Extra("host_net_io_tx_data_MiB", _PROC, "MiB", "Host network I/O transmitted data (MiB)."),
    Extra("host_net_io_rx_data_MiB", _PROC, "MiB", "Host network I/O received data (MiB)."),
    Extra("host_net_io_tx_packets_Packet", _PROC, "", "Host network I/O transmitted packets."),
    Extra("host_net_io_rx_packets_Packet", _PROC, "", "Host network I/O received packets."),
    Extra("host_disk_io_read_data_MiB", _PROC, "MiB", "Host disk I/O read data (MiB)."),
    Extra("host_disk_io_write_data_MiB", _PROC, "MiB", "Host disk I/O write data (MiB)."),
    Extra("host_disk_usage_total_MiB", _STATVFS, "MiB", "Host disk usage total (MiB)."),
    Extra("host_disk_usage_used_MiB", _STATVFS, "MiB", "Host disk usage used (MiB)."),
    Extra("host_disk_usage_free_MiB", _STATVFS, "MiB", "Host disk usage free (MiB)."),
    Extra("host_disk_usage_percent_Percentage", _STATVFS, "%", "Host disk usage percent (%)."),
)


class HostFigures:
    """Reads the host's figures; CPU use is between one call and the next. What cannot be read is left out."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc = proc
        self._sys = sys
        self._cpu: tuple[int, int] | None = None  # all ticks, idle ticks

    def __call__(self) -> Iterator[Sample]:
        """Each sample, without the host's name."""
        for read in (
            self._uptime,
            self._cpu_percent,
            self._memory,
            self._load,
            self._network,
            self._disks,
            self._file_systems,
        ):
            yield from _whole(read)

    def _uptime(self) -> Iterator[Sample]:
        yield "host_uptime_Second", {}, float(self._read("uptime").split()[0])

    def _cpu_percent(self) -> Iterator[Sample]:
        ticks = [int(each) for each in self._read("stat").partition("\n")[0].split()[1 : _COUNTED_ELSEWHERE + 1]]
        every, idle = sum(ticks), ticks[3] + ticks[4]
        before, self._cpu = self._cpu, (every, idle)
        if before is not None and every > before[0]:
            busy = 1 - (idle - before[1]) / (every - before[0])
            yield "host_cpu_percent_Percentage", {}, round(100 * min(max(busy, 0.0), 1.0), 1)

    def _memory(self) -> Iterator[Sample]:
        pairs = (line.split(":", 1) for line in self._read("meminfo").splitlines())
        kib = {name: int(rest.split()[0]) for name, rest in pairs}
        left = {"virtual": kib["MemAvailable"], "swap": kib["SwapFree"]}
        free = {"virtual": kib["MemFree"], "swap": kib["SwapFree"]}
        total = {"virtual": kib["MemTotal"], "swap": kib["SwapTotal"]}
        for kind, size in total.items():
            used = size - left[kind]
            yield f"host_{kind}_memory_total_MiB", {}, size / _KIB_PER_MIB
            yield f"host_{kind}_memory_used_MiB", {}, used / _KIB_PER_MIB
            yield f"host_{kind}_memory_free_MiB", {}, free[kind] / _KIB_PER_MIB
            yield f"host_{kind}_memory_percent_Percentage", {}, round(100 * used / size, 1) if size else 0.0

    def _load(self) -> Iterator[Sample]:
        for minutes, load in zip((1, 5, 15), self._read("loadavg").split(), strict=False):
            yield f"host_load_average_{minutes}m_Percentage", {}, float(load)

    def _network(self) -> Iterator[Sample]:
        for line in self._read("net/dev").splitlines()[2:]:
            name, _, rest = line.partition(":")
            label, values = {"interface": name.strip()}, [int(each) for each in rest.split()]
            if self._is_real("class/net", label["interface"]):
                yield "host_net_io_rx_data_MiB", label, values[0] / MIB
                yield "host_net_io_rx_packets_Packet", label, values[1]
                yield "host_net_io_tx_data_MiB", label, values[8] / MIB
                yield "host_net_io_tx_packets_Packet", label, values[9]

    def _disks(self) -> Iterator[Sample]:
        for line in self._read("diskstats").splitlines():
            values = line.split()
            if self._is_real("block", values[2]):
                label = {"partition": values[2]}
                yield "host_disk_io_read_data_MiB", label, int(values[5]) / _SECTORS_PER_MIB
                yield "host_disk_io_write_data_MiB", label, int(values[9]) / _SECTORS_PER_MIB

    def _file_systems(self) -> Iterator[Sample]:
        for point in self._mountpoints():
            with suppress(OSError):  # it may have gone, or not be ours to look at
                found = os.statvfs(point)
                used, free = found.f_blocks - found.f_bfree, found.f_bavail  # free to users except root
                label = {"mountpoint": str(point)}
                for name, blocks in (("total", found.f_blocks), ("used", used), ("free", free)):
                    yield f"host_disk_usage_{name}_MiB", label, blocks * found.f_frsize / MIB
                if used + free:
                    yield "host_disk_usage_percent_Percentage", label, round(100 * used / (used + free), 1)

    def _mountpoints(self) -> list[PurePath]:
        """Where each local file system is mounted first; without paths through a file system that may hang."""
        lines = (line.split()[:3] for line in self._read("self/mounts").splitlines())
        mounts = [(device, PurePath(_ESCAPED.sub(_character, point)), kind) for device, point, kind in lines]
        kinds = {point: kind for _, point, kind in mounts}  # of several on one point the last is seen
        firsts: dict[str, PurePath] = {}
        for device, point, kind in mounts:
            through = {kinds[place] for place in (point, *point.parents) if place in kinds}
            if kind in _ON_DISKS and kinds[point] == kind and through <= _NEVER_HANG:
                firsts.setdefault(device, point)
        return list(firsts.values())

    def _is_real(self, kind: str, name: str) -> bool:
        return (self._sys / kind / name / "device").exists()

    def _read(self, name: str) -> str:
        return (self._proc / name).read_text(encoding="utf-8", errors="replace")


def _character(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 8))


def _whole(read: Callable[[], Iterator[Sample]]) -> list[Sample]:
    """All that it says, or nothing where the file is missing or not as it should be."""
    with suppress(OSError, ValueError, LookupError):
        return list(read())
    return []
