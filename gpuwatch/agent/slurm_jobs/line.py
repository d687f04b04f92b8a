"""PURE: the line about a Slurm job that is over. What is not known is left out; nothing is 0 unless it was measured."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuwatch.model.duration import format_duration
from gpuwatch.model.readable import legible

_GIB = 1 << 30
_TENTHS_BELOW = 10.0  # GiB
_LONGEST_USER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job that is over, as this host saw it; None is not known. Memory is the most at one time.

    `whole`: `seconds` count from the job's begin; else from when the agent saw it first.
    """

    job: str
    user: str | None = None
    seconds: float
    whole: bool
    gpus: int
    gpu_ratio: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_memory_total_bytes: int | None = None
    cpu_cores: float | None = None
    cpu_cores_total: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None


def sentence(job: Ended) -> str:
    """The line, for people: `Slurm job 4711 of ann on this host: 2h10m, 4 GPUs used 37 %, …`."""
    user = "" if job.user is None else f" of {legible(job.user, _LONGEST_USER)}"
    return f"Slurm job {legible(job.job)}{user} on this host: {', '.join(_parts(job))}."


def _parts(job: Ended) -> Iterator[str]:
    lasted = format_duration(round(job.seconds)) if job.seconds >= 1 else "less than 1s"
    yield lasted if job.whole else f"seen for {lasted}"
    used = "" if job.gpu_ratio is None else f" used {100 * job.gpu_ratio:.0f} %"
    yield f"{job.gpus} {'GPU' if job.gpus == 1 else 'GPUs'}{used}"
    if job.gpu_memory_bytes is not None:
        yield f"GPU memory {_share_text(job.gpu_memory_bytes, job.gpu_memory_total_bytes)} at most"
    if job.cpu_cores is not None:
        total = "" if job.cpu_cores_total is None else f" of {job.cpu_cores_total}"
        yield f"CPU {job.cpu_cores:.1f}{total} cores"
    if job.memory_bytes is not None:
        yield f"memory {_share_text(job.memory_bytes, job.memory_limit_bytes)} at most"


def _share_text(part: int, whole: int | None) -> str:
    return _size(part) if whole is None else f"{_size(part)} of {_size(whole)}"


def _size(size_bytes: int) -> str:
    size = size_bytes / _GIB
    tenths = 0 < size < _TENTHS_BELOW and f"{size:.1f}" != f"{size:.0f}.0"
    return f"{size:.1f} GiB" if tenths else f"{size:.0f} GiB"
