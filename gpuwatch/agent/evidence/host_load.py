"""Load of the host's processors, disks and network cards, from the kernel's counters between two looks.

It says busy only while somebody's program is alive; what the machine's own programs do keeps no machine.

Only real devices count (those with a `device` in sysfs): partitions, loops, RAM disks, device mappers, bridges, veth
and the like show the same bytes again, or bytes that never left memory.

Packets that the machine forwards for others count as well: a VPN gateway or a router has no process and no connection
that shows them. A few occupy the machine for four hours, and for as long as they are a few in the mean since the
boot: people reach something through it, and are silent now. So do frames that a bridge passes between two cards which
lead elsewhere (a VPN of Ethernet), as many as go both ways: what is meant for all goes one way.

Files in memory are nobody's program, and a stop loses them: very large ones occupy the machine. Not what has lain in
/dev/shm unchanged and unread for three days, longer than a weekend: a crashed job left it. What has it open occupies by
itself. Where it is not known when a file was read (`noatime`), or the clock was set in these days, nothing is left.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, islice
from os import statvfs
from pathlib import Path

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.datagrams import is_veth
from gpuwatch.agent.evidence.files import list_paths, read_small
from gpuwatch.agent.evidence.rate import Rate
from gpuwatch.agent.evidence.settings import CpuSettings, DiskSettings, NetworkSettings
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import Evidence, State

# user, nice, system; then idle, iowait; irq, softirq. What guests use is in user and nice.
_CPU = re.compile(r"cpu +(\d+) (\d+) (\d+) \d+ \d+ (\d+) (\d+) ", re.ASCII)
_PROCESSOR = re.compile(r"^cpu\d+ ", re.ASCII | re.MULTILINE)
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CPU_SPAN_SECONDS = 60.0  # a cron job's few seconds are no work; a program's minute is
_ALWAYS_WORK = 10.0
_GATEWAY = "forwards packets between other machines"
_NETWORK_SWITCH = "agent.evidence.network.enabled"
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own (Documentation/admin-guide/iostats.rst)
_PACKETS_PER_SECOND, _PACKETS_SPAN_SECONDS = 5.0, 60.0
_A_FEW_PER_SECOND = 0.1  # a scanner's stray packet is less
_GATEWAY_SECONDS = 4 * 3600.0
_LARGE_MEMORY_FILES = 32 << 30
_LEFT_SECONDS, _SHARED_EACH_SECONDS, _MOST_FILES = 3 * 86400.0, 600.0, 1 << 14
_CLOCK_SET_SECONDS = 60.0  # a clock that is only corrected moves by less between two looks
_MEMORY = re.compile(r"^(Shmem|SwapTotal|SwapFree): +(\d+) kB$", re.ASCII | re.MULTILINE)


class Cpu:
    """Busy while the whole host uses more CPU cores than the limit, whether or not its programs hold a GPU."""

    name = "cpu"
    source = "/proc/stat, all processors"

    def __init__(self, settings: CpuSettings, roots: Roots) -> None:
        self._rate = Rate(settings.busy_cores, "cores", _CPU_SPAN_SECONDS)
        self._path = roots.proc / "stat"
        self._processors = 0

    def utilization(self, found: tuple[Evidence, ...]) -> float | None:
        """The share, 0 to 1, of all processors' time that a finding of this signal says was used; None: not known."""
        used = [each.observed for each in found if each.observed is not None]
        return min(1.0, used[0] / self._processors) if used and self._processors else None

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all processors."""
        try:
            used = self._used_seconds()
        except (OSError, UnseenError):
            self._rate.forget()
            raise
        found = self._rate.judge(self, {"all processors": used}, now)
        view = now.processes
        if found.says is State.BUSY and view is not None and found.observed is not None:
            # What holds a GPU is judged by gpu_process_cpu.
            own = view.cores_of({Kind.SERVICE, Kind.KERNEL}, now.gpu_pids or ())
            limit = found.limit or 0.0
            if found.observed - own <= limit:
                note = f"{own:.2f} cores of it are the machine's own programs' and those of processes on GPUs"
                found = replace(found, says=State.IDLE, note=note)
        return (_weigh_load(found, now),)

    def _used_seconds(self) -> float:
        """Seconds of CPU time since the boot, but for those spent waiting, and those that the hypervisor took."""
        text = read_small(self._path).text
        found = _CPU.match(text)
        if found is None:
            raise UnseenError(f"{self._path} is not what proc(5) says")
        self._processors = len(_PROCESSOR.findall(text))
        return sum(map(int, found.groups())) / _TICKS_PER_SECOND


class Disk:
    """Busy while the real disks together read and write more than the limit; occupied by large files in memory."""

    name = "disk"
    source = "/proc/diskstats, whole real disks; /proc/meminfo"

    def __init__(self, settings: DiskSettings, roots: Roots) -> None:
        self._rate = Rate(settings.busy_bytes_per_second)
        self._roots = roots
        self._left: tuple[float, int] | None = None  # when it was counted, and the bytes
        self._boot: float | None = None  # in wall-clock time
        self._clock_set_at: float | None = None

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all disks; idle without any."""
        self._watch_clock(now)
        try:
            real = _real(self._roots.sys / "block")
            moved = self._moved_bytes(real)
        except (OSError, UnseenError):
            self._rate.forget()
            raise
        found = make_finding(self, State.IDLE, "there is no local disk")
        if real:
            found = _weigh_load(self._rate.judge(self, moved, now), now)
        memory = {name: 1024 * int(size) for name, size in _MEMORY.findall(_text(self._roots.proc / "meminfo"))}
        held_bytes = memory.get("Shmem", 0)
        if held_bytes >= _LARGE_MEMORY_FILES:
            # A file keeps its size when it is swapped out, and is no longer in `Shmem`.
            swapped = memory.get("SwapTotal", 0) - memory.get("SwapFree", 0)
            held_bytes -= max(0, self._left_bytes(now) - swapped)
        if found.says is State.IDLE and held_bytes >= _LARGE_MEMORY_FILES:
            note = f"{held_bytes / 1e9:.0f} GB of files are in memory, which a stop loses"
            return (replace(found, says=State.OCCUPIED, note=note),)
        return (found,)

    def _watch_clock(self, now: Moment) -> None:
        """Note when the wall clock was set: times of files before and after that do not compare."""
        before, self._boot = self._boot, now.at.timestamp() - now.monotonic_seconds
        if before is not None and abs(self._boot - before) > _CLOCK_SET_SECONDS:
            self._clock_set_at, self._left = now.monotonic_seconds, None

    def _left_bytes(self, now: Moment) -> int:
        """What lies in /dev/shm since long, counted each ten minutes; what may not be read is not counted."""
        if self._clock_set_at is not None and now.monotonic_seconds - self._clock_set_at < _LEFT_SECONDS:
            return 0
        if self._left is None or not 0 <= now.monotonic_seconds - self._left[0] < _SHARED_EACH_SECONDS:
            latest, shared = now.at.timestamp() - _LEFT_SECONDS, self._roots.dev / "shm"
            sizes = {
                each.st_ino: 512 * each.st_blocks  # a file may have several names
                for each in (_files_below(shared) if _notes_reads(shared) else ())
                if max(each.st_ctime, each.st_atime) < latest
            }
            self._left = now.monotonic_seconds, sum(sizes.values())
        return self._left[1]

    def _moved_bytes(self, real: frozenset[str]) -> dict[str, int]:
        """Bytes read and written by disk, since the boot."""
        path = self._roots.proc / "diskstats"
        moved = {}
        for line in read_small(path).text.splitlines():
            values = line.split()
            try:
                if values[2] in real:
                    moved[values[2]] = (int(values[5]) + int(values[9])) * _SECTOR_BYTES
            except (IndexError, ValueError):
                raise UnseenError(f"{path} has an unexpected line: {line[:80]!r}") from None
        if real - moved.keys():
            raise UnseenError(f"{path} does not list {several(sorted(real - moved.keys()))}")
        return moved


