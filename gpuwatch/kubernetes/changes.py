"""Changes of nodes: cordon, uncordon, eviction. Each goes out once, under its permit, and says what it rests on.

A node is changed only as it was read a moment before (`resourceVersion`): if somebody changed it since, nothing is
done. An eviction names the pod's uid, so that a pod of the same name that came since stays.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from gpuwatch.clouds.errors import (
    PermitExpiredError,
    ProtectedError,
)
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.calls import MARKS, NODES
from gpuwatch.kubernetes.client import MERGE, Api
from gpuwatch.kubernetes.errors import CONFLICT, NOT_FOUND, TOO_MANY, Status, refusal, status_of
from gpuwatch.kubernetes.facts import node_facts
from gpuwatch.kubernetes.marks import kept_by
from gpuwatch.kubernetes.objects import NodeObject, Taint
from gpuwatch.model.kubernetes import CORDONED_AT, CORDONED_BY, MARKED_BY, UNHEALTHY, Drain, KubernetesNode, Pod

_GOOD = range(200, 300)
_MANAGER = {"fieldManager": "gpuwatch"}  # who is named in the object's managedFields
# Refusals of one pod, in the API server's words: several budgets, a webhook that says no, one that does not answer, an
# admission policy, and a namespace that is being deleted.
_NOT_NOW = (
    *("more than one PodDisruptionBudget", "admission webhook", "failed calling webhook"),
    *("denied request", "because it is being terminated"),
)


def cordon(api: Api, name: str, key: str, *, permit: Permit, now: datetime, taint: bool) -> None:
    """Cordon a node; see `Cluster.cordon`."""
    read = api.get(f"{NODES}/{name}", NodeObject)
    node = node_facts(read, ())
    ours = node.annotations.get(CORDONED_BY)
    if node.unschedulable and ours == key:
        return
    if node.unschedulable:
        whose = f"an earlier decision of gpuwatch ({ours})" if ours else "somebody else"
        raise ProtectedError(f"the node {name} is cordoned by {whose}", code="Cordoned")
    keeps = kept_by(node, now)
    if keeps is not None:
        raise ProtectedError(f"the node {name} is kept: {keeps}", code="Kept")
    annotations = {CORDONED_BY: key, CORDONED_AT: f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    spec: dict[str, object] = {"unschedulable": True}
    if taint:
        unhealthy = Taint(key=UNHEALTHY, value=key, effect="NoSchedule")
        spec["taints"] = msgspec.to_builtins([*_other_taints(read), unhealthy])
    _patch(api, read, spec, annotations, permit)


def uncordon(api: Api, name: str, key: str) -> None:
    """Undo a cordon; see `Cluster.uncordon`."""
    read = api.get(f"{NODES}/{name}", NodeObject)
    node = node_facts(read, ())
    if node.annotations.get(CORDONED_BY) != key:
        return
    # Where somebody has let pods onto it since, our marks alone are left to take away.
    spec: dict[str, object] = {"unschedulable": None}
    if any(each.key == UNHEALTHY and each.value == key for each in _taints(read)):
        spec["taints"] = msgspec.to_builtins(_other_taints(read)) or None
    _patch(api, read, spec, {CORDONED_BY: None, CORDONED_AT: None}, None)


def mark(api: Api, name: str, owner: str, key: str, *, permit: Permit) -> None:
    """Set a mark on a node; see `Cluster.mark`."""
    read = api.get(f"{NODES}/{name}", NodeObject)
    annotations = read.metadata.annotations or {}
    if annotations.get(MARKED_BY) == key:
        return
    if MARKED_BY in annotations or MARKS[owner] in annotations:
        raise ProtectedError(f"the node {name} is marked by somebody else", code="Marked")
    _patch(api, read, {}, {MARKS[owner]: "true", MARKED_BY: key}, permit)


def unmark(api: Api, name: str, key: str) -> None:
    """Take a mark off a node; see `Cluster.unmark`."""
    read = api.get(f"{NODES}/{name}", NodeObject)
    annotations = read.metadata.annotations or {}
    if annotations.get(MARKED_BY) == key:
        gone = dict.fromkeys(each for each in MARKS.values() if annotations.get(each) == "true")
        _patch(api, read, {}, {**gone, MARKED_BY: None}, None)


def _taints(read: NodeObject) -> list[Taint]:
    """All of a node's."""
    return (read.spec.taints if read.spec is not None else None) or []


