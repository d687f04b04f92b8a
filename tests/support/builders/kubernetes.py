"""Objects of Kubernetes as a kubelet, a scheduler and controllers leave them, in the form of the API.

The same dictionaries go to a real API server (`tests/support/real/kubernetes.py`) and to what reads its answers.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
_MOMENT = "2026-11-23T12:00:00Z"
GPU = "nvidia.com/gpu"
UNAPPROVED = "unapproved, a test"
_ALLOCATABLE = {"cpu": "96", "memory": "1000Gi", "ephemeral-storage": "500Gi", "pods": "110"}


def node_object(
    name: str,
    *,
    gpus: int = 8,
    provider_id: str = "",
    ready: bool = True,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: object,
) -> Object:
    """A node that its kubelet has registered, with what NVIDIA's device plugin and GPU feature discovery add to it."""
    offered = {**_ALLOCATABLE, **({GPU: str(gpus)} if gpus else {})}
    found = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": str(gpus)} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **found, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {**({"providerID": provider_id} if provider_id else {}), **spec},
        "status": {"capacity": offered, "allocatable": offered, "conditions": [_ready(ready)]},
    }


def api_slice_object(*addresses: str) -> Object:
    """The EndpointSlice that API servers keep of themselves."""
    labels = {"kubernetes.io/service-name": "kubernetes"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": list(addresses)}],
    }


def pod_object(  # noqa: PLR0913  each is a fact of its own
    namespace: str,
    name: str,
    *,
    node: str | None = None,
    gpus: int = 0,
    phase: str = "Running",
    owner: Object | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,  # noqa: ANN401  whatever a pod's spec may have
) -> Object:
    """A pod on a node, or one that waits for one; `volumes` are mounted. `owner`: whose controller made it."""
    limits = {GPU: str(gpus)} if gpus else {}
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in spec.get("volumes", ())]
    container = {"name": "main", "image": "example.com/work", "resources": {"limits": limits}, "volumeMounts": mounts}
    owners = {"ownerReferences": [reference(owner)]} if owner else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            **owners,
        },
        "spec": {
            "containers": [container],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": _pod_status(phase if node else "Pending"),
    }


def deployment_object(namespace: str, name: str, *, annotations: Mapping[str, str] | None = None) -> Object:
    """A Deployment whose pods have the label `app` with its name."""
    return _workload("apps/v1", "Deployment", namespace, name, annotations)


def replica_set_object(namespace: str, name: str, *, owner: Object | None = None) -> Object:
    """The ReplicaSet that stands between a Deployment and its pods."""
    made = _workload("apps/v1", "ReplicaSet", namespace, name, None)
    if owner:
        made["metadata"]["ownerReferences"] = [reference(owner)]
    return made


def stateful_set_object(namespace: str, name: str, *, annotations: Mapping[str, str] | None = None) -> Object:
    """A StatefulSet."""
    made = _workload("apps/v1", "StatefulSet", namespace, name, annotations)
    made["spec"]["serviceName"] = name
    return made


def daemon_set_object(namespace: str, name: str) -> Object:
    """A DaemonSet."""
    return _workload("apps/v1", "DaemonSet", namespace, name, None)


def replication_controller_object(namespace: str, name: str) -> Object:
    """What ReplicaSets have replaced, and some clusters still have."""
    made = _workload("v1", "ReplicationController", namespace, name, None)
    return {**made, "spec": {**made["spec"], "selector": {"app": name}}}


def job_object(
    namespace: str, name: str, *, owner: Object | None = None, annotations: Mapping[str, str] | None = None
) -> Object:
    """A Job of one pod."""
    owners = {"ownerReferences": [reference(owner)]} if owner else {}
    metadata = {"name": name, "namespace": namespace, "annotations": dict(annotations or {}), **owners}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": _job_spec(name)}


def cron_job_object(namespace: str, name: str) -> Object:
    """A CronJob."""
    spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": _job_spec(name)}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


