"""What a cluster shows, in the nouns of gpuwatch, and one that shows it to a controller."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes import Workloads
from gpuwatch.model.kubernetes import ClusterView, Drain, KubernetesNode, Pod, PodPhase, Workload
from gpuwatch.model.placing import Placement, Room
from tests.support.builders.fleet import NOW
from tests.support.fakes.cluster import wide_room


@dataclass(slots=True)
class Shown:
    """A cluster that shows what a test says, and takes no change."""

    shows: ClusterView

    @property
    def name(self) -> str:
        """Of what it shows."""
        return self.shows.name

    @property
    def workloads(self) -> Workloads:
        """None is asked about in these tests."""
        raise NotImplementedError

    def view(self) -> ClusterView:
        """As it is."""
        return self.shows

    def rooms(self) -> dict[str, Room]:
        """There is room for everybody."""
        return {self.name: wide_room(self.shows.nodes)}

    def node(self, name: str) -> KubernetesNode | None:
        """The same."""
        return next((node for node in self.shows.nodes if node.name == name), None)

    def cordon(self, name: str, key: str, *, permit: Permit, taint: bool = False) -> None:
        """Nothing is changed in these tests."""
        raise NotImplementedError

    def uncordon(self, name: str, key: str) -> None:
        """Likewise."""
        raise NotImplementedError

    def mark(self, name: str, owner: str, key: str, *, permit: Permit) -> None:
        """Likewise."""
        raise NotImplementedError

    def unmark(self, name: str, key: str) -> None:
        """Likewise."""
        raise NotImplementedError

    def drain(self, name: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """Likewise."""
        raise NotImplementedError


def shown_pod(
    name: str,
    node: str | None = None,
    *,
    gpus: float = 0.0,
    namespace: str = "team",
    owner: str | None = "ann",
    created_at: datetime = NOW - timedelta(days=1),
    **other: object,
) -> Pod:
    """A pod of the Deployment `serve`, a day old; one without a node is pending."""
    workload = Workload(namespace=namespace, kind="Deployment", name="serve", uid="uid-serve", owner=owner)
    phase = PodPhase.PENDING if node is None else PodPhase.RUNNING
    pod = Pod(namespace=namespace, name=name, uid=f"uid-{namespace}-{name}", phase=phase, workload=workload)
    told = {"node": node, "gpus": gpus, "created_at": created_at, **other}
    if node is None:
        told.setdefault("placement", Placement())
    return replace(pod, **told)  # type: ignore[arg-type]  # fields of Pod


def shown_node(name: str, machine: str = "", *pods: Pod, gpus: float | None = 8.0, **other: object) -> KubernetesNode:
    """The node object of a machine on AWS, with 8 GPUs."""
    provider = f"aws:///us-east-1a/{machine}" if machine else ""
    node = KubernetesNode(name=name, uid=f"uid-{name}", cluster="k", provider_id=provider, gpus=gpus, pods=pods)
    return replace(node, **other)  # type: ignore[arg-type]  # fields of KubernetesNode


def shown_cluster(*nodes: KubernetesNode, **other: object) -> ClusterView:
    """Of the cluster `k`."""
    return replace(ClusterView(name="k", nodes=nodes), **other)  # type: ignore[arg-type]  # fields of ClusterView
