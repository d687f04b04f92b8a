"""A controller over two clusters whose nodes, namespaces, workloads and pods all have the same names."""

from dataclasses import dataclass, field, replace

from gpuwatch.controller.context import LiveParts
from gpuwatch.kubernetes.several import SeveralClusters
from gpuwatch.model.activity import State
from gpuwatch.model.kubernetes import Pod
from gpuwatch.policies import PoolRules
from tests.support.builders.clusters import ENDING, ClusterDesk, ClusterFleet, a_kubernetes_node
from tests.support.builders.fleet import a_node
from tests.support.builders.workloads import a_notebook, its_pod
from tests.support.fakes.cluster import FakeCluster


@dataclass(slots=True)
class TwoClustersDesk(ClusterDesk):
    """`cluster` is prod, `other` is research; machines i-1 and i-2 are nodes of prod, i-11 and i-12 of research."""

    other: FakeCluster = field(init=False)
    names: tuple[str, ...] = ("prod", "research")  # of those in the settings
    unnamed: bool = False  # prod alone is there, in the section `kubernetes` without a name

    def __post_init__(self) -> None:
        """All on the same clock."""
        ClusterDesk.__post_init__(self)
        self.other = FakeCluster(clock=self.clock, name="research")
        assert isinstance(self.fleet, ClusterFleet)
        self.fleet.cluster = None  # the round joins what it asks

    @property
    def several(self) -> SeveralClusters:
        """Those in the settings."""
        known = {"prod": self.cluster, "research": self.other}
        return SeveralClusters({name: known[name] for name in self.names})

    @property
    def parts(self) -> LiveParts:
        """What step() takes."""
        return replace(super(TwoClustersDesk, self).parts, cluster=self.cluster if self.unnamed else self.several)

    def call_prod(self, name: str) -> None:
        """Its name in the settings is another; its objects are the same."""
        self.unnamed, self.cluster.name = name == "kubernetes", name
        for node in list(self.cluster.nodes.values()):
            self.cluster.put(replace(node, cluster=name))


def two_clusters(
    rules: PoolRules = ENDING, *, prod: State = State.IDLE, research: State = State.IDLE, held: float = 7200.0
) -> TwoClustersDesk:
    """A node of that state in each, and a busy one beside it; all have the names node-1 and node-2."""
    desk = TwoClustersDesk(rules=rules)
    for first, name, state in ((1, "prod", prod), (11, "research", research)):
        cluster = desk.cluster if name == "prod" else desk.other
        for number, does in ((0, state), (1, State.BUSY)):
            machine = f"i-{first + number}"
            held_now = held if does is not State.BUSY else 0.0
            desk.fleet.put(a_node(machine, does, held_now, managed_by=f"EKS cluster {name}"))
            node = a_kubernetes_node(f"node-{number + 1}")
            cluster.put(
                replace(
                    node,
                    cluster=name,
                    uid=f"{name}-{node.uid}",
                    provider_id=f"aws:///us-east-1a/{machine}",
                    pods=tuple(replace(pod, uid=f"{name}-{pod.uid}") for pod in node.pods),
                )
            )
    return desk


def alice(name: str) -> Pod:
    """The pod of Alice's notebook in that cluster."""
    return its_pod(workload=a_notebook(uid=f"{name}-alice"), uid=f"{name}-alice-0")
