"""PURE: nodes and pods in the form in which it is judged where pods fit (gpuwatch.policies.kubernetes.elsewhere)."""

from collections.abc import Iterable

from gpuwatch.kubernetes.claims import Disks
from gpuwatch.kubernetes.facts import NodeFacts, PodFacts
from gpuwatch.model.placing import NODE_NAME, Place, PlacedPod, Room

# Taints of nodes that are not up yet, or are about to go: a pod that bears all taints would not last there.
_PASSING = (
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/"),
    *("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node.cilium.io/", "gpuwatch.io/"),
)
# They say the same as the node's condition, some seconds later.
_AS_CONDITION = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_PASSING_PARTS = ("not-ready", "startup", "uninitialized", "shutdown", "termination", "interruption")


def room_of(nodes: Iterable[NodeFacts], pods: Iterable[PodFacts], disks: Disks) -> Room:
    """All of a cluster."""
    return Room(places=tuple(map(_make_place, nodes)), pods=tuple(_make_pod(pod, disks) for pod in pods))


def _make_place(node: NodeFacts) -> Place:
    taints = tuple(each for each in node.taints if not (node.ready and each.key in _AS_CONDITION))
    passes = any(
        taint.key.startswith(_PASSING) or any(part in taint.key for part in _PASSING_PARTS) for taint in taints
    )
    return Place(
        name=node.name,
        labels={**node.labels, NODE_NAME: node.name},
        taints=taints,
        offers=node.offers,
        closed=passes or node.unschedulable or node.ends or not node.ready,
    )


def _make_pod(pod: PodFacts, disks: Disks) -> PlacedPod:
    return PlacedPod(
        name=f"{pod.namespace}/{pod.name}",
        namespace=pod.namespace,
        uid=pod.uid,
        node=pod.node,
        labels=pod.labels,
        needs=pod.needs,
        disks=tuple(disks.disk(pod.namespace, claim) for _, claim in pod.claims),
        ends=pod.ends_at is not None,
    )
