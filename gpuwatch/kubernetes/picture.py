"""Nodes and pods as the controller knows them, made of what is kept of the API server's words.

What people write nearest to a pod comes first: on the pod, on what owns it from below to the top, on its namespace. A
protection counts wherever it stands. An owner that cannot be read may carry one, so that its pods are protected.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuwatch.kubernetes.attachments import Attachments
from gpuwatch.kubernetes.calls import DO_NOT_DISRUPT
from gpuwatch.kubernetes.claims import Disks
from gpuwatch.kubernetes.devices import Devices, PodDevices
from gpuwatch.kubernetes.disruptions import BudgetFacts, refusal
from gpuwatch.kubernetes.endpoints import ApiAddresses
from gpuwatch.kubernetes.facts import (
    SAFE_TO_EVICT,
    NodeFacts,
    OwnerFacts,
    PodFacts,
    is_of_daemons,
    time_of,
)
from gpuwatch.kubernetes.marks import kept_by, longest, nearest, node_owner, protection, snoozed_until
from gpuwatch.kubernetes.objects import OwnerReference
from gpuwatch.kubernetes.vital import vital_clause, why_of_slurm, why_vital
from gpuwatch.kubernetes.wholes import Chain
from gpuwatch.model.kubernetes import (
    CORDONED_AT,
    CORDONED_BY,
    ENDING_ACTIONS,
    IDLE_ACTION,
    INTERRUPTIBLE,
    LOSES_LOCAL_DATA,
    MARKED_BY,
    OWNER,
    PREFIX,
    UNHEALTHY,
    KubernetesNode,
    Pod,
    PodPhase,
    Workload,
)
from gpuwatch.model.placing import Placement
from gpuwatch.model.workload_kinds import ACTIONS, BY_LABEL, KINDS, ONCE, QUEUE_LABEL, SUSPENDED

_DEEPEST = 8  # owners above a pod: Pod, ReplicaSet, Deployment, and what made that
# The groups of those kinds that gpuwatch can end. Volcano's Job is another one, and has another end.
_GROUPS = {"DaemonSet": "apps", "Node": "", **{each.kind: each.group for each in KINDS if each.actions}}
_USERNAME = "hub.jupyter.org/username"  # on the pods that JupyterHub makes for people: no object owns them
# Labels by which a node says what it is; all others are left out, for a round keeps every node.
_KEPT_LABELS = frozenset(
    {
        *("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
        *("kubernetes.io/hostname", "nvidia.com/gpu.product", "nvidia.com/gpu.count", "karpenter.sh/nodepool"),
        *("eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool"),
        *("alibabacloud.com/nodepool-id", "node.tke.cloud.tencent.com/machineset"),
    }
)

# What an owner in a namespace is: its facts; None: none of that uid is left; a sentence: nobody can tell.
OwnersOf = Callable[[OwnerReference, str], OwnerFacts | str | None]


@dataclass(slots=True, kw_only=True)
class Picture:
    """What pods are made of at one moment. `namespaces` are by name.

    `behind` is how far the API server's clock is behind ours: a pod is not older than it would be by our own.
    """

    now: datetime
    owners: OwnersOf
    namespaces: Mapping[str, OwnerFacts]
    system_namespaces: Collection[str]
    cluster: str
    budgets: Mapping[str, Sequence[BudgetFacts]] = field(default_factory=dict)  # by namespace
    behind: timedelta = timedelta(0)
    own_uids: Collection[str] = ()  # of the controller's own pod
    attachments: Attachments = field(default_factory=Attachments)
    api: ApiAddresses = field(default_factory=ApiAddresses)  # where it is served
    disks: Disks = field(default_factory=Disks)
    devices: Devices = field(default_factory=Devices)
    _asked: defaultdict[str | None, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    queued: Collection[str] = ()  # uids of jobs that Kueue manages
    why_not_stopped: Callable[[str], str | None] = lambda _: None  # of such a job, in a namespace
    _tops: dict[tuple[str, str], "_Top"] = field(default_factory=dict)

    def pod(self, pod: PodFacts) -> Pod:
        """One pod with what its owners and its namespace say."""
        top = self._top(pod)
        own = [pod.annotations]
        levels = [*own, *top.levels]
        workload = top.workload
        owner = pod.annotations.get(OWNER) or (None if workload.owner else pod.labels.get(_USERNAME))
        if owner and owner != workload.owner:
            workload = replace(workload, owner=owner)
        snoozed = snoozed_until(own)
        daemon = pod.mirror or (pod.owner is not None and is_of_daemons(pod.owner.api_version, pod.owner.kind))
        if snoozed is not None and (workload.snoozed_until is None or snoozed > workload.snoozed_until):
            workload = replace(workload, snoozed_until=snoozed)
        claimed = self._claimed_devices(pod)
        return Pod(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.static_uid or pod.uid,
            phase=pod.phase,
            workload=workload,
            node=pod.node,
            gpus=claimed.gpus,
            created_at=None if pod.created_at is None else pod.created_at + self.behind,
            ends_at=pod.ends_at,
            daemon=daemon,
            static=pod.mirror,
            system=pod.namespace in self.system_namespaces,
            bare=top.bare,
            local_data=self._local_data(pod, daemon=daemon),
            claim_data=None if daemon else self._claim_data(pod),
            interruptible=nearest(levels, INTERRUPTIBLE) == "true",
            loses_local_data=nearest(levels, LOSES_LOCAL_DATA) == "true",
            protected=self._why_protected(pod) or workload.protected,
            unschedulable=pod.unschedulable,
            placement=_placement_with_devices(pod, claimed),
            refused_by=refusal(pod, self.budgets.get(pod.namespace, ())),
            vital=vital_clause(pod, self.own_uids, daemon=daemon),
            devices=pod.devices,
            uses_any_gpu=pod.uses_any_gpu,
            gpu_uuids=claimed.uuids,
        )

    def _claimed_devices(self, pod: PodFacts) -> PodDevices:
        """What it has or wants of GPUs, those of its claims included; `gpus` of the facts has one for each claim."""
        requested = pod.gpus - len(pod.device_claims)
        return self.devices.with_requests(pod.namespace, pod.uid, requested, pod.device_claims, pod.extended_claim)

    def _local_data(self, pod: PodFacts, *, daemon: bool) -> str | None:
        """Which of its volumes would be lost with it. Of what serves each node it is the paths that it writes to."""
        if not daemon:
            return pod.local_data
        return None if pod.mirror or pod.namespace in self.system_namespaces else pod.daemon_data

    def _claim_data(self, pod: PodFacts) -> str | None:
        """Which of its claims are on its machine's disk; its node is not asked about these again."""
        self._asked[pod.node].update((pod.namespace, claim) for _, claim in pod.claims)
        return self.disks.local_data(pod)

    def _why_protected(self, pod: PodFacts) -> str | None:
        """By its own annotations; those above are the workload's."""
        own = protection(pod.annotations, f"the pod {pod.namespace}/{pod.name}", self.now)
        if own is None and pod.annotations.get(DO_NOT_DISRUPT, "false") != "false":
            return f"its annotation {DO_NOT_DISRUPT} protects it"
        if own is None and pod.annotations.get(SAFE_TO_EVICT) == "false":
            return f"its annotation {SAFE_TO_EVICT} is false"
        return own or why_of_slurm(pod)

    def chain(self, pod: PodFacts) -> Chain:
        """What owns a pod, from the nearest to the topmost, as far as it could be read."""
        return self._top(pod).chain

    def _top(self, pod: PodFacts) -> "_Top":
        """What owns a pod; the same for all pods of one owner."""
        # A pod may own others, such as Spark's driver, and is not what stands above it.
        key = (pod.namespace, f"itself/{pod.uid}" if pod.owner is None or pod.mirror else pod.owner.uid)
        found = self._tops.get(key)
        if found is None:
            found = self._tops[key] = self._climb(pod)
        return found

    def _climb(self, pod: PodFacts) -> "_Top":
        """From a pod up to the topmost owner that is known."""
        chain: list[OwnerFacts] = []
        named: list[tuple[str, str]] = []
        kind, name, uid = "Pod", pod.name, pod.static_uid or pod.uid
        doubt: str | None = None
        reference, bare = None if pod.mirror else pod.owner, pod.owner is None and not pod.mirror
        while reference is not None and len(chain) < _DEEPEST:
            daemons = is_of_daemons(reference.api_version, reference.kind)
            found = None if daemons else self.owners(reference, pod.namespace)
            if found is None and not daemons and not chain:
                bare = True  # what made it is gone: nothing would make it again
            kind, name, uid = _kind(reference), reference.name, reference.uid
            named.append((kind, uid))
            if not isinstance(found, OwnerFacts):
                doubt = found
                break
            bare = bare or ((found.once or kind in ONCE) and not chain)
            chain.append(found)
            reference = found.owner
        if len(chain) == _DEEPEST and reference is not None:
            doubt = f"more than {_DEEPEST} owners stand above it"
        namespace = self.namespaces.get(pod.namespace)
        above = [each.annotations for each in chain] + ([] if namespace is None else [namespace.annotations])
        # What nothing owns is its own workload, and its people write there what may become of it.
        said = [pod.annotations, *above] if pod.owner is None and not pod.mirror else above
        protected = next(
            (why for each in chain if (why := protection(each.annotations, f"its owner {each.name}", self.now))), doubt
        )
        if protected is None and namespace is None:
            protected = f"its namespace {pod.namespace} is not known"
        elif protected is None and namespace is not None:
            protected = protection(namespace.annotations, f"its namespace {pod.namespace}", self.now)
        action = nearest(said, IDLE_ACTION)
        if action in ENDING_ACTIONS and (part := _ended_part(named)) is not None:
            kind, uid = named[part]
            name = chain[part].name
        queued = kind in SUSPENDED and (uid in self.queued or any(QUEUE_LABEL in each.annotations for each in chain))
        workload = Workload(
            namespace=pod.namespace,
            kind=kind,
            name=name,
            uid=uid,
            owner=nearest(above, OWNER),
            idle_action=action,
            protected=protected,
            snoozed_until=snoozed_until(above),
            idle_timeout=longest(said),
            queued=queued,
            unstoppable=self.why_not_stopped(pod.namespace) if queued and action == "stop" else None,
        )
        return _Top(workload=workload, levels=tuple(above), bare=bare, chain=tuple(named))

    def node(
        self, node: NodeFacts, pods: Iterable[Pod], asked_labels: Collection[str], nominated: Iterable[str] = ()
    ) -> KubernetesNode:
        """One node with its pods, and the names of those that the scheduler makes room for on it."""
        key = node.annotations.get(CORDONED_BY) or None
        cordoned_by = key if node.unschedulable else None
        tainted = any(each.key == UNHEALTHY and each.value == key for each in node.taints)
        found = tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name)))
        return KubernetesNode(
            name=node.name,
            uid=node.uid,
            cluster=self.cluster,
            provider_id=node.provider_id,
            ready=node.ready,
            unschedulable=node.unschedulable,
            cordoned_by=cordoned_by,
            cordoned_at=time_of(node.annotations.get(CORDONED_AT)) if cordoned_by else None,
            tainted_by=key if tainted else None,
            marked_by=node.annotations.get(MARKED_BY) or None,
            owner=node_owner(node),
            keep=kept_by(node, self.now),
            vital=why_vital(node, found, self.api),
            disk_data=self.disks.data_on(node, self._asked[node.name] if node.ready else (), self.namespaces),
            attached=self.attachments.left_on(node.name, self._volumes_of(node.name)),
            gpus=_most(node.gpus, self.devices.gpus_on(node.name)),
            devices=self.devices.on_node(node.name),
            pods=found,
            labels={
                key: value
                for key, value in node.labels.items()
                if key in _KEPT_LABELS or key in asked_labels or key.startswith(PREFIX)
            },
            taints=node.taints,
            system_uuid=node.system_uuid,
            addresses=node.addresses,
            nominated=tuple(sorted(nominated)),
            whole_gpus=node.whole_gpus,
        )

    def _volumes_of(self, node: str) -> set[str]:
        """The volumes of a node's pods."""
        found = (self.disks.volume(*claim) for claim in self._asked[node])
        return {each.name for each in found if each is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Top:
    """What is above a pod: the workload, and the annotations from the nearest owner to the namespace."""

    workload: Workload
    levels: tuple[Mapping[str, str], ...]
    bare: bool
    chain: Chain


def _placement_with_devices(pod: PodFacts, claimed: PodDevices) -> Placement | None:
    """Where a pending pod may go, with the devices that it claims."""
    if pod.placement is None or not claimed.wanted:
        return pod.placement
    return replace(pod.placement, devices=claimed.wanted)


def _most(offered: float | None, claimable: float | None) -> float | None:
    """The GPUs of a node: a device plugin and a driver of claims offer the same ones."""
    return max((each for each in (offered, claimable) if each is not None), default=None)


def asked_labels(pods: Iterable[Pod]) -> frozenset[str]:
    """The labels of nodes that pending pods ask for."""
    return frozenset(
        key
        for pod in pods
        if pod.placement is not None
        for key in (
            *pod.placement.selector,
            *(each.key for terms in pod.placement.alternatives for each in terms),
        )
    )


def pending(pods: Sequence[Pod]) -> Iterator[Pod]:
    """The pods that want GPUs and have no node; those of the system and those that are ending are no demand."""
    return (
        pod
        for pod in pods
        if pod.node is None
        and pod.gpus > 0
        and pod.phase is PodPhase.PENDING
        and not pod.system
        and pod.ends_at is None
    )


def _ended_part(named: Sequence[tuple[str, str]]) -> int | None:
    """Which owner, of those from the nearest to the topmost, is ended in the place of the topmost; None: that one.

    A run of a CronJob is a workload of its own where its people let it end: its CronJob makes no other in its place.
    """
    if len(named) < 2 or named[-1][0] in ACTIONS:  # noqa: PLR2004  what is owned, and its owner
        return None
    above = BY_LABEL.get(named[-1][0])
    return len(named) - 2 if above is not None and named[-2][0] in above.parts else None


def _kind(reference: OwnerReference) -> str:
    """The kind; `Job.batch.volcano.sh`, as kubectl writes it, where the name alone would be another group's."""
    group, _, _ = reference.api_version.rpartition("/")
    return reference.kind if _GROUPS.get(reference.kind, group) == group else f"{reference.kind}.{group}"
