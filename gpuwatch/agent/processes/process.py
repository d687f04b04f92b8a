"""A process as one look at /proc shows it, and its kind."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.model.activity import WorkOwner

_CRON_DAEMONS = frozenset({"cron", "crond", "CRON", "anacron", "fcron", "incrond"})
_MOST_PARENTS = 32


class Kind(StrEnum):
    """The owner of a process's work. What cannot be attributed counts as people's."""

    PEOPLE = "people"  # somebody's program: of a user, a container, a pod, a job, an administrator's own unit
    SESSION = "session"  # what a login leaves alive without work: shells, multiplexers, viewers, session services
    SERVICE = "service"  # the machine's own: monitoring, log shipping, updates, container runtimes, health checks
    KERNEL = "kernel"  # a kernel thread


@dataclass(slots=True, kw_only=True)  # a frozen one takes three times as long to make, and each look makes thousands
class Process:
    """One process, never changed. `started_ticks` (since boot) distinguishes it from a later one with the same pid.

    `name` is its short name (15 letters), `executable` the base name of its program's file (None: it may not be read).
    `tty` is 0 without a controlling terminal, `foreground` the process group that has that one. `forked` is whether it
    runs the program of its parent and began none itself. `cpu_seconds` is its own CPU time, `reaped_seconds` that of
    its ended children. `rule` says by what it was attributed. `shared` is what other machines call the same service,
    if it is a service. `strange` is a mark of strangers.py.
    """

    pid: int
    started_ticks: int
    parent: int
    group: int
    session: int
    tty: int
    state: str  # the letter of /proc/<pid>/stat: R, S, D, T, Z …
    name: str
    executable: str | None
    uid: int
    placement: Placement = field(default_factory=Placement)
    cpu_seconds: float = 0.0
    reaped_seconds: float = 0.0
    minor_faults: int = 0
    kind: Kind = Kind.PEOPLE
    rule: str = ""
    foreground: int = -1
    forked: bool = False
    shared: str | None = None
    strange: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """All processes at one moment of the monotonic clock.

    `doubt` says why some may be missing (hidepid, a PID namespace of the agent's own); then absence proves nothing.
    `cores` are the CPU cores that processes used over the last minute, by pid; of those that used any. `census` is
    the one of the machine's pool that was used.
    """

    monotonic_seconds: float
    processes: Mapping[int, Process]
    doubt: str | None = None
    cores: Mapping[int, float] = field(default_factory=dict)
    census: str | None = None

    def cores_of(self, kinds: Collection[Kind], pids: Collection[int] = ()) -> float:
        """CPU cores that these used over the last minute: processes of these kinds, and of these ids."""
        return sum(cores for pid, cores in self.cores.items() if pid in pids or self.processes[pid].kind in kinds)

    def people(self) -> tuple[Process, ...]:
        """The processes that are somebody's work, by pid; without zombies, which are not alive."""
        return tuple(
            process
            for _, process in sorted(self.processes.items())
            if process.kind is Kind.PEOPLE and process.state not in {"Z", "X"}
        )


def from_cron(process: Process, processes: Mapping[int, Process]) -> bool:
    """Whether cron began it, in its own unit or (with pam_systemd, as on Red Hat) in a session of the user."""
    at: Process | None = process
    for _ in range(_MOST_PARENTS):
        if at is None or at.pid <= 1:
            return False
        if at.name in _CRON_DAEMONS:
            return True
        at = processes.get(at.parent)
    return False


def owner_of(process: Process, user: str | None) -> WorkOwner:
    """The process in evidence."""
    placement = process.placement
    job = None if placement.slurm_job is None else f"Slurm job {placement.slurm_job}"
    pod = None if placement.pod_uid is None else f"pod {placement.pod_uid}"
    container = None if placement.container_id is None else f"container {placement.container_id}"
    return WorkOwner(
        user=user, unit=job or pod or container or placement.systemd_unit, process=process.name, pid=process.pid
    )
