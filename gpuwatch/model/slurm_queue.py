"""PURE: which idle nodes of Slurm the jobs need that wait, as `squeue` lists them. Agent and controller ask the same.

A node without a job is not free for that: a job array may be throttled between two of its tasks, a job may wait for a
time, another job, a licence, or for more nodes than are idle now. Rules, all of them:

1. A job may use a node of one of its partitions that has what it asks for: features, GPUs of a kind and number,
   memory, a place in its list of nodes or in its reservation. What cannot be read counts as there.
2. A job holds no more idle nodes than it asks for, those first in the order of names: `count` for each task that may
   start at once. A throttled array may start as many tasks as its limit leaves next to those that run.
3. It holds none where it waits for a person (held), for another job that waits itself, for what never comes (a limit of
   the partition or of its own size, a budget that is spent), or where it has waited for more than `LONGEST_WAIT`.
4. Nor where it wants one node, waits for resources and has for `LOOK_SECONDS`: Slurm has looked at the idle ones.
5. Nor where it starts later than `HORIZON_SECONDS` from now.
6. Of a person's jobs that wait for the same limit of theirs (Assoc..., QOS..., singleton) only the first holds: one job
   of theirs ends, one begins.
7. A job that is on a node, suspended ones included, holds it.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from gpuwatch.model.slurm import SlurmNode

HORIZON_SECONDS = 93600.0  # as that of crontabs: a job each night
LOOK_SECONDS = 900.0  # a pass of the scheduler over a long queue
LONGEST_WAIT = timedelta(days=7)
STATES = "PD,R,CF,CG,S"
# Its features come last: they are joined by `|`.
FORMAT = "%t|%u|%V|%v|%m|%E|%N|%i|%P|%r|%S|%D|%Y|%n|%x|%b|%f"
NODE_FORMAT = "%T|%R|%f|%G"
_FIELDS = FORMAT.count("|") + 1
_WAITS, _KEPT = "PD", frozenset({"RH", "SE", "RV"})  # requeued and held, special exit, of a sibling in a federation
_ON_A_NODE = frozenset({"R", "CF", "CG", "S", "SO", "SI", "ST", "RS", "RQ"})
# squeue(1), JOB REASON CODES: it waits for a person, or never starts.
_NEVER = frozenset(
    "JobHeldAdmin JobHeldUser BadConstraints DependencyNeverSatisfied InvalidAccount InvalidQOS DeadLine "  # noqa: SIM905  a table
    "AccountNotAllowed QOSNotAllowed PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit "
    "PartitionConfig AssociationTimeLimit QOSTimeLimit JobLaunchFailure SystemFailure JobHoldMaxRequeue".split()
)
# A limit on each job: it never starts as it is. Minutes are a budget that is spent; those of running jobs come back.
_OWN_LIMIT = re.compile(
    r"(?:Assoc|QOS)\w*(?:PerJob|PerNode|MaxWall|Min[A-Z]|(?<!Run)Minutes)|\w*held(?:_state)?", re.ASCII
)
_SHARED_LIMIT = re.compile(r"(?:Assoc|QOS|MaxJobs)\w*", re.ASCII)
_RESOURCES = ("Resources", "Nodes required for job are", "Nodes_required_for_job_are", "ReqNodeNotAvail", "NodeDown")
_THROTTLED = "JobArrayTaskLimit"
_ID = re.compile(r"(\d+)(?:_\[(?P<tasks>[^\]]*)\]|[_+]\S+)?", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_MANY = 65_536  # nodes, where it is not known how many
_NOTHING = frozenset({"", "(null)", "N/A", "n/a", "Unknown"})
_WORD = re.compile(r"([^\[\],]*)(?:\[([0-9,-]+)\])?([^\[\],]*)(?:,|$)")  # gpu-[01-04,7].x
_EXPRESSION = re.compile(r"[\w.:+-]+(?:[&|][\w.:+-]+)*", re.ASCII)
# gres/gpu:h100:2, gres:gpu:2, gpu:2, gres/gpu:h100=2
_GRES = re.compile(r"(?:^|[,:/])gpu(?::([A-Za-z][\w.-]*))?(?:[:=](\d{1,6}))?(?=,|\(|$)", re.ASCII)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)[cn]?", re.ASCII)
_MEGABYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_COUNT = re.compile(r"\d{1,6}", re.ASCII)
_DEPENDS = re.compile(r":(\d+)", re.ASCII)
_SINGLETON = "singleton"  # one of a person's jobs of a name at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A line of squeue. `tasks` are those of its array that wait in this line; `gpus` what the whole job asks for."""

    job: str
    reason: str
    state: str = _WAITS
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
    gres: str = ""
    features: str = ""
    gpus: int = 0

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
        count=int(count) if count.isdecimal() and count.isascii() and len(count) < 7 else 1,  # noqa: PLR2004  as _MANY
        tasks=tasks,
        limit=limit,
        planned=_name(planned),
        wanted=_name(wanted),
        excluded=_name(excluded),
        places=_name(places),
        reservation=_name(reservation),
        depends=(*_DEPENDS.findall(depends), *([_SINGLETON] if _SINGLETON in depends else [])),
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
            count = _MANY
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
    of_job = sum(int(count or 1) for _, count in _GRES.findall(per_job))
    each = sum(int(count or 1) for _, count in _GRES.findall(per_task))
    return max(of_job, each * (int(tasks) if tasks.isdecimal() else 1))


