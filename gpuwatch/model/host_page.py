"""One host as people look at it: its GPUs, who uses them, what they do and why. An agent answers it at /v1/host.

Names come from the host: programs, users, units. Command lines are never among them. None is not known.
"""

from dataclasses import dataclass
from datetime import datetime

from gpuwatch.model.activity import State
from gpuwatch.model.gpu_identity import ProcessKind
from gpuwatch.model.health import Health
from gpuwatch.model.verdict import NodeVerdict

HOST_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTrouble:
    """Why something cannot be read: a stable code, a text, and what to do (empty where nothing is known to help)."""

    cause: str
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInstance:
    """A GPU instance of MIG; `id` is the driver's. Memory in bytes."""

    id: int
    profile: str | None = None
    sm_activity_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    process_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGpu:
    """One GPU. What it does is `state` since `held_seconds`, and `why` is that in a sentence for people.

    `down` is why it could not be read; its measurements are then None.
    """

    uuid: str
    index: int | None
    name: str | None
    state: State
    held_seconds: float
    why: str = ""
    health: Health | None = None
    pci_bus_id: str | None = None
    utilization_ratio: float | None = None
    utilization_max_ratio: float | None = None
    sm_activity_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    clock_events: tuple[str, ...] | None = None
    processes_listed: bool = False  # whether the driver gave a list of its processes
    instances: tuple[HostInstance, ...] = ()
    down: HostTrouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOnGpu:
    """What one process holds of one GPU. The instances are those of MIG."""

    uuid: str
    index: int | None
    kind: ProcessKind
    memory_bytes: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProcess:
    """A process that holds GPUs. `program` is its short name; `kind` is people, session, service or kernel.

    `cpu_cores` is over the last minute. A process is `dead` if the driver lists it and the host does not have it.
    """

    pid: int
    gpus: tuple[ProcessOnGpu, ...]
    user: str | None = None
    program: str | None = None
    kind: str | None = None
    cpu_cores: float | None = None
    container: str | None = None
    namespace: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    slurm_job: str | None = None
    unit: str | None = None
    dead: bool = False

    @property
    def memory_bytes(self) -> int | None:
        """What it holds on all its GPUs; one that computes and draws is listed twice. None: the driver does not say."""
        largest: dict[tuple[str, int | None], int] = {}
        for use in self.gpus:
            if use.memory_bytes is not None:
                place = (use.uuid, use.gpu_instance)
                largest[place] = max(largest.get(place, 0), use.memory_bytes)
        return sum(largest.values()) if largest else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnooze:
    """Somebody wants this machine left alone until then."""

    user: str
    reason: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPage:
    """The whole host. `why` says in a sentence why it is busy, idle, …; the evidence is in `verdict`.

    `processes_left_out` is how many hold a GPU and are not listed here, for there are too many. `trouble` is why the
    GPUs as a whole cannot be read, such as a missing driver.
    """

    schema: int
    hostname: str
    why: str
    verdict: NodeVerdict
    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[HostGpu, ...] = ()
    processes: tuple[HostProcess, ...] = ()
    processes_left_out: int = 0
    snoozes: tuple[HostSnooze, ...] = ()
    trouble: HostTrouble | None = None
