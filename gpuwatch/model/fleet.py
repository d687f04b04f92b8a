"""Nodes, pools and what is known of their use. Times are aware UTC, durations are seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from operator import attrgetter

from gpuwatch.model.activity import Activity, LocalDisks, State
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.health import Health
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode
from gpuwatch.model.sight import Sight, Silence
from gpuwatch.model.slurm import SlurmNode, SlurmView
from gpuwatch.model.stops import LastStop
from gpuwatch.model.verdict import VERDICT_SCHEMA as VERDICT_SCHEMA  # noqa: PLC0414  the controller reads it here
from gpuwatch.model.verdict import GpuVerdict as GpuVerdict  # noqa: PLC0414  the controller reads it here
from gpuwatch.model.verdict import NodeVerdict as NodeVerdict  # noqa: PLC0414  the controller reads it here
from gpuwatch.model.verdict import PodVerdict as PodVerdict  # noqa: PLC0414  the controller reads it here

DEFAULT_POOL = "default"  # of a node whose tags name none; it has rules even where the settings name no pool


class NodeState(StrEnum):
    """A machine's life as its cloud shows it; UNKNOWN is any doubt about that, and such a machine is left alone."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"


class CapacityType(StrEnum):
    """How a machine's capacity was bought."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    CAPACITY_BLOCK = "capacity_block"
    RESERVED = "reserved"
    DEDICATED_HOST = "dedicated_host"
    PREPAID = "prepaid"  # by the month or the year, to the end of its term
    OWN = "own"  # a host of one's own, without a cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a signal source learnt of one node: a verdict, or why it is missing. A missing node is data."""

    verdict: NodeVerdict | None = None
    failure: str | None = None
    received_at: datetime | None = None  # by our clock: how old the verdict was then is judged apart
    windowed: bool = False  # whether `held_seconds` is what a window of samples proves, and no count that goes on


