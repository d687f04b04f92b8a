"""PURE: the GPUs of running jobs, as `squeue --json` lists them.

JSON, because a job's name, comment and paths are its user's own words: in the text of `scontrol show job` they may look
like any field. Its fields have changed their types from one release to the next: both are read.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.model.bounds import BoundedInt, BoundedText
from gpuwatch.model.slurm import SlurmJob
from gpuwatch.model.slurm_listing import ALL

ARGUMENTS = ("--json", "--local", ALL, "--states=RUNNING")  # 22.05 lists the others all the same

_MOST = 65_536  # nodes of one job, as Slurm's own MAX_SLURM_NODES
_GPU = "gpu"  # nic, shard and mps are no whole GPUs
_MIG = re.compile(r"\d+g\.\d+gb")  # a type such as nvidia_h200_1g.18gb: an instance, with a number of its own
_PART = re.compile(r"([^,(]+)(?:\(([^)]*)\))?(?:,|$)")  # gpu:h200:2(IDX:0-1)
_COUNT = re.compile(r"\d{1,4}", re.ASCII)
_RANGES = re.compile(r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*", re.ASCII)
_WORD = re.compile(r"([^\[\],]*)(?:\[([0-9,-]+)\])?([^\[\],]*)(?:,|$)")  # gpu-[01-04,7].x


class _Number(msgspec.Struct):
    """A number as Slurm writes it since 23.02."""

    number: BoundedInt = 0


class _Job(msgspec.Struct):
    job_id: BoundedInt = 0
    user_name: BoundedText | None = None
    job_state: str | list[str] = ""
    start_time: BoundedInt | _Number = 0
    nodes: str | None = None
    gres_detail: list[str] | None = None


class _Place(msgspec.Struct):
    """The least that has to be known of a job."""

    nodes: str | None = None


class _Answer(msgspec.Struct):
    jobs: list[msgspec.Raw]


_DECODER = msgspec.json.Decoder(_Answer)
_JOB, _PLACE = msgspec.json.Decoder(_Job), msgspec.json.Decoder(_Place)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def parse_jobs(text: str) -> Mapping[str, tuple[SlurmJob, ...]]:
    """By the name of the node; only what holds GPUs. A job that cannot be read holds one of each of its nodes.

    Raises:
        CloudUnavailableError: it is not such a list, or a job does not say on which nodes it is.

    """
    found: dict[str, list[SlurmJob]] = {}
    try:
        for item in _DECODER.decode(text).jobs:
            for name, given in _job_by_node(bytes(item)):
                found.setdefault(name, []).append(given)
    except _UNREADABLE as error:
        raise CloudUnavailableError(f"squeue --json cannot be read: {error}") from error
    return {name: tuple(given) for name, given in found.items()}


def _job_by_node(item: bytes) -> Iterator[tuple[str, SlurmJob]]:
    """What one job holds on each of its nodes; of one that makes no sense it is not known which GPU that is."""
    try:
        job = _JOB.decode(item)
    except _UNREADABLE:
        place = _PLACE.decode(item)
        yield from ((name, SlurmJob(id="?", user="", gpus=1)) for name in expand_names(place.nodes or ""))
        return
    yield from _by_node(job)


def _by_node(job: _Job) -> Iterator[tuple[str, SlurmJob]]:
    """What one job holds on each of its nodes."""
    states = [job.job_state] if isinstance(job.job_state, str) else job.job_state
    details = job.gres_detail or []
    if "RUNNING" not in states or not any(details):
        return
    names = expand_names(job.nodes or "")
    if len(names) < len(details):  # there is a node with GPUs of it that nobody names
        raise CloudUnavailableError(f"squeue names {len(names)} nodes of job {job.job_id}, and GPUs of {len(details)}")
    if len(names) > len(details):
        yield from ((name, SlurmJob(id=str(job.job_id), user=job.user_name or "", gpus=1)) for name in names)
        return
    begun = job.start_time if isinstance(job.start_time, int) else job.start_time.number
    for name, detail in zip(names, details, strict=True):
        gpus, indexes = gpus_of(detail)
        if gpus:
            yield (
                name,
                SlurmJob(
                    id=str(job.job_id),
                    user=job.user_name or "",
                    gpus=gpus,
                    indexes=indexes,
                    started_at=datetime.fromtimestamp(begun, UTC) if 0 < begun < _LAST else None,
                ),
            )


_LAST = 253_402_300_800  # the year 10000, where datetime ends


def gpus_of(detail: str) -> tuple[int, tuple[int, ...] | None]:
    """The GPUs of `gpu:h200:2(IDX:0-1),nic:1(IDX:0)`: how many, and which; None: it does not say which."""
    count, indexes, certain = 0, list[int](), True
    for name, inside in _PART.findall(detail):
        kind, *rest = name.split(":")
        if kind != _GPU or any(map(_MIG.search, rest)):
            continue
        which = _numbers(inside.removeprefix("IDX:")) if inside.startswith("IDX:") else None
        its = int(rest[-1]) if rest and _COUNT.fullmatch(rest[-1]) else max(1, len(which or ()))
        certain = certain and which is not None and len(which) == its
        count += its
        indexes += which or ()
    certain = certain and len(set(indexes)) == count
    return count, tuple(sorted(indexes)) if certain else None


def _numbers(text: str) -> list[int] | None:
    """`0-1,3`; None: it is no such list."""
    if _RANGES.fullmatch(text) is None:
        return None
    found = list[int]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), min(int(last or first), int(first) + _MOST) + 1)
    return found


def expand_names(text: str) -> list[str]:
    """The names of `gpu-[01-04,7],login-1`, in order.

    Raises:
        CloudUnavailableError: it is written in another way.

    """
    names, place = list[str](), 0
    for found in _WORD.finditer(text):
        if found.start() != place or (not found[0] and place < len(text)):
            break
        place = found.end()
        before, inside, after = found.groups()
        if inside is None:
            names += [before + after] if before + after else []
            continue
        names += [f"{before}{number}{after}" for number in _pad_numbers(inside)]
    if place != len(text) or len(names) > _MOST:
        raise CloudUnavailableError(f"squeue's list of nodes cannot be read: {text[:100]!r}")
    return names


def _pad_numbers(text: str) -> Iterator[str]:
    """`01-04,7` with the zeros before them."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        for number in _numbers(part) or ():
            yield f"{number:0{len(first)}d}" if last else first
