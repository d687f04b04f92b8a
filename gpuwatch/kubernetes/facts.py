"""What is kept of nodes, pods, owners and namespaces between two words of the API server. A pod is about 1 kB."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from sys import intern

from gpuwatch.kubernetes.calls import DO_NOT_DISRUPT, SCALE_DOWN_DISABLED
from gpuwatch.kubernetes.gpu_requests import (
    offered_gpus,
    requested_devices,
    requested_gpus,
    uses_any_gpu,
    whole_gpus,
)
from gpuwatch.kubernetes.needs import needs_of, offers_of, tolerations_of
from gpuwatch.kubernetes.objects import (
    Described,
    JobObject,
    JobSpec,
    JobStatus,
    NodeObject,
    ObjectMeta,
    OwnerReference,
    PodObject,
    PodSpec,
    PodStatus,
)
from gpuwatch.kubernetes.volumes import SAFE_LOCAL_VOLUMES, claims_of, data_of_daemon, local_data
from gpuwatch.model.bounds import bounded_name, bounded_text, bounded_time
from gpuwatch.model.kubernetes import (
    ANNOTATIONS,
    CORDONED_AT,
    CORDONED_BY,
    IDLE_ACTION,
    IDLE_TIMEOUT,
    INTERRUPTIBLE,
    LOSES_LOCAL_DATA,
    MARKED_BY,
    OWNER,
    PROTECT,
    SNOOZE_UNTIL,
    NodeOwner,
    PodPhase,
)
from gpuwatch.model.placing import Needs, Placement, Requirement, Taint
from gpuwatch.model.workload_kinds import QUEUE_LABEL

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KUBEFLOW_OWNER = "owner"  # of a namespace that a Kubeflow profile made
MIRROR = "kubernetes.io/config.mirror"  # a static pod: the kubelet makes it, and no API can end it
_SOURCE, _STATIC = "kubernetes.io/config.source", frozenset({"file", "http"})  # the same, as the kubelet marks it
# What leaves its pods on their nodes, by kind and group; the last one is OpenKruise's. A node owns its static pods.
_DAEMONS = frozenset(
    {("DaemonSet", "apps"), ("DaemonSet", "extensions"), ("DaemonSet", "apps.kruise.io"), ("Node", "")}
)
STATIC_UID = "kubernetes.io/config.hash"  # the uid that the kubelet and its control groups have for a static pod
# On nodes: who made their machines, and makes others in the place of those that are missing.
MACHINE_OWNERS: Mapping[str, NodeOwner] = {
    "cluster.x-k8s.io/machine": "Cluster API",
    "cluster.x-k8s.io/cluster-name": "Cluster API",  # also on nodes of a MachinePool, which have no Machine each
    "machine.openshift.io/machine": "OpenShift's Machine API",
}
_KEPT = frozenset(
    {
        *MACHINE_OWNERS,
        *(CORDONED_AT, CORDONED_BY, IDLE_ACTION, IDLE_TIMEOUT, INTERRUPTIBLE, LOSES_LOCAL_DATA, OWNER, PROTECT),
        *(MARKED_BY, SNOOZE_UNTIL),
        *(SAFE_TO_EVICT, SCALE_DOWN_DISABLED, DO_NOT_DISRUPT),
    }
)
_MOST_KEPT = 64  # annotations of one object: anybody may add as many as there is room for
_VERSION_DIGITS = 20
_BACKOFF_LIMIT = 6  # of a Job that names none
_AS_LABELS = frozenset({PROTECT, SNOOZE_UNTIL, QUEUE_LABEL})
_NOTHING: Mapping[str, str] = {}
GANG = "@gang"  # among a pod's labels: the gang that its scheduler starts as a whole; no label has such a key
_GANGS = ("scheduling.k8s.io/group-name", "pod-group-name")  # annotations of Volcano and of KAI
_TASK_GROUP, _APPLICATIONS = "yunikorn.apache.org/task-group-name", ("applicationId", "yunikorn.apache.org/app-id")
_NO_NEEDS = Needs(doubt="it cannot be read")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Of one pod that has not ended. `owner` is what would make it again."""

    namespace: str
    name: str
    uid: str
    version: int
    phase: PodPhase
    node: str | None
    gpus: float
    created_at: datetime | None
    ends_at: datetime | None
    owner: OwnerReference | None
    mirror: bool
    local_data: str | None
    unschedulable: str | None
    placement: Placement | None
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    nominated: str | None = None  # the node that the scheduler makes room on for it
    claims: tuple[tuple[str, str], ...] = ()  # names of volumes, and of their claims
    needs: Needs = _NO_NEEDS
    daemon_data: str | None = None  # what of its host it may write data to, should it be a DaemonSet's
    devices: int | None = None
    uses_any_gpu: bool = False
    static_uid: str | None = None
    device_claims: tuple[str | None, ...] = ()  # names of claims of devices; None: it was not made yet
    extended_claim: str | None = None  # the claim that stands for its requests


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Of one node object."""

    name: str
    uid: str
    version: int
    provider_id: str
    system_uuid: str
    addresses: tuple[str, ...]
    ready: bool
    unschedulable: bool
    gpus: float | None
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    annotations: Mapping[str, str]
    whole_gpus: int | None = None
    offers: Mapping[str, int] = field(default_factory=dict)
    ends: bool = False  # somebody has deleted it


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """Of an object that owns pods, or of a namespace. `once`: it makes no other for a pod that is evicted."""

    namespace: str
    name: str
    uid: str
    version: int
    owner: OwnerReference | None
    annotations: Mapping[str, str]
    once: bool = False


def pod_facts(pod: PodObject, gpu_resources: Sequence[str]) -> PodFacts | None:
    """Of a pod; None: it has ended, and holds nothing any more."""
    meta, spec, status = pod.metadata, pod.spec or PodSpec(), pod.status
    conditions = (status.conditions if status is not None else None) or ()
    phase = _phase(status.phase if status is not None else "")
    if phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}:
        return None
    node = intern(spec.node_name) if spec.node_name else None
    gpus = requested_gpus(spec, gpu_resources) + len(spec.resource_claims or ())
    waits = node is None and gpus > 0
    owner, safe = controller_of(meta), (meta.annotations or {}).get(SAFE_LOCAL_VOLUMES)
    marks = meta.annotations or {}
    mirror = MIRROR in marks or marks.get(_SOURCE) in _STATIC
    is_daemon = owner is not None and is_of_daemons(owner.api_version, owner.kind)
    return PodFacts(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        phase=phase,
        node=node,
        gpus=gpus,
        created_at=time_of(meta.creation_timestamp),
        ends_at=time_of(meta.deletion_timestamp),
        owner=owner,
        mirror=mirror,
        local_data=local_data(spec, safe),
        unschedulable=_unschedulable(pod) if waits else None,
        placement=_placement(spec) if waits else None,
        annotations=keeping_annotations(meta),
        labels=_labels(meta, spec),
        ready=any(each.type == "Ready" and each.status == "True" for each in conditions),
        nominated=(status.nominated_node_name if status is not None and node is None else None) or None,
        claims=claims_of(spec),
        needs=needs_of(pod),
        daemon_data=data_of_daemon(spec, safe) if is_daemon else None,
        devices=None if spec.resource_claims else requested_devices(spec, gpu_resources),
        uses_any_gpu=uses_any_gpu(spec),
        device_claims=_device_claims(spec, status),
        extended_claim=_extended_claim(status),
        static_uid=bounded_text(marks.get(STATIC_UID, "")) or None if mirror else None,
    )


def node_facts(node: NodeObject, gpu_resources: Sequence[str]) -> NodeFacts:
    """Of a node object."""
    meta, spec, status = node.metadata, node.spec, node.status
    offered = (status.allocatable if status is not None else None) or {}
    capacity = (status.capacity if status is not None else None) or {}
    conditions = (status.conditions if status is not None else None) or ()
    addresses = (status.addresses if status is not None else None) or ()
    info = status.node_info if status is not None else None
    return NodeFacts(
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        provider_id=(spec.provider_id if spec is not None else None) or "",
        system_uuid=(info.system_uuid if info is not None else "").lower(),
        addresses=tuple(dict.fromkeys(each.address for each in addresses if each.address)),
        ready=any(each.type == "Ready" and each.status == "True" for each in conditions),
        unschedulable=bool(spec is not None and spec.unschedulable),
        gpus=offered_gpus(offered, gpu_resources),
        labels={intern(key): intern(value) for key, value in (meta.labels or {}).items()},
        taints=tuple(
            Taint(key=each.key, effect=each.effect, value=each.value or "")
            for each in (spec.taints if spec is not None else None) or ()
        ),
        annotations=keeping_annotations(meta),
        whole_gpus=whole_gpus(capacity, meta.labels or _NOTHING, gpu_resources),
        offers=offers_of(offered),
        ends=meta.deletion_timestamp is not None,
    )


def owner_facts(described: Described, *, of_namespace: bool = False) -> OwnerFacts:
    """Of any object's metadata."""
    meta = described.metadata
    annotations = keeping_annotations(meta)
    if of_namespace and OWNER not in annotations and (meta.annotations or {}).get(KUBEFLOW_OWNER):
        annotations = {**annotations, OWNER: bounded_name((meta.annotations or {})[KUBEFLOW_OWNER])}
    return OwnerFacts(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        owner=controller_of(meta),
        annotations=annotations,
    )


