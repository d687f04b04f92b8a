"""Follows the Slurm jobs on this host's GPUs, and logs one line for each that is over.

Cycles come from the thread that feeds the agent's core, which never waits here for a file. The thread that looks up the
owners of processes reads control groups. A failure ends this watch with a traceback, and nothing else of the agent.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.attribution.process import GONE, start_time
from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.files import read_small
from gpuwatch.agent.slurm_jobs.book import MOST_JOBS, Holder, JobBook, JobUse
from gpuwatch.agent.slurm_jobs.groups import JobGroup, Usage, group_of
from gpuwatch.agent.slurm_jobs.line import Ended, sentence
from gpuwatch.model.gpu import GpuReading
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

CGROUPS = Path("/sys/fs/cgroup")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_OVER_AFTER = 2  # looks in a row that show neither a process nor a group
_MOST_MEMBERS = 256


@dataclass(slots=True, kw_only=True)
class _Track:
    """What the looks at one job have shown; times are of the monotonic clock."""

    alive_at: float
    began: float | None = None
    group: JobGroup | None = None
    members: dict[int, int | None] = field(default_factory=dict)  # pid: its start in ticks since boot
    missed: int = 0
    first: tuple[float, float] | None = None  # when, and CPU seconds then
    last: tuple[float, float] | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None

    def take(self, now: float, usage: Usage) -> None:
        """What the group counts now; what it counted before stays known."""
        if usage.cpu_seconds is not None:
            self.last = now, usage.cpu_seconds
            self.first = self.first or self.last
        self.cores = usage.cores or self.cores
        self.memory_limit_bytes = usage.memory_limit_bytes or self.memory_limit_bytes
        if usage.memory_bytes is not None:
            self.memory_bytes = max(usage.memory_bytes, self.memory_bytes or 0)


class SlurmJobs:
    """The jobs of one host. `sample` and `look` may be called by two threads."""

    def __init__(
        self,
        clock: Clock,
        readings: Callable[[], Iterable[GpuReading]],
        view: Callable[[], View | None],
        *,
        max_gap: float,
        proc: Path,
        cgroups: Path = CGROUPS,
    ) -> None:
        """Begin without a job; jobs that run already are seen from now on. `max_gap` is in seconds."""
        self._clock = clock
        self._readings = readings
        self._view = view
        self._proc = proc
        self._cgroups = cgroups
        self._since = clock.monotonic()
        self._book = JobBook(max_gap)
        self._lock = threading.Lock()
        self._tracks: dict[str, _Track] = {}
        self._broken = False

    def sample(self) -> None:
        """Take the readings of the cycle that was published now."""
        if not self._broken:
            try:
                self._sample()
            except Exception:  # noqa: BLE001  the core must go on
                self._give_up()

    def look_at_jobs(self, view: View) -> None:
        """Look at the jobs' processes and groups; a job that was missing twice is over."""
        if not self._broken:
            try:
                self._look_at_jobs(view)
            except Exception:  # noqa: BLE001  the owners must still be looked up
                self._give_up()

    def _give_up(self) -> None:
        self._broken = True
        _LOG.exception("what Slurm jobs use cannot be followed any more, until the agent starts again")

    def _sample(self) -> None:
        view = self._view()
        holders = {} if view is None else _holders(view)
        if holders or self._book.jobs:
            # Without the owners nobody knows which jobs are on the GPUs: that time does not count.
            now, readings = self._clock.monotonic(), () if view is None else tuple(self._readings())
            with self._lock:
                self._book.sample(now, readings, holders)

    def _look_at_jobs(self, view: View) -> None:
        now = self._clock.monotonic()
        self._meet(view, now)
        for job, track in tuple(self._tracks.items()):
            self._join(track, job, view)
            if self._lives(track):
                self._see(track, job, now)
            else:
                track.missed += 1
            if track.missed >= _OVER_AFTER:
                self._end(job)

    def _meet(self, view: View, now: float) -> None:
        """Begin to follow the jobs that hold GPUs now, and those that were in the cycles."""
        for holder in _holders(view).values():
            if len(self._tracks) < MOST_JOBS:
                self._tracks.setdefault(holder.job, _Track(alive_at=now))
        with self._lock:
            for use in self._book.jobs.values():
                self._tracks.setdefault(use.job, _Track(alive_at=use.first_seen))

    def _see(self, track: _Track, job: str, now: float) -> None:
        """The job is alive."""
        track.missed, track.alive_at = 0, now
        if track.group is not None:
            track.take(now, track.group.read())
        with self._lock:
            use = self._book.jobs.get(job)
            if use is not None:
                use.settle()

    def _join(self, track: _Track, job: str, view: View) -> None:
        """Take the job's processes that hold GPUs, and find its group and its begin by the first process."""
        fresh = [pid for pid, holder in _holders(view).items() if holder.job == job and pid not in track.members]
        for pid in fresh[: _MOST_MEMBERS - len(track.members)]:
            with suppress(*GONE):
                track.members[pid] = start_time(self._proc, pid)
            if track.group is None:
                track.group = group_of(self._cgroups, _text(self._proc / str(pid) / "cgroup"), job)
        if fresh and track.began is None:
            inside = frozenset() if track.group is None else track.group.pids()
            track.began = self._begin_of(inside | track.members.keys())

    def _begin_of(self, pids: Iterable[int]) -> float | None:
        """When the oldest of the processes started, on the monotonic clock; None: it is not known."""
        uptime = _text(self._proc / "uptime").split()
        starts = []
        for pid in pids:
            with suppress(*GONE):
                starts.append(start_time(self._proc, pid))
        known = [start for start in starts if start is not None]
        if not known or not uptime:
            return None
        return self._clock.monotonic() - max(0.0, float(uptime[0]) - min(known) / _TICKS_PER_SECOND)

    def _lives(self, track: _Track) -> bool:
        """Whether a process is in the job's group, or one that held a GPU still runs."""
        track.members = {pid: start for pid, start in track.members.items() if self._runs(pid, start)}
        return bool(track.members) or (track.group is not None and track.group.lives())

    def _runs(self, pid: int, start: int | None) -> bool:
        try:
            return start_time(self._proc, pid) == start
        except GONE:
            return False

    def _end(self, job: str) -> None:
        track = self._tracks.pop(job)
        with self._lock:
            use = self._book.end(job)
        if use is not None:
            _LOG.info("%s", sentence(_ended_job(use, track, self._since)))


