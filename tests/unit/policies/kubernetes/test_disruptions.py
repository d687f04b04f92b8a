"""PodDisruptionBudgets that would refuse an eviction: people read of them before the drain begins."""

from dataclasses import replace

import pytest

from gpuwatch.model.decision import Reason, Step, Verb
from gpuwatch.model.kubernetes import ClusterView, Pod
from gpuwatch.policies.kubernetes.nodes import node_steps
from gpuwatch.policies.kubernetes.steps import PODS, drain
from tests.support.builders.clusters import CLUSTER, OURS, a_daemon, a_kubernetes_node, a_pod
from tests.support.builders.fleet import NOW, a_node, an_observation


def told(*pods: Pod, verb: Verb = Verb.NOTICE) -> Step:
    """What comes of a step for a node with these pods and that of a DaemonSet."""
    known = replace(a_kubernetes_node(), pods=(a_daemon(), *pods))
    seen = an_observation(a_node(kubernetes=known))
    view = ClusterView(name="prod", nodes=(known,))
    step = Step(node_id="i-1", verb=verb, reason=Reason(code="x", sentence="It has been idle for 2h."), change="Use.")
    seen = replace(seen, fleet=replace(seen.fleet, cluster=view))
    return node_steps([step], seen, replace(OURS, kubernetes=CLUSTER))[0]


@pytest.mark.parametrize("verb", [Verb.NOTICE, Verb.TERMINATE])
def test_people_read_before_the_drain_which_budget_would_refuse(verb: Verb) -> None:
    """From the notice on, by name; pods that may go, or are going, are not named."""
    why = "the PodDisruptionBudget team/serve allows no eviction now: 1 are healthy, and 1 have to be"
    held = replace(a_pod("held"), refused_by=why)
    ending = replace(a_pod("ending"), refused_by=why, ends_at=NOW)
    step = told(held, a_pod("free"), ending, verb=verb)

    assert step.verb in {Verb.NOTICE, Verb.CORDON}
    assert step.reason.sentence.endswith(f" Kubernetes would now refuse to evict {held} ({why}).")
    assert "evict" not in told(a_pod("free"), verb=verb).reason.sentence


def test_many_refusals_are_few_words() -> None:
    """The first reasons by name, and how many more there are."""
    pods = [replace(a_pod(f"p-{number}"), refused_by=f"budget {number % 5}") for number in range(20)]
    sentence = told(*pods).reason.sentence

    assert sentence.count("budget") == 3
    assert "and 1 more (budget 0)" in sentence
    assert sentence.endswith("; and others for 2 more reasons.")


def test_while_a_budget_keeps_one_pod_nobody_elses_are_moved() -> None:
    """They are asked once that pod may go: a drain that cannot end moves nobody for nothing, hour after hour."""
    held, free = replace(a_pod("held"), refused_by="budget"), a_pod("free")

    def asked(*pods: Pod) -> str:
        known = replace(a_kubernetes_node(), pods=(a_daemon(), *pods))
        step = Step(node_id="i-1", verb=Verb.TERMINATE, reason=Reason(code="x", sentence="Idle."), change="Use.")
        return drain(step, known).arguments[PODS]

    assert asked(held, free) == held.uid
    assert set(asked(replace(held, refused_by=None), free).split()) == {held.uid, free.uid}
    assert asked(replace(held, ends_at=NOW), free) == free.uid
