"""What waits in Kueue's queues: Workloads that were not admitted yet, or have no pods yet, as pods that wait.

Kueue holds a job back before it has pods (`spec.suspend`), so that no pending pod says what its nodes are for. Rules:

1. A Workload that is finished, not active, or evicted for good waits for nothing, and so it is in a closed queue, or if
   another cluster runs it. Where pods of it exist, these speak for themselves. One that is admitted in part waits for
   that part.
2. It waits since Kueue reserved quota for it, else since it was made.
3. It is demand that keeps nodes, and never demand that makes some: whether it may run is its quota's to say.

Fields: https://kueue.sigs.k8s.io/docs/concepts/workload/. A cluster without Kueue costs one question in five minutes.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from gpuwatch.clouds.errors import CloudError
from gpuwatch.kubernetes.asked import may_patch
from gpuwatch.kubernetes.client import Api
from gpuwatch.kubernetes.facts import pod_facts, time_of, version_of
from gpuwatch.kubernetes.objects import ObjectMeta, PodObject, PodSpec, PodStatus
from gpuwatch.kubernetes.optional_watch import AGAIN_SECONDS, OptionalKind, OptionalWatch
from gpuwatch.kubernetes.unreadable import UNREADABLE
from gpuwatch.model.bounds import BoundedInt
from gpuwatch.model.kubernetes import Pod, PodPhase, Workload
from gpuwatch.model.placing import Placement
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

GROUP = "kueue.x-k8s.io"
# What is read has the same name in each. The first is how Kueue keeps them since 0.16: others go through its webhook.
_KIND = OptionalKind(project="Kueue", group=GROUP, resource="workloads", versions=("v1beta2", "v1beta1", "v1"))
_MOST_PODS = 256  # of one Workload, and four times as many of all
_MOST_OF_ALL = 1_024
_NO_RIGHT = (
    "Kueue owns its suspension, and gpuwatch has no right to patch workloads.kueue.x-k8s.io in {} (docs/kubernetes.md)"
)
# In the words of Kueue's conditions: what a queue that takes nothing says of its Workloads.
_CLOSED = ("is inactive", "doesn't exist", "is stopped")
_FOR_GOOD = frozenset({"ClusterQueueStopped", "LocalQueueStopped", "InactiveWorkload", "Deactivated"})


class _Template(Struct):
    """The pods of a set."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None


class _PodSet(Struct):
    """So many pods of one kind."""

    name: str = "main"
    count: BoundedInt = 1
    template: _Template | None = None


class _Spec(Struct, rename="camel"):
    """What a Workload asks for."""

    active: bool | None = None
    pod_sets: list[_PodSet] | None = None