class Network:
    """Busy while the real network cards together receive and send more than the limit, or the machine is a gateway."""

    name = "network"
    source = "/proc/net/dev, real network cards; /proc/net/snmp"

    def __init__(self, settings: NetworkSettings, roots: Roots) -> None:
        self._rate = Rate(settings.busy_bytes_per_second)
        self._forwards = Rate(_PACKETS_PER_SECOND, "packets per second", _PACKETS_SPAN_SECONDS)
        self._forwarded_at: float | None = None
        self._roots = roots

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all cards; unknown without any, as in a container."""
        try:
            moved = self._moved_bytes(_real(self._roots.sys / "class/net"))
        except (OSError, UnseenError):
            self._rate.forget()
            raise
        found = _weigh_load(self._rate.judge(self, moved, now), now)
        packets = forwarded_packets(self._roots)
        passed = None if packets is None else self._forwards.judge(self, {"packets": packets}, now)
        at = now.monotonic_seconds
        if passed is not None and passed.says is not State.UNKNOWN and (passed.observed or 0.0) >= _A_FEW_PER_SECOND:
            self._forwarded_at = at
        if found.says is State.IDLE and passed is not None and passed.says is State.BUSY and for_others(now):
            return (replace(passed, note=_GATEWAY, setting=_NETWORK_SWITCH),)
        lately = self._forwarded_at is not None and at - self._forwarded_at < _GATEWAY_SECONDS
        lately = lately or (packets or 0) >= _A_FEW_PER_SECOND * at  # its mean since the boot
        if found.says is State.IDLE and passed is not None and lately and for_others(now):
            return (replace(passed, says=State.OCCUPIED, note=f"{_GATEWAY}, or did lately", setting=_NETWORK_SWITCH),)
        return (found,)

    def _moved_bytes(self, real: frozenset[str]) -> dict[str, int]:
        """Bytes in and out by card, since the boot."""
        if not real:
            raise UnseenError("no real network card is visible; give the agent the host's network")
        path = self._roots.proc / "net/dev"
        moved = {}
        for line in read_small(path).text.splitlines()[2:]:
            name, _, rest = line.partition(":")
            values = rest.split()
            try:
                if name.strip() in real:
                    moved[name.strip()] = int(values[0]) + int(values[8])
            except (IndexError, ValueError):
                raise UnseenError(f"{path} has an unexpected line: {line[:80]!r}") from None
        if real - moved.keys():
            raise UnseenError(f"{path} does not list {several(sorted(real - moved.keys()))}")
        return moved


def _weigh_load(found: Evidence, now: Moment) -> Evidence:
    """Load is somebody's only while somebody's program is alive; without the list of processes it always is.

    So is a load ten times the limit: an image that is pulled, a file server in the kernel.
    """
    view = now.processes
    if found.observed is not None and found.limit is not None and found.observed >= _ALWAYS_WORK * found.limit:
        return found
    if found.says is not State.BUSY or view is None or view.doubt is not None or view.people():
        return found
    return replace(found, says=State.IDLE, note="no program of a user, a container or a job is alive")


def _real(folder: Path) -> frozenset[str]:
    """The devices of a class that stand for hardware, a virtual machine's included."""
    return frozenset(path.name for path in list_paths(folder) if os.path.lexists(path / "device"))