_RUNNING, _UNKNOWN, _STALLED, _FAILING = NodeState.RUNNING, State.UNKNOWN, State.STALLED, Health.FAILING  # for speed
_CAPACITY = attrgetter("capacity_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A GPU machine: what the cloud says of it, and what its own agent says of its use.

    `launched_at` is the last start (EC2 renews it at every start). `managed_by` names the other system a machine
    belongs to (an Auto Scaling group, EKS, Batch, …). `protected` is why it must not be touched, `snoozed` until when
    somebody wants it left alone, which counts up to a cap. `group` is the id of its Auto Scaling group, and
    `scale_in_protected` whether it may not choose it for a scale-in. `gpu_count` None: its type is not known.
    `cannot_stop` and `cannot_terminate` are why the cloud would refuse that, or make it undone. `may_not_start` is why
    it might not start again after a stop, while it runs; `failed_start` what its cloud says of a start or launch that
    failed, while it is down. `still_billed` is why a stop would not end what it costs per hour, or, of a stopped
    machine, did not; None: it ends that. `cloud` is the name of its cloud in the settings, "" where they name none. In
    the state UNKNOWN `unseen` is why its cloud does not show it now, `last_shown` the state that it showed last.
    `kubernetes` is the node object of its cluster, `slurm` its node in Slurm; None: gpuwatch knows no such node.
    `announced` is what its cloud's lists say of its end, None where they say nothing about that; with `cloud_notice` it
    is no capacity any more: its cloud is about to take it. `sight` is how well it was watched where its cloud does not
    show its last start, `last_stop` what its cloud shows of its last stop while it is down. `bmc_on` is the BMC that
    shows a host of one's own on; None: none does.
    """

    id: str
    name: str
    pool: str
    state: NodeState
    instance_type: str
    gpu_count: int | None
    region: str
    zone: str
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    launched_at: datetime | None = None
    address: str | None = None
    owner: str | None = None
    enrolled: bool = False
    protected: str | None = None
    snoozed: str | None = None
    managed_by: str | None = None
    instance_store: bool = False  # its type has local disks, which lose their data at a stop
    account: str | None = None
    group: str | None = None
    scale_in_protected: bool = False
    cannot_stop: str | None = None
    cannot_terminate: str | None = None
    may_not_start: str | None = None
    failed_start: str | None = None
    still_billed: str | None = None
    cloud: str = ""
    unseen: str | None = None
    last_shown: NodeState | None = None
    kubernetes: KubernetesNode | None = None
    announced: tuple[CloudNotice, ...] | None = ()
    slurm: SlurmNode | None = None
    cloud_notice: CloudNotice | None = None
    sight: Sight | None = None
    last_stop: LastStop | None = None
    bmc_on: str | None = None
    image: str | None = None  # what it was made from
    accelerators: str = ""  # the GPUs that are attached to its type, such as 4xnvidia-tesla-v100
    tags: Mapping[str, str] = field(default_factory=dict)
    signal: NodeReport = field(default_factory=NodeReport)

    @property
    def kind(self) -> str:
        """Its type with the GPUs that are attached to it, which make the number of its GPUs and its price."""
        return f"{self.instance_type}+{self.accelerators}" if self.accelerators else self.instance_type

    @property
    def known_gpus(self) -> int:
        """How many GPUs its type is known to have; 0 where the type is not known."""
        return self.gpu_count or 0

    @property
    def member(self) -> bool:
        """Whether it counts in its pool: it is enrolled and runs."""
        return self.enrolled and self.state is _RUNNING

    @property
    def sound(self) -> bool:
        """Whether work can be given to it: it runs, is known, stays, no cordon or drain, no GPU failing or stalled."""
        verdict = self.signal.verdict
        cordoned = self.cloud_notice is not None or (self.kubernetes is not None and self.kubernetes.unschedulable)
        drained = self.slurm is not None and not self.slurm.takes_jobs
        if self.state is not _RUNNING or verdict is None or cordoned or drained:
            return False
        if (state := verdict.activity.state) is _UNKNOWN or state is _STALLED:
            return False
        for gpu in verdict.gpus:  # noqa: SIM110  a generator costs as much as all the rest, in each round
            if gpu.health is not None and gpu.health.state is _FAILING:
                return False
        return True

    @property
    def billed_though_stopped(self) -> bool:
        """Return whether the node is stopped and its cloud bills it by the hour all the same: for its bill it runs."""
        return self.state is NodeState.STOPPED and self.still_billed is not None

    @property
    def owned(self) -> bool:
        """Whether it is a host of one's own, which costs its price whether it runs and answers or not."""
        return self.capacity_type is CapacityType.OWN

    @property
    def local_data(self) -> bool:
        """Whether a stop may lose data: its type has local disks, and its agent does not say that they are unused."""
        disks = None if self.signal.verdict is None else self.signal.verdict.local_disks
        return self.instance_store and disks not in {LocalDisks.NONE, LocalDisks.UNUSED}

    @property
    def verdict(self) -> NodeVerdict | None:
        """What the agent said, where it said anything usable."""
        return self.signal.verdict

    def waited_seconds(self, now: datetime) -> float:
        """How long ago its verdict came; 0 where a source does not tell."""
        return 0.0 if self.signal.received_at is None else (now - self.signal.received_at).total_seconds()

    @property
    def activity(self) -> Activity:
        """The verdict's activity; unknown with the reason where there is no verdict."""
        if (verdict := self.signal.verdict) is not None:
            return verdict.activity
        doubt = self.signal.failure or "its agent was not asked"
        return Activity(state=State.UNKNOWN, since=None, held_seconds=0.0, doubt=doubt)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRefusal:
    """That a cloud has no more members for a group: in its own words, and when it said so last."""

    at: datetime
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A group of like machines that its cloud keeps at a size (EC2: an Auto Scaling group). Sizes are in machines.

    `enrolled` is the administrator's consent by the group's own tag, else the group and its members are its owner's.
    `serves_cluster` is that consent for a group that a Kubernetes cluster marks as its own. `suspended` are its
    processes that do not run, in the cloud's words. `cloud` as for a node. `node_ids` are its members, with those that
    come up or go. `refused`: why its cloud says that it has too few. `short_since`: since when the controller sees it
    with too few. `gives_back_places`: its cloud takes back places without a machine by their names, so that no member
    can go instead. `seen_now` is False where its cloud gives no answer: it is as it was seen last.
    """

    id: str
    name: str
    pool: str
    min_size: int
    max_size: int
    desired: int
    region: str
    zones: tuple[str, ...] = ()
    enrolled: bool = False
    serves_cluster: bool = False
    protected: str | None = None
    suspended: frozenset[str] = frozenset()
    instance_type: str | None = None  # as a node's `kind`; None: mixed, or not known
    account: str | None = None
    cloud: str = ""
    node_ids: tuple[str, ...] = ()
    refused: GroupRefusal | None = None
    short_since: datetime | None = None
    gives_back_places: bool = False
    seen_now: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """One pool: nodes; members (running, enrolled); the known, those without work; `sound` may be given work."""

    nodes: tuple[Node, ...] = ()
    members: frozenset[str] = frozenset()
    known: int = 0
    without_work: int = 0
    groups: tuple[NodeGroup, ...] = ()
    sound: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)  # no slots: the rosters are made once, at the first question
class Fleet:
    """What one round observed, and when. `named` are pools that may be empty yet.

    `places`: parts of clouds that ever answered; `silent`: those that do not now. `cluster` is Kubernetes and `slurm`
    Slurm, if configured. `ended`: ids of machines just launched that have ended by their cloud's own word.
    """

    observed_at: datetime
    nodes: tuple[Node, ...]
    groups: tuple[NodeGroup, ...] = ()
    named: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    silent: tuple[Silence, ...] = ()
    ended: tuple[str, ...] = ()
    cluster: ClusterView | None = None
    slurm: SlurmView | None = None

    def node(self, node_id: str) -> Node | None:
        """The node of that id, or of that name where the name is unique."""
        named = [node for node in self.nodes if node.name == node_id]
        return self.find(node_id) or (named[0] if len(named) == 1 else None)

    def roster(self, pool: str) -> PoolView:
        """One pool; its minimum and coverage are about its members."""
        return self.rosters.get(pool, PoolView())

    def find(self, node_id: str) -> Node | None:
        """The node of that id, and never of that name."""
        return None if (place := self.place_of.get(node_id)) is None else self.nodes[place]

    @cached_property
    def enrolled(self) -> frozenset[str]:
        """The ids of all enrolled nodes, running or not."""
        return frozenset([node.id for node in self.nodes if node.enrolled])

    @cached_property
    def in_slurm(self) -> bool:
        """Whether any node is one of Slurm's."""
        return any(node.slurm is not None for node in self.nodes)

    @cached_property
    def in_kubernetes(self) -> bool:
        """Whether any node is one of a Kubernetes cluster."""
        return any(node.kubernetes is not None for node in self.nodes)

    @cached_property
    def has_owned(self) -> bool:
        """Whether any node is a host of one's own."""
        return CapacityType.OWN in map(_CAPACITY, self.nodes)

    @cached_property
    def with_notice(self) -> bool:
        """Whether any node is about to be taken by its cloud."""
        return any(node.cloud_notice is not None for node in self.nodes)

    def missing(self, node_ids: Iterable[str]) -> set[str]:
        """Those of these ids that no node has."""
        return set(node_ids).difference(self.place_of)

    @cached_property
    def place_of(self) -> Mapping[str, int]:
        """Where in `nodes` each id is; of two nodes with one id the last."""
        return {node.id: place for place, node in enumerate(self.nodes)}

    @cached_property
    def gpus_of_types(self) -> dict[str, int]:
        """The GPUs of each machine type of which a node is there, by its cloud, or else by its agent."""
        found: dict[str, int] = {}
        for node in self.nodes:
            seen = 0 if node.signal.verdict is None else len(node.signal.verdict.gpus)
            gpus = node.gpu_count if node.gpu_count is not None else seen or None
            for name in (node.instance_type, node.kind) if gpus is not None else ():
                found[name] = max(gpus or 0, found.get(name, 0))
        return found

    def group(self, group_id: str) -> NodeGroup | None:
        """The group of that id."""
        return next((group for group in self.groups if group.id == group_id), None)

    def with_node(self, node: Node, groups: tuple[NodeGroup, ...], observed_at: datetime) -> "Fleet":
        """The same fleet with that node in the place of each of its id, and these groups."""
        nodes = tuple([node if each.id == node.id else each for each in self.nodes])
        return replace(self, observed_at=observed_at, nodes=nodes, groups=groups)

    @property
    def pools(self) -> list[str]:
        """The names of all pools, in order: those that have a node or a group, and those that may get one."""
        return sorted(self.rosters.keys() | set(self.named))

    @cached_property
    def machine_of(self) -> Mapping[str, Node]:
        """The machine of each node object that has one, by the name of the node object."""
        return {node.kubernetes.name: node for node in self.nodes if node.kubernetes is not None}

    @cached_property
    def rosters(self) -> dict[str, PoolView]:
        """Every pool's roster, by name: guard rules ask for it at each step, so it must not cost O(nodes) each time."""
        pools: dict[str, list[Node]] = {group.pool: [] for group in self.groups}
        for node in self.nodes:
            pools.setdefault(node.pool, []).append(node)
        return {pool: self._roster(pool, nodes) for pool, nodes in pools.items()}

    def _roster(self, pool: str, nodes: list[Node]) -> PoolView:
        members = [node for node in nodes if node.enrolled and node.state is _RUNNING]
        states = [_UNKNOWN if (told := node.signal.verdict) is None else told.activity.state for node in members]
        return PoolView(
            nodes=tuple(nodes),
            members=frozenset([node.id for node in members]),
            known=(known := len(states) - states.count(_UNKNOWN)),
            without_work=known - states.count(State.BUSY),
            groups=tuple(group for group in self.groups if group.pool == pool),
            sound=frozenset([node.id for node in members if node.sound]),
        )