def _ended_job(use: JobUse, track: _Track, since: float) -> Ended:
    """The job as it was. `since` is when the agent began: of an older job only what was seen counts."""
    began = track.began if track.began is not None and track.began >= since else None
    return Ended(
        job=use.job,
        user=use.user,
        seconds=max(0.0, max(track.alive_at, use.last_seen) - (use.first_seen if began is None else began)),
        whole=began is not None,
        gpus=len(use.gpus),
        gpu_ratio=use.utilization_ratio,
        gpu_memory_bytes=use.memory_bytes,
        gpu_memory_total_bytes=use.total_bytes,
        cpu_cores=_cores(track, began),
        cpu_cores_total=track.cores,
        memory_bytes=track.memory_bytes,
        memory_limit_bytes=track.memory_limit_bytes,
    )


def _cores(track: _Track, began: float | None) -> float | None:
    """CPU cores used on average, since the begin or while it was seen; None: no time was measured."""
    if track.first is None or track.last is None:
        return None
    at, seconds = track.first if began is None else (began, 0.0)
    elapsed, used = track.last[0] - at, track.last[1] - seconds
    return used / elapsed if elapsed > 0 and used >= 0 else None


def _holders(view: View) -> Mapping[int, Holder]:
    """The Slurm jobs of the processes on GPUs."""
    return {
        pid: Holder(job=owner.placement.slurm_job, user=owner.user)
        for pid, owner in view.owners.items()
        if owner.placement.slurm_job is not None
    }


def _text(path: Path) -> str:
    """The file's text; empty where it cannot be read."""
    with suppress(OSError, UnseenError):
        return read_small(path).text
    return ""
