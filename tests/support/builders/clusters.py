"""Machines that are nodes of a Kubernetes cluster: the desk with both sides of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuwatch.controller.context import LiveParts
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.kubernetes import KubernetesNode, Pod, PodPhase, Workload
from gpuwatch.policies import PoolRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.fleet import NOW, RULES, Desk, FakeFleet, a_node
from tests.support.fakes.cluster import FakeCluster

CLUSTER = KubernetesRules(node_owner="gpuwatch")
OURS = replace(RULES, kubernetes=CLUSTER)
ENDING = replace(OURS, idle=replace(RULES.idle, action="terminate"))


def a_workload(name: str = "web", **other: object) -> Workload:
    """A Deployment of team-a."""
    base = Workload(namespace="team-a", kind="Deployment", name=name, uid=f"uid-{name}")
    return replace(base, **other)  # type: ignore[arg-type]


def a_pod(name: str = "web-1", **other: object) -> Pod:
    """A running pod of a Deployment, a day old, without GPUs."""
    base = Pod(
        namespace="team-a",
        name=name,
        uid=f"uid-{name}",
        phase=PodPhase.RUNNING,
        workload=a_workload(),
        created_at=NOW - timedelta(days=1),
    )
    return replace(base, **other)  # type: ignore[arg-type]


def a_gpu_pod(name: str = "train-1", **other: object) -> Pod:
    """A running pod with one GPU whose people let it go once it is idle."""
    return a_pod(name, **{"gpus": 1.0, "interruptible": True, **other})


def a_daemon(name: str = "dcgm-1") -> Pod:
    """A pod of a DaemonSet of the cluster's own."""
    return a_pod(name, namespace="gpu-operator", daemon=True, system=True)


def a_kubernetes_node(name: str = "node-1", **other: object) -> KubernetesNode:
    """A ready node of the cluster prod with a pod of a DaemonSet; its machine is i-1 for node-1."""
    base = KubernetesNode(
        name=name,
        uid=f"uid-{name}",
        cluster="prod",
        provider_id=f"aws:///us-east-1a/{_machine(name)}",
        gpus=1.0,
        pods=(a_daemon(f"dcgm-{name}"),),
    )
    return replace(base, **other)  # type: ignore[arg-type]


def a_cordon(known: KubernetesNode, key: str = "k", at: datetime = NOW) -> KubernetesNode:
    """The node with gpuwatch's cordon."""
    return replace(known, unschedulable=True, cordoned_by=key, cordoned_at=at)


def _machine(name: str) -> str:
    return name.replace("node-", "i-")


@dataclass(slots=True)
class ClusterFleet(FakeFleet):
    """Machines of which some are nodes of the cluster, by their provider ids."""

    cluster: FakeCluster | None = None

    def nodes(self) -> tuple[Node, ...]:
        """All machines, each with its node object."""
        known = {} if self.cluster is None else self.cluster.view().nodes
        by_id = {each.provider_id.rpartition("/")[2]: each for each in known}
        return tuple(replace(node, kubernetes=by_id.get(node.id)) for node in FakeFleet.nodes(self))

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """With the cluster's view."""
        return replace(FakeFleet.observe(self, nodes), cluster=None if self.cluster is None else self.cluster.view())


@dataclass(slots=True)
class ClusterDesk(Desk):
    """A controller over machines and the cluster that they are nodes of."""

    cluster: FakeCluster = field(init=False)
    has_cluster: bool = True  # in the settings

    def __post_init__(self) -> None:
        """Both sides on the same clock."""
        self.cluster = FakeCluster(clock=self.clock)
        self.fleet = ClusterFleet(clock=self.clock, cluster=self.cluster)

    def forget_cluster(self) -> None:
        """It is no longer in the settings."""
        self.has_cluster = False
        assert isinstance(self.fleet, ClusterFleet)
        self.fleet.cluster = None

    @property
    def parts(self) -> LiveParts:
        """What step() takes."""
        return replace(super(ClusterDesk, self).parts, cluster=self.cluster if self.has_cluster else None)

    def calls(self, *names: str) -> list[tuple[str, str]]:
        """What was changed in cluster and cloud, in the order of time within each."""
        told = [(call, name) for call, name, _ in self.cluster.calls]
        return [each for each in told if not names or each[0] in names]


def a_cluster_desk(
    rules: PoolRules = ENDING, *pods: Pod, state: State = State.IDLE, held: float = 7200.0
) -> ClusterDesk:
    """One machine that is a node, with these pods, and a working one beside it."""
    desk = ClusterDesk(rules=rules)
    desk.fleet.put(a_node("i-1", state, held, managed_by="EKS cluster prod"))
    desk.fleet.put(a_node("i-2", State.BUSY, 0.0, managed_by="EKS cluster prod"))
    for name in ("node-1", "node-2"):
        desk.cluster.put(a_kubernetes_node(name))
    desk.cluster.bind("node-1", *pods)
    return desk
