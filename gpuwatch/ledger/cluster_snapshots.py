"""A cluster within a round's body: each node object once, and no pod that nothing rests on."""

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode


def stored_node(node: Node) -> Node:
    """A machine as it is kept: a DaemonSet's pods that hold no GPU are two thirds of all, and nothing looks at them."""
    known = node.kubernetes
    return node if known is None else replace(node, kubernetes=_slim(known))


def stored_view(view: ClusterView | None, nodes: Sequence[Node]) -> ClusterView | None:
    """The view without the node objects that stand with their machines."""
    if view is None:
        return None
    joined = {node.kubernetes.uid for node in nodes if node.kubernetes is not None}
    return replace(view, nodes=tuple(_slim(each) for each in view.nodes if each.uid not in joined))


def whole_view(view: ClusterView | None, nodes: Sequence[Node]) -> ClusterView | None:
    """The view with the node objects of these machines."""
    if view is None:
        return None
    joined = [node.kubernetes for node in nodes if node.kubernetes is not None]
    return replace(view, nodes=tuple(sorted([*view.nodes, *joined], key=lambda node: node.name)))


def _slim(node: KubernetesNode) -> KubernetesNode:
    kept = tuple(pod for pod in node.pods if pod.gpus > 0 or not pod.daemon)
    return node if len(kept) == len(node.pods) else replace(node, pods=kept)
