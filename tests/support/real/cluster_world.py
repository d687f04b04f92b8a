"""The client of a real API server, and what people and Kubernetes do around it: a world of the clusters' contract."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from gpuwatch.kubernetes import ConnectedCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.runtime.clock import Clock, SystemClock
from tests.support.builders.kubernetes import (
    budget_object,
    daemon_set_object,
    node_object,
    pod_object,
    replica_set_object,
)
from tests.support.real.kubernetes import ControlPlane, control_plane
from tests.support.real.kubernetes_api import Object

_TEAM = "team-a"


@dataclass(slots=True)
class RealWorld:
    """See `tests.support.fakes.cluster_worlds.ClusterWorld`."""

    cluster: ConnectedCluster
    clock: Clock
    plane: ControlPlane
    owners: dict[bool, Object]  # the DaemonSet, and the ReplicaSet
    stack: ExitStack

    def add_node(self, name: str) -> None:
        """As its kubelet registers it."""
        self.plane.admin.create(node_object(name))

    def remake_node(self, name: str) -> None:
        """Under the same name, with another uid."""
        self.remove_node(name)
        self.add_node(name)

    def remove_node(self, name: str) -> None:
        """By an administrator, or a cloud's controller."""
        self.plane.admin.delete("Node", name)

    def cordon(self, name: str) -> None:
        """As kubectl does it."""
        self.plane.admin.patch("Node", name, {"spec": {"unschedulable": True}})

    def uncordon(self, name: str) -> None:
        """As kubectl does it."""
        self.plane.admin.patch("Node", name, {"spec": {"unschedulable": None}})

    def keep(self, name: str) -> None:
        """A mark of Karpenter's."""
        mark = {"karpenter.sh/do-not-disrupt": "true"}
        self.plane.admin.patch("Node", name, {"metadata": {"annotations": mark}})

    def add_pod(self, name: str, node: str, *, daemon: bool = False, local_data: bool = False) -> str:
        """Scheduled and running; its label `app` is its name."""
        volumes = [{"name": "scratch", "emptyDir": {}}] if local_data else []
        made = pod_object(_TEAM, name, node=node, owner=self.owners[daemon], labels={"app": name}, volumes=volumes)
        (created,) = self.plane.admin.create(made)
        uid: str = created["metadata"]["uid"]
        return uid

    def budget(self, pod: str) -> None:
        """With no disruption to give."""
        self.plane.admin.create(budget_object(_TEAM, f"keep-{pod}", app=pod, allowed=0))

    def replace_pod(self, name: str, node: str) -> str:
        """Its kubelet confirms the end, and another one is made."""
        self.plane.admin.delete("Pod", name, _TEAM)
        return self.add_pod(name, node)

    def hush(self) -> None:
        """The server is frozen until the test ends."""
        self.stack.enter_context(self.plane.frozen())


@contextmanager
def real_world() -> Iterator[RealWorld]:
    """An API server without nodes; what a test leaves there is taken away."""
    plane = control_plane()
    if plane.admin.find("Namespace", _TEAM) is None:
        plane.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _TEAM}})
    daemons, replicas = plane.admin.create(daemon_set_object(_TEAM, "dcgm"), replica_set_object(_TEAM, "web"))
    settings = KubernetesSettings(name="prod", kubeconfig=str(plane.kubeconfig()), timeout=1.0)
    clock = SystemClock()
    cluster = settings.connect(clock)
    try:
        with ExitStack() as stack:
            yield RealWorld(cluster, clock, plane, {True: daemons, False: replicas}, stack)
    finally:
        cluster.close()
        plane.empty()