class _Condition(Struct, rename="camel"):
    """Of a Workload: QuotaReserved, Admitted, Evicted, Finished."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Assignment(Struct):
    """So many pods of a set were admitted, which may be fewer than it asks for."""

    name: str = ""
    count: BoundedInt | None = None


class _Admission(Struct, rename="camel"):
    """What was admitted of each set."""

    pod_set_assignments: list[_Assignment] | None = None


class _Status(Struct, rename="camel"):
    """How far it is; `cluster_name` and `nominated_cluster_names` are other clusters that run it (MultiKueue)."""

    conditions: list[_Condition] | None = None
    admission: _Admission | None = None
    cluster_name: str | None = None
    nominated_cluster_names: list[str] | None = None


class QueuedObject(Struct):
    """A Workload as the API server shows it."""

    metadata: ObjectMeta
    spec: _Spec | None = None
    status: _Status | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """So many pods with so many GPUs each."""

    name: str
    count: int
    gpus: float
    placement: Placement | None


@dataclass(frozen=True, slots=True)
class QueuedFacts:
    """Of a Workload that waits. `owners` are the uids of the job, or of the pods, that it is of."""

    namespace: str
    name: str
    uid: str
    version: int
    owners: frozenset[str]
    since: datetime | None
    wanted: tuple[Wanted, ...]


_NEVER = datetime.max.replace(tzinfo=UTC)
_QUEUED = msgspec.json.Decoder(QueuedObject)


def queued_facts(read: QueuedObject, gpu_resources: Sequence[str]) -> QueuedFacts:
    """Of a Workload; one that waits for nothing (rule 1) wants no pods."""
    meta, spec = read.metadata, read.spec or _Spec()
    status = read.status or _Status()
    told = {each.type: each for each in status.conditions or ()}
    elsewhere = status.cluster_name or status.nominated_cluster_names
    sets = spec.pod_sets or () if not elsewhere and _waits(meta, spec, told) else ()
    given = status.admission.pod_set_assignments if status.admission is not None else None
    admitted = {each.name: each.count for each in given or () if each.count is not None}
    found = (_wanted_pods(meta, each, admitted.get(each.name, each.count), gpu_resources) for each in sets)
    wanted = tuple(each for each in found if each is not None)
    began = meta.creation_timestamp
    for name in ("Admitted", "QuotaReserved"):
        if _is_true(told, name):
            began = told[name].last_transition_time or began
            break
    return QueuedFacts(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        owners=frozenset(each.uid for each in meta.owner_references or ()),
        since=time_of(began),
        wanted=wanted,
    )


def _is_true(told: Mapping[str, _Condition], name: str) -> bool:
    """Whether a condition is true."""
    return name in told and told[name].status == "True"


def _waits(meta: ObjectMeta, spec: _Spec, told: Mapping[str, _Condition]) -> bool:
    """Rule 1, but for its pods."""
    if spec.active is False or _is_true(told, "Finished") or meta.deletion_timestamp is not None:
        return False
    if _is_true(told, "QuotaReserved") or _is_true(told, "Admitted"):
        return True
    if _is_true(told, "Evicted") and told["Evicted"].reason in _FOR_GOOD:
        return False
    waits = told.get("QuotaReserved")
    return waits is None or not any(each in waits.message for each in _CLOSED)


def _wanted_pods(meta: ObjectMeta, its: _PodSet, count: int, gpu_resources: Sequence[str]) -> Wanted | None:
    """What one set wants; None: no GPUs."""
    spec = its.template.spec if its.template is not None else None
    if spec is None or count <= 0:
        return None
    pod = PodObject(metadata=ObjectMeta(name=its.name, namespace=meta.namespace, uid=meta.uid), spec=spec)
    pod.status = PodStatus(phase="Pending")
    facts = pod_facts(pod, gpu_resources)
    if facts is None or facts.gpus <= 0:
        return None
    return Wanted(name=its.name, count=count, gpus=facts.gpus, placement=facts.placement)


def waiting_pods(queue: Collection[QueuedFacts], there: Collection[str]) -> Iterator[Pod]:
    """The pods that these Workloads will have, the oldest first; `there` are the uids of pods and of their owners."""
    left = _MOST_OF_ALL
    for each in sorted(queue, key=lambda one: (_NEVER if one.since is None else one.since, one.uid)):
        if each.owners.isdisjoint(there):
            for pod in _pods_of(each, min(left, _MOST_PODS)):
                left -= 1
                yield pod


def _pods_of(queued: QueuedFacts, most: int) -> Iterator[Pod]:
    """Yield those of one Workload, as many as are asked for at most."""
    count = sum(each.count for each in queued.wanted)
    own = Workload(namespace=queued.namespace, kind="Workload", name=queued.name, uid=queued.uid)
    made = 0
    for each in queued.wanted:
        for number in range(each.count):
            if made >= most:
                return
            made += 1
            yield Pod(
                namespace=queued.namespace,
                name=f"{queued.name}-{each.name}-{number}",
                uid=f"{queued.uid}/{each.name}/{number}",
                phase=PodPhase.PENDING,
                workload=own,
                gpus=each.gpus,
                created_at=queued.since,
                placement=each.placement,
                group=f"{queued.namespace}/{queued.uid}" if count > 1 else None,
            )


class Queue:
    """Kueue's Workloads, followed once the cluster has some."""

    def __init__(self, api: Api, clock: Clock, silence_seconds: float, gpu_resources: Sequence[str]) -> None:
        """Nothing is asked yet."""
        self._api, self._clock = api, clock
        self._resources = gpu_resources
        self._kept = OptionalWatch(api, clock, _KIND, self._read, silence_seconds=silence_seconds)
        self._refusals: dict[str, tuple[str | None, float]] = {}

    def follow(self, wait_seconds: float) -> None:
        """Begin to follow them, where the cluster has Kueue."""
        self._kept.begin(wait_seconds)

    def pods(self, there: Collection[str]) -> tuple[Pod, ...]:
        """The pods that wait in it; what it showed last also while it is silent, for that keeps nodes."""
        return tuple(waiting_pods(self._kept.all(), there))

    def versions(self) -> tuple[str, ...]:
        """The version in which its Workloads are followed; empty where there is no Kueue."""
        return () if self._kept.version is None else (self._kept.version,)

    @property
    def jobs(self) -> frozenset[str]:
        """The uids of all that Kueue manages, as far as its Workloads are known."""
        return frozenset(uid for each in self._kept.all() for uid in each.owners)

    def why_not_stopped(self, namespace: str) -> str | None:
        """Why no job of a namespace can be stopped by its Workload, as a clause; asked once in five minutes."""
        found, until = self._refusals.get(namespace, (None, 0.0))
        now = self._clock.monotonic()
        if now < until:
            return found
        try:
            may = may_patch(self._api, GROUP, "workloads", namespace)
        except CloudError as error:
            return f"nobody knows whether gpuwatch may change Kueue's Workloads there: {error}"
        found = None if may else _NO_RIGHT.format(namespace)
        self._refusals[namespace] = (found, now + AGAIN_SECONDS)
        return found

    def close(self) -> None:
        """Follow nothing any more."""
        self._kept.close()

    def _read(self, item: bytes) -> QueuedFacts | None:
        try:
            return queued_facts(_QUEUED.decode(item), self._resources)
        except UNREADABLE as error:
            _LOG.info("A Workload of Kueue cannot be read: %s", error)
            return None
