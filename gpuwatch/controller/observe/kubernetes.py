"""What Kubernetes adds to a round: the cluster's view, node objects joined to machines, and the doubts that come of it.

Without a cluster in the settings nothing of it is loaded, and nothing changes.
"""

from dataclasses import replace

from gpuwatch.kubernetes.join import join_machines
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.kubernetes import ClusterView


def with_cluster(fleet: Fleet, view: ClusterView | None) -> Fleet:
    """The fleet with what its cluster shows; pods on nodes that have no GPU and are no machine of it are left out."""
    if view is None:
        return fleet
    nodes, view = join_machines(fleet.nodes, view)
    ours = {node.kubernetes.uid for node in nodes if node.kubernetes is not None}
    kept = tuple(
        each if each.uid in ours or each.gpus is not None or each.gpu_pods else replace(each, pods=(), labels={})
        for each in view.nodes
    )
    return replace(fleet, nodes=nodes, cluster=replace(view, nodes=kept))