def _other_taints(read: NodeObject) -> list[Taint]:
    """All but gpuwatch's own: a patch writes the whole list."""
    return [each for each in _taints(read) if each.key != UNHEALTHY]


def drain(api: Api, node: KubernetesNode, uids: frozenset[str], *, permit: Permit) -> Drain:
    """See `Cluster.drain`; `node` was read a moment before."""
    if node.cordoned_by is None:
        raise ProtectedError(f"the node {node.name} does not carry our cordon", code="NotCordoned")
    there = {pod.uid: pod for pod in node.to_drain}
    evictions = Evictions(api, permit)
    for uid in sorted(uids):
        pod = there.get(uid)
        if pod is None:
            continue  # it has gone, or a drain leaves it
        if pod.ends_at is not None:
            evictions.evicted.append(str(pod))
        else:
            evictions.ask(pod, lost=pod.loses)
    return evictions.outcome(len(there))


class Evictions:
    """Pods that are asked to go, one after the other, and what the API server answers."""

    def __init__(self, api: Api, permit: Permit) -> None:
        """Nothing is asked yet."""
        self.evicted: list[str] = []
        self._refused: dict[str, str] = {}
        self._gone = 0
        self._api, self._permit = api, permit

    def ask(self, pod: Pod, *, lost: str | None) -> None:
        """Ask for the eviction of a pod, unless a volume would be `lost` with it.

        Raises:
            CloudError: it is not known, or nobody may evict.
            PermitExpiredError: there was no time to ask for any pod.

        """
        if lost is not None:
            self._refused[str(pod)] = f"its volume {lost} would be lost"
            return
        try:
            why, went = evict(self._api, pod, self._permit)
        except PermitExpiredError as error:
            if not self.evicted and not self._refused:
                raise
            why, went = f"not asked: {error}", False
        self._gone += went
        if why is None:
            self.evicted.append(str(pod))
        else:
            self._refused[str(pod)] = why

    def outcome(self, there: int) -> Drain:
        """What became of the attempt, where so many pods were there before it."""
        return Drain(evicted=tuple(self.evicted), refused=self._refused, left=there - self._gone)


def evict(api: Api, pod: Pod, permit: Permit) -> tuple[str | None, bool]:
    """Why a pod stays, and whether it has gone already.

    Raises:
        CloudError: it is not known, or nobody may evict.

    """
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    code, answer = api.change("POST", path, body, permit=permit)
    if code in _GOOD:
        return None, False
    status = status_of(code, answer)
    if code == NOT_FOUND or (code == CONFLICT and "uid" in status.message.lower()):
        return None, True
    if code in {TOO_MANY, CONFLICT} or any(each in status.message for each in _NOT_NOW):
        return _refusal_text(status), False
    raise refusal(f"eviction of {pod}", status)


def _refusal_text(status: Status) -> str:
    """A refusal as the API server words it, with the budget's name."""
    causes = [cause.message for cause in (status.details and status.details.causes) or () if cause.message]
    return " ".join([status.message or f"HTTP {status.code}", *causes])


def _patch(
    api: Api, read: NodeObject, spec: dict[str, object], annotations: Mapping[str, str | None], permit: Permit | None
) -> None:
    """A merge patch of the node as it was read.

    Raises:
        PermitExpiredError: nothing was sent.
        NotFoundError: it is gone.
        CloudUnavailableError: nobody knows whether it was accepted.
        CloudError: it was not accepted; a conflict means that somebody changed it meanwhile.

    """
    name = read.metadata.name
    metadata = {"annotations": annotations, "resourceVersion": read.metadata.resource_version, "uid": read.metadata.uid}
    code, answer = api.change(
        "PATCH",
        f"{NODES}/{name}",
        {"metadata": metadata, "spec": spec},
        permit=permit,
        content_type=MERGE,
        query=_MANAGER,
    )
    if code not in _GOOD:
        raise refusal(f"patch of the node {name}", status_of(code, answer))
