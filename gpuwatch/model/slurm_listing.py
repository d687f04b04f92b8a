"""PURE: what squeue, sinfo and scontrol print of Slurm's queue and its nodes, as values.

`slurm_queue.py` has the rules of which nodes these jobs need.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from gpuwatch.model.slurm import SlurmNode

# Also of partitions that are hidden, or that the user's groups may not use: their jobs need nodes like all others.
ALL = "--all"
WAITS = "PD"
STATES = "PD,R,CF,CG,S"
# Its features come last: they are joined by `|`.
FORMAT = "%t|%u|%V|%v|%m|%E|%N|%i|%P|%r|%S|%D|%Y|%n|%x|%b|%f"
NODE_FORMAT = "%T|%R|%f|%G"
_FIELDS = FORMAT.count("|") + 1
_ID = re.compile(r"(\d+)(?:_\[(?P<tasks>[^\]]*)\]|[_+]\S+)?", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
MANY = 65_536  # nodes, where it is not known how many
_NOTHING = frozenset({"", "(null)", "N/A", "n/a", "Unknown"})
# gres/gpu:h100:2, gres:gpu:2, gpu:2, gres/gpu:h100=2; a kind may begin with a digit (2080ti, 3090, 1g.10gb), and
# digits alone are a kind where a number comes after them. A node's may say gpu:a100:no_consume:2.
_GRES = re.compile(
    r"(?:^|[,:/])gpu(?::(?!(?:\d+|no_consume(?::\d+)?)(?:,|\(|$))(\w[\w.+-]*))?(?::no_consume)?"
    r"(?:[:=](\d{1,6}))?(?=,|\(|$)",
    re.ASCII,
)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)[cn]?", re.ASCII)
_MEGABYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_OF_EACH_GPU = re.compile(r"gres[:/]gpu[:=](\d{1,9})", re.ASCII)  # megabytes: gres:gpu:3072
_COUNT = re.compile(r"\d{1,6}", re.ASCII)
_DEPENDS = re.compile(r":(\d+)", re.ASCII)
SINGLETON = "singleton"  # one of a person's jobs of a name at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A line of squeue. `tasks` are those of its array that wait in this line; `gpus` what the whole job asks for."""

    job: str
    reason: str
    state: str = WAITS
    user: str = ""
    partitions: tuple[str, ...] = ()
    start: datetime | None = None
    submitted: datetime | None = None
    count: int = 1  # nodes of one task
    tasks: int = 1
    limit: int | None = None  # of an array: so many tasks at once
    planned: str = ""
    wanted: str = ""
    excluded: str = ""
    places: str = ""  # where it runs
    reservation: str = ""
    depends: tuple[str, ...] = ()
    either: bool = False  # one of these is enough
    megabytes: float = 0.0  # of each node
    cpus: int = 0  # the least on each node; 0: not known
    all_cpus: int = 0  # of the whole job
    gres: str = ""
    features: str = ""
    gpus: int = 0
    kinds: frozenset[str] = frozenset()  # of these GPUs, of which a node has one at least

    @property
    def number(self) -> str:
        """The number of the job, or of its array."""
        return re.split(r"[_+]", self.job, maxsplit=1)[0]


def parse_queue(output: str) -> tuple[QueuedJob, ...]:
    """The jobs that squeue lists, in its order.

    Raises:
        ValueError: it is no list of jobs.

    """
    return tuple(_parse_line(line) for line in output.splitlines() if line.strip())


def _parse_line(line: str) -> QueuedJob:
    fields = [part.strip() for part in line.split("|", _FIELDS - 1)]
    found = _ID.fullmatch(fields[7]) if len(fields) == _FIELDS else None
    if found is None:
        raise ValueError("squeue's output is not a list of jobs")
    state, user, submitted, reservation, memory, depends, places, job, partitions, reason, *rest = fields
    start, count, planned, wanted, excluded, gres, features = rest
    tasks, limit = _count_tasks(found["tasks"])
    return QueuedJob(
        job=job,
        reason=reason,
        state=state,
        user=user,
        partitions=tuple(partitions.split(",")),
        start=_time(start),
        submitted=_time(submitted),
        count=int(count) if count.isdecimal() and count.isascii() and len(count) < 7 else 1,  # noqa: PLR2004  as MANY
        tasks=tasks,
        limit=limit,
        planned=_name(planned),
        wanted=_name(wanted),
        excluded=_name(excluded),
        places=_name(places),
        reservation=_name(reservation),
        depends=(*_DEPENDS.findall(depends), *([SINGLETON] if SINGLETON in depends else [])),
        either="?" in depends,
        megabytes=_megabytes(memory),
        gres=_name(gres),
        features=_name(features),
    )


def _count_tasks(text: str | None) -> tuple[int, int | None]:
    """How many tasks `5-9,12-20:4%2` are, and how many may run at once; a list that was cut (`...`) is many."""
    if text is None:
        return 1, None
    listed, _, most = text.partition("%")
    count = 0
    for part in listed.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            count = MANY
            break
        first, last, pace = (int(each) if each else None for each in found.groups())
        count += 1 if last is None else max(0, last - (first or 0)) // (pace or 1) + 1
    return count, int(most) if most.isdecimal() else None


