"""PURE: which idle nodes of Slurm the jobs need that wait, as `squeue` lists them. Agent and controller ask the same.

A node without a job is not free for that: a job array may be throttled between two of its tasks, a job may wait for a
time, another job, a licence, or for more nodes than are idle now. Rules, all of them:

1. A job may use a node of one of its partitions that has what it asks for: features, GPUs of each kind and number,
   CPUs, memory. Its list of nodes and its reservation count as well. What cannot be read counts as there.
2. A job holds no more idle nodes than it asks for, the first in the order of names. An array holds nodes for as many
   tasks as may start at once next to those that run.
3. A job holds nothing while a person holds it, while the job that it depends on waits itself, and after it has waited
   for `LONGEST_WAIT`. A job that never begins holds nothing: it meets a limit of the partition or of its own size, or
   its budget is spent.
4. A job that wants one node, and has waited for resources for `LOOK_SECONDS`, holds nothing: Slurm has looked at the
   idle nodes. The parts of a heterogeneous job begin together, so they still hold what they ask for.
5. A job that starts later than in `HORIZON_SECONDS` holds nothing.
6. Of a person's jobs that wait for the same limit of theirs (Assoc..., QOS..., singleton) only the first holds: one job
   ends, one begins.
7. A job that is on a node holds it, also a suspended job.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, inf

from gpuwatch.model.slurm import SlurmNode
from gpuwatch.model.slurm_listing import SINGLETON, WAITS, QueuedJob, gpus_by_kind

HORIZON_SECONDS = 93600.0  # as that of crontabs: a job each night
LOOK_SECONDS = 900.0  # a pass of the scheduler over a long queue
LONGEST_WAIT = timedelta(days=7)
_KEPT = frozenset({"RH", "SE", "RV"})  # requeued and held, special exit, of a sibling in a federation
ON_A_NODE = frozenset({"R", "CF", "CG", "S", "SO", "SI", "ST", "RS", "RQ"})
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
RESOURCES = ("Resources", "Nodes required for job are", "Nodes_required_for_job_are", "ReqNodeNotAvail", "NodeDown")
_THROTTLED = "JobArrayTaskLimit"
_WORD = re.compile(r"([^\[\],]*)(?:\[([0-9,-]+)\])?([^\[\],]*)(?:,|$)")  # gpu-[01-04,7].x
_EXPRESSION = re.compile(r"[\w.:+-]+(?:[&|][\w.:+-]+)*", re.ASCII)


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
    held = {node.name: job for job in jobs if job.state in ON_A_NODE for node in idle if has(job.places, node.name)}
    alike: dict[QueuedJob, list[SlurmNode]] = {}
    for job, most in starting_jobs(jobs, now):
        kind = kind_of(job)
        if kind not in alike:
            places = job.reservation and (reservations or {}).get(job.reservation, "")
            alike[kind] = [node for node in idle if could_use(job, node) and (not places or has(places, node.name))]
            alike[kind].sort(key=lambda node: (not has(kind.wanted, node.name), node.leaves, node.name))
        fitting = alike[kind]
        need = needed_nodes(job, fitting)
        if seen and need == 1 and is_looked_at(job, now):
            continue
        mine = [node for node in fitting if node.name not in held]
        for node in mine[: need * most]:
            held[node.name] = job
    return held


def starting_jobs(jobs: Sequence[QueuedJob], now: datetime) -> Iterator[tuple[QueuedJob, int]]:
    """Yield the jobs that may start, with how many of their tasks at once (rules 2, 3, 5 and 6)."""
    waiting = {job.number for job in jobs if job.state == WAITS}
    running = Counter(job.number for job in jobs if job.state in ON_A_NODE)
    limited = set[tuple[str, str]]()
    for job in jobs:
        if job.state != WAITS or not _may_start(job, now):
            continue
        links = [each in waiting and each != job.number for each in job.depends if each != SINGLETON]
        if links and (all(links) if job.either else any(links)):
            continue  # the job before it holds
        tasks = job.tasks if job.limit is None else min(job.tasks, max(0, job.limit - running[job.number]))
        limit = SINGLETON if SINGLETON in job.depends and job.reason == "Dependency" else job.reason
        if limit == SINGLETON or (limit != _THROTTLED and _SHARED_LIMIT.fullmatch(limit)):
            if (job.user, limit) in limited:
                continue
            limited.add((job.user, limit))
            tasks = min(tasks, 1)
        if tasks:
            yield job, tasks


def needed_nodes(job: QueuedJob, fitting: Sequence[SlurmNode]) -> int:
    """Rule 2: how many nodes; a job that says its GPUs or CPUs and not its nodes needs as many as have them."""
    each = max((gpus_on(node) or 0 for node in fitting), default=0) if job.gpus else 0
    cpus = max((node.cpus or inf for node in fitting), default=inf) if job.all_cpus else inf
    return max(1, job.count, ceil(job.gpus / each) if each else 0, ceil(job.all_cpus / cpus))


def gpus_on(node: SlurmNode) -> int | None:
    """How many GPUs it has for jobs, where parts of one (MIG) are GPUs to Slurm; None: nobody knows."""
    return node.gpus if node.gpu_kinds is None else sum(count for _, count in node.gpu_kinds)


def _waiting_time(job: QueuedJob, now: datetime) -> timedelta | None:
    return None if job.submitted is None else now - job.submitted.replace(tzinfo=now.tzinfo)


def is_looked_at(job: QueuedJob, now: datetime) -> bool:
    """Rule 4, of a job that wants one node."""
    if "+" in job.job:
        return False
    waited = _waiting_time(job, now)
    looked = waited is None or waited.total_seconds() > LOOK_SECONDS
    return looked and job.reason.startswith(RESOURCES) and not job.planned


def _may_start(job: QueuedJob, now: datetime) -> bool:
    """Rules 3 and 5, by the job alone."""
    waited = _waiting_time(job, now)
    if job.reason in _NEVER or _OWN_LIMIT.match(job.reason) or job.state in _KEPT:
        return False
    if waited is not None and waited > LONGEST_WAIT:
        return False
    return job.start is None or (job.start.replace(tzinfo=now.tzinfo) - now).total_seconds() <= HORIZON_SECONDS


def kind_of(job: QueuedJob) -> QueuedJob:
    """Alike for jobs that may use the same nodes: a queue of thousands has few kinds."""
    return QueuedJob(
        job="", reason="", partitions=job.partitions, count=job.count, planned=job.planned, wanted=job.wanted,
        excluded=job.excluded, reservation=job.reservation, megabytes=job.megabytes, cpus=job.cpus, gres=job.gres,
        features=job.features, kinds=job.kinds,
    )  # fmt: skip


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
    if node.cpus is not None and job.cpus > node.cpus:
        return False
    if node.features is not None and not _has_features(job.features, node.features):
        return False
    asked, gpus = gpus_by_kind(job.gres), gpus_on(node)
    if gpus is not None and sum(asked.values()) > gpus:
        return False
    if node.gpu_kinds is None:
        return True
    there = dict(node.gpu_kinds)
    each = all(count <= there.get(kind, 0) for kind, count in asked.items() if kind)
    return each and (not job.kinds or not job.kinds.isdisjoint(there))


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
