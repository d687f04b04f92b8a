"""Generated lives of machines that are Kubernetes nodes: pods come and go, people cordon, API servers fall silent.

Whatever happens in whatever order: nothing is drained that is not proven idle and let go by its people; a cordon of
ours is undone or on record; a cordon of somebody else stays.
"""

from dataclasses import replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeState, PodVerdict
from gpuwatch.model.kubernetes import KubernetesNode, Pod, PodPhase
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import (
    ENDING,
    ClusterDesk,
    a_daemon,
    a_kubernetes_node,
    a_pod,
)
from tests.support.builders.fleet import LIVES, a_node, lived

IDS = ("i-1", "i-2", "i-3")
WAIT = 300.0
POOL = KubernetesRules(node_owner="gpuwatch", drain_timeout=300.0, drain_rest=600.0)
RULES = replace(
    ENDING, warm_up=60.0, idle=replace(ENDING.idle, timeout=WAIT, grace_period=120.0), kubernetes=POOL, min_nodes=0
)
LIMITS = Limits(max_stops_per_round=2, max_stops_per_hour=4, max_stops_per_hour_ratio=1.0, mass_idleness_nodes=99)
ERRORS = [CloudUnavailableError("no answer"), ThrottledError("429"), AuthFailedError("forbidden")]
CALLS = ["node", "cordon", "uncordon", "drain"]
KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "let go": {"gpus": 1.0, "interruptible": True},
    "somebody's": {"gpus": 1.0},
    "starting": {"gpus": 1.0, "interruptible": True, "phase": PodPhase.PENDING},
    "the system's": {"gpus": 1.0, "system": True},
    "privileged": {},
    "privileged, let go": {"interruptible": True},
    "protected": {"protected": "an annotation"},
    "bare": {"bare": True},
    "with data": {"local_data": "scratch"},
}


def node_of(node_id: str) -> str:
    """The name of a machine's node object."""
    return node_id.replace("i-", "node-")


