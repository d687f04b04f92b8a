"""The clusters that `tests/contracts/test_clusters.py` runs on, each with the hands of the people around it.

Another world is one class with these methods, and one line of `CLUSTER_WORLDS`.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.kubernetes import Cluster
from gpuwatch.model.kubernetes import KubernetesNode
from gpuwatch.runtime.clock import Clock, ManualClock
from tests.support.builders.clusters import a_pod
from tests.support.builders.fleet import NOW
from tests.support.fakes.cluster import FakeCluster
from tests.support.real.cluster_world import real_world


class ClusterWorld(Protocol):
    """What happens around a cluster without gpuwatch. Node and pod names are new in each test."""

    @property
    def cluster(self) -> Cluster:
        """The cluster that is tested."""
        ...

    @property
    def clock(self) -> Clock:
        """Its time, and that of permits."""
        ...

    def add_node(self, name: str) -> None:
        """A ready node without pods."""

    def remake_node(self, name: str) -> None:
        """The node object is deleted, and another comes under its name."""

    def remove_node(self, name: str) -> None:
        """The node object is deleted."""

    def cordon(self, name: str) -> None:
        """`kubectl cordon`."""

    def uncordon(self, name: str) -> None:
        """`kubectl uncordon`."""

    def keep(self, name: str) -> None:
        """`karpenter.sh/do-not-disrupt: "true"` on the node."""

    def add_pod(self, name: str, node: str, *, daemon: bool = False, local_data: bool = False) -> str:
        """A running pod of a ReplicaSet, or of a DaemonSet; its uid."""

    def budget(self, pod: str) -> None:
        """A PodDisruptionBudget keeps that pod."""

    def replace_pod(self, name: str, node: str) -> str:
        """The pod is gone, and another has its name, as of a StatefulSet; the new uid."""

    def hush(self) -> None:
        """The API server does not answer any more."""


@dataclass(slots=True)
class FakeWorld:
    """The simulated cluster."""

    cluster: FakeCluster
    clock: ManualClock

    def add_node(self, name: str) -> None:
        """A ready node without pods."""
        self.cluster.put(KubernetesNode(name=name, uid=f"uid-{name}", cluster=self.cluster.name))

    def remake_node(self, name: str) -> None:
        """Another uid, and nothing of what was written on the first."""
        self.cluster.put(KubernetesNode(name=name, uid=f"{self.cluster.nodes[name].uid}+", cluster=self.cluster.name))

    def remove_node(self, name: str) -> None:
        """With its pods."""
        del self.cluster.nodes[name]

    def cordon(self, name: str) -> None:
        """Without a mark."""
        self.cluster.put(replace(self.cluster.nodes[name], unschedulable=True))

    def uncordon(self, name: str) -> None:
        """Annotations and taints stay."""
        known = self.cluster.nodes[name]
        self.cluster.put(replace(known, unschedulable=False, cordoned_by=None, cordoned_at=None))

    def keep(self, name: str) -> None:
        """As the client words it."""
        self.cluster.put(replace(self.cluster.nodes[name], keep="karpenter.sh/do-not-disrupt is true"))

    def add_pod(self, name: str, node: str, *, daemon: bool = False, local_data: bool = False) -> str:
        """Bound at once."""
        pod = a_pod(name, daemon=daemon, local_data="scratch" if local_data else None)
        self.cluster.bind(node, pod)
        return pod.uid

    def budget(self, pod: str) -> None:
        """By its name."""
        self.cluster.budgets.add(pod)

    def replace_pod(self, name: str, node: str) -> str:
        """Another uid."""
        known = self.cluster.nodes[node]
        self.cluster.put(replace(known, pods=tuple(pod for pod in known.pods if pod.name != name)))
        pod = a_pod(name, uid=f"uid-{name}+")
        self.cluster.bind(node, pod)
        return pod.uid

    def hush(self) -> None:
        """Every call fails, and the view has trouble."""
        self.cluster.trouble = "The API server of cluster prod has been silent for 2m."
        self.cluster.fault = lambda _call, _node: CloudUnavailableError("no answer")


@contextmanager
def _fake() -> Iterator[ClusterWorld]:
    clock = ManualClock(wall=NOW)
    yield FakeWorld(cluster=FakeCluster(clock=clock, grace_seconds=0.0), clock=clock)


CLUSTER_WORLDS: dict[str, Callable[[], AbstractContextManager[ClusterWorld]]] = {
    "simulated": _fake,
    "api-server": real_world,
}