def custom_kind(group: str, kind: str, plural: str, version: str = "v1") -> Object:
    """A kind of another system, whose objects may have any fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Kubernetes' own groups, such as sparkoperator.k8s.io, take no definition without that annotation.
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": UNAPPROVED}},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def custom_object(
    group: str,
    kind: str,
    namespace: str,
    name: str,
    *,
    annotations: Mapping[str, str] | None = None,
    version: str = "v1",
    spec: Object | None = None,
) -> Object:
    """An object of such a kind."""
    metadata = {"name": name, "namespace": namespace, "annotations": dict(annotations or {})}
    more = {} if spec is None else {"spec": spec}
    return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": metadata, **more}


def replica_object(namespace: str, volume: str, node: str, number: int = 0) -> Object:
    """A replica of a volume on a node, as Longhorn's manager makes it."""
    spec = {"nodeID": node, "volumeName": volume, "healthyAt": _MOMENT, "failedAt": "", "active": True}
    name = f"{volume}-r-{number}"
    return custom_object("longhorn.io", "Replica", namespace, name, version="v1beta2", spec=spec)


def queued_object(  # noqa: PLR0913  each is a fact of its own
    namespace: str,
    name: str,
    *,
    count: int = 1,
    gpus: int = 8,
    active: bool = True,
    owner: Object | None = None,
    conditions: Mapping[str, str] | None = None,
    message: str = "",
    version: str = "v1beta1",
    **spec: Any,  # noqa: ANN401  whatever a pod's spec may have
) -> Object:
    """A Workload of Kueue that asks for so many pods; each of its conditions is True, or False with a reason."""
    pod = pod_object(namespace, name, gpus=gpus, **spec)
    owners = {"ownerReferences": [reference(owner)]} if owner else {}
    told = [
        {
            "type": kind,
            "status": "True" if value == "True" or kind in {"Evicted", "Finished"} else "False",
            "reason": value,
            "message": message,
            "lastTransitionTime": _MOMENT,
        }
        for kind, value in (conditions or {}).items()
    ]
    labels = {"kueue.x-k8s.io/job-uid": owner["metadata"]["uid"]} if owner else {}
    metadata = {"name": name, "namespace": namespace, "labels": labels, **owners}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {
            "active": active,
            "queueName": "gpus",
            "podSets": [{"name": "main", "count": count, "template": {"spec": pod["spec"]}}],
        },
        "status": {"conditions": told},
    }


def budget_object(namespace: str, name: str, *, app: str, allowed: int) -> Object:
    """A PodDisruptionBudget as its controller leaves it, with so many evictions to give."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": allowed + 1,
            "desiredHealthy": 1,
            "expectedPods": allowed + 1,
        },
    }


def reference(owner: Object) -> Object:
    """An owner reference to an object that the API server has made."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def heartbeat(*, ready: bool = True, at: datetime | None = None) -> Object:
    """A merge patch of a node's status: the condition that its kubelet renews, or that the controller sets for it."""
    moment = _MOMENT if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"status": {"conditions": [{**_ready(ready), "lastHeartbeatTime": moment}]}}


def _ready(ready: bool) -> Object:
    told = ("True", "KubeletReady", "") if ready else ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting.")
    return {
        "type": "Ready",
        "status": told[0],
        "reason": told[1],
        "message": told[2],
        "lastHeartbeatTime": _MOMENT,
        "lastTransitionTime": _MOMENT,
    }


def _pod_status(phase: str) -> Object:
    if phase == "Pending":
        told = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"0/3 nodes are available: 3 Insufficient {GPU}.",
            "lastTransitionTime": _MOMENT,
        }
        return {"phase": phase, "conditions": [told]}
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False", "lastTransitionTime": _MOMENT}
    return {"phase": phase, "startTime": _MOMENT, "conditions": [ready]}


def _job_spec(name: str) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work"}]}
    return {"template": {"metadata": {"labels": {"app": name}}, "spec": pod}}


def _workload(version: str, kind: str, namespace: str, name: str, annotations: Mapping[str, str] | None) -> Object:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "example.com/work"}]},
    }
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }
