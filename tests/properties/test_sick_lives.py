"""Generated lives of Kubernetes nodes with GPUs that fail and recover: who is moved, and what is undone.

Whatever happens in whatever order: no pod leaves that has to stay; a node that works is drained only where pool and
people say so; nothing is moved while many are sick; a machine that is ended was idle and drained; never more machines
come than were lost.
"""

import math
from dataclasses import replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.model.kubernetes import KubernetesNode, Pod
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.policies.kubernetes.steps import PODS
from tests.support.builders.clusters import ENDING, ClusterDesk, a_kubernetes_node, a_pod
from tests.support.builders.fleet import LIVES, a_node, lived

IDS = ("i-1", "i-2", "i-3", "i-4")
WAIT, RATIO = 300.0, 0.5
POOL = KubernetesRules(node_owner="gpuwatch", drain_timeout=300.0, drain_rest=600.0)
RULES = replace(
    ENDING,
    warm_up=60.0,
    idle=replace(ENDING.idle, timeout=WAIT, grace_period=120.0),
    kubernetes=POOL,
    launch=LaunchRules(template="lt-1"),
)
LIMITS = Limits(max_stops_per_round=2, max_stops_per_hour=4, max_stops_per_hour_ratio=1.0, mass_idleness_nodes=99)
ERRORS = [CloudUnavailableError("no answer"), ThrottledError("429"), AuthFailedError("forbidden")]
CALLS = ["node", "cordon", "uncordon", "drain"]
KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "let go": {"gpus": 1.0, "interruptible": True},
    "somebody's": {"gpus": 1.0},
    "protected": {"protected": "an annotation"},
    "bare": {"bare": True},
    "with data": {"local_data": "scratch"},
}


def node_of(node_id: str) -> str:
    """The name of a machine's node object."""
    return node_id.replace("i-", "node-")


class SickLife(RuleBasedStateMachine):
    """Four machines of one cluster whose GPUs may fail."""

    @initialize(
        action=st.sampled_from(["drain", "replace", "replace", "cordon"]),
        idle=st.sampled_from(["report", "terminate"]),
        busy=st.booleans(),
        taint=st.booleans(),
        sick=st.sampled_from(IDS),
        kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=2),
    )
    def begin(self, action: str, idle: str, sick: str, kinds: list[str], *, busy: bool, taint: bool) -> None:
        """Two idle for long, two at work, each with a pod to move; one is sick, and has some more."""
        self.health = HealthRules(
            action=action,  # type: ignore[arg-type]
            drain_busy=busy,
            taint=taint,
            drain_after=120.0,
            max_failing_ratio=RATIO,
            max_cordoned_ratio=RATIO,
        )
        idle = "terminate" if action == "replace" else idle
        rules = replace(RULES, health=self.health, idle=replace(RULES.idle, action=idle))  # type: ignore[arg-type]
        self.desk = ClusterDesk(rules=rules, limits=LIMITS)
        self.cluster, self.fleet = self.desk.cluster, self.desk.fleet
        self.number = 0
        self.sick = {sick}
        self.deaf: set[str] = set()
        self.persons: set[str] = set()
        self.ended_sick = 0
        self.error: tuple[str, CloudError | None, bool] = ("", None, False)
        self.fleet.answer = self.answer
        self.fleet.watch_stop = self.ended
        self.cluster.fault = lambda call, _: self.struck(call, late=False)
        self.cluster.lose = lambda call, _: self.struck(call, late=True)
        self.cluster.watch = self.watched
        for number, node_id in enumerate(IDS):
            state = State.IDLE if number % 2 else State.BUSY
            self.fleet.put(a_node(node_id, state, held=3600.0, managed_by="EKS cluster prod"))
            self.cluster.put(a_kubernetes_node(node_of(node_id)))
            self.cluster.bind(node_of(node_id), a_pod(f"web-{node_id}"))
        for number, kind in enumerate(kinds):
            self.cluster.bind(node_of(sick), a_pod(f"first-{number}", **KINDS[kind]))

    def answer(self, node: Node) -> NodeReport:
        """What its agent says."""
        verdict = node.signal.verdict
        if node.id in self.deaf or verdict is None:
            return NodeReport(failure="silence")
        state = Health.FAILING if node.id in self.sick else Health.HEALTHY
        gpus = tuple(replace(gpu, health=GpuHealth(state=state, since=None)) for gpu in verdict.gpus)
        return NodeReport(verdict=replace(verdict, at=self.desk.clock.now(), age_seconds=0.5, gpus=gpus))

    def struck(self, call: str, *, late: bool) -> CloudError | None:
        """The API server's error."""
        where, error, is_late = self.error
        return error if where == call and late is is_late else None

    def watched(self, call: str, node: KubernetesNode) -> None:
        """Look over the shoulder of every change of a node."""
        node_id = node.name.replace("node-", "i-")
        entries = self.desk.ledger.view(self.desk.clock.now()).open_intents
        verbs = {each.intent.verb: each.intent for each in entries if each.intent.node_id == node_id}
        assert verbs, "P12: a change without an earlier ledger record"
        assert node.name not in self.persons, f"{call} of a node that a person has cordoned"
        if call == "uncordon":
            return
        assert node_id not in self.deaf, f"P1: {call} while its agent was silent"
        assert self.cluster.trouble is None, f"P1: {call} while the cluster was not known"
        assert self.fleet.nodes_[node_id].enrolled, f"P3: {call} of what is not enrolled"
        if Verb.QUARANTINE in verbs:
            assert node_id in self.sick, "a node that is well was cordoned for its health"
        if Verb.EVICT in verbs:
            asked = frozenset(verbs[Verb.EVICT].arguments[PODS].split())
            self.moved(node_id, [pod for pod in node.to_drain if pod.uid in asked])

    def moved(self, node_id: str, pods: list[Pod]) -> None:
        """Nothing that has to stay; nothing of a node that works without the word of pool and people."""
        machine = self.fleet.nodes_[node_id]
        assert self.health.drains, "pods were moved where only a cordon is wanted"
        assert node_id in self.sick, "pods were moved from a node that is well"
        assert machine.protected is None, "P3: pods of a protected machine were moved"
        running = [each for each in self.fleet.nodes_.values() if each.state is NodeState.RUNNING]
        ailing = sum(each.id in self.sick and each.id not in self.deaf for each in running)
        assert ailing <= math.ceil(RATIO * len(running)), "pods were moved while many were sick"
        if not self.health.drain_busy:
            assert machine.activity.state is State.IDLE, f"P2: pods of a node that is {machine.activity.state} went"
            assert machine.activity.held_seconds >= WAIT
        for pod in pods:
            assert pod.protected is None, f"{pod} was moved"
            assert not pod.bare, f"{pod} was ended"
            assert pod.local_data is None, f"{pod} lost its data"
            assert pod.gpus <= 0 or pod.interruptible, f"{pod} was moved without consent"

    def ended(self, node_id: str, key: str) -> None:
        """A machine goes: idle, cordoned by us, and nothing to move is left on it."""
        del key
        known = self.cluster.nodes[node_of(node_id)]
        assert known.cordoned_by is not None
        assert known.to_drain == (), f"{node_id} was ended with {known.to_drain[0]} on it"
        assert node_id not in self.deaf
        assert self.fleet.nodes_[node_id].activity.state is State.IDLE
        self.ended_sick += node_id in self.sick

    @rule(count=st.sampled_from([1, 3, 8]))
    def some_rounds(self, count: int) -> None:
        """A few."""
        self.rounds(count)

    def rounds(self, count: int) -> None:
        """Time passes; the API server's errors do, too."""
        for number in range(count):
            self.error = self.error if number < 2 else ("", None, False)
            self.desk.round()

    @rule(quarters=st.sampled_from([1, 2]))
    def quarters_of_an_hour(self, quarters: int) -> None:
        """Time passes, as it mostly does."""
        self.rounds(15 * quarters)

    @rule()
    def twenty_minutes(self) -> None:
        """Likewise."""
        self.rounds(20)

    @rule(node_id=st.sampled_from(IDS))
    def a_gpu_fails_or_recovers(self, node_id: str) -> None:
        """Its agent says so from now on."""
        self.sick ^= {node_id}

    @rule(node_id=st.sampled_from(IDS), kind=st.sampled_from(sorted(KINDS)))
    def a_pod_comes(self, node_id: str, kind: str) -> None:
        """Where the node takes pods."""
        self.number += 1
        if not self.cluster.nodes[node_of(node_id)].unschedulable:
            pod = a_pod(f"p-{self.number}", created_at=self.desk.clock.now(), **KINDS[kind])
            self.cluster.bind(node_of(node_id), pod)

    @rule(node_id=st.sampled_from(IDS))
    def pods_end(self, node_id: str) -> None:
        """All that is not a DaemonSet's."""
        node = self.cluster.nodes[node_of(node_id)]
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

    @rule(
        node_id=st.sampled_from(IDS),
        protected=st.sampled_from([None, None, "a tag"]),
        enrolled=st.sampled_from([True, True, False]),
    )
    def a_tag(self, node_id: str, protected: str | None, *, enrolled: bool) -> None:
        """Its owner protects it, enrols it, or takes it back."""
        self.fleet.put(replace(self.fleet.nodes_[node_id], protected=protected, enrolled=enrolled))

    @rule(node_id=st.sampled_from(IDS))
    def a_person_cordons_or_uncordons(self, node_id: str) -> None:
        """By kubectl: annotations and taints stay."""
        node = self.cluster.nodes[node_of(node_id)]
        if node.unschedulable:
            self.cluster.put(replace(node, unschedulable=False, cordoned_by=None, cordoned_at=None))
            self.persons.discard(node.name)
        elif node.tainted_by is None:
            self.cluster.put(replace(node, unschedulable=True))
            self.persons.add(node.name)

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
    def never_more_come_than_were_lost(self) -> None:
        """One for each sick machine that was ended, and so many a day at most."""
        if hasattr(self, "desk"):
            came = len({key for call, _, key in self.fleet.calls if call == "launch"})
            wanted = self.ended_sick if self.health.action == "replace" else 0
            assert came <= min(wanted, self.health.max_replacements_per_day)

    def teardown(self) -> None:
        """When all are well and at work, no cordon and no taint of ours is left, and every person's cordon is."""
        if not hasattr(self, "desk"):
            return
        self.error, self.cluster.trouble = ("", None, False), None
        self.sick.clear()
        self.deaf.clear()
        for node_id in IDS:
            if self.fleet.nodes_[node_id].state is NodeState.RUNNING:
                self.fleet.show(node_id, State.BUSY, 0.0)
        for _ in range(45):
            self.desk.round()
        for node_id in IDS:
            node = self.cluster.nodes[node_of(node_id)]
            if self.fleet.nodes_[node_id].state is NodeState.RUNNING:
                assert not node.unschedulable or node.name in self.persons, f"{node.name} is left cordoned"
                assert node.tainted_by is None, f"{node.name} is left tainted"
            assert node.name not in self.persons or node.unschedulable, f"a person's cordon of {node.name} was undone"
        lived(self.desk)


TestSickLife = SickLife.TestCase
TestSickLife.settings = settings(max_examples=max(4, LIVES // 3), stateful_step_count=15, deadline=None)
