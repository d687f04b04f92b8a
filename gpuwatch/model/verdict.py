"""What an agent says of its node. It stands apart from the fleet: an agent loads nothing of clusters and pools."""

from dataclasses import dataclass
from datetime import datetime

from gpuwatch.model.activity import Activity, BeforeStop, GpuUse, LastBusy, LocalDisks, Tally
from gpuwatch.model.bounds import BoundedFloat, BoundedInt, BoundedText
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.gpu_identity import gpu_key
from gpuwatch.model.health import GpuHealth
from gpuwatch.model.pool_programs import HostPrograms

VERDICT_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuVerdict:
    """One GPU's activity, health and use within its node's verdict; an older agent reports the first alone."""

    uuid: BoundedText
    index: BoundedInt | None  # None once the driver no longer lists the GPU and another one has its number
    activity: Activity
    health: GpuHealth | None = None
    use: GpuUse | None = None
    pods: tuple[BoundedText, ...] = ()  # `namespace/name`: it is theirs for certain, or a part of it

    @property
    def key(self) -> tuple[str, str | None]:
        """The labels `uuid` and `gpu`."""
        return gpu_key(self.uuid, self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVerdict:
    """What a pod with GPUs does besides them, by its own processes and control group; `name`: `namespace/name`."""

    uid: BoundedText
    activity: Activity  # busy, idle or unknown
    name: BoundedText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """What an agent answers at /v1/verdict: the activity of its node and how fresh that is.

    `at` is the wall-clock time of the last complete cycle, `age_seconds` its monotonic age when the answer was made.
    An older agent, and Prometheus, give no fields from `tally` on. `cloud_notices` are those of now; None: not known.
    `last_busy` is of each signal of a week, newest first. `blind` says what this agent cannot see. `confirm` repeats
    the nonce of a question: then `looked_seconds` is the age of the oldest look, `before_stop` what runs before a stop.
    """

    schema: BoundedInt
    node_id: BoundedText
    agent_version: BoundedText
    at: datetime
    age_seconds: BoundedFloat
    interval_seconds: BoundedFloat
    activity: Activity
    gpus: tuple[GpuVerdict, ...]
    tally: Tally | None = None
    confirm: BoundedText | None = None
    looked_seconds: BoundedFloat | None = None
    last_busy: tuple[LastBusy, ...] = ()
    local_disks: LocalDisks | None = None
    blind: tuple[BoundedText, ...] = ()
    cpu_utilization_ratio: BoundedFloat | None = None
    driver_version: BoundedText | None = None  # None: not known, or its GPUs say different ones
    cloud_notices: tuple[CloudNotice, ...] | None = None
    pods: tuple[PodVerdict, ...] = ()  # those with GPUs of which the agent can tell it from the host's other work
    without_lost: Activity | None = None  # of all but the GPUs that the driver has lost; None: it has lost none
    login_free_seconds: BoundedFloat | None = None  # since the last login, a week at most; None: not known
    before_stop: BeforeStop | None = None
    programs: HostPrograms | None = None  # only to a question that names the fleet, or while it goes by a census
    other_pods: tuple[PodVerdict, ...] | None = None  # which may have GPUs, too; None: its GPUs name all that have them
