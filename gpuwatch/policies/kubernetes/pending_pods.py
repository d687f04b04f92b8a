"""PURE: which pools the pods that wait for GPUs could run in: demand, by the scheduler's own rules on nodes.

Rules, all of them:

1. A pod fits a node if the node's labels have all of its selector, and all of one of its alternatives, and if it bears
   every taint that keeps pods away. The node offers as many GPUs as it wants, and the devices that it claims.
2. A cordon, and taints that Kubernetes, a cloud's controller, an autoscaler or gpuwatch set by themselves, count for
   nothing: another node of the pool would not have them.
3. A pod is demand of each pool of which it fits a node. Whether the node is free is the scheduler's to say.
4. A pool without a node object has no labels to go by: nothing is known to wait for it.
5. A pod may name its hosts, by the label kubernetes.io/hostname or the name of the node. Then these alone are asked.
"""

from collections.abc import Iterable

from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Pod
from gpuwatch.model.placing import HOSTNAME, NODE_NAME, Placement, Taint, Toleration, Wanted

_HOST = frozenset({HOSTNAME, NODE_NAME})
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_BY_ITSELF = (
    *("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "gpuwatch.io/"),
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/"),
)


def fits(pod: Pod, node: KubernetesNode) -> bool:
    """Rules 1 and 2."""
    placement = pod.placement or Placement()
    if pod.gpus > (node.gpus or 0.0):
        return False
    if not all(any(_has(node, each) for each in alternatives) for alternatives in placement.devices):
        return False
    if any(node.labels.get(key) != value for key, value in placement.selector.items()):
        return False
    labels = {**node.labels, NODE_NAME: node.name} if placement.alternatives else {}
    if placement.alternatives and not any(
        all(each.meets(labels) for each in terms) for terms in placement.alternatives if terms
    ):
        return False
    return all(_borne(taint, placement.tolerations) for taint in node.taints)


def is_bound(pod: Pod) -> bool:
    """Whether no other node would do than those that it names (rule 5)."""
    placement = pod.placement or Placement()
    named = [any(each.key in _HOST and each.operator == "In" for each in terms) for terms in placement.alternatives]
    return HOSTNAME in placement.selector or (bool(named) and all(named))


def _asks_for_hosts(pod: Pod) -> bool:
    """Whether nodes that are alike but for their names are not alike to it."""
    placement = pod.placement or Placement()
    asked = {*placement.selector, *(each.key for terms in placement.alternatives for each in terms)}
    return not asked.isdisjoint(_HOST)


def _has(node: KubernetesNode, wanted: Wanted) -> bool:
    """Whether a node has so many devices of that driver."""
    return node.devices.get(wanted.driver, 0.0) >= max(1.0, wanted.count)


def is_closed(node: KubernetesNode) -> bool:
    """Whether a taint of rule 2 keeps new pods off this very node, as it is now."""
    return any(taint.effect in _KEEPS_AWAY and taint.key.startswith(_BY_ITSELF) for taint in node.taints)


def waiting(fleet: Fleet, pool: str) -> tuple[Pod, ...]:
    """The pending pods that are demand of a pool."""
    cluster = fleet.cluster
    if cluster is None or not cluster.pending:
        return ()
    nodes = [node.kubernetes for node in fleet.roster(pool).nodes if node.kubernetes is not None]
    kinds = list({(_kind(node), node.cluster): node for node in nodes}.values())
    return tuple(
        pod
        for pod in cluster.pending
        if any(fits(pod, node) and is_of(pod, node, cluster) for node in (nodes if _asks_for_hosts(pod) else kinds))
    )


def awaits(node: Node, fleet: Fleet) -> int:
    """How surely pods wait for this very node: 2 if one names it, 1 if one could run on it, else 0."""
    known, view = node.kubernetes, fleet.cluster
    if known is None or view is None:
        return 0
    if any(is_bound(pod) and fits(pod, known) and is_of(pod, known, view) for pod in view.pending):
        return 2
    return int(any(fits(pod, known) and is_of(pod, known, view) for pod in view.pending))


def is_of(pod: Pod, node: KubernetesNode, view: ClusterView) -> bool:
    """Whether a pod that waits can come to a node of that cluster at all."""
    return not view.parts or view.home_of_pending.get(pod.uid) == node.cluster


def is_demand_known(fleet: Fleet, pool: str) -> bool:
    """Whether it is known which pods wait for a pool: it has nodes in a cluster, and the view of that is reliable."""
    return bool(homes(fleet, pool)) and trouble(fleet, pool) is None


def trouble(fleet: Fleet, pool: str) -> str | None:
    """Why the clusters of a pool's nodes cannot be relied on; of a pool without a node, any of them."""
    view = fleet.cluster
    if view is None or not view.parts:
        return None if view is None else view.trouble
    here = homes(fleet, pool)
    return next((each.trouble for each in view.parts if each.trouble and (not here or each.name in here)), None)


def homes(fleet: Fleet, pool: str) -> frozenset[str]:
    """The clusters that a pool has nodes in."""
    found = (node.kubernetes for node in fleet.roster(pool).nodes)
    return frozenset() if fleet.cluster is None else frozenset(each.cluster for each in found if each is not None)


def requested_gpus(fleet: Fleet, pool: str) -> float:
    """How many GPUs the pool's pods hold, and how many more those want that wait for it."""
    held = sum(node.kubernetes.requested_gpus for node in fleet.roster(pool).nodes if node.kubernetes is not None)
    return held + sum(pod.gpus for pod in waiting(fleet, pool))


def _kind(node: KubernetesNode) -> object:
    """Alike for nodes that fit the same pods: a pool of hundreds has few kinds."""
    labels = frozenset((key, value) for key, value in node.labels.items() if key != HOSTNAME)
    return labels, node.taints, node.gpus, frozenset(node.devices.items())


def _borne(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether a taint does not keep the pod away."""
    if taint.effect not in _KEEPS_AWAY or taint.key.startswith(_BY_ITSELF):
        return True
    return any(
        each.effect in {"", taint.effect}
        and (not each.key or each.key == taint.key)
        and (each.operator == "Exists" or (bool(each.key) and each.value == taint.value))
        for each in tolerations
    )
