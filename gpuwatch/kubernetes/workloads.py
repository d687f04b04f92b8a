"""Workloads one by one: what they are now, the notice on them, and the end of their pods.

An object is changed only as it was read a moment before (`resourceVersion`, uid): if somebody scaled it since, nothing
is done. What was there before is written first, so that people can undo it with kubectl alone. Replicas go by the
subresource `scale`, for the role lets the controller change nothing else of a specification: while the object has the
generation that was written with the marks, it was not scaled.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, field

from gpuwatch.clouds.errors import CloudError, CloudUnavailableError, NotFoundError, PermitExpiredError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.changes import evict
from gpuwatch.kubernetes.client import MERGE, Api
from gpuwatch.kubernetes.errors import CONFLICT, refusal, status_of
from gpuwatch.kubernetes.facts import keeping_annotations, time_of
from gpuwatch.kubernetes.marks import protection
from gpuwatch.kubernetes.objects import ObjectMeta
from gpuwatch.model.bounds import BoundedInt
from gpuwatch.model.kubernetes import (
    RELEASED_BY,
    RELEASED_GENERATION,
    REPLICAS_BEFORE,
    SNOOZE_UNTIL,
    STOP_AT,
    Drain,
    Pod,
    Target,
    WorkloadNow,
)
from gpuwatch.model.workload_kinds import (
    BY_LABEL,
    DEACTIVATE,
    KINDS,
    KUBEFLOW_STOPPED,
    QUEUE_LABEL,
    WorkloadKind,
    suspension,
)
from gpuwatch.policies.kubernetes.workload_words import ended_note

log = logging.getLogger(__name__)

_GOOD = range(200, 300)
_MANAGER = {"fieldManager": "gpuwatch"}
# Where the objects of each kind are; the namespace stands between.
_PLACES = {
    **{each.label: (f"/apis/{each.group}/{each.version}", each.resource) for each in KINDS if each.actions},
    "Pod": ("/api/v1", "pods"),
}
KUEUE, _JOB_UID = "kueue.x-k8s.io", "kueue.x-k8s.io/job-uid"
_POD = WorkloadKind(kind="Pod", group="", resource="pods", by="Kubernetes", evicted=True)
_NOTE_BYTES = (
    1024  # of an Event's message: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
)


class _Retention(Struct, rename="camel"):
    """What becomes of a StatefulSet's volumes: Retain, or Delete with the pod."""

    when_scaled: str = "Retain"


class _RunPolicy(Struct):
    """What of a training job says whether it runs."""

    suspend: bool | None = None


class _Spec(Struct, rename="camel"):
    """What of a workload says how many pods it wants, and what goes with them."""

    replicas: BoundedInt | None = None
    suspend: bool | None = None
    run_policy: _RunPolicy | None = None
    shutdown_after_job_finishes: bool | None = None
    cluster_selector: dict[str, str] | None = None
    parallelism: BoundedInt | None = None
    retention: _Retention | None = field(name="persistentVolumeClaimRetentionPolicy", default=None)


