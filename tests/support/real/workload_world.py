"""Workloads of a real API server, and what people do to them: a world of their contract."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from gpuwatch.kubernetes import ConnectedCluster, Workloads
from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import LOSES_LOCAL_DATA, PROTECT, REPLICAS_BEFORE, Target
from gpuwatch.runtime.clock import Clock, SystemClock
from tests.support.builders.kubernetes import (
    budget_object,
    custom_kind,
    custom_object,
    deployment_object,
    job_object,
    pod_object,
    replica_set_object,
    stateful_set_object,
)
from tests.support.real.kubernetes import ControlPlane, control_plane
from tests.support.real.kubernetes_api import Object


@dataclass(slots=True)
class RealWorkloadWorld:
    """See `tests.support.fakes.workload_worlds.WorkloadWorld`."""

    workloads: Workloads
    clock: Clock
    plane: ControlPlane
    stack: ExitStack
    namespace: str

    def make(self, kind: str, *, pods: int = 1, local_data: bool = False, replicas: int = 1) -> Target:
        """The object, and its pods as its controller would make them."""
        volumes = [{"name": "scratch", "emptyDir": {}}] if local_data else []
        if kind == "Pod":
            (created,) = self.plane.admin.create(
                pod_object(self.namespace, "work-0", node="n-1", labels={"app": "work-0"})
            )
        else:
            (created,) = self.plane.admin.create(self._object(kind, replicas))
            for number in range(pods):
                name = f"work-{number}"
                made = pod_object(
                    self.namespace, name, node="n-1", owner=created, labels={"app": name}, volumes=volumes
                )
                self.plane.admin.create(made)
        return Target(
            namespace=self.namespace, kind=kind, name=created["metadata"]["name"], uid=created["metadata"]["uid"]
        )

    def remake(self, target: Target) -> None:
        """With its pods left behind."""
        self.plane.admin.delete(target.kind, target.name, self.namespace)
        self.plane.admin.create(self._object(target.kind, 1))

    def scale(self, target: Target, replicas: int) -> None:
        """As its owner."""
        self.plane.admin.patch(target.kind, target.name, {"spec": {"replicas": replicas}}, self.namespace)

    def protect(self, target: Target) -> None:
        """As its owner."""
        mark = {"metadata": {"annotations": {PROTECT: "true"}}}
        self.plane.admin.patch(target.kind, target.name, mark, self.namespace)

    def volumes_go(self, target: Target) -> None:
        """As its owner."""
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}
        self.plane.admin.patch(target.kind, target.name, {"spec": policy}, self.namespace)

    def give_up(self, target: Target) -> None:
        """As its owner."""
        mark = {"metadata": {"annotations": {LOSES_LOCAL_DATA: "true"}}}
        self.plane.admin.patch(target.kind, target.name, mark, self.namespace)

    def budget(self, pod: str) -> None:
        """With no disruption to give."""
        self.plane.admin.create(budget_object(self.namespace, f"keep-{pod}", app=pod, allowed=0))

    def events(self, target: Target) -> list[str]:
        """As `kubectl describe` shows them."""
        path = f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.uid%3D{target.uid}"
        return [each["message"] for each in self.plane.admin.ask("GET", path)["items"]]

    def before(self, target: Target) -> str | None:
        """From its annotations."""
        found = self.plane.admin.find(target.kind, target.name, self.namespace)
        annotations = {} if found is None else found["metadata"].get("annotations", {})
        value: str | None = annotations.get(REPLICAS_BEFORE)
        return value

    def hush(self) -> None:
        """The server is frozen until the test ends."""
        self.stack.enter_context(self.plane.frozen())

    def _object(self, kind: str, replicas: int) -> Object:
        if kind == "Notebook":
            self.plane.custom(custom_kind("kubeflow.org", "Notebook", "notebooks"))
            return custom_object("kubeflow.org", "Notebook", self.namespace, "work")
        if kind == "Job":
            made = job_object(self.namespace, "work")
            made["spec"]["parallelism"] = replicas
            return made
        builders: dict[str, Callable[[str, str], Object]] = {
            "Deployment": deployment_object,
            "StatefulSet": stateful_set_object,
            "ReplicaSet": replica_set_object,
        }
        made = builders[kind](self.namespace, "work")
        made["spec"]["replicas"] = replicas
        return made


@contextmanager
def real_workloads() -> Iterator[RealWorkloadWorld]:
    """An API server without workloads; what a test leaves there is taken away."""
    plane = control_plane()
    settings = KubernetesSettings(name="prod", kubeconfig=str(plane.kubeconfig()), timeout=1.0)
    clock = SystemClock()
    cluster: ConnectedCluster = settings.connect(clock)
    assert isinstance(cluster, ApiCluster)
    try:
        with ExitStack() as stack:
            yield RealWorkloadWorld(cluster.workloads, clock, plane, stack, plane.namespace())
    finally:
        cluster.close()
        plane.empty()
