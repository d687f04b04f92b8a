"""The control groups of pods: what the kernel counts of each pod as a whole, of either version.

A pod's group counts what its containers use together, processes that have ended included, and goes on counting when a
container restarts. The kubelet makes it below `kubepods` (`kubelet.slice` in clusters in containers).

Sources: cgroup-v2.rst (cpu.stat, io.stat, memory.stat), cgroup-v1/cpuacct.rst, cgroup-v1/memory.rst of the kernel.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.attribution.cgroup import parse_cgroup
from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.files import read_small

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TOP = re.compile(r"kubepods.*|kubelet.*")
_BETWEEN = re.compile(r"kubepods.*|kubelet.*|burstable|besteffort")
_DEEPEST = 4
_MOST_GROUPS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a pod's group has counted: CPU seconds, bytes of block devices, bytes of pages that came in, and its files.

    `disk_bytes` is None where writes are not counted for the group (version 1).
    """

    cpu_seconds: float
    disk_bytes: float | None
    paged_bytes: float
    file_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A pod's group: its folder, and for version 1 the folder of each controller."""

    cpu: Path
    memory: Path
    version: int

    def read(self) -> Counters:
        """Its counters now.

        Raises:
            OSError: the group is gone, or may not be read.
            UnseenError: a file is not what the kernel's documentation says.

        """
        memory = _numbers(self.memory / "memory.stat")
        if self.version == 1:
            return Counters(
                cpu_seconds=_number(self.cpu / "cpuacct.usage") / 1e9,
                disk_bytes=None,
                paged_bytes=float(_value_of(memory, "total_pgpgin", self.memory) * _PAGE_BYTES),
                file_bytes=_value_of(memory, "total_cache", self.memory),
            )
        return Counters(
            cpu_seconds=_value_of(_numbers(self.cpu / "cpu.stat"), "usage_usec", self.cpu) / 1e6,
            disk_bytes=_disk_bytes(self.cpu / "io.stat"),
            paged_bytes=_pages_in(memory, self.memory),
            file_bytes=_value_of(memory, "file", self.memory),
        )


def groups(root: Path) -> Mapping[str, Group] | None:
    """The group of each pod, by the pod's uid; None: no pods' groups can be seen here.

    Raises:
        OSError: they are there and may not be listed.
        UnseenError: there are more than can rightly be.

    """
    if (root / "cgroup.controllers").exists():
        found = _pods(root)
        return None if found is None else {uid: Group(cpu=at, memory=at, version=2) for uid, at in found.items()}
    cpu = next((root / name for name in ("cpuacct", "cpu,cpuacct") if (root / name).is_dir()), None)
    used = None if cpu is None else _pods(cpu)
    held = _pods(root / "memory") if (root / "memory").is_dir() else None
    if used is None or held is None:
        return None
    return {uid: Group(cpu=at, memory=held[uid], version=1) for uid, at in used.items() if uid in held}


def _pods(root: Path) -> dict[str, Path] | None:
    """The folder of each pod; None without a folder of the kubelet's."""
    tops = [each for each in _folders(root) if _TOP.fullmatch(each.name)]
    if not tops:
        return None
    found: dict[str, Path] = {}
    for number, each in enumerate(folder for top in tops for folder in _walk_folders(top, _DEEPEST)):
        if number >= _MOST_GROUPS:
            raise UnseenError(f"{root} holds more than {_MOST_GROUPS} groups of pods")
        uid = parse_cgroup(f"0::/{each.name}").pod_uid
        if uid is not None:
            found[uid] = each
    return found


def _walk_folders(folder: Path, deep: int) -> Iterator[Path]:
    """The folders in which a pod's may be, and the pods' own; not what is in those."""
    yield folder
    if deep and _BETWEEN.fullmatch(folder.name) and parse_cgroup(f"0::/{folder.name}").pod_uid is None:
        for each in _folders(folder):
            yield from _walk_folders(each, deep - 1)


def _folders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _disk_bytes(path: Path) -> float | None:
    """Bytes read and written on all devices (`8:0 rbytes=1 wbytes=2 …`); None where the controller is off."""
    try:
        text = read_small(path).text
    except FileNotFoundError:
        return None
    pairs = (word.partition("=") for line in text.splitlines() for word in line.split()[1:])
    found = [value for name, _, value in pairs if name in {"rbytes", "wbytes"}]
    if not all(map(str.isdecimal, found)):
        raise UnseenError(f"{path} is not what cgroup-v2.rst says")
    return float(sum(map(int, found)))


def _numbers(path: Path) -> dict[str, int]:
    """Return the lines `name number` of a file."""
    found: dict[str, int] = {}
    for line in read_small(path).text.splitlines():
        name, _, value = line.partition(" ")
        if value.isdecimal():
            found[name] = int(value)
    return found


def _number(path: Path) -> int:
    text = read_small(path).text.strip()
    if not text.isdecimal():
        raise UnseenError(f"{path} is not a number")
    return int(text)


def _value_of(values: Mapping[str, int], name: str, folder: Path) -> int:
    if name not in values:
        raise UnseenError(f"{folder} does not count {name}")
    return values[name]


def _pages_in(values: Mapping[str, int], folder: Path) -> float:
    """Bytes of pages that came in (version 2). Older kernels have one count of refaults, and one of reclaim.

    Reclaim counts where it was direct: who reads a long file under a limit gives up other pages for it.
    """
    refaults = values.get("workingset_refault_file", values.get("workingset_refault", 0))
    reclaimed = values.get("pgsteal_direct", values.get("pgsteal", 0))
    return float((_value_of(values, "pgmajfault", folder) + refaults + reclaimed) * _PAGE_BYTES)
