"""A Slurm job's control group: what the kernel counts of the job on this host, of either version.

Slurm makes a folder `job_N` for each job and its steps below it, and removes them when the job is over. What a group
does not count (a controller that is off, an older kernel) is not known.

Sources: cgroup-v2.rst (cpu.stat, memory.peak, memory.max, cpuset.cpus.effective, cgroup.events), cgroup-v1/cpuacct.rst,
memory.rst and cpusets.rst of the kernel; Slurm's cgroup_v2.html for where the folders are.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.attribution.cgroup import job_groups
from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.files import read_small

_UNIFIED = ""  # the name of version 2 in /proc/PID/cgroup
_NO_LIMIT_BYTES = 1 << 60  # version 1 writes the largest multiple of a page there is
_MOST_FOLDERS = 256
_MOST_PIDS = 1024
_USAGE = re.compile(r"^usage_usec ([0-9]{1,19})$", re.MULTILINE | re.ASCII)
_EMPTY = re.compile(r"^populated 0$", re.MULTILINE | re.ASCII)
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a group shows at one moment; None is not known. `memory_bytes` is the most so far where that is counted."""

    cpu_seconds: float | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGroup:
    """The folders of one job, by controller; version 2 has one, without a name."""

    folders: Mapping[str, Path]

    def read(self) -> Usage:
        """What it counts now."""
        unified = self.folders.get(_UNIFIED)
        if unified is not None and (unified / "cpu.stat").exists():
            peak = _number(unified / "memory.peak")
            found = _USAGE.search(_text(unified / "cpu.stat"))
            return Usage(
                cpu_seconds=None if found is None else int(found[1]) / 1e6,
                cores=_cores(_text(unified / "cpuset.cpus.effective")),
                memory_bytes=_number(unified / "memory.current") if peak is None else peak,
                memory_limit_bytes=_number(unified / "memory.max"),
            )
        nanoseconds = self._number("cpuacct", "cpuacct.usage")
        limit = self._number("memory", "memory.limit_in_bytes")
        cpuset = self.folders.get("cpuset")
        return Usage(
            cpu_seconds=None if nanoseconds is None else nanoseconds / 1e9,
            cores=None
            if cpuset is None
            else _cores(_text(cpuset / "cpuset.effective_cpus") or _text(cpuset / "cpuset.cpus")),
            memory_bytes=self._number("memory", "memory.max_usage_in_bytes"),
            memory_limit_bytes=None if limit is None or limit >= _NO_LIMIT_BYTES else limit,
        )

    def lives(self) -> bool:
        """Whether a process is in it. A folder may stay behind without one."""
        for folder in self.folders.values():
            events = _text(folder / "cgroup.events")
            if events and not _EMPTY.search(events):
                return True
            if not events and next(_pids(folder), None) is not None:
                return True
        return False

    def pids(self) -> frozenset[int]:
        """Processes in it, at most a thousand."""
        found: set[int] = set()
        for folder in self.folders.values():
            for pid in _pids(folder):
                found.add(pid)
                if len(found) >= _MOST_PIDS:
                    return frozenset(found)
        return frozenset(found)

    def _number(self, controller: str, name: str) -> int | None:
        folder = self.folders.get(controller)
        return None if folder is None else _number(folder / name)


def group_of(root: Path, cgroup: str, job: str) -> JobGroup | None:
    """The job's group, by /proc/PID/cgroup of one of its processes; None where no folder of it can be seen.

    `root` is where control groups are mounted.
    """
    folders: dict[str, Path] = {}
    for controllers, path in job_groups(cgroup, job):
        names = [name for name in controllers.split(",") if "=" not in name]
        tops = {name: [root / name, root / controllers] for name in names if name}
        for name, places in (tops or {_UNIFIED: [root, root / "unified"]}).items():
            below = path.lstrip("/")
            folder = next((place / below for place in places if (place / below).is_dir()), None)
            if folder is not None:
                folders[name] = folder
    return JobGroup(folders=folders) if folders else None


def _pids(folder: Path) -> Iterator[int]:
    """The processes in the group and in those below it."""
    for number, (below, _, names) in enumerate(os.walk(folder)):
        if number >= _MOST_FOLDERS:
            return
        if "cgroup.procs" in names:
            yield from (int(word) for word in _text(Path(below) / "cgroup.procs").split() if word.isdecimal())


def _cores(cpus: str) -> int | None:
    """How many processors a list such as `0-3,8` has; None where it is empty or of another form."""
    found = [_RANGE.fullmatch(part) for part in cpus.strip().split(",")]
    matches = [match for match in found if match is not None]
    if len(matches) < len(found):
        return None
    return sum(max(0, int(match[2] or match[1]) - int(match[1]) + 1) for match in matches) or None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    """The file's text; empty where it cannot be read."""
    with suppress(OSError, UnseenError):
        return read_small(path).text
    return ""
