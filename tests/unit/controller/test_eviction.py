"""Pods leave a sick node over several rounds: what happens between the look and the eviction stops the whole call."""

from dataclasses import replace

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import OURS, ClusterDesk, a_cluster_desk, a_gpu_pod, a_pod

DRAIN = HealthRules(action="drain", drain_after=120.0, max_failing_ratio=0.5, max_cordoned_ratio=0.5)


def a_sick_desk(health: HealthRules = DRAIN, state: State = State.IDLE) -> ClusterDesk:
    """The machine i-1 has a failing GPU, a pod to move and one that its people let go; i-2 beside it works."""
    idle = replace(OURS.idle, action="report")
    desk = a_cluster_desk(replace(OURS, health=health, idle=idle), a_pod(), a_gpu_pod(), state=state)

    def answer(node: Node) -> NodeReport:
        verdict = node.signal.verdict
        assert verdict is not None
        now, state = desk.clock.now(), Health.FAILING if node.id == "i-1" else Health.HEALTHY
        gpus = tuple(replace(gpu, health=GpuHealth(state=state, since=now)) for gpu in verdict.gpus)
        return NodeReport(verdict=replace(verdict, at=now, age_seconds=0.5, gpus=gpus))

    desk.fleet.answer = answer
    return desk


def evicted(desk: ClusterDesk) -> set[str]:
    """The pods that were asked to go."""
    return {pod.name for pod in desk.cluster.evicted}


def ends(desk: ClusterDesk, verb: Verb) -> list[Status]:
    """How each intent of that verb ended, oldest first."""
    history = reversed(desk.ledger.history("i-1", limit=100))
    return [entry.outcomes[-1].status for entry in history if entry.intent.verb is verb]


def test_a_sick_node_is_cordoned_and_some_time_later_empty() -> None:
    """Without a notice, as no machine goes; the working one is not touched."""
    desk = a_sick_desk()
    desk.round()
    assert desk.calls() == [("cordon", "node-1")]
    for _ in range(5):
        desk.round()

    assert evicted(desk) == {"web-1", "train-1"}
    assert set(ends(desk, Verb.EVICT)) == {Status.SETTLED}
    assert ends(desk, Verb.NOTICE) == []
    assert desk.cluster.nodes["node-1"].unschedulable
    assert not desk.cluster.nodes["node-2"].unschedulable


def test_a_pod_that_is_protected_at_the_last_moment_stops_the_whole_eviction() -> None:
    """The next round asks the others."""
    desk = a_sick_desk()
    for _ in range(2):
        desk.round()
    looked: list[str] = []

    def protects(call: str, name: str) -> None:
        if call == "node" and name == "node-1" and not looked:
            looked.append(name)
            known = desk.cluster.nodes[name]
            pods = tuple(replace(pod, protected="ann") if pod.name == "web-1" else pod for pod in known.pods)
            desk.cluster.put(replace(known, pods=pods))

    desk.cluster.befalls = protects
    while not looked:
        desk.round()
    assert evicted(desk) == set()
    assert ends(desk, Verb.EVICT) == [Status.CANCELLED]
    desk.round()
    assert evicted(desk) == {"train-1"}


def test_work_that_begins_at_the_last_moment_keeps_all_pods() -> None:
    """The agent is asked last."""
    desk = a_sick_desk()
    for _ in range(2):
        desk.round()

    def works(call: str, name: str) -> None:
        if call == "node" and name == "node-1":
            desk.fleet.show("i-1", State.BUSY, 0.0)

    desk.cluster.befalls = works
    for _ in range(10):
        desk.round()
    assert evicted(desk) == set()
    assert Status.SETTLED not in ends(desk, Verb.EVICT)


@pytest.mark.parametrize("busy", [False, True])
def test_a_node_that_works_is_drained_by_two_words_only(*, busy: bool) -> None:
    """`drain_busy` of the pool; `interruptible` is the pod's own."""
    desk = a_sick_desk(replace(DRAIN, drain_busy=busy), State.BUSY)
    for _ in range(8):
        desk.round()
    assert evicted(desk) == ({"web-1", "train-1"} if busy else set())


def test_a_budget_keeps_its_pod_and_the_node_its_cordon_beyond_the_time_of_the_drain() -> None:
    """It is asked each round, then once an hour; nothing is given back."""
    desk = a_sick_desk()
    desk.cluster.budgets.add("web-1")
    for _ in range(40):
        desk.round()
    asked = len(ends(desk, Verb.EVICT))
    assert asked <= OURS.kubernetes.drain_timeout / 60 + 2
    assert desk.cluster.nodes["node-1"].unschedulable
    for _ in range(60):
        desk.round()
    assert len(ends(desk, Verb.EVICT)) == asked + 1
    assert Verb.UNCORDON not in {entry.intent.verb for entry in desk.ledger.history("i-1", limit=200)}


def test_observe_only_asks_nobody() -> None:
    """It says what it would do."""
    desk = a_sick_desk()
    desk.enforce = False
    for _ in range(6):
        desk.round()
    assert desk.cluster.calls == []


def test_a_working_node_of_another_autoscaler_is_marked_and_given_back_by_the_setting() -> None:
    """Once each; the mark bears its key, and a machine is never touched."""
    theirs = KubernetesRules(node_owner="karpenter", mark_busy=True)
    desk = a_cluster_desk(replace(OURS, kubernetes=theirs), state=State.BUSY)
    for _ in range(4):
        desk.round()
    assert sorted(desk.calls()) == [("mark", "node-1"), ("mark", "node-2")]
    assert desk.cluster.nodes["node-1"].marked_by is not None

    desk.rules = replace(OURS, kubernetes=replace(theirs, mark_busy=False))
    for _ in range(3):
        desk.round()
    assert sorted(desk.calls("unmark")) == [("unmark", "node-1"), ("unmark", "node-2")]
    assert {node.marked_by for node in desk.cluster.nodes.values()} == {None}
    assert desk.fleet.calls == []
    assert desk.ledger.view(desk.clock.now()).open_intents == ()
