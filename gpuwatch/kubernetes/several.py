"""Several clusters as one: each node with its cluster's name before its own, each change asked of exactly one of them.

Rules, all of them:

1. A node is called `research/gpu-0`, which no API server allows, so that nodes of two clusters never have one name. A
   pod is on the node of that name, and what belongs together belongs together in one cluster alone.
2. The trouble of one cluster is its own: `ClusterView.part` says which of them cannot be relied on.
3. A workload is named by its cluster's name in the id that orders and the ledger have for it, as that of a single one.
4. A cluster that is in the settings no more has no nodes, and is asked nothing.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from gpuwatch.clouds.errors import NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes import Cluster, Workloads
from gpuwatch.kubernetes.join import merged_view
from gpuwatch.model.kubernetes import ClusterView, Drain, KubernetesNode, Pod, Target, WorkloadNow
from gpuwatch.model.placing import Room


class SeveralClusters:
    """The clusters of the settings by their names."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        """Nothing is asked yet; at least two clusters."""
        self.parts = dict(clusters)

    @property
    def name(self) -> str:
        """All of their names."""
        return " and ".join(self.parts)

    @property
    def workloads(self) -> Workloads:
        """Those of no cluster: `workloads_of` asks a cluster by its name."""
        raise NotFoundError("a workload is asked for in its own cluster")

    def view(self) -> ClusterView:
        """All of them, looked at side by side: the first look at one may take half a minute."""
        with ThreadPoolExecutor(max_workers=len(self.parts)) as pool:
            return merged_view(pool.map(lambda each: _named_view(each.view()), self.parts.values()))

    def rooms(self) -> Mapping[str, Room]:
        """The room of each, with nodes by their own names: what is emptied in one needs room in that one alone."""
        return {name: room for name, each in self.parts.items() for room in each.rooms().values()}

    def node(self, name: str) -> KubernetesNode | None:
        """Ask the cluster that the name begins with for one node."""
        cluster, bare = self._home(name)
        known = None if cluster is None else cluster.node(bare)
        return None if known is None else _named_node(known)

    def cordon(self, name: str, key: str, *, permit: Permit, taint: bool = False) -> None:
        """As in its own cluster."""
        cluster, bare = self._needed_home(name)
        cluster.cordon(bare, key, permit=permit, taint=taint)

    def uncordon(self, name: str, key: str) -> None:
        """As in its own cluster."""
        cluster, bare = self._needed_home(name)
        cluster.uncordon(bare, key)

    def mark(self, name: str, owner: str, key: str, *, permit: Permit) -> None:
        """As in its own cluster."""
        cluster, bare = self._needed_home(name)
        cluster.mark(bare, owner, key, permit=permit)

    def unmark(self, name: str, key: str) -> None:
        """As in its own cluster."""
        cluster, bare = self._needed_home(name)
        cluster.unmark(bare, key)

    def drain(self, name: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """As in its own cluster."""
        cluster, bare = self._needed_home(name)
        return cluster.drain(bare, pods, key, permit=permit)

    def _home(self, name: str) -> tuple[Cluster | None, str]:
        """The cluster of a node, and what that calls the node."""
        cluster, _, bare = name.partition("/")
        return self.parts.get(cluster), bare

    def _needed_home(self, name: str) -> tuple[Cluster, str]:
        cluster, bare = self._home(name)
        if cluster is None:
            raise NotFoundError(f"no cluster of the settings has the node {name}")
        return cluster, bare


def names_in(cluster: Cluster) -> tuple[str, ...]:
    """The names of the clusters of the settings."""
    return tuple(cluster.parts) if isinstance(cluster, SeveralClusters) else (cluster.name,)


def workloads_of(cluster: Cluster, name: str, target: Target | None = None) -> Workloads | None:
    """The workloads of the cluster of that name; under another name than today's that which has the target by its uid.

    None: it is in the settings no more.

    Raises:
        CloudError: one that may have it gives no answer.

    """
    several = isinstance(cluster, SeveralClusters)
    parts = cluster.parts if isinstance(cluster, SeveralClusters) else {cluster.name: cluster}
    if name not in parts and target is not None:
        name = next((each for each, its in parts.items() if its.workloads.workload(target) is not None), name)
    found = parts.get(name)
    if found is None:
        return None
    return _NamedWorkloads(found.workloads, name) if several else found.workloads


def name_of_node(cluster: Cluster, name: str, node: str, uid: str) -> str | None:
    """What a node is called under the settings of today, where an intent, and its cluster's name, may be older.

    Under another name of its cluster than today's it is looked for by its uid; None: no cluster of the settings has it.

    Raises:
        CloudError: one that may have it gives no answer.

    """
    bare = node.rpartition("/")[2]
    parts = cluster.parts if isinstance(cluster, SeveralClusters) else {cluster.name: cluster}
    if name not in parts:
        shown = ((each, its.node(bare)) for each, its in parts.items())
        name = next((each for each, known in shown if known is not None and known.uid == uid), "")
    if not name:
        return None
    return f"{name}/{bare}" if isinstance(cluster, SeveralClusters) else bare


class _NamedWorkloads:
    """The workloads of one of several: their pods are on nodes with its name before theirs."""

    def __init__(self, workloads: Workloads, cluster: str) -> None:
        self._workloads, self._cluster = workloads, cluster

    def workload(self, target: Target) -> WorkloadNow | None:
        """As in its own cluster."""
        now = self._workloads.workload(target)
        return None if now is None else replace(now, pods=tuple(_named_pod(pod, self._cluster) for pod in now.pods))

    def announce(self, target: Target, key: str, stop_at: datetime | None, note: str, *, permit: Permit) -> None:
        """As in its own cluster."""
        self._workloads.announce(target, key, stop_at, note, permit=permit)

    def release(self, target: Target, how: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """As in its own cluster."""
        return self._workloads.release(target, how, pods, key, permit=permit)


def _named_view(view: ClusterView) -> ClusterView:
    """The view with each node under its cluster's name, as rule 1 has it."""
    nodes = tuple(map(_named_node, view.nodes))
    return replace(view, nodes=nodes, pending=tuple(_named_pod(pod, view.name) for pod in view.pending))


def _named_node(node: KubernetesNode) -> KubernetesNode:
    name = f"{node.cluster}/{node.name}"
    return replace(node, name=name, pods=tuple(_named_pod(pod, node.cluster) for pod in node.pods))


def _named_pod(pod: Pod, cluster: str) -> Pod:
    return replace(
        pod,
        node=None if pod.node is None else f"{cluster}/{pod.node}",
        group=None if pod.group is None else f"{cluster}/{pod.group}",
        release=None if pod.release is None else f"{cluster}/{pod.release}",
    )
