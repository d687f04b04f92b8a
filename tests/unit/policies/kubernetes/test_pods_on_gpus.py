"""Pods that hold GPUs without a request, or that the API server does not show: the agent's word keeps their node."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Reason, Step, Verb
from gpuwatch.model.fleet import Node, NodeReport, PodVerdict
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Pod
from gpuwatch.policies.kubernetes.nodes import node_steps
from tests.support.builders.clusters import OURS, a_cordon, a_daemon, a_gpu_pod, a_kubernetes_node, a_pod
from tests.support.builders.fleet import NOW, RULES, a_node, an_activity, an_observation

NODE_1 = a_kubernetes_node()
MINUTE = timedelta(minutes=1)


def a_step(verb: Verb = Verb.TERMINATE) -> Step:
    """What the other policies have decided."""
    return Step(node_id="i-1", verb=verb, reason=Reason(code="expired", sentence="It is idle."), change="Use.")


def seen(known: KubernetesNode | None, machine: Node) -> Observation:
    """A fleet of one machine, and the cluster that it is a node of."""
    observation = an_observation(replace(machine, kubernetes=known))
    view = ClusterView(name="prod", nodes=() if known is None else (known,))
    return replace(observation, fleet=replace(observation.fleet, cluster=view))


def with_pods(*pods: Pod) -> KubernetesNode:
    """The node with these pods and that of a DaemonSet."""
    return replace(NODE_1, pods=(a_daemon(), *pods))


def on_its_gpus(node: Node, *pods: Pod, state: State = State.IDLE, by_kubelet: bool = False) -> Node:
    """The machine whose agent sees these pods on its GPUs: by their processes, or by the kubelet's list."""
    verdict = node.verdict
    assert verdict is not None
    if by_kubelet:
        gpus = tuple(replace(gpu, pods=tuple(map(str, pods))) for gpu in verdict.gpus)
        return replace(node, signal=NodeReport(verdict=replace(verdict, gpus=gpus)))
    seen_pods = tuple(PodVerdict(uid=pod.uid, name=str(pod), activity=an_activity(state)) for pod in pods)
    return replace(node, signal=NodeReport(verdict=replace(verdict, pods=seen_pods)))


@pytest.mark.parametrize("by_kubelet", [False, True])
@pytest.mark.parametrize(
    ("pod", "verb"),
    [
        (a_pod(), Verb.HOLD),
        (a_pod(system=True), Verb.HOLD),
        (a_pod(interruptible=True), Verb.CORDON),
        (a_pod(interruptible=True, created_at=NOW - MINUTE), Verb.HOLD),
        (a_pod(daemon=True), Verb.CORDON),
        (a_pod(daemon=True, static=True), Verb.HOLD),
        (a_pod(daemon=True, static=True, interruptible=True), Verb.CORDON),
        (a_pod(daemon=True, static=True, system=True), Verb.CORDON),
    ],
    ids=[
        *("no consent", "of the system", "consent", "young", "a DaemonSet's"),
        *("static", "static with consent", "static of the system"),
    ],
)
def test_a_pod_that_its_agent_sees_on_a_gpu_holds_it_without_a_request(
    pod: Pod, verb: Verb, *, by_kubelet: bool
) -> None:
    """A privileged pod, one with a hostPath, or NVIDIA_VISIBLE_DEVICES=all: its people are asked, too."""
    known = with_pods(pod)
    observation = seen(known, on_its_gpus(a_node(), pod, by_kubelet=by_kubelet))

    assert node_steps([a_step()], observation, OURS)[0].verb is verb


def test_a_pod_with_gpus_of_the_system_goes_by_consent_only() -> None:
    """Who lists a namespace as the system's speaks of demand, not for the people who work there."""
    for consent, verb in ((False, Verb.HOLD), (True, Verb.CORDON)):
        known = with_pods(a_gpu_pod(system=True, interruptible=consent))
        assert node_steps([a_step()], seen(known, a_node()), OURS)[0].verb is verb


@pytest.mark.parametrize("state", [State.PARKED, State.STALLED, State.BUSY])
@pytest.mark.parametrize("cordoned", [False, True])
def test_a_pod_that_the_api_server_shows_no_more_keeps_its_node_while_a_gpu_is_in_use(
    state: State, *, cordoned: bool
) -> None:
    """Deleted by force, or by a kubelet that cannot end its processes: the agent sees who is still there."""
    known = a_cordon(NODE_1) if cordoned else NODE_1
    lost = on_its_gpus(a_node(state=state), a_gpu_pod())
    step = node_steps([a_step()], seen(known, lost), OURS)[0]

    assert step.verb is (Verb.UNCORDON if cordoned else Verb.HOLD)
    assert "team-a/train-1" in step.reason.sentence
    there = seen(with_pods(a_gpu_pod(ends_at=NOW)), lost)
    assert node_steps([a_step()], there, OURS)[0].verb is Verb.CORDON
    idle = seen(known, on_its_gpus(a_node(), a_gpu_pod()))
    assert node_steps([a_step()], idle, OURS)[0].verb is (Verb.TERMINATE if cordoned else Verb.CORDON)


@pytest.mark.parametrize("verb", [Verb.NOTICE, Verb.STOP, Verb.TERMINATE])
@pytest.mark.parametrize("cluster", [False, True])
def test_a_machine_with_pods_on_its_gpus_is_a_node_whatever_its_tags_say(verb: Verb, *, cluster: bool) -> None:
    """A cluster that somebody made without a cloud's help leaves no mark on machines; nobody knows its pods' people."""
    observation = seen(None, on_its_gpus(a_node(), a_gpu_pod()))
    if not cluster:
        observation = replace(observation, fleet=replace(observation.fleet, cluster=None))
    step = node_steps([a_step(verb)], observation, RULES)[0]

    assert (step.verb, step.reason.code) == (Verb.HOLD, "kubernetes_unknown")
    assert "team-a/train-1" in step.reason.sentence
