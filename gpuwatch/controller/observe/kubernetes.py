"""What Kubernetes adds to a round: the cluster's view, node objects joined to machines, and the doubts that follow.

Without a cluster in the settings nothing of it is loaded, and nothing changes.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.kubernetes.join import join_machines, with_troubles
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.kubernetes import ClusterView

_FEW = 3  # pods: one may have ended a moment ago, or be a static one that the API server calls otherwise


def with_cluster(fleet: Fleet, view: ClusterView | None) -> Fleet:
    """The fleet with what its cluster shows.

    Of nodes that have no GPU and are no machine of it those pods are kept that belong with one of the others.
    """
    if view is None:
        return fleet
    nodes, joined = join_machines(fleet.nodes, view)
    found = {each.name: _lacks_pods(nodes, view, each) for each in view.each if each.trouble is None}
    doubts = {name: doubt for name, doubt in found.items() if doubt is not None}
    if doubts:
        nodes, joined = join_machines(fleet.nodes, with_troubles(view, doubts))
    ours = {node.kubernetes.name for node in nodes if node.kubernetes is not None}
    far = {each.name for each in joined.nodes if not (each.name in ours or each.gpus is not None or each.gpu_pods)}
    groups = {pod.group for each in joined.nodes if each.name not in far for pod in each.pods} - {None}
    kept = tuple(
        replace(each, pods=tuple(pod for pod in each.pods if pod.group in groups), labels={})
        if each.name in far
        else each
        for each in joined.nodes
    )
    return replace(fleet, nodes=tuple(map(_of_gpu_pods, nodes)), cluster=replace(joined, nodes=kept))


def _of_gpu_pods(node: Node) -> Node:
    """A node without what its agent says of pods that request no GPU, and of which it sees none on one."""
    verdict, known = node.verdict, node.kubernetes
    if verdict is None or not verdict.other_pods:
        return node
    asking = {pod.uid for pod in known.pods if pod.gpus > 0} if known is not None else set[str]()
    kept = tuple(each for each in verdict.other_pods if each.uid in asking)
    return replace(node, signal=replace(node.signal, verdict=replace(verdict, other_pods=kept)))


def _lacks_pods(nodes: Sequence[Node], view: ClusterView, part: ClusterView) -> str | None:
    """Why a part's API server has lost pods, as one that was restored from an empty or old store has; None: it has not.

    The agents of its machines see pods on their GPUs, and it lacks three of them or more, and most of all. Of a cluster
    without any node object every machine of its pools may be one.
    """
    seen = {
        pod.uid: node.name
        for node in nodes
        if node.verdict is not None and _is_its(node, view, part)
        for pod in node.verdict.pods
    }
    if len(seen) < _FEW:
        return None
    known = {pod.uid for node in view.nodes for pod in node.pods}
    lost = [uid for uid in seen if uid not in known]
    if len(lost) < _FEW or 2 * len(lost) <= len(seen):
        return None
    shown = f"shows {len(seen) - len(lost)} of {len(seen)} pods that agents see on GPUs"
    return f"The API server of cluster {part.name} {shown}; it lacks one on {seen[lost[0]]}."


def _is_its(node: Node, view: ClusterView, part: ClusterView) -> bool:
    """Whether a machine is a node of the part; where nothing of that was seen, whether it may be one, by its pool."""
    if node.kubernetes is not None:
        return view.part(node.kubernetes.cluster) is part
    return not view.shows_nodes(part) and (not part.pools or node.pool in part.pools)