def job_facts(job: JobObject) -> OwnerFacts:
    """Of a Job: an eviction is a failure like others, and the last one that it allows ends it for good."""
    return replace(owner_facts(Described(job.metadata)), once=_last_chance(job.spec or JobSpec(), job.status))


def _last_chance(spec: JobSpec, status: JobStatus | None) -> bool:
    """Return whether a Job fails with this pod.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """
    for rule in (spec.pod_failure_policy.rules if spec.pod_failure_policy is not None else None) or ():
        if any(each.type == "DisruptionTarget" and each.status == "True" for each in rule.on_pod_conditions or ()):
            if rule.action == "Count":
                break
            return rule.action != "Ignore"
        if rule.action == "FailJob" and rule.on_exit_codes is not None:
            return True  # nobody knows with which code the pod ends
    limit = spec.backoff_limit_per_index if spec.backoff_limit_per_index is not None else spec.backoff_limit
    failed = (status.failed if status is not None else None) or 0
    return failed >= (_BACKOFF_LIMIT if limit is None else limit)


def keeping_annotations(meta: ObjectMeta) -> Mapping[str, str]:
    """The annotations that mean something here, slips among them; and what protects, if it is a label by mistake."""
    if not meta.annotations and not meta.labels:
        return _NOTHING
    found = {key: bounded_text(value) for key, value in (meta.labels or _NOTHING).items() if key in _AS_LABELS}
    for key, value in (meta.annotations or _NOTHING).items():
        if key in _KEPT or (key.startswith("gpuwatch") and key not in ANNOTATIONS and len(found) < _MOST_KEPT):
            found[intern(key)] = bounded_name(value) if key == OWNER else bounded_text(value)
    return found or _NOTHING


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """What would make it again."""
    return next((each for each in meta.owner_references or () if each.controller), None)


