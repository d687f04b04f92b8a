"""The nodes of a round, and a cluster's workloads, as people see them: the rows of `status`, of the page and the API.

`controller/node_row.py` and its siblings make them from a round. `status` may get them from a controller instead, so
nothing is loaded here that a round is made of.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.health import Health
from gpuwatch.model.orders import Snooze
from gpuwatch.model.sight import Silence
from gpuwatch.model.verbs import Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of a node. Ratios are means of the last minutes. Without a verdict only its number is known."""

    index: int | None
    activity: State
    health: Health | None = None
    utilization_ratio: float | None = None
    memory_used_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRow:
    """Who stopped a node, when and why. `by` is null unless it is proved that gpuwatch did: then nothing else is known.

    `approved_by` is who approved the stop, where the pool requires it; `still_billed` why the cloud goes on billing the
    node by the hour.
    """

    by: str | None = None
    at: datetime | None = None
    why: str | None = None
    approved_by: str | None = None
    still_billed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAction:
    """What happens to the node next, if nothing changes.

    `at` is the earliest time; the round's own time if it is due already. `removal` is what a notice announces, and
    `removal_at` the earliest time of the removal that the action leads to, or is. `refused_by` are the guard rules that
    block it; for an action that is not due yet, those that are certain to block it then.
    """

    verb: Verb
    at: datetime
    removal_at: datetime | None = None
    removal: Verb | None = None
    refused_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredApproval:
    """An operator's approval that the pool requires. `notice` is the notice's key; `who` is null until it is given."""

    notice: str
    who: str | None = None
    at: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node at a glance.

    `action` is what the round does with it: `hold` also where the guard refuses, or where the round did not come to
    what the guard had allowed: then `unreached` says why. `why` contains that, and the guard's objections.
    `activity` is null while the node does not run. `notified_at` is the time of the notice in force. `approval` is null
    if the pool requires none, or there is no notice to approve yet. `stopped` is null unless the node is stopped.
    `cloud` is the cloud's name in the settings; null where they name none. `price_as_of` and `price_source` are the day
    and the source of `usd_per_hour`, which is in no sum of a `foreign` node: it is not enrolled, and `cost.scope` is
    `fleet`. `usd_per_hour_of_no_use` is what of it is for GPUs seen and of no use, by what they do: the waste that the
    ledger books.
    """

    id: str
    name: str
    pool: str
    instance_type: str
    region: str
    zone: str
    capacity_type: str
    state: NodeState
    enrolled: bool
    gpu_count: int | None
    gpus: tuple[Gpu, ...]
    action: Verb
    why: str
    owner: str | None = None
    activity: State | None = None
    held_seconds: float | None = None
    doubt: str | None = None
    usd_per_hour: Decimal | None = None
    notified_at: datetime | None = None
    next: NextAction | None = None
    approval: RequiredApproval | None = None
    stopped: StopRow | None = None
    cloud: str | None = None
    price_as_of: date | None = None
    price_source: str | None = None
    unreached: str | None = None
    foreign: bool = False
    usd_per_hour_of_no_use: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A cluster at a glance. `trouble` is why it cannot be relied on, `notes` what does not fit together in it.

    GPUs are those of machines of the fleet; `pending_gpus` those that pods without a node want.
    """

    name: str
    nodes: int
    gpus: float
    requested_gpus: float
    pending_gpus: float
    trouble: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """A pod that has held GPUs without use for an hour and more.

    `workload` is its topmost owner, such as Notebook; `cluster` is named where there are several.
    """

    namespace: str
    name: str
    node: str
    workload: str
    gpus: float
    activity: State
    held_seconds: float
    owner: str | None = None
    usd_per_hour: Decimal | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """A workload that holds GPUs without use in a pool that ends such pods, or that has a notice or an order.

    `how` is what its people let be done: scale-to-zero, stop or delete; null: they say nothing that its kind can do.
    `action` is what the round does with it: `hold` also where the guard refuses, then `refused_by` are the rules. It is
    `hold` as well where the round did not come to what the guard had allowed, then `unreached` says why. `ends_at` is
    the earliest time of the end of its pods; null: none is to come, or its time is not known. `why` contains the
    guard's objections, `change` is what would make it come out otherwise. `snooze` is the order that keeps it; a snooze
    by annotation is in `why` alone. `cluster` is named where there are several.
    """

    id: str
    namespace: str
    kind: str
    name: str
    pool: str
    nodes: tuple[str, ...]
    pods: int
    gpus: float
    activity: State
    held_seconds: float
    action: Verb
    why: str
    change: str
    how: str | None = None
    owner: str | None = None
    usd_per_hour: Decimal | None = None
    notified_at: datetime | None = None
    ends_at: datetime | None = None
    refused_by: tuple[str, ...] = ()
    snooze: Snooze | None = None
    unreached: str | None = None
    cluster: str | None = None

    def __str__(self) -> str:
        """Return its kind and name, such as `Notebook team-a/alice`; of several clusters with `of prod`."""
        return f"{self.kind} {self.namespace}/{self.name}{'' if self.cluster is None else f' of {self.cluster}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPage:
    """Nodes of one round; `total` is how many match the query. `silent` are the places that gave no answer.

    `kubernetes` is the cluster, null without one; `pods` are those of it that have held GPUs without use for an hour,
    `workloads` those that may lose their pods for it. `regrets` says of each pool how many stops people took back.
    """

    at: datetime
    total: int
    nodes: tuple[NodeRow, ...]
    silent: tuple[Silence, ...] = ()
    kubernetes: ClusterRow | None = None
    pods: tuple[PodRow, ...] = ()
    workloads: tuple[WorkloadRow, ...] = ()
    regrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """A limit of the account in one region, in the cloud's words; `used` and `left` are null if not known."""

    name: str
    cloud: str | None
    region: str
    unit: str
    limit: float
    used: float | None
    left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPage(NodesPage):
    """Nodes of one round; `total` is how many were asked for. `quotas` are the account's limits, where known.

    The API answers the same without `quotas`.
    """

    quotas: tuple[QuotaRow, ...] = ()
