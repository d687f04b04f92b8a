"""Nodes, pods and workloads as Kubernetes' API server shows them. Counts of GPUs are those that pods request.

What a GPU really does is the agent's word and stands elsewhere (`Node.signal`): a request says nothing about use.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Literal

from gpuwatch.model.placing import Placement, Taint

# What people and gpuwatch write on nodes, pods, workloads and namespaces.
PREFIX = "gpuwatch.io/"
# On a node: the key of the intent that cordoned it. Without it, a cordon is somebody else's and is never undone.
CORDONED_BY = f"{PREFIX}cordoned-by"
CORDONED_AT = f"{PREFIX}cordoned-at"
# On a node: the key of the intent that wrote another autoscaler's mark there. Without it, a mark is somebody else's.
MARKED_BY = f"{PREFIX}marked-by"
# A taint of nodes with a failing GPU; its value is the key of the intent that cordoned them.
UNHEALTHY = f"{PREFIX}unhealthy"
# On a namespace or a workload: what may be done with its idle pods. Nothing is done without it.
IDLE_ACTION = f"{PREFIX}idle-action"
# On a namespace, a workload or a pod: anything but "false" protects it, and a time protects until then.
PROTECT = f"{PREFIX}protect"
# On a namespace, a workload or a pod: "true" lets its pods be moved by a drain although nobody has proven them idle.
INTERRUPTIBLE = f"{PREFIX}interruptible"
# Likewise: "true" lets a drain throw away what its pods keep in volumes that go with them.
LOSES_LOCAL_DATA = f"{PREFIX}delete-local-data"
OWNER = f"{PREFIX}owner"
# On a namespace, a workload or a pod: a time until which its pods are left alone; the latest one counts.
SNOOZE_UNTIL = f"{PREFIX}snooze-until"
# On a namespace or a workload: how long its pods are to be without use, where that is longer than what the pool says.
IDLE_TIMEOUT = f"{PREFIX}idle-timeout"
# On a workload: when gpuwatch ends its pods unless they work; written with the notice, and taken away with it.
STOP_AT = f"{PREFIX}stop-at"
# On a workload: the key of the intent that ended its pods, and how many it wanted before.
RELEASED_BY = f"{PREFIX}released-by"
REPLICAS_BEFORE = f"{PREFIX}replicas-before"
# Next to them, the object's generation before it is scaled: while it has that one, nothing has ended yet.
RELEASED_GENERATION = f"{PREFIX}released-generation"
# All of these that are annotations. Any other key that begins with `gpuwatch` is a slip of somebody's.
ANNOTATIONS = frozenset(
    {
        *(CORDONED_BY, CORDONED_AT, MARKED_BY, STOP_AT, RELEASED_BY, REPLICAS_BEFORE, RELEASED_GENERATION),
        *(IDLE_ACTION, IDLE_TIMEOUT, INTERRUPTIBLE, LOSES_LOCAL_DATA, OWNER, PROTECT, SNOOZE_UNTIL),
    }
)
# On a Notebook: kubeflow's own mark; its controller ends the notebook's pod while the annotation is there.


def slip(annotations: Iterable[str]) -> str | None:
    """The first key that nobody reads, and that somebody meant for gpuwatch: `gpuwatch.io/protekt`."""
    return next((key for key in sorted(annotations) if key.startswith("gpuwatch") and key not in ANNOTATIONS), None)


NodeOwner = Literal[
    "gpuwatch",
    "cluster-autoscaler",
    "karpenter",
    "Cluster API",
    "OpenShift's Machine API",
    "Gardener",
    "Kubermatic's machine-controller",
    "CAST AI",
    "Spot Ocean",
]
_WORKLOAD = "kube:"
# The values of IDLE_ACTION that end an idle pod. Any other says nothing that a drain may rest on.
ENDING_ACTIONS = frozenset({"scale-to-zero", "stop", "delete"})

# How other systems' marks on a machine or a group begin that say no more than that it serves some cluster.
_OF_A_CLUSTER = ("EKS", "GKE", "AKS", "TKE", "Container Service (ACK)", "Kubernetes cluster")


def of_a_cluster(owner: str | None) -> bool:
    """Whether what owns a machine or a group, by the marks on it, is a Kubernetes cluster and no autoscaler of one."""
    return (owner or "").startswith(_OF_A_CLUSTER)


class PodPhase(StrEnum):
    """As in a pod's status. Succeeded and failed pods hold no GPU."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The topmost object that owns a pod: Deployment, StatefulSet, Job, Notebook, RayCluster, …; a pod owns itself."""

    namespace: str
    kind: str
    name: str
    uid: str
    owner: str | None = None  # a person or a team, for messages and money
    idle_action: str | None = None  # IDLE_ACTION as written there, or on its namespace
    protected: str | None = None  # why it is left alone, as a clause
    snoozed_until: datetime | None = None  # SNOOZE_UNTIL, the latest of all above its pods, or a later order
    idle_timeout: float | None = None  # IDLE_TIMEOUT in seconds
    queued: bool = False  # Kueue decides when it is suspended, and when it goes on
    unstoppable: str | None = None  # why gpuwatch cannot suspend it, as a clause

    def __str__(self) -> str:
        """Return its kind and name, such as `Notebook team-a/alice`."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod that has not ended.

    `node` is the name of its node, None while it is pending. `gpus` is what it requests of nvidia.com/gpu, of MIG parts
    and of DRA claims for GPUs. `daemon` is whether a drain leaves it (DaemonSet and mirror pods), `system` whether it
    serves the cluster (kube-system, the GPU operator, gpuwatch) and never counts as use. `bare`: nothing would
    make it again. `local_data` names a volume that would be lost with it. `placement` is known of pending pods that
    request GPUs. `devices` is how many devices it was given, each of one GPU; None: nobody can tell. `uses_any_gpu`: it
    may use GPUs of its node that it was not given. `gpu_uuids` are its GPUs, where claims name them all.
    """

    namespace: str
    name: str
    uid: str
    phase: PodPhase
    workload: Workload
    node: str | None = None
    gpus: float = 0.0
    created_at: datetime | None = None
    ends_at: datetime | None = None  # it is being deleted, and gone by then
    daemon: bool = False
    static: bool = False  # its node's kubelet makes it, of a file there: no API ends it
    system: bool = False
    bare: bool = False
    local_data: str | None = None
    interruptible: bool = False  # INTERRUPTIBLE, there or above
    claim_data: str | None = None  # its claims that are on a disk of its machine, or may be: a drain would lose them
    loses_local_data: bool = False  # LOSES_LOCAL_DATA, there or above
    protected: str | None = None
    unschedulable: str | None = None  # the scheduler's own sentence about why it is pending
    placement: Placement | None = None
    refused_by: str | None = None  # which PodDisruptionBudget would refuse its eviction now, as a clause
    vital: str | None = None  # why nobody may empty its node (the control plane, gpuwatch's own pod), as a clause
    stranded: str | None = None  # why no other node is sure to take it, as a clause
    group: str | None = None  # the same for all pods of one whole: a Ray cluster, an MPI job; None: it stands alone
    release: str | None = None  # the same for all pods of one release (app.kubernetes.io/instance)
    devices: int | None = None
    uses_any_gpu: bool = False
    gpu_uuids: tuple[str, ...] | None = None

    def __str__(self) -> str:
        """Return its name, such as `team-a/train-0`."""
        return f"{self.namespace}/{self.name}"

    @property
    def drained(self) -> bool:
        """Whether a drain has to move it."""
        return not self.daemon and self.phase not in {PodPhase.SUCCEEDED, PodPhase.FAILED}

    @property
    def loses(self) -> str | None:
        """What would be lost with its machine, and nobody gives up: names of volumes, each with why."""
        found = [each for each in (self.local_data, self.claim_data) if each is not None]
        return None if self.loses_local_data else ", ".join(found) or None

    @property
    def consents(self) -> bool:
        """Whether its people agree to its end once it is idle."""
        return self.interruptible or self.workload.idle_action in ENDING_ACTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which object a change of a workload is about: the one of that uid, and no other under its name."""

    namespace: str
    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Return its kind and name, such as `Notebook team-a/alice`."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def arguments(self) -> dict[str, str]:
        """As an intent keeps it."""
        return {"namespace": self.namespace, "kind": self.kind, "name": self.name, "uid": self.uid}


def target_of(arguments: Mapping[str, str]) -> Target | None:
    """The object that an intent is about; None: it is about a machine."""
    try:
        return Target(
            namespace=arguments["namespace"], kind=arguments["kind"], name=arguments["name"], uid=arguments["uid"]
        )
    except KeyError:
        return None


def workload_id(cluster: str, workload: Workload) -> str:
    """`kube:prod/team-a/Notebook/alice`: how orders and the ledger name it; the same after a restart of its pods."""
    return f"{cluster_prefix(cluster)}{workload.namespace}/{workload.kind}/{workload.name}"


def cluster_prefix(cluster: str) -> str:
    """How the ids of all of a cluster's workloads begin."""
    return f"{_WORKLOAD}{cluster}/"