def _notes_reads(folder: Path) -> bool:
    """Whether its file system writes down when a file was read."""
    try:
        return not statvfs(folder).f_flag & os.ST_NOATIME
    except OSError:
        return False


def _files_below(top: Path) -> Iterator[os.stat_result]:
    """The files of one file system, of so many entries at most: a folder of millions is not listed whole."""
    folders, seen = [str(top)], 0
    with suppress(OSError):
        device = top.stat().st_dev
        while folders and seen < _MOST_FILES:
            with suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in islice(entries, _MOST_FILES - seen):
                    seen += 1
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_dev == device and entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        elif status.st_dev == device:
                            yield status


def forwarded_packets(roots: Roots) -> int | None:
    """Packets and frames that were forwarded since the boot; None where the kernel does not say."""
    counted = [_of_ipv4(roots.proc / "net/snmp"), _of_ipv6(roots.proc / "net/snmp6")]
    known = [each for each in counted if each is not None]
    return sum(known) + sum(map(_of_bridge, list_paths(roots.sys / "class/net"))) if known else None


def _of_bridge(card: Path) -> int:
    """Frames that passed both ways between the two busiest ports of a bridge that are no container's."""
    if not (card / "bridge").is_dir():
        return 0
    ports = [port for port in list_paths(card) if port.name.startswith("lower_") and not is_veth(port)]
    moved = [
        [_number(_text(port / f"statistics/{way}_packets").strip()) or 0 for way in ("rx", "tx")] for port in ports
    ]
    return max((2 * min(*one, *other) for one, other in combinations(moved, 2)), default=0)


def for_others(now: Moment) -> bool:
    """Whether what is forwarded is other machines': a container's traffic is forwarded, too."""
    view = now.processes
    if view is None or view.doubt is not None:
        return False
    return all(
        each.placement.container_id is None and each.placement.pod_uid is None for each in view.processes.values()
    )


def _of_ipv4(path: Path) -> int | None:
    """`Ip:` in two lines, names and values (proc_pid_net(5))."""
    rows = [line.split() for line in _text(path).splitlines() if line.startswith("Ip: ")]
    if len(rows) != 2:  # noqa: PLR2004  names and values
        return None
    values = dict(zip(*rows, strict=False))
    return _number(values.get("ForwDatagrams", ""))


def _of_ipv6(path: Path) -> int | None:
    rows = (line.split() for line in _text(path).splitlines() if line.startswith("Ip6OutForwDatagrams"))
    return next((_number(row[1]) for row in rows if len(row) > 1), None)


def _text(path: Path) -> str:
    try:
        return read_small(path).text
    except (OSError, UnseenError):
        return ""


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() else None