def gpu_kinds(gres: str) -> frozenset[str]:
    """The kinds of GPU of a node's `Gres=`."""
    return frozenset(kind.lower() for kind, _ in _GRES.findall(gres) if kind)


def gpu_count(gres: str) -> int:
    """How many GPUs a node's `Gres=` or a job's request for each node has."""
    return sum(int(count or 1) for _, count in _GRES.findall(gres))


def node_in_slurm(name: str, lines: Collection[str]) -> SlurmNode:
    """The node by the lines of sinfo, one for each partition; what they do not say is not known."""
    rows = [line.split("|") for line in lines if line.count("|") == NODE_FORMAT.count("|")]
    if not rows:
        return SlurmNode(name=name)
    gres = ",".join({row[3] for row in rows})
    return SlurmNode(
        name=name,
        partitions=tuple({row[1] for row in rows}),
        features=tuple({word for row in rows for word in row[2].split(",")}),
        gpus=gpu_count(rows[0][3]),
        gpu_kinds=gpu_kinds(gres) or None,
    )


def held_nodes(
    jobs: Sequence[QueuedJob],
    nodes: Iterable[SlurmNode],
    now: datetime,
    reservations: Mapping[str, str] | None = None,
    *,
    seen: bool = True,
) -> Mapping[str, QueuedJob]:
    """Which of these idle nodes stay, and for which job; `now` is in the zone of Slurm's times.

    `reservations` are the nodes of each; None: they are not known. Nodes that Slurm has not `seen` idle escape rule 4.
    """
    idle = list(nodes)
    held = {node.name: job for job in jobs if job.state in _ON_A_NODE for node in idle if has(job.places, node.name)}
    for job, most in _starting(jobs, now):
        places = job.reservation and (reservations or {}).get(job.reservation, "")
        fitting = [node for node in idle if could_use(job, node) and (not places or has(places, node.name))]
        fitting.sort(key=lambda node: (not has(job.wanted, node.name), node.leaves, node.name))
        need = _need(job, fitting)
        if seen and need == 1 and _is_looked_at(job, now):
            continue
        mine = [node for node in fitting if node.name not in held]
        for node in mine[: need * most]:
            held[node.name] = job
    return held


def _starting(jobs: Sequence[QueuedJob], now: datetime) -> Iterator[tuple[QueuedJob, int]]:
    """Yield the jobs that may start, with how many of their tasks at once (rules 2, 3, 5 and 6)."""
    waiting = {job.number for job in jobs if job.state == _WAITS}
    running = Counter(job.number for job in jobs if job.state in _ON_A_NODE)
    limited = set[tuple[str, str]]()
    for job in jobs:
        if job.state != _WAITS or not _may_start(job, now):
            continue
        links = [each in waiting and each != job.number for each in job.depends if each != _SINGLETON]
        if links and (all(links) if job.either else any(links)):
            continue  # the job before it holds
        tasks = job.tasks if job.limit is None else min(job.tasks, max(0, job.limit - running[job.number]))
        limit = _SINGLETON if _SINGLETON in job.depends and job.reason == "Dependency" else job.reason
        if limit == _SINGLETON or (limit != _THROTTLED and _SHARED_LIMIT.fullmatch(limit)):
            if (job.user, limit) in limited:
                continue
            limited.add((job.user, limit))
            tasks = min(tasks, 1)
        if tasks:
            yield job, tasks


def _need(job: QueuedJob, fitting: Sequence[SlurmNode]) -> int:
    """Rule 2: how many nodes; a job that says its GPUs and not its nodes needs as many as have them."""
    each = max((node.gpus or 0 for node in fitting), default=0)
    return max(job.count, ceil(job.gpus / each) if each else job.count)


def _waiting_time(job: QueuedJob, now: datetime) -> timedelta | None:
    return None if job.submitted is None else now - job.submitted.replace(tzinfo=now.tzinfo)


