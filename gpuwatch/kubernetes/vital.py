"""Which nodes their cluster, or gpuwatch itself, cannot do without: a control plane, and our own controller's.

A control plane shows in any of four things, for each is missing somewhere. These are the node's role (labels, and the
taints that kubeadm leaves where people take the labels away), its static pods, the pods of a DaemonSet that say so, and
the addresses at which the cluster's API is served.
"""

from collections.abc import Collection, Iterable

from gpuwatch.kubernetes.endpoints import ApiAddresses
from gpuwatch.kubernetes.facts import NodeFacts, PodFacts
from gpuwatch.model.kubernetes import Pod

_ROLE = "node-role.kubernetes.io/"
# kubeadm, RKE2, k3s: control-plane, etcd; OpenShift and older ones: master; RKE 1: controlplane; kops: api-server.
_ROLES = frozenset({"control-plane", "controlplane", "master", "etcd", "api-server", "apiserver"})
_OTHER_LABELS = {
    "kubernetes.io/role": frozenset({"master", "control-plane"}),  # kops, and installers of that age
    "node.kubernetes.io/microk8s-controlplane": frozenset({"microk8s-controlplane"}),
}
_COMPONENTS = frozenset({"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"})
_COMPONENT_LABELS = ("component", "k8s-app", "app", "app.kubernetes.io/name")
_NAME = "app.kubernetes.io/name"
# The labels of our chart, and of the kustomize base.
_OURS = {_NAME: "gpuwatch", "app.kubernetes.io/component": "controller"}


def vital_clause(pod: PodFacts, own_uids: Collection[str], *, daemon: bool) -> str | None:
    """Why the node of a pod is vital, as a clause; None: this pod is no reason."""
    name = f"{pod.namespace}/{pod.name}"
    if _is_own(pod, own_uids):
        return f"gpuwatch's own controller runs there ({name})"
    return f"the pod {name} is part of the control plane" if _is_control_plane_part(pod, daemon=daemon) else None


def why_vital(node: NodeFacts, pods: Iterable[Pod], api: ApiAddresses) -> str | None:
    """Why nobody may empty a node, as a clause; None: it is a worker."""
    for key, value in sorted(node.labels.items()):
        if _is_role(key) or value in _OTHER_LABELS.get(key, ()):
            return f"its label {key} says that it serves the control plane"
    for taint in node.taints:
        if _is_role(taint.key):
            return f"its taint {taint.key} says that it serves the control plane"
    said = next((pod.vital for pod in pods if pod.vital is not None), None)
    return said or api.why_vital(node.addresses)


def why_of_slurm(pod: PodFacts) -> str | None:
    """Why a pod stays that is a node of Slurm: Slinky and SUNK drain it there first, and a drain of ours would not."""
    its = pod.labels.get(_NAME) == "slurmd" or (pod.owner is not None and pod.owner.kind == "NodeSet")
    return "it is a node of Slurm, and its jobs end with it: scale it down in Slurm's own operator" if its else None


def _is_role(key: str) -> bool:
    return key.startswith(_ROLE) and key.removeprefix(_ROLE) in _ROLES


def _is_control_plane_part(pod: PodFacts, *, daemon: bool) -> bool:
    """Whether a pod is one of a control plane that goes with its node: of a drain it would not even be asked."""
    named = pod.mirror and any(pod.name == each or pod.name.startswith(f"{each}-") for each in _COMPONENTS)
    return named or (daemon and any(pod.labels.get(key) in _COMPONENTS for key in _COMPONENT_LABELS))


def _is_own(pod: PodFacts, own_uids: Collection[str]) -> bool:
    """Whether a pod is the controller that asks, or another one by the labels of the chart."""
    return pod.uid in own_uids or all(pod.labels.get(key) == value for key, value in _OURS.items())