def is_of_daemons(api_version: str, kind: str) -> bool:
    """Whether a drain leaves the pods of such an owner; somebody's own kind may have the same name."""
    return (kind, api_version.rpartition("/")[0]) in _DAEMONS


def version_of(meta: ObjectMeta) -> int:
    """Its version; comparable within one kind."""
    return version_number(meta.resource_version)


def version_number(text: str) -> int:
    """A version as a number; what is no number of the API server's is older than all."""
    return int(text) if len(text) <= _VERSION_DIGITS and text.isdecimal() else 0


def time_of(text: str | None) -> datetime | None:
    """A time of RFC 3339; None: it is missing, or cannot be read."""
    try:
        time = None if text is None else datetime.fromisoformat(text)
        return None if time is None or time.tzinfo is None else bounded_time(time.astimezone(UTC))
    except (ValueError, OverflowError):  # anybody may annotate 9999-12-31T23:59:59-14:00, which no calendar has in UTC
        return None


def _phase(text: str) -> PodPhase:
    try:
        return PodPhase(text)
    except ValueError:
        return PodPhase.UNKNOWN


def _labels(meta: ObjectMeta, spec: PodSpec) -> Mapping[str, str]:
    """The labels of a pod, and its gang."""
    labels, marks = meta.labels or _NOTHING, meta.annotations or _NOTHING
    own = (spec.scheduling_group or {}).get("podGroupName")  # since Kubernetes 1.36
    gangs = [str(own) if own else None, *map(marks.get, _GANGS)]
    if _TASK_GROUP in marks:  # without it YuniKorn starts each pod of an application by itself
        gangs += [told.get(key) for key in _APPLICATIONS for told in (labels, marks)]
    if gang := next(filter(None, gangs), None):
        labels = {**labels, GANG: bounded_text(gang)}
    return {intern(key): intern(value) for key, value in labels.items()} if labels else _NOTHING


def _device_claims(spec: PodSpec, status: PodStatus | None) -> tuple[str | None, ...]:
    """The claims of devices; the name of one that is made for the pod stands in its status."""
    if not spec.resource_claims:
        return ()
    made = {each.name: each.resource_claim_name for each in (status.resource_claim_statuses if status else None) or ()}
    return tuple(each.resource_claim_name or made.get(each.name) for each in spec.resource_claims)


def _extended_claim(status: PodStatus | None) -> str | None:
    claim = None if status is None else status.extended_resource_claim_status
    return None if claim is None else claim.resource_claim_name


def _unschedulable(pod: PodObject) -> str | None:
    """The scheduler's own sentence on a pod that it has tried; one with scheduling gates it has not."""
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    for each in conditions:
        if each.type == "PodScheduled" and each.status == "False" and each.reason != "SchedulingGated":
            return bounded_text(each.message or each.reason or "") or None
    return None


def _placement(spec: PodSpec) -> Placement:
    """Where a pod may go. What is asked of a node's fields, such as its name, is kept as a label that none has."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    terms = (affinity.required.node_selector_terms if affinity is not None and affinity.required else None) or ()
    return Placement(
        selector=dict(spec.node_selector or {}),
        alternatives=tuple(
            tuple(
                Requirement(key=each.key, operator=each.operator, values=tuple(each.values or ()))
                for each in [*(term.match_expressions or ()), *(term.match_fields or ())]
            )
            for term in terms
        ),
        tolerations=tolerations_of(spec),
    )
