"""PURE: what each Slurm job did with its GPUs, summed up from the agent's own cycles.

Rules, all of them:

1. A GPU is a job's from the first cycle in which a process of the job is on it until the job is over.
2. Utilization counts by time, between two readings at most `max_gap` apart. A GPU that was not read in between, and one
   on which another job has a process, does not count for that time.
3. Time counts once the job was seen alive after it, on a GPU or otherwise: what a GPU did after its end does not.
4. Memory is that of the job's processes on all its GPUs in one cycle. Where the driver does not say how much a process
   holds, it is what the GPU holds, unless another job is on it; then that cycle does not count.
5. At most `MOST_JOBS` at a time; further ones are left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuwatch.model.gpu import GpuReading

MOST_JOBS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The Slurm job of a process, by its number; `user` is None where the name is not known or not shown."""

    job: str
    user: str | None = None


@dataclass(slots=True, kw_only=True)
class GpuTime:
    """One GPU's time with a job, in seconds; what is `open` counts once the job was seen alive after it."""

    sampled_at: float | None = None
    busy: float = 0.0
    covered: float = 0.0
    open_busy: float = 0.0
    open_covered: float = 0.0
    total_bytes: int | None = None

    def sample(self, now: float, ratio: float | None, max_gap: float) -> None:
        """Count the time since the last reading; None: it is not known what this job did with it."""
        if ratio is None:
            self.sampled_at = None
            return
        elapsed, self.sampled_at = now - (now if self.sampled_at is None else self.sampled_at), now
        if 0 < elapsed <= max_gap:
            self.open_busy += min(1.0, max(0.0, ratio)) * elapsed
            self.open_covered += elapsed

    def settle(self) -> None:
        """The job was alive up to now."""
        self.busy, self.covered = self.busy + self.open_busy, self.covered + self.open_covered
        self.open_busy = self.open_covered = 0.0


@dataclass(slots=True, kw_only=True)
class JobUse:
    """What one job did with its GPUs so far. Times are of the monotonic clock."""

    job: str
    first_seen: float
    last_seen: float  # on a GPU
    user: str | None = None
    gpus: dict[str, GpuTime] = field(default_factory=dict)
    memory_bytes: int | None = None  # the most that it held at one time

    @property
    def utilization_ratio(self) -> float | None:
        """Share of its GPUs' time, 0 to 1, over all of them; None: no time was covered."""
        covered = sum(gpu.covered for gpu in self.gpus.values())
        return min(1.0, sum(gpu.busy for gpu in self.gpus.values()) / covered) if covered else None

    @property
    def total_bytes(self) -> int | None:
        """The memory of all its GPUs; None where one of them does not say."""
        totals = [gpu.total_bytes for gpu in self.gpus.values()]
        known = [total for total in totals if total is not None]
        return sum(known) if known and len(known) == len(totals) else None

    def settle(self) -> None:
        """The job was alive up to now."""
        for gpu in self.gpus.values():
            gpu.settle()


class JobBook:
    """The jobs that hold GPUs, or held them and are not over; `sample` costs O(GPUs of jobs + processes on GPUs)."""

    def __init__(self, max_gap: float) -> None:
        """Begin without a job."""
        self._max_gap = max_gap
        self.jobs: dict[str, JobUse] = {}

    def sample(self, now: float, readings: Iterable[GpuReading], holders: Mapping[int, Holder]) -> None:
        """Take the readings of one cycle; `holders` are the jobs of processes by their pids."""
        read = {reading.info.uuid: reading for reading in readings}
        on = {uuid: _jobs_on(reading, holders) for uuid, reading in read.items()}
        for uuid, found in on.items():
            for holder in found.values():
                self._begin(holder, uuid, now)
        for use in self.jobs.values():
            self._count(use, now, read, on)
            if use.last_seen == now:
                use.settle()
            memory = _memory(use, read, on, holders)
            if memory is not None:
                use.memory_bytes = max(memory, use.memory_bytes or 0)

    def end(self, job: str) -> JobUse | None:
        """The job is over: its use, which is forgotten here."""
        return self.jobs.pop(job, None)

    def _begin(self, holder: Holder, uuid: str, now: float) -> None:
        """The job has a process on the GPU."""
        if holder.job not in self.jobs and len(self.jobs) >= MOST_JOBS:
            return
        use = self.jobs.setdefault(holder.job, JobUse(job=holder.job, first_seen=now, last_seen=now))
        use.last_seen = now
        use.user = use.user or holder.user
        use.gpus.setdefault(uuid, GpuTime())

    def _count(
        self, use: JobUse, now: float, read: Mapping[str, GpuReading], on: Mapping[str, Mapping[str, Holder]]
    ) -> None:
        for uuid, gpu in use.gpus.items():
            reading = read.get(uuid)
            alone = reading is not None and on[uuid].keys() <= {use.job}
            gpu.sample(now, reading.utilization_ratio if reading is not None and alone else None, self._max_gap)
            if reading is not None and reading.memory_total_bytes is not None:
                gpu.total_bytes = reading.memory_total_bytes


def _jobs_on(reading: GpuReading, holders: Mapping[int, Holder]) -> dict[str, Holder]:
    """The jobs with a process on the GPU, by their numbers."""
    found = (holders.get(process.pid) for process in reading.processes or ())
    return {holder.job: holder for holder in found if holder is not None}


def _memory(
    use: JobUse,
    read: Mapping[str, GpuReading],
    on: Mapping[str, Mapping[str, Holder]],
    holders: Mapping[int, Holder],
) -> int | None:
    """Bytes that the job's processes hold on its GPUs in this cycle; None: it is not known of one of them."""
    total = 0
    for uuid in use.gpus:
        reading = read.get(uuid)
        held = None if reading is None else _held_bytes(reading, use.job, holders)
        if held is None and reading is not None and on[uuid].keys() == {use.job}:
            held = reading.memory_used_bytes
        if held is None:
            return None
        total += held
    return total


def _held_bytes(reading: GpuReading, job: str, holders: Mapping[int, Holder]) -> int | None:
    """Bytes of the job's processes on one GPU; the driver may list a process once for each kind of work."""
    if reading.processes is None:
        return None
    held: dict[tuple[int, int | None, int | None], int] = {}
    for process in reading.processes:
        holder = holders.get(process.pid)
        if holder is None or holder.job != job:
            continue
        if process.memory_bytes is None:
            return None
        key = (process.pid, process.gpu_instance, process.compute_instance)
        held[key] = max(process.memory_bytes, held.get(key, 0))
    return sum(held.values())