class _Object(Struct):
    """A workload of any kind."""

    metadata: ObjectMeta
    spec: _Spec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiWorkloads:
    """The workloads of one cluster; see `gpuwatch.kubernetes.Workloads`. `pods_in` are those of a namespace, now."""

    api: Api
    now: Callable[[], datetime]
    pods_in: Callable[[str], tuple[Pod, ...]]
    kueue_versions: Callable[[], Iterable[str]] = tuple  # that the API server serves

    def workload(self, target: Target) -> WorkloadNow | None:
        """The object and its pods, asked now."""
        try:
            read = self._read(target)
        except NotFoundError:
            return None
        annotations = read.metadata.annotations or {}
        return WorkloadNow(
            target=target,
            wants=_wants(target.kind, read),
            pods=tuple(pod for pod in self.pods_in(target.namespace) if pod.workload.uid == target.uid),
            released_by=None if _only_marked(read) else annotations.get(RELEASED_BY),
            stop_at=time_of(annotations.get(STOP_AT)),
        )

    def announce(self, target: Target, key: str, stop_at: datetime | None, note: str, *, permit: Permit) -> None:
        """The annotation, then the Event; either may be there already."""
        read = self._read(target)
        if stop_at is not None:
            self._keeps_volumes(target, read)
            _may_be_suspended(target, read)
        told = None if stop_at is None else _text(stop_at)
        if (read.metadata.annotations or {}).get(STOP_AT) != told:
            self._patch(target, read, {}, {STOP_AT: told}, permit)
        self._event(target, key, note, permit, reason="GPUsKept" if stop_at is None else "GPUsWithoutUse")

    def release(self, target: Target, how: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """The marks and its end, or an eviction of each pod."""
        read = self._read(target)
        annotations = read.metadata.annotations or {}
        if (why := _why_kept(keeping_annotations(read.metadata), str(target), self.now())) is not None:
            raise ProtectedError(f"{target} is kept: {why}", code="Kept")
        kind = BY_LABEL.get(target.kind, _POD)
        if how == "delete" and kind.evicted:
            return self._delete(target, frozenset(pods), permit)
        wants = _wants(target.kind, read)
        begun = annotations.get(RELEASED_BY) == key and not _only_marked(read)
        if wants == 0 or (begun and how != DEACTIVATE):  # there the marks come first, and end nothing
            return Drain()
        marks: dict[str, str | None] = {RELEASED_BY: key, STOP_AT: None}
        if how == "scale-to-zero" and kind.scaled:
            self._keeps_volumes(target, read)
            # With the marks on it; a Deployment's counts its annotations, too.
            generation = read.metadata.generation + (target.kind == "Deployment")
            marks |= {REPLICAS_BEFORE: str(wants), RELEASED_GENERATION: str(generation)}
            marked = self._patch(target, read, {}, marks, permit)
            scale = {"metadata": {"resourceVersion": marked.metadata.resource_version}, "spec": {"replicas": 0}}
            self._change(target, "/scale", scale, permit)
        elif how == "stop" and kind.stopped_by:
            value = _text(self.now()) if kind.stopped_by == KUBEFLOW_STOPPED else "true"
            self._patch(target, read, {}, {**marks, kind.stopped_by: value}, permit)
        elif how == DEACTIVATE and kind.suspend:
            self._deactivate(target, read, marks, permit)
        elif how == "stop" and kind.suspend:
            if QUEUE_LABEL in keeping_annotations(read.metadata):
                raise ProtectedError(f"{target} is kept: Kueue owns its suspension", code="Kept")
            _may_be_suspended(target, read)
            self._patch(target, read, suspension(kind, suspended=True), marks, permit)
        else:
            raise CloudError(f"a {target.kind} cannot be asked to {how}", code="Unsupported")
        self._tell_end(target, how, wants, key, permit)
        return Drain()

    def _deactivate(self, target: Target, read: _Object, marks: dict[str, str | None], permit: Permit) -> None:
        """Stop a job by its Workload of Kueue, which then suspends it, and resumes it once it is active again.

        Raises:
            ProtectedError: no such Workload is there.
            CloudError: it was not accepted.

        """
        version = next(iter(self.kueue_versions()), None)
        path = f"/apis/{KUEUE}/{version}/namespaces/{target.namespace}/workloads"
        query = {"labelSelector": f"{_JOB_UID}={target.uid}"}
        pages = () if version is None else self.api.pages(path, query)
        found = [msgspec.json.decode(item, type=_Object) for page in pages for item in page.items or ()]
        if len(found) != 1:
            raise ProtectedError(f"{target} is kept: {len(found)} Workloads of Kueue are of it", code="Kept")
        self._patch(target, read, {}, marks, permit)
        its = found[0].metadata
        body = {"metadata": {"resourceVersion": its.resource_version, "uid": its.uid}, "spec": {"active": False}}
        code, answer = self.api.change(
            "PATCH", f"{path}/{its.name}", body, permit=permit, content_type=MERGE, query=_MANAGER
        )
        if code not in _GOOD:
            raise refusal(f"patch of the Workload {its.name} of {target}", status_of(code, answer))

    def _tell_end(self, target: Target, how: str, wanted: int | None, key: str, permit: Permit) -> None:
        """An Event with the way back; what has happened has happened, whether or not it can be written."""
        try:
            self._event(target, key, ended_note(target, how, wanted), permit, reason="GPUsReleased")
        except (CloudError, PermitExpiredError) as error:
            log.warning("%s has no event about its end: %s", target, error)

    def _keeps_volumes(self, target: Target, read: _Object) -> None:
        """Volumes that go with the pods go with consent only.

        Raises:
            ProtectedError: nobody has given them up.

        """
        retention = None if read.spec is None else read.spec.retention
        if target.kind != "StatefulSet" or retention is None or retention.when_scaled != "Delete":
            return
        its = [pod for pod in self.pods_in(target.namespace) if pod.workload.uid == target.uid]
        if not its or not all(pod.loses_local_data for pod in its):
            why = "its persistentVolumeClaimRetentionPolicy would delete its volumes (whenScaled: Delete)"
            raise ProtectedError(f"{target} is kept: {why}", code="Kept")

    def _delete(self, target: Target, uids: frozenset[str], permit: Permit) -> Drain:
        """Each pod by the eviction API, so that budgets hold and no right to delete is needed."""
        there = [pod for pod in self.pods_in(target.namespace) if pod.workload.uid == target.uid]
        asked: list[str] = []
        refused: dict[str, str] = {}
        gone = 0
        for pod in (pod for pod in there if pod.uid in uids):
            if pod.local_data is not None and not pod.loses_local_data:
                refused[str(pod)] = f"its volume {pod.local_data} would be lost"
                continue
            try:
                why, went = evict(self.api, pod, permit)
            except PermitExpiredError as error:
                if not asked and not refused:
                    raise
                why, went = f"not asked: {error}", False
            gone += went
            if why is None:
                asked.append(str(pod))
            else:
                refused[str(pod)] = why
        return Drain(evicted=tuple(asked), refused=refused, left=len(there) - gone)

    def _read(self, target: Target) -> _Object:
        """The object of that uid; raises CloudError."""
        read = self.api.get(_path(target), _Object)
        if read.metadata.uid != target.uid:
            raise NotFoundError(f"{target} is another object now", code="NotFound")
        return read

    def _patch(
        self,
        target: Target,
        read: _Object,
        spec: Mapping[str, object],
        annotations: Mapping[str, str | None],
        permit: Permit,
    ) -> _Object:
        """A merge patch of the object as it was read, and what it is then; raises as `release`."""
        about = {"resourceVersion": read.metadata.resource_version, "uid": read.metadata.uid}
        body: dict[str, object] = {"metadata": {"annotations": dict(annotations), **about}}
        if spec:
            body["spec"] = dict(spec)
        answer = self._change(target, "", body, permit)
        try:
            return msgspec.json.decode(answer, type=_Object)
        except msgspec.MsgspecError as error:
            raise CloudUnavailableError(f"the answer to the patch of {target} is no object: {error}") from error

    def _change(self, target: Target, subresource: str, body: Mapping[str, object], permit: Permit) -> bytes:
        """The answer to a merge patch; raises as `release`."""
        path = f"{_path(target)}{subresource}"
        code, answer = self.api.change("PATCH", path, body, permit=permit, content_type=MERGE, query=_MANAGER)
        if code not in _GOOD:
            raise refusal(f"patch of {target}{subresource}", status_of(code, answer))
        return answer

    def _event(self, target: Target, key: str, note: str, permit: Permit, *, reason: str) -> None:
        """An Event of its own name for each key: one that is there already was made by an earlier attempt."""
        moment = _text(self.now())
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{target.name}.{key}"[:253].lower(), "namespace": target.namespace},
            "involvedObject": {
                "apiVersion": _PLACES[target.kind][0].removeprefix("/apis/").removeprefix("/api/"),
                "kind": target.kind,
                "namespace": target.namespace,
                "name": target.name,
                "uid": target.uid,
            },
            "reason": reason,
            "message": note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
            "type": "Normal" if reason == "GPUsKept" else "Warning",
            "source": {"component": "gpuwatch"},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        path = f"/api/v1/namespaces/{target.namespace}/events"
        code, answer = self.api.change("POST", path, body, permit=permit)
        if code not in _GOOD and code != CONFLICT:
            raise refusal(f"event on {target}", status_of(code, answer))


def _path(target: Target) -> str:
    """Where the object is.

    Raises:
        CloudError: gpuwatch ends nothing of its kind.

    """
    if target.kind not in _PLACES:
        raise CloudError(f"gpuwatch ends no pods of the kind {target.kind}", code="Unsupported")
    base, plural = _PLACES[target.kind]
    return f"{base}/namespaces/{target.namespace}/{plural}/{target.name}"


def _wants(kind: str, read: _Object) -> int | None:
    """How many pods it is to have."""
    spec, its = read.spec or _Spec(), BY_LABEL.get(kind, _POD)
    if its.scaled:
        return 1 if spec.replicas is None else spec.replicas
    if its.stopped_by:
        value = (read.metadata.annotations or {}).get(its.stopped_by)
        return 0 if value is not None and (value == "true" or its.stopped_by == KUBEFLOW_STOPPED) else 1
    if its.suspend:
        suspended = spec.suspend or (spec.run_policy is not None and spec.run_policy.suspend)
        return 0 if suspended else 1 if kind != "Job" or spec.parallelism is None else spec.parallelism
    return None


def _may_be_suspended(target: Target, read: _Object) -> None:
    """KubeRay gives up a RayJob that it cannot suspend.

    Raises:
        ProtectedError: it is such a one.

    """
    spec = read.spec or _Spec()
    if target.kind == "RayJob" and (not spec.shutdown_after_job_finishes or spec.cluster_selector):
        why = "KubeRay suspends only a RayJob with shutdownAfterJobFinishes and a cluster of its own"
        raise ProtectedError(f"{target} is kept: {why}", code="Kept")


def _only_marked(read: _Object) -> bool:
    """Whether the marks of a scale are on it, and it was not scaled: a change of the specification counts one up."""
    return (read.metadata.annotations or {}).get(RELEASED_GENERATION) == str(read.metadata.generation)


def _why_kept(annotations: Mapping[str, str], whose: str, now: datetime) -> str | None:
    """Why the object's own annotations keep it, as a clause. One that cannot be read keeps it."""
    if (why := protection(annotations, whose, now)) is not None:
        return why
    if SNOOZE_UNTIL not in annotations:
        return None
    until = time_of(annotations[SNOOZE_UNTIL].strip())
    return f"its annotation {SNOOZE_UNTIL} snoozes it" if until is None or until > now else None


def _text(moment: datetime) -> str:
    """As Kubernetes writes times."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
