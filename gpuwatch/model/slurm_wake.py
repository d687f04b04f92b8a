"""PURE: which nodes of Slurm that are off would let a job begin now, by squeue's lines.

Rules, all of them:

1. A job starts nodes if it lacks nothing else: it waits for resources, or for its turn behind a job that does. A job
   that is held, or waits for a time, another job, a licence or a limit, begins no sooner with more nodes.
2. It uses nodes that are idle, on their way, or started for another job first. Jobs share a node as far as its GPUs,
   CPUs and memory reach, where both are known. A job that does not fit after all still waits once the node works, and
   starts the next one.
3. A job of several nodes starts those that it lacks if it can begin with them, else no node.
4. A job of one node does not wait for idle nodes that Slurm has looked at for `slurm_queue.LOOK_SECONDS`.
5. A node of a reservation in force is for the jobs of that reservation.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil, inf

from gpuwatch.model.slurm import SlurmNode
from gpuwatch.model.slurm_listing import WAITS, QueuedJob, Reservation, gpu_count
from gpuwatch.model.slurm_queue import (
    ON_A_NODE,
    RESOURCES,
    could_use,
    gpus_on,
    has,
    is_looked_at,
    kind_of,
    needed_nodes,
    starting_jobs,
)

_MAINTENANCE = "Reserved for maintenance"


@dataclass(slots=True, eq=False)
class _Room:
    """A node with what of it no job has taken yet."""

    node: SlurmNode
    idle: bool = False  # Slurm has it, and has not used it
    asleep: bool = False
    gpus: float = 0.0
    cpus: float = 0.0
    megabytes: float = 0.0

    def __post_init__(self) -> None:
        """All of it is free."""
        gpus = gpus_on(self.node)
        self.gpus = inf if gpus is None else float(gpus)
        self.cpus = inf if self.node.cpus is None else float(self.node.cpus)
        self.megabytes = inf if self.node.megabytes is None else self.node.megabytes


def lacks_nodes(job: QueuedJob) -> bool:
    """Whether nothing but nodes keeps a job from its begin (rule 1)."""
    resources = job.reason.startswith(RESOURCES) and _MAINTENANCE not in job.reason
    return job.state == WAITS and (resources or job.reason == "Priority")


def woken_nodes(
    jobs: Iterable[QueuedJob],
    *,
    idle: Iterable[SlurmNode],
    coming: Iterable[SlurmNode],
    asleep: Iterable[SlurmNode],
    now: datetime,
    reservations: Mapping[str, Reservation],
) -> Mapping[str, QueuedJob]:
    """Which of the nodes that are `asleep` are started, by their names, and for which job.

    `coming` are those on their way, or woken and not used yet; `now` is in the zone of Slurm's times.
    """
    rooms = [_Room(node=node) for node in coming]
    rooms += [_Room(node=node, idle=True) for node in idle]
    rooms += [_Room(node=node, asleep=True) for node in asleep]
    # By a plan of Slurm, or an estimate, it begins later: they know nothing of the nodes that are off.
    asking = [
        replace(job, start=None, planned="") if lacks_nodes(job) else job
        for job in jobs
        if lacks_nodes(job) or job.state in ON_A_NODE
    ]
    woken: dict[str, QueuedJob] = {}
    reserved = _reserved_nodes(rooms, reservations)
    in_force = {name for name, each in reservations.items() if _is_in_force(each, now)}
    alike: dict[QueuedJob, list[_Room]] = {}  # a queue of thousands asks for few kinds of nodes
    most = sum(room.asleep for room in rooms)
    for job, tasks in starting_jobs(asking, now):
        if len(woken) == most:
            break
        kind = kind_of(job)
        if kind not in alike:
            fitting = [room for room in rooms if could_use(job, room.node)]
            others = in_force - {job.reservation}
            if job.reservation in reservations:
                fitting = [room for room in fitting if job.reservation in reserved[room.node.name]]
            alike[kind] = [room for room in fitting if others.isdisjoint(reserved[room.node.name])]
        _wake_for(job, tasks, alike[kind], woken, now)
    return woken


def _reserved_nodes(rooms: Iterable[_Room], reservations: Mapping[str, Reservation]) -> Mapping[str, Collection[str]]:
    """The reservations of each node, by their names (rule 5)."""
    found = defaultdict[str, set[str]](set)
    for room in rooms:
        found[room.node.name].update(name for name, each in reservations.items() if has(each.nodes, room.node.name))
    return found


def _is_in_force(each: Reservation, now: datetime) -> bool:
    return each.start.replace(tzinfo=now.tzinfo) <= now < each.end.replace(tzinfo=now.tzinfo)


def _wake_for(job: QueuedJob, tasks: int, fitting: Sequence[_Room], woken: dict[str, QueuedJob], now: datetime) -> None:
    """Take the rooms of one job, and note those that are asleep (rules 2 to 4)."""
    need = needed_nodes(job, [room.node for room in fitting])
    if need == 1 and is_looked_at(job, now):
        fitting = [room for room in fitting if not room.idle]
    gpus = gpu_count(job.gres) or ceil(job.gpus / need)
    cpus = max(job.cpus, job.all_cpus) if need == 1 else job.cpus  # Slurm spreads them over several as it likes

    def has_room(room: _Room) -> bool:
        return gpus <= room.gpus and cpus <= room.cpus and job.megabytes <= room.megabytes

    free = deque(sorted(filter(has_room, fitting), key=lambda room: (room.asleep, room.node.name)))
    for _ in range(tasks):
        if len(free) < need:
            return
        chosen = [free.popleft() for _ in range(need)]
        for room in chosen:
            if room.asleep:
                woken[room.node.name], room.asleep = job, False
            room.gpus = 0.0 if room.gpus == inf else room.gpus - gpus
            room.cpus -= cpus
            room.megabytes -= job.megabytes
        if not gpus:
            return  # as many tasks as it takes on one node
        free.extendleft(filter(has_room, reversed(chosen)))
