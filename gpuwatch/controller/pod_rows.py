"""A Kubernetes cluster as `status` and the API show it: its GPUs, its trouble, and pods without use of their GPUs."""

from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node
from gpuwatch.model.nodes_page import ClusterRow, PodRow
from gpuwatch.policies.kubernetes import pod_use


def cluster_row(seen: Observation) -> ClusterRow | None:
    """The cluster of a round, several as one; None: none is configured."""
    view = seen.fleet.cluster
    if view is None:
        return None
    known = [node.kubernetes for node in seen.fleet.nodes if node.kubernetes is not None]
    silent = [f"No node of {each.name} is stopped: {each.trouble}" for each in view.parts if each.trouble is not None]
    return ClusterRow(
        name=view.name,
        nodes=len(known),
        gpus=sum(node.gpus or 0.0 for node in known),
        requested_gpus=sum(node.requested_gpus for node in known),
        pending_gpus=sum(pod.gpus for pod in view.pending),
        trouble=None if view.parts else view.trouble,
        notes=(*silent, *view.notes),
    )


def cluster_named(seen: Observation, node: Node) -> str | None:
    """The name of a machine's cluster, where there are several."""
    several = seen.fleet.cluster is not None and bool(seen.fleet.cluster.parts)
    return node.kubernetes.cluster if several and node.kubernetes is not None else None


def pod_rows(seen: Observation) -> tuple[PodRow, ...]:
    """The pods that are reported, the most expensive first."""
    return tuple(
        PodRow(
            namespace=each.pod.namespace,
            name=each.pod.name,
            node=each.node.id,
            workload=str(each.pod.workload),
            gpus=each.pod.gpus,
            activity=each.state,
            held_seconds=each.held_seconds,
            owner=each.pod.workload.owner,
            usd_per_hour=each.usd_per_hour,
            cluster=cluster_named(seen, each.node),
        )
        for each in pod_use.unused_pods(seen)
    )