def _is_looked_at(job: QueuedJob, now: datetime) -> bool:
    """Rule 4, of a job that wants one node."""
    waited = _waiting_time(job, now)
    looked = waited is None or waited.total_seconds() > LOOK_SECONDS
    return looked and job.reason.startswith(_RESOURCES) and not job.planned


def _may_start(job: QueuedJob, now: datetime) -> bool:
    """Rules 3 and 5, by the job alone."""
    waited = _waiting_time(job, now)
    if job.reason in _NEVER or _OWN_LIMIT.match(job.reason) or job.state in _KEPT:
        return False
    if waited is not None and waited > LONGEST_WAIT:
        return False
    return job.start is None or (job.start.replace(tzinfo=now.tzinfo) - now).total_seconds() <= HORIZON_SECONDS


def could_use(job: QueuedJob, node: SlurmNode) -> bool:
    """Rule 1: whether it may use the node once that is idle."""
    if node.partitions is not None and not set(node.partitions) & set(job.partitions):
        return False
    if job.planned and not has(job.planned, node.name):
        return False
    elsewhere = job.wanted and not has(job.wanted, node.name)
    if (elsewhere and job.count <= _count(job.wanted)) or has(job.excluded, node.name):
        return False
    if node.megabytes is not None and job.megabytes > node.megabytes:
        return False
    if node.features is not None and not _has_features(job.features, node.features):
        return False
    asked = _GRES.findall(job.gres)
    if asked and node.gpus is not None and gpu_count(job.gres) > node.gpus:
        return False
    kinds = {kind.lower() for kind, _ in asked if kind}
    return not kinds or node.gpu_kinds is None or bool(kinds & node.gpu_kinds)


def _has_features(asked: str, has_: Collection[str]) -> bool:
    """Whether a node has what an expression asks for; one with brackets is not worked out, and counts."""
    if not asked or _EXPRESSION.fullmatch(asked) is None:
        return True
    return any(all(word in has_ for word in either.split("&")) for either in asked.split("|"))


def _count(names: str) -> int:
    """How many nodes a list names."""
    count = 0
    for found in _WORD.finditer(names):
        ranges = found[2]
        if ranges is None:
            count += bool(found[1] + found[3])
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            count += int(last or first or 0) - int(first or 0) + 1
    return count


def has(names: str, node: str) -> bool:
    """Whether a list such as gpu-[01-04,7] has the node."""
    for found in _WORD.finditer(names):
        first, ranges, last = found.groups()
        if ranges is None:
            if names and found[0].rstrip(",") == node:
                return True
        elif node.startswith(first) and node.endswith(last):
            number = node[len(first) : len(node) - len(last)]
            if number.isdecimal() and any(_is_within(number, part) for part in ranges.split(",")):
                return True
    return False


def _is_within(number: str, part: str) -> bool:
    begin, _, end = part.partition("-")
    wide = len(number) == len(begin) if begin.startswith("0") else len(number) >= len(begin)
    return wide and begin.isdecimal() and int(begin) <= int(number) <= int(end or begin)


# What whole jobs ask for, in columns of a width that every version has: what fills its column is cut off.
_WIDE, _NARROW = 120, 12
TOTALS = (
    f"JobArrayID:{_WIDE},tres-per-job:{_WIDE},tres-per-task:{_WIDE},tres-alloc:{_WIDE},"
    f"NumTasks:{_NARROW},MinCPUs:{_NARROW}"
)


def with_totals(jobs: Iterable[QueuedJob], columns: str) -> Iterator[QueuedJob]:
    """The jobs with the GPUs that they ask for as a whole, and memory for each processor, by the lines of `TOTALS`."""
    found: dict[str, tuple[int, str, str]] = {}
    for line in columns.splitlines():
        name, per_job, per_task, tres = (line[place * _WIDE : (place + 1) * _WIDE].strip() for place in range(4))
        tasks, processors, *_ = (*line[4 * _WIDE :].split(), "", "")
        found[name] = total_gpus(per_job, per_task, tasks), tres, processors
    for job in jobs:
        gpus, tres, processors = found.get(job.job, (0, "", ""))
        yield replace(job, gpus=gpus, megabytes=_node_megabytes(job.megabytes, tres, processors))


def _node_megabytes(asked: float, tres: str, processors: str) -> float:
    """The least that a job asks of a node's memory: with `--mem-per-cpu` it is that of one of its processors."""
    told = dict(each.partition("=")[::2] for each in tres.split(","))
    cpu, least = told.get("cpu", ""), int(processors) if _COUNT.fullmatch(processors) else 1
    per_processor = _COUNT.fullmatch(cpu) is not None and _megabytes(told.get("mem", "")) == asked * int(cpu)
    return asked * least if per_processor else asked


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
