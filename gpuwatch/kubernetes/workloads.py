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

from gpuwatch.clouds.errors import CloudError, CloudUnavailableError, NotFoundError, PermitExpiredError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.changes import Evictions
from gpuwatch.kubernetes.client import MERGE, Api
from gpuwatch.kubernetes.errors import CONFLICT, refusal, status_of
from gpuwatch.kubernetes.facts import keeping_annotations, time_of
from gpuwatch.kubernetes.marks import protection
from gpuwatch.kubernetes.workload_objects import POD, WorkloadObject, check_suspendable, only_marked, wanted_pods
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
    KUBEFLOW_STOPPED,
    QUEUE_LABEL,
    WorkloadKind,
    suspension,
)
from gpuwatch.policies.kubernetes.workload_words import ended_note, why_not_ended

log = logging.getLogger(__name__)

_GOOD = range(200, 300)
_MANAGER = {"fieldManager": "gpuwatch"}
KUEUE, _JOB_UID = "kueue.x-k8s.io", "kueue.x-k8s.io/job-uid"
_NOTE_BYTES = (
    1024  # of an Event's message: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
)


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
            wants=wanted_pods(target.kind, read),
            pods=tuple(pod for pod in self.pods_in(target.namespace) if pod.workload.uid == target.uid),
            released_by=None if only_marked(read) else annotations.get(RELEASED_BY),
            stop_at=time_of(annotations.get(STOP_AT)),
        )

    def announce(self, target: Target, key: str, stop_at: datetime | None, note: str, *, permit: Permit) -> None:
        """The annotation, then the Event; either may be there already."""
        read = self._read(target)
        if stop_at is not None:
            self._keeps_volumes(target, read)
            check_suspendable(target, read)
        told = None if stop_at is None else _text(stop_at)
        if (read.metadata.annotations or {}).get(STOP_AT) != told:
            self._patch(target, read, {}, {STOP_AT: told}, permit)
        self._event(target, read, key, note, permit, reason="GPUsKept" if stop_at is None else "GPUsWithoutUse")

    def release(self, target: Target, how: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """The marks and its end, or an eviction of each pod."""
        read = self._read(target)
        annotations = read.metadata.annotations or {}
        if (why := _why_kept(keeping_annotations(read.metadata), str(target), self.now())) is not None:
            raise ProtectedError(f"{target} is kept: {why}", code="Kept")
        kind = BY_LABEL.get(target.kind, POD)
        if how == "delete" and kind.evicted:
            return self._delete(target, frozenset(pods), permit)
        wants = wanted_pods(target.kind, read)
        begun = annotations.get(RELEASED_BY) == key and not only_marked(read)
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
            self._change(target, read, "/scale", scale, permit)
        elif how == "stop" and kind.stopped_by:
            value = _text(self.now()) if kind.stopped_by == KUBEFLOW_STOPPED else "true"
            self._patch(target, read, {}, {**marks, kind.stopped_by: value}, permit)
        elif how == DEACTIVATE and kind.suspend:
            self._deactivate(target, read, marks, permit)
        elif how == "stop" and kind.suspend:
            if QUEUE_LABEL in keeping_annotations(read.metadata):
                raise ProtectedError(f"{target} is kept: Kueue owns its suspension", code="Kept")
            check_suspendable(target, read)
            self._suspend(target, read, kind, marks, permit)
        else:
            raise CloudError(f"a {target.kind} cannot be asked to {how}", code="Unsupported")
        self._tell_end(target, read, how, wants, key, permit)
        return Drain()

    def _suspend(
        self, target: Target, read: WorkloadObject, kind: WorkloadKind, marks: dict[str, str | None], permit: Permit
    ) -> None:
        """Set the field. An API server drops one that its definition of the kind does not have, and says nothing.

        Raises:
            ProtectedError: it was dropped; the object is as it was.

        """
        now = self._patch(target, read, suspension(kind, suspended=True), marks, permit)
        if wanted_pods(target.kind, now) != 0:
            self._patch(target, now, {}, dict.fromkeys(marks), permit)
            why = f"this cluster's definition of the kind has no spec.{kind.suspend}"
            raise ProtectedError(f"{target} is kept: {why}", code="Kept")

    def _deactivate(self, target: Target, read: WorkloadObject, marks: dict[str, str | None], permit: Permit) -> None:
        """Stop a job by its Workload of Kueue, which then suspends it, and resumes it once it is active again.

        Raises:
            ProtectedError: no such Workload is there.
            CloudError: it was not accepted.

        """
        version = next(iter(self.kueue_versions()), None)
        path = f"/apis/{KUEUE}/{version}/namespaces/{target.namespace}/workloads"
        query = {"labelSelector": f"{_JOB_UID}={target.uid}"}
        pages = () if version is None else self.api.pages(path, query)
        found = [msgspec.json.decode(item, type=WorkloadObject) for page in pages for item in page.items or ()]
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

    def _tell_end(
        self, target: Target, read: WorkloadObject, how: str, wanted: int | None, key: str, permit: Permit
    ) -> None:
        """An Event with the way back; what has happened has happened, whether or not it can be written."""
        try:
            self._event(target, read, key, ended_note(target, how, wanted), permit, reason="GPUsReleased")
        except (CloudError, PermitExpiredError) as error:
            log.warning("%s has no event about its end: %s", target, error)

    def _keeps_volumes(self, target: Target, read: WorkloadObject) -> None:
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
        evictions = Evictions(self.api, permit)
        for pod in (pod for pod in there if pod.uid in uids):
            evictions.ask(pod, lost=None if pod.loses_local_data else pod.local_data)
        return evictions.outcome(len(there))

    def _read(self, target: Target) -> WorkloadObject:
        """The object of that uid, in the first version that has it; raises CloudError."""
        first, *others = _versions(target)
        try:
            read = self.api.get(_path(target, first), WorkloadObject)
        except NotFoundError:
            if not others:
                raise
            read = self.api.get(_path(target, others[0]), WorkloadObject)
        if read.metadata.uid != target.uid:
            raise NotFoundError(f"{target} is another object now", code="NotFound")
        return read

    def _patch(
        self,
        target: Target,
        read: WorkloadObject,
        spec: Mapping[str, object],
        annotations: Mapping[str, str | None],
        permit: Permit,
    ) -> WorkloadObject:
        """A merge patch of the object as it was read, and what it is then; raises as `release`."""
        about = {"resourceVersion": read.metadata.resource_version, "uid": read.metadata.uid}
        body: dict[str, object] = {"metadata": {"annotations": dict(annotations), **about}}
        if spec:
            body["spec"] = dict(spec)
        answer = self._change(target, read, "", body, permit)
        try:
            return msgspec.json.decode(answer, type=WorkloadObject)
        except msgspec.MsgspecError as error:
            raise CloudUnavailableError(f"the answer to the patch of {target} is no object: {error}") from error

    def _change(
        self, target: Target, read: WorkloadObject, subresource: str, body: Mapping[str, object], permit: Permit
    ) -> bytes:
        """The answer to a merge patch; raises as `release`."""
        path = f"{_path(target, read.api_version)}{subresource}"
        code, answer = self.api.change("PATCH", path, body, permit=permit, content_type=MERGE, query=_MANAGER)
        if code not in _GOOD:
            raise refusal(f"patch of {target}{subresource}", status_of(code, answer))
        return answer

    def _event(self, target: Target, read: WorkloadObject, key: str, note: str, permit: Permit, *, reason: str) -> None:
        """An Event of its own name for each key: one that is there already was made by an earlier attempt."""
        moment = _text(self.now())
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{target.name}.{key}"[:253].lower(), "namespace": target.namespace},
            "involvedObject": {
                "apiVersion": read.api_version,
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


def _versions(target: Target) -> list[str]:
    """In which API versions its kind may be there.

    Raises:
        CloudError: gpuwatch ends nothing of its kind.

    """
    kind = POD if target.kind == POD.kind else BY_LABEL.get(target.kind)
    if kind is None or not kind.actions:
        raise CloudError(why_not_ended(target.kind), code="Unsupported")
    return [f"{kind.group}/{version}".lstrip("/") for version in kind.versions]


def _path(target: Target, version: str) -> str:
    """Where the object is."""
    base, kind = "apis" if "/" in version else "api", BY_LABEL.get(target.kind, POD)
    return f"/{base}/{version}/namespaces/{target.namespace}/{kind.resource}/{target.name}"


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