def _time(text: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    return None


def _name(text: str) -> str:
    return "" if text in _NOTHING else text


def _megabytes(text: str) -> float:
    found = _MEMORY.fullmatch(text)
    return 0.0 if found is None else float(found[1]) * _MEGABYTES[found[2]]


def total_gpus(per_job: str, per_task: str, tasks: str) -> int:
    """How many GPUs a whole job asks for, by what `--gpus` and `--gpus-per-task` left behind; 0: it does not say."""
    return max(gpu_count(per_job), gpu_count(per_task) * (int(tasks) if tasks.isdecimal() else 1))


def gpus_by_kind(gres: str) -> Mapping[str, int]:
    """How many GPUs of each kind a node's `Gres=` or a job's request has; "": of no kind in particular."""
    found: Counter[str] = Counter()
    for kind, count in _GRES.findall(gres):
        found[kind.lower()] += int(count or 1)
    return found


def known_kinds(gres: str) -> tuple[tuple[str, int], ...] | None:
    """The same of a node; None: it is not known of all of them."""
    found = gpus_by_kind(gres)
    return None if "" in found or not found else tuple(sorted(found.items()))


def gpu_count(gres: str) -> int:
    """How many GPUs a node's `Gres=` or a job's request for each node has."""
    return sum(gpus_by_kind(gres).values())


def node_in_slurm(name: str, lines: Collection[str]) -> SlurmNode:
    """The node by the lines of sinfo, one for each partition; what they do not say is not known."""
    rows = [line.split("|") for line in lines if line.count("|") == NODE_FORMAT.count("|")]
    if not rows:
        return SlurmNode(name=name)
    return SlurmNode(
        name=name,
        partitions=tuple({row[1] for row in rows}),
        features=tuple({word for row in rows for word in row[2].split(",")}),
        gpus=gpu_count(rows[0][3]),
        gpu_kinds=known_kinds(rows[0][3]),
    )


# What whole jobs ask for, in columns of a width that every version has: what fills its column is cut off.
_WIDE, _NARROW = 120, 12
_NAMES = ("JobArrayID", "tres-per-job", "tres-per-task", "tres-alloc", "mem-per-tres")
TOTALS = ",".join([*(f"{each}:{_WIDE}" for each in _NAMES), f"NumTasks:{_NARROW}", f"MinCPUs:{_NARROW}"])


def with_totals(jobs: Iterable[QueuedJob], columns: str) -> Iterator[QueuedJob]:
    """The jobs with what they ask for as a whole, and for each processor or GPU, by the lines of `TOTALS`."""
    found = {}
    for line in columns.splitlines():
        name, *told = (line[place * _WIDE : (place + 1) * _WIDE].strip() for place in range(len(_NAMES)))
        found[name] = (*told, *line[len(_NAMES) * _WIDE :].split(), "", "")[:6]
    for job in jobs:
        per_job, per_task, tres, each_gpu, tasks, processors = found.get(job.job, ("",) * 6)
        total = total_gpus(per_job, per_task, tasks)
        here = gpu_count(job.gres) or (total if job.count == 1 else gpu_count(per_task)) or 1
        memory = _OF_EACH_GPU.search(each_gpu)
        totals = dict(each.partition("=")[::2] for each in tres.split(","))
        yield replace(
            job,
            gpus=total,
            cpus=_number(processors),
            all_cpus=_number(totals.get("cpu", "")),
            kinds=frozenset({*gpus_by_kind(per_job), *gpus_by_kind(per_task)} - {""}),
            megabytes=max(
                _node_megabytes(job.megabytes, totals, _number(processors) or 1),
                float(memory[1]) * here if memory is not None else 0.0,
            ),
        )


def _number(text: str) -> int:
    return int(text) if _COUNT.fullmatch(text) else 0


def _node_megabytes(asked: float, told: Mapping[str, str], least: int) -> float:
    """The least that a job asks of a node's memory: with `--mem-per-cpu` it is that of one of its processors."""
    cpus = _number(told.get("cpu", ""))
    return asked * least if cpus and _megabytes(told.get("mem", "")) == asked * cpus else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that are set aside from a time on."""

    name: str
    start: datetime
    end: datetime
    nodes: str


def parse_reservations(text: str) -> Iterator[Reservation]:
    """Those of `scontrol show reservation --oneliner` that name their nodes.

    Raises:
        ValueError: it is no such list.

    """
    for line in text.splitlines():
        told = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if "ReservationName" not in told:
            if line.strip() and not line.startswith("No reservations in the system"):
                raise ValueError("scontrol's answer is no list of reservations")
            continue
        start, end = _time(told.get("StartTime", "")), _time(told.get("EndTime", ""))
        if start is None or end is None:
            raise ValueError("scontrol does not say when a reservation is")
        yield Reservation(name=told["ReservationName"], start=start, end=end, nodes=_name(told.get("Nodes", "")))