def is_workload(node_id: str) -> bool:
    """Whether an order or an intent is about a workload; all others are about machines and groups."""
    return node_id.startswith(_WORKLOAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadNow:
    """A workload as the API server shows it at this moment, and its pods that have not ended.

    `wants` is how many pods it is to have, 0 where it is scaled to zero, stopped or suspended; None: its kind says
    nothing about that. `stop_at` is the time on it that gpuwatch announced, `released_by` the key of the intent that
    ended its pods.
    """

    target: Target
    wants: int | None
    pods: tuple[Pod, ...] = ()
    released_by: str | None = None
    stop_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNode:
    """A node object, and the pods bound to it.

    `cordoned_by` is the key of our own intent that cordoned it; None where it is schedulable or somebody else's cordon.
    `tainted_by` is its key where it bears our taint UNHEALTHY, also after somebody else made it schedulable.
    `marked_by` is the key of our own intent that wrote `keep` there. `owner` is the autoscaler that its labels and
    annotations name. `gpus` is what a device plugin offers, or claims may have; None where nothing does. `keep` is
    why its own marks keep it (`scale-down-disabled`, `do-not-disrupt`, PROTECT), as a clause; `vital` why the
    cluster, or gpuwatch itself, cannot do without it; `disk_data` why its disks may hold volumes that no pod of it is
    asked about. `attached` are volumes that no pod of it uses any more. `system_uuid` is of its firmware, `addresses`
    are its names, too. Of its `labels` are kept those that say what it is, and those that a pending pod asks for.
    `whole_gpus` is how many GPUs it has of which each is given to one pod alone; None: they are shared, or nobody can
    tell.
    """

    name: str
    uid: str
    cluster: str
    provider_id: str = ""
    ready: bool = True
    unschedulable: bool = False
    cordoned_by: str | None = None
    cordoned_at: datetime | None = None
    tainted_by: str | None = None
    marked_by: str | None = None
    owner: NodeOwner | None = None
    keep: str | None = None
    vital: str | None = None
    disk_data: str | None = None
    attached: tuple[str, ...] = ()
    placed: bool = False  # it was asked whether its pods are sure to run elsewhere
    gpus: float | None = None
    pods: tuple[Pod, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    system_uuid: str = ""
    addresses: tuple[str, ...] = ()
    nominated: tuple[str, ...] = ()  # pods that the scheduler makes room for on it (`status.nominatedNodeName`)
    whole_gpus: int | None = None
    devices: Mapping[str, float] = field(default_factory=dict)  # that may be claimed, by driver

    @property
    def gpu_pods(self) -> tuple[Pod, ...]:
        """The pods that hold GPUs and do not merely serve the cluster."""
        return tuple(pod for pod in self.pods if pod.gpus > 0 and not pod.system)

    @property
    def requested_gpus(self) -> float:
        """How many of its GPUs are requested."""
        return sum(pod.gpus for pod in self.gpu_pods)

    def shared_gpus(self, of_machine: int | None) -> float:
        """How many GPUs its cost is divided by: its machine's, those offered or those requested: the most of these."""
        # Time-slicing offers more than there are, and a plugin offers fewer while one of them is failing.
        return max(float(of_machine or 0), self.gpus or 0.0, sum(pod.gpus for pod in self.pods))

    @property
    def to_drain(self) -> tuple[Pod, ...]:
        """The pods that a drain has to move."""
        return tuple(pod for pod in self.pods if pod.drained)


def own_name(node: KubernetesNode) -> str:
    """What its own cluster calls it; of several clusters each has its name before that (`prod/gpu-0`)."""
    return node.name.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)  # no slots: what belongs together is found once, at the first question
class ClusterView:
    """All that the API server showed of one cluster, as of `silent_seconds` ago.

    `trouble` is why it is not to be relied on (no answer, too long silent, a forbidden call), as a sentence: then no
    node of it is idle, drained or ended. `pending` are the pods that request GPUs and have no node. `notes` are
    sentences on what does not fit together, such as a node object that fits two machines. `pools` are those with
    machines that may be its nodes; none named: all. `parts` are several as one, without nodes; `trouble` is of any.
    """

    name: str
    silent_seconds: float = 0.0
    trouble: str | None = None
    nodes: tuple[KubernetesNode, ...] = ()
    pending: tuple[Pod, ...] = ()
    notes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    parts: tuple["ClusterView", ...] = ()

    @property
    def each(self) -> tuple["ClusterView", ...]:
        """The clusters one by one."""
        return self.parts or (self,)

    @property
    def title(self) -> str:
        """`Kubernetes cluster prod`, for a sentence."""
        return f"Kubernetes cluster{'s' if self.parts else ''} {self.name}"

    def part(self, cluster: str) -> "ClusterView | None":
        """The cluster of that name; a single one has whatever name. None: it is in the settings no more."""
        return next((each for each in self.parts if each.name == cluster), None) if self.parts else self

    def home(self, cluster: str) -> str:
        """The name of the cluster of a node that names this one; a single one has its own."""
        return cluster if self.parts else self.name

    def shows_nodes(self, part: "ClusterView") -> bool:
        """Whether a node of that part is, or was, seen."""
        return any(node.cluster == part.name for node in self.nodes) if self.parts else bool(self.nodes)

    @cached_property
    def home_of_pending(self) -> Mapping[str, str]:
        """The cluster of each pod without a node, by its uid."""
        return {pod.uid: each.name for each in self.each for pod in each.pending}

    @cached_property
    def together(self) -> Mapping[str, tuple[Pod, ...]]:
        """The pods of each whole and of each release (`Pod.group`, `Pod.release`), bound to a node or not."""
        found: dict[str, list[Pod]] = {}
        for pod in (*(pod for node in self.nodes for pod in node.pods), *self.pending):
            for key in filter(None, (pod.group, pod.release)):
                found.setdefault(key, []).append(pod)
        return {key: tuple(pods) for key, pods in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What became of one attempt to drain a node: the pods that were asked to go, and those that stay, each with why.

    `refused` is by the pod's text; a refusal by a PodDisruptionBudget (429) is an answer and no error.
    """

    evicted: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    left: int = 0  # pods that are still there, those that are ending included