class ClusterLife(RuleBasedStateMachine):
    """Three machines of one cluster."""

    @initialize(grace=st.sampled_from([0.0, 30.0, 240.0]))
    def begin(self, grace: float) -> None:
        """All idle for long, each with a pod to move."""
        self.desk = ClusterDesk(rules=RULES, limits=LIMITS)
        self.cluster, self.fleet = self.desk.cluster, self.desk.fleet
        self.cluster.grace_seconds = grace
        self.number = 0
        self.deaf: set[str] = set()
        self.persons: set[str] = set()  # the nodes that a person has cordoned
        self.unasked: set[str] = set()  # the pods that are on a GPU without a request
        self.error: tuple[str, CloudError | None, bool] = ("", None, False)
        self.fleet.answer = lambda node: NodeReport(failure="silence") if node.id in self.deaf else self._true(node.id)
        self.cluster.fault = lambda call, _: self._struck(call, late=False)
        self.cluster.lose = lambda call, _: self._struck(call, late=True)
        self.cluster.watch = self.watched
        self.fleet.watch_stop = self.ended
        self.arriving: dict[str, Pod] = {}
        self.cluster.befalls = self.befalls
        for node_id in IDS:
            self.fleet.put(a_node(node_id, held=3600.0, managed_by="EKS cluster prod"))
            self.cluster.put(a_kubernetes_node(node_of(node_id)))
            self.cluster.bind(node_of(node_id), a_pod(f"web-{node_id}"))

    def _true(self, node_id: str) -> NodeReport:
        signal = self.fleet.nodes_[node_id].signal
        assert signal.verdict is not None
        on_gpus = (pod for pod in self.cluster.nodes[node_of(node_id)].pods if pod.uid in self.unasked)
        pods = tuple(PodVerdict(uid=pod.uid, name=str(pod), activity=signal.verdict.activity) for pod in on_gpus)
        return NodeReport(verdict=replace(signal.verdict, at=self.desk.clock.now(), age_seconds=0.5, pods=pods))

    def _struck(self, call: str, *, late: bool) -> CloudError | None:
        where, error, is_late = self.error
        return error if where == call and late is is_late else None

    def befalls(self, call: str, name: str) -> None:
        """A pod is bound between the last look and the cordon."""
        if call == "cordon" and name in self.arriving:
            self.cluster.bind(name, self.arriving.pop(name))

    def watched(self, call: str, node: KubernetesNode) -> None:
        """Look over the shoulder of every change of a node."""
        node_id = node.name.replace("node-", "i-")
        machine = self.fleet.nodes_[node_id]
        recorded = {entry.intent.key for entry in self.desk.ledger.view(self.desk.clock.now()).open_intents}
        assert recorded, "P12: a change without an earlier ledger record"
        assert node.name not in self.persons, f"{call} of a node that a person has cordoned"
        if call == "uncordon":
            return
        assert node_id not in self.deaf, f"P1: {call} while its agent was silent"
        assert self.cluster.trouble is None, f"P1: {call} while the cluster was not known"
        assert machine.activity.state is State.IDLE, f"P2: {call} while {machine.activity.state}"
        assert machine.activity.held_seconds >= WAIT
        assert machine.enrolled, f"P3: {call} of what is not enrolled"
        assert machine.protected is None, f"P3: {call} of what is protected"
        assert node.keep is None, f"P3: {call} of what a mark keeps"
        assert node.owner != "karpenter", f"{call} of Karpenter's node"
        assert self.desk.ledger.view(self.desk.clock.now()).notice(node_id) is not None, f"{call} without a notice"
        if call == "drain":
            self.drained(node)

    def drained(self, node: KubernetesNode) -> None:
        """No pod with GPUs that is not proven idle and let go; nothing protected, bare or with data."""
        held = self.fleet.nodes_[node.name.replace("node-", "i-")].activity.held_seconds
        for pod in (pod for pod in node.pods if pod.ends_at is None and not pod.daemon):
            holds = pod.gpus > 0 or pod.uid in self.unasked
            kinds = [holds and not pod.consents, pod.protected is not None, pod.bare, bool(pod.local_data)]
            assert not any(kinds), f"drained with {pod}"
            if holds:
                assert held >= WAIT, f"drained with {pod}, idle for {held} s"
                assert pod.phase is PodPhase.RUNNING, f"drained with {pod}, which had not begun"
                age = (self.desk.clock.now() - pod.created_at).total_seconds() if pod.created_at else 0.0
                assert age >= WAIT, f"drained with {pod}, which is {age} s old"

    def ended(self, node_id: str, key: str) -> None:
        """A machine goes: cordoned by us, and nothing to move is left on it."""
        del key
        known = self.cluster.nodes[node_of(node_id)]
        assert known.unschedulable, f"{node_id} was ended without a cordon"
        assert known.cordoned_by is not None, f"{node_id} was ended under a person's cordon"
        assert known.to_drain == (), f"{node_id} was ended with {known.to_drain[0]} on it"
        assert node_id not in self.deaf
        assert self.fleet.nodes_[node_id].activity.state is State.IDLE

    @rule(count=st.sampled_from([1, 3, 8]))
    def rounds(self, count: int) -> None:
        """Time passes."""
        for _ in range(count):
            self.desk.round()

    @rule(node_id=st.sampled_from(IDS), kind=st.sampled_from(sorted(KINDS)), late=st.booleans())
    def a_pod_comes(self, node_id: str, kind: str, *, late: bool) -> None:
        """Bound now where the node takes pods, or right before a cordon."""
        self.number += 1
        pod = a_pod(f"p-{self.number}", created_at=self.desk.clock.now(), **KINDS[kind])
        if kind.startswith("privileged"):
            self.unasked.add(pod.uid)
        if late:
            self.arriving[node_of(node_id)] = pod
        elif not self.cluster.nodes[node_of(node_id)].unschedulable:
            self.cluster.bind(node_of(node_id), pod)

    @rule(node_id=st.sampled_from(IDS))
    def pods_end(self, node_id: str) -> None:
        """All that is not a DaemonSet's."""
        name = node_of(node_id)
        node = self.cluster.nodes[name]
        self.cluster.put(replace(node, pods=tuple(pod for pod in node.pods if pod.daemon)))

    @rule(node_id=st.sampled_from(IDS), state=st.sampled_from([State.BUSY, State.IDLE, State.PARKED, State.UNKNOWN]))
    def a_machine_turns(self, node_id: str, state: State) -> None:
        """Its agent says something else."""
        if self.fleet.nodes_[node_id].state is NodeState.RUNNING:
            self.fleet.show(node_id, state, 0.0)

    @rule(node_id=st.sampled_from(IDS))
    def an_agent_is_silent_or_back(self, node_id: str) -> None:
        """It does not answer."""
        self.deaf ^= {node_id}

    @rule(node_id=st.sampled_from(IDS))
    def a_person_cordons(self, node_id: str) -> None:
        """`kubectl cordon`; gpuwatch's own cordon stays gpuwatch's."""
        name = node_of(node_id)
        node = self.cluster.nodes[name]
        if not node.unschedulable:
            self.cluster.put(replace(node, unschedulable=True, cordoned_by=None, cordoned_at=None))
            self.persons.add(name)

    @rule(node_id=st.sampled_from(IDS))
    def a_person_uncordons(self, node_id: str) -> None:
        """`kubectl uncordon`, of whatever cordon; our annotations stay."""
        name = node_of(node_id)
        self.cluster.put(replace(self.cluster.nodes[name], unschedulable=False))
        self.persons.discard(name)

    @rule(node_id=st.sampled_from(IDS), mark=st.sampled_from([None, "do-not-disrupt"]))
    def a_mark(self, node_id: str, mark: str | None) -> None:
        """An annotation of another autoscaler comes or goes."""
        self.cluster.put(replace(self.cluster.nodes[node_of(node_id)], keep=mark))

    @rule(node_id=st.sampled_from(IDS), owner=st.sampled_from([None, "karpenter"]))
    def a_label(self, node_id: str, owner: str | None) -> None:
        """Karpenter takes it over, or leaves it."""
        self.cluster.put(replace(self.cluster.nodes[node_of(node_id)], owner=owner))  # type: ignore[arg-type]

    @rule(node_id=st.sampled_from(IDS))
    def made_again(self, node_id: str) -> None:
        """The node object is deleted and comes back under its name."""
        self.number += 1
        name = node_of(node_id)
        self.cluster.put(a_kubernetes_node(name, uid=f"uid-{self.number}", pods=(a_daemon(f"d-{self.number}"),)))
        self.persons.discard(name)

    @rule(trouble=st.sampled_from([None, None, "It is silent."]))
    def the_watch(self, trouble: str | None) -> None:
        """Falls silent, or is back."""
        self.cluster.trouble = trouble

    @rule(call=st.sampled_from(CALLS), error=st.sampled_from([None, *ERRORS]), late=st.booleans())
    def the_api_server(self, call: str, error: CloudError | None, *, late: bool) -> None:
        """Answers a kind of call with an error, before or after its effect."""
        self.error = (call, error, late)

    @rule(name=st.sampled_from([f"web-{each}" for each in IDS]))
    def a_budget(self, name: str) -> None:
        """A PodDisruptionBudget keeps a pod, or no more."""
        self.cluster.budgets ^= {name}

    @rule(name=st.sampled_from([f"web-{each}" for each in IDS]))
    def a_finalizer(self, name: str) -> None:
        """A pod never ends."""
        self.cluster.stuck ^= {name}

    @rule(node_id=st.sampled_from(IDS), enrolled=st.booleans())
    def a_tag(self, node_id: str, *, enrolled: bool) -> None:
        """Its owner enrols it or takes it back."""
        self.fleet.put(replace(self.fleet.nodes_[node_id], enrolled=enrolled))

    @rule(seconds=st.sampled_from([120.0, 900.0]))
    def a_pause(self, seconds: float) -> None:
        """Everything, for a time."""
        now = self.desk.clock.now()
        self.desk.ledger.pause(None, "ann", "", now, now + timedelta(seconds=seconds))

    @rule(seconds=st.sampled_from([60.0, 1800.0]))
    def the_controller_is_away(self, seconds: float) -> None:
        """Nobody makes rounds."""
        self.desk.rest(seconds)

    @invariant()
    def a_cordon_of_ours_is_on_record(self) -> None:
        """Its key is a cordon in the ledger."""
        if not hasattr(self, "desk"):
            return
        for node_id in IDS:
            key = self.cluster.nodes[node_of(node_id)].cordoned_by
            if key is not None:
                assert self.desk.ledger.identity.foreign((key,)) == (), "a cordon without a record"

    def teardown(self) -> None:
        """When all is well and everybody is busy again, no cordon of ours is left, and every person's is."""
        if not hasattr(self, "desk"):
            return
        self.error, self.cluster.trouble, self.arriving = ("", None, False), None, {}
        for node_id in IDS:
            self.deaf.discard(node_id)
            if self.fleet.nodes_[node_id].state is NodeState.RUNNING:
                self.fleet.show(node_id, State.BUSY, 0.0)
        for _ in range(45):
            self.desk.round()
        for node_id in IDS:
            node = self.cluster.nodes[node_of(node_id)]
            if self.fleet.nodes_[node_id].state is NodeState.RUNNING:
                ours = node.unschedulable and node.name not in self.persons
                assert not ours, f"{node.name} is left cordoned"
            assert node.name not in self.persons or node.unschedulable, f"a person's cordon of {node.name} was undone"
        lived(self.desk)


TestClusterLife = ClusterLife.TestCase
TestClusterLife.settings = settings(max_examples=max(4, LIVES // 3), stateful_step_count=25, deadline=None)
