"""A Kubernetes node that its cloud is about to take: its pods go while there is time, and only then."""

from dataclasses import replace
from datetime import timedelta

from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.kubernetes import Pod
from tests.support.builders.clusters import ENDING, ClusterDesk, a_cluster_desk, a_daemon, a_gpu_pod, a_pod
from tests.support.builders.fleet import a_verdict


def a_threatened_desk(*pods: Pod, minutes: float = 2.0) -> ClusterDesk:
    """A working node whose cloud takes it in two minutes."""
    desk = a_cluster_desk(ENDING, *pods, state=State.BUSY, held=0.0)
    threaten(desk, minutes)
    return desk


def threaten(desk: ClusterDesk, minutes: float | None) -> None:
    """From now on its agent says so; None: it says that there is no notice."""
    at = desk.clock.now() + timedelta(minutes=minutes or 0.0)
    notice = CloudNotice(kind="spot_interruption", action="terminate", deadline=at, seen_at=desk.clock.now())

    def answer(node: Node) -> NodeReport:
        told = (notice,) if minutes is not None and node.id == "i-1" else ()
        verdict = a_verdict(node.id, State.BUSY, 0.0, at=desk.clock.now())
        return NodeReport(verdict=replace(verdict, cloud_notices=told))

    desk.fleet.answer = answer


def verbs(desk: ClusterDesk) -> list[str]:
    """What the ledger has of the node, oldest first."""
    return [entry.intent.verb.value for entry in reversed(desk.ledger.history("i-1"))]


def test_a_working_node_is_evacuated_at_its_notice() -> None:
    """Cordoned and drained in one round; without consent and without being idle, for its cloud ends it anyway."""
    desk = a_threatened_desk(a_gpu_pod(interruptible=False), a_daemon())
    desk.round(30.0)

    assert desk.calls() == [("cordon", "node-1"), ("drain", "node-1")]
    assert [pod.name for pod in desk.cluster.evicted] == ["train-1"]
    desk.round(30.0)
    assert desk.calls() == [("cordon", "node-1"), ("drain", "node-1")]
    assert verbs(desk) == ["interruption", "evacuate"]


def test_what_must_stay_stays_to_the_end() -> None:
    """Protected pods, and those that nothing makes again."""
    desk = a_threatened_desk(a_pod("kept-1", protected="a mark"), a_pod("bare-1", bare=True), a_pod())
    desk.round(30.0)

    assert [pod.name for pod in desk.cluster.evicted] == ["web-1"]


def test_a_budgets_refusal_is_asked_again_until_the_deadline() -> None:
    """And no longer: then the cloud may have changed its mind."""
    desk = a_threatened_desk(a_pod())
    desk.cluster.budgets.add("web-1")
    for _ in range(10):
        desk.round(30.0)

    assert [call for call, _ in desk.calls()] == ["cordon"] + ["drain"] * 5
    assert desk.cluster.evicted == []


def test_a_node_that_is_not_taken_is_uncordoned() -> None:
    """At once when the notice is taken back; ten minutes after its deadline when it survives."""
    desk = a_threatened_desk(a_pod())
    desk.round(30.0)
    threaten(desk, None)
    desk.round(30.0)
    assert desk.calls("uncordon") == [("uncordon", "node-1")]
    assert verbs(desk)[-2:] in (["spared", "uncordon"], ["uncordon", "spared"])

    desk = a_threatened_desk(a_pod())
    for _ in range(11):
        desk.round()
    assert desk.calls("uncordon") == []
    for _ in range(3):
        desk.round()
    assert desk.calls("uncordon") == [("uncordon", "node-1")]


def test_nodes_that_gpuwatch_does_not_own_are_left_alone() -> None:
    """Their owner has a handler of its own; so has who cordoned one, or marked it."""
    rules = replace(ENDING, kubernetes=replace(ENDING.kubernetes, node_owner="karpenter"))
    desk = a_cluster_desk(rules, a_pod(), state=State.BUSY, held=0.0)
    threaten(desk, 2.0)
    desk.round()
    assert desk.calls() == []
    for mark in ({"unschedulable": True}, {"keep": "do-not-disrupt"}):
        desk = a_threatened_desk(a_pod())
        desk.cluster.put(replace(desk.cluster.nodes["node-1"], **mark))
        desk.round()
        assert desk.calls() == [], mark
