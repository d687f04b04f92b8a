"""A simulated Kubernetes cluster: it answers and fails as an API server does, at every call that a test names.

Its truth is plain fields. What it refuses, it refuses as the real one: a cordon by somebody else, an eviction that a
PodDisruptionBudget forbids (429, an answer and no error), a pod of another uid. What it evicts ends after its grace, or
never where a finalizer holds it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from gpuwatch.clouds import CloudError, NotFoundError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.kubernetes import ClusterView, Drain, KubernetesNode, Pod
from gpuwatch.model.placing import PODS, Place, PlacedPod, Room
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.workloads import FakeWorkloads

SILENT = "The API server of cluster prod has been silent for 2m."
_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def wide_room(nodes: Iterable[KubernetesNode]) -> Room:
    """These nodes, and one more that has room for all of their pods; as read: no pod without a text for a name."""
    known = list(nodes)
    pods = [
        PlacedPod(
            name=str(pod),
            namespace=pod.namespace,
            uid=pod.uid,
            node=str(node.name),
            ends=pod.ends_at is not None,
        )
        for node in known
        for pod in node.pods
        if all(isinstance(word, str) for word in (pod.namespace, pod.name, pod.uid))
    ]
    spare = Place(name="spare", offers={PODS: 1_000_000})
    return Room(places=(*(Place(name=str(node.name)) for node in known), spare), pods=tuple(pods))


@dataclass(slots=True)
class FakeCluster:
    """`fault(call, node)` may raise before a call has its effect, `lose(call, node)` after it; `calls` are all changes.

    `budgets` are the names of the pods that a PodDisruptionBudget keeps now, `stuck` those that never end.
    `befalls(call, node)` is what happens right before a call: a pod comes, a node is made again.
    """

    clock: ManualClock
    name: str = "prod"
    nodes: dict[str, KubernetesNode] = field(default_factory=dict)
    grace_seconds: float = 30.0
    budgets: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    trouble: str | None = None
    space: Room | None = None  # None: one more node has room for all
    shows_room: bool = True
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    evicted: list[Pod] = field(default_factory=list)
    fault: Callable[[str, str], CloudError | None] = lambda _call, _node: None
    lose: Callable[[str, str], CloudError | None] = lambda _call, _node: None
    befalls: Callable[[str, str], None] = lambda _call, _node: None
    watch: Callable[[str, KubernetesNode], None] = lambda _call, _node: None
    workloads: FakeWorkloads = field(init=False)

    def __post_init__(self) -> None:
        """Its workloads' pods are those of its nodes."""
        self.workloads = FakeWorkloads(clock=self.clock, pods_of=self._pods_of, ends=self._ends)

    def put(self, node: KubernetesNode) -> None:
        """A node object is there, or changes."""
        self.nodes[node.name] = node

    def bind(self, name: str, *pods: Pod) -> None:
        """Pods come to a node."""
        node = self.nodes[name]
        self.put(replace(node, pods=(*node.pods, *(replace(pod, node=name) for pod in pods))))

    def view(self) -> ClusterView:
        """What the watch holds: as it was, with its trouble."""
        self._pass()
        nodes = tuple(sorted(self.nodes.values(), key=lambda node: node.name))
        silent = 0.0 if self.trouble is None else 120.0
        return ClusterView(name=self.name, silent_seconds=silent, trouble=self.trouble, nodes=nodes)

    def rooms(self) -> dict[str, Room]:
        """What a test has put there, or room for everybody."""
        return {self.name: self.space or wide_room(self.nodes.values())} if self.shows_room else {}

    def node(self, name: str) -> KubernetesNode | None:
        """One node, now."""
        self._ask("node", name)
        self._pass()
        return self.nodes.get(name)

    def cordon(self, name: str, key: str, *, permit: Permit, taint: bool = False) -> None:
        """Once for each key; never over somebody else's."""
        self._ask("cordon", name)
        node = self._there(name)
        if node.unschedulable and node.cordoned_by == key:
            return
        if node.unschedulable:
            raise ProtectedError(f"the node {name} is cordoned by somebody else", code="Cordoned")
        if node.keep is not None:
            raise ProtectedError(f"the node {name} is kept: {node.keep}", code="Kept")
        permit.check()
        self._did("cordon", node, key)
        tainted = key if taint else node.tainted_by
        self.put(replace(node, unschedulable=True, cordoned_by=key, cordoned_at=self.clock.now(), tainted_by=tainted))
        self._answer("cordon", name)

    def uncordon(self, name: str, key: str) -> None:
        """Of the cordon with that key alone."""
        self._ask("uncordon", name)
        node = self._there(name)
        if key not in {node.cordoned_by, node.tainted_by}:
            return
        self._did("uncordon", node, key)
        self.put(replace(node, unschedulable=False, cordoned_by=None, cordoned_at=None, tainted_by=None))
        self._answer("uncordon", name)

    def mark(self, name: str, owner: str, key: str, *, permit: Permit) -> None:
        """Once for each key; never over somebody else's."""
        self._ask("mark", name)
        node = self._there(name)
        if node.marked_by == key:
            return
        if node.keep is not None or node.marked_by is not None:
            raise ProtectedError(f"the node {name} is marked by somebody else", code="Marked")
        permit.check()
        self._did("mark", node, key)
        self.put(replace(node, keep=f"the annotation of {owner} keeps it", marked_by=key))
        self._answer("mark", name)

    def unmark(self, name: str, key: str) -> None:
        """Of the mark with that key alone."""
        self._ask("unmark", name)
        node = self._there(name)
        if node.marked_by != key:
            return
        self._did("unmark", node, key)
        self.put(replace(node, keep=None, marked_by=None))
        self._answer("unmark", name)

    def drain(self, name: str, pods: tuple[str, ...], key: str, *, permit: Permit) -> Drain:
        """Each pod is asked once; a budget's refusal is an answer."""
        self._ask("drain", name)
        self._pass()
        node = self._there(name)
        if node.cordoned_by is None:
            raise ProtectedError(f"the node {name} does not carry our cordon", code="NotCordoned")
        permit.check()
        self._did("drain", node, key)
        evicted, refused = [], {}
        for pod in (pod for pod in node.to_drain if pod.uid in pods):
            if pod.local_data is not None and not pod.loses_local_data:
                refused[str(pod)] = f"its volume {pod.local_data} would be lost"
            elif pod.name in self.budgets:
                refused[str(pod)] = _BUDGET
            else:
                evicted.append(str(pod))
                self.evicted.append(pod)
                self._end(name, pod)
        self._pass()
        self._answer("drain", name)
        return Drain(evicted=tuple(evicted), refused=refused, left=len(self.nodes[name].to_drain))

    def _end(self, name: str, pod: Pod) -> None:
        """It is being deleted."""
        ends = self.clock.now() + timedelta(seconds=self.grace_seconds)
        node = self.nodes[name]
        ending = replace(pod, ends_at=pod.ends_at or ends)
        self.put(replace(node, pods=tuple(ending if each.uid == pod.uid else each for each in node.pods)))

    def _pods_of(self, uid: str) -> tuple[Pod, ...]:
        """Of a workload, on whatever node."""
        self._pass()
        return tuple(pod for node in self.nodes.values() for pod in node.pods if pod.workload.uid == uid)

    def _ends(self, pod: Pod) -> None:
        """Its controller, or an eviction, ends a pod."""
        if pod.node is not None and pod.node in self.nodes:
            self._end(pod.node, pod)

    def _pass(self) -> None:
        """What has ended is gone."""
        now = self.clock.now()
        for node in list(self.nodes.values()):
            left = tuple(pod for pod in node.pods if pod.ends_at is None or pod.ends_at > now or pod.name in self.stuck)
            if left != node.pods:
                self.put(replace(node, pods=left))

    def _there(self, name: str) -> KubernetesNode:
        if name not in self.nodes:
            raise NotFoundError(f'nodes "{name}" not found', code="NotFound")
        return self.nodes[name]

    def _did(self, call: str, node: KubernetesNode, key: str) -> None:
        self.watch(call, node)
        self.calls.append((call, node.name, key))

    def _ask(self, call: str, name: str) -> None:
        self.befalls(call, name)
        error = self.fault(call, name)
        if error is not None:
            raise error

    def _answer(self, call: str, name: str) -> None:
        error = self.lose(call, name)
        if error is not None:
            raise error
