"""The removal of a Kubernetes node: one step a round, and back from wherever it stands."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Observation, Reason, Status, Step, Verb
from gpuwatch.model.fleet import Fleet, NodeReport, NodeState
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Pod, PodPhase
from gpuwatch.model.orders import Pause
from gpuwatch.model.verbs import THEN
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.nodes import node_steps
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.policies.kubernetes.steps import NODE, PODS, UID, UNDOES
from tests.support.builders.clusters import (
    CLUSTER,
    OURS,
    a_cordon,
    a_daemon,
    a_gpu_pod,
    a_kubernetes_node,
    a_pod,
    a_workload,
)
from tests.support.builders.fleet import NOW, RULES, a_node, a_notice, an_observation

NODE_1 = a_kubernetes_node()
MINUTE = timedelta(minutes=1)


def a_step(verb: Verb = Verb.TERMINATE, code: str = "expired") -> Step:
    """What the other policies have decided."""
    return Step(node_id="i-1", verb=verb, reason=Reason(code=code, sentence="It has been idle for 2h."), change="Use.")


def seen(
    known: KubernetesNode | None,
    *,
    trouble: str | None = None,
    machine: NodeState = NodeState.RUNNING,
    ledger: object = None,
    **node: object,
) -> Observation:
    """A fleet of one machine, and the cluster that it is a node of."""
    base = replace(a_node(kubernetes=known, **node), state=machine)  # type: ignore[arg-type]
    observation = an_observation(base, **(ledger or {}))  # type: ignore[arg-type]
    view = ClusterView(name="prod", trouble=trouble, nodes=() if known is None else (known,))
    return replace(observation, fleet=replace(observation.fleet, cluster=view))


def told(
    known: KubernetesNode | None, verb: Verb = Verb.TERMINATE, rules: KubernetesRules = CLUSTER, **other: object
) -> Step:
    """The step that comes of it."""
    code = str(other.pop("code", "expired"))
    pool = replace(OURS, kubernetes=rules, health=HealthRules(action="cordon"))
    return node_steps([a_step(verb, code)], seen(known, **other), pool)[0]  # type: ignore[arg-type]


def with_pods(*pods: Pod, **other: object) -> KubernetesNode:
    """The node with these pods and that of a DaemonSet."""
    return replace(NODE_1, pods=(a_daemon(), *pods), **other)  # type: ignore[arg-type]


def done(verb: Verb, minutes_ago: float, why: str = "Its drain was not over.") -> Done:
    """What the ledger holds of that."""
    at = NOW - minutes_ago * MINUTE
    return Done(key="gpuwatch-1", verb=verb, node_id="i-1", pool="default", status=Status.SETTLED, at=at, why=why)


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.TERMINATE, Verb.UNPROTECT])
def test_a_removal_begins_with_a_cordon_that_names_it(verb: Verb) -> None:
    """No pod comes any more; what follows is on record with it."""
    step = told(NODE_1, verb)

    assert step.verb is Verb.CORDON
    assert step.arguments == {NODE: "node-1", UID: "uid-node-1", "cluster": "prod", THEN: verb.value}
    assert step.reason.sentence.startswith("It has been idle for 2h.")


def test_pods_are_asked_to_go_by_their_uids_once_the_node_is_cordoned() -> None:
    """Those of DaemonSets stay, and those that are ending are not asked again."""
    known = a_cordon(with_pods(a_pod("b"), a_gpu_pod("a"), a_pod("c", ends_at=NOW)))
    step = told(known)

    assert step.verb is Verb.DRAIN
    assert step.arguments[PODS] == "uid-a uid-b"
    assert "team-a/a, team-a/b are to move" in step.reason.sentence


def test_while_pods_are_ending_nothing_is_done() -> None:
    """Asking twice moves nothing."""
    step = told(a_cordon(with_pods(a_pod(ends_at=NOW))))

    assert (step.verb, step.reason.code) == (Verb.HOLD, "draining")
    assert "team-a/web-1 is ending" in step.reason.sentence


def test_a_drained_node_is_removed_as_was_decided() -> None:
    """With the words and arguments of the removal itself."""
    assert told(a_cordon(NODE_1)) == a_step()


@pytest.mark.parametrize(("minutes", "waits"), [(1, True), (14, True), (16, False)])
def test_volumes_of_pods_that_have_gone_are_detached_first(minutes: float, *, waits: bool) -> None:
    """A volume that goes down with its machine keeps its pod waiting elsewhere; `drain_timeout` ends the wait."""
    known = a_cordon(replace(NODE_1, attached=("pvc-1", "pvc-2")), at=NOW - minutes * MINUTE)
    step = told(known)

    assert (step.verb is Verb.HOLD) == waits
    assert not waits or step.reason.sentence == (
        "Its pods are gone, and the volume pvc-1 and 1 more are still attached to it."
    )
    assert waits or step == a_step()


def test_a_machine_in_no_cluster_is_none_of_its_business() -> None:
    """Whatever the step."""
    for verb in Verb:
        observation = an_observation(a_node())
        assert node_steps([a_step(verb)], observation, RULES)[0] == a_step(verb)


STAY = {
    "no consent": a_gpu_pod(interruptible=False),
    "snoozed": a_gpu_pod(workload=a_workload(snoozed_until=NOW + MINUTE)),
    "another idle action": a_gpu_pod(interruptible=False, workload=a_workload(idle_action="tell")),
    "protected": a_pod(protected="gpuwatch.io/protect on its namespace"),
    "GPUs and protected": a_gpu_pod(protected="an annotation"),
    "local data": a_pod(local_data="scratch"),
    "bare": a_pod(bare=True),
    "just bound": a_gpu_pod(phase=PodPhase.PENDING),
    "lost": a_gpu_pod(phase=PodPhase.UNKNOWN),
    "younger than the wait": a_gpu_pod(created_at=NOW - 29 * MINUTE),
    "of unknown age": a_gpu_pod(created_at=None),
    "a DaemonSet's, with GPUs": a_gpu_pod(daemon=True, interruptible=False),
}


@pytest.mark.parametrize("name", STAY)
def test_a_pod_that_must_not_move_keeps_its_node(name: str) -> None:
    """Neither notice nor cordon; a notice is withdrawn, an own cordon is undone, and each names the pod."""
    known, pod = with_pods(STAY[name]), str(STAY[name])
    notice = {"notices": (a_notice(action="terminate"),)}

    for step, verb in (
        (told(known), Verb.HOLD),
        (told(known, Verb.NOTICE), Verb.HOLD),
        (told(known, ledger=notice), Verb.WITHDRAW),
        (told(a_cordon(known)), Verb.UNCORDON),
    ):
        assert step.verb is verb, name
        assert pod in step.reason.sentence


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(),
        a_gpu_pod(),
        a_gpu_pod(interruptible=False, workload=a_workload(idle_action="scale-to-zero")),
        a_pod(local_data="scratch", loses_local_data=True),
        a_gpu_pod(interruptible=False, ends_at=NOW),
        a_pod(phase=PodPhase.SUCCEEDED, bare=True),
        a_gpu_pod(system=True, interruptible=False, daemon=True),
    ],
)
def test_a_pod_that_may_move_keeps_no_node(pod: Pod) -> None:
    """It is drained, has ended, is about to, or serves the cluster."""
    assert told(with_pods(pod)).verb is Verb.CORDON


def test_a_bare_pod_goes_where_the_pool_says_so() -> None:
    """Nothing makes it again."""
    assert told(with_pods(a_pod(bare=True)), rules=replace(CLUSTER, bare_pods="evict")).verb is Verb.CORDON


@pytest.mark.parametrize("state", [State.PARKED, State.OCCUPIED, State.STALLED])
def test_what_is_not_idle_is_no_proof_for_a_pod_with_gpus(state: State) -> None:
    """Also in a pool that removes parked nodes: their consent is for idle pods."""
    node = a_node(state=state).signal
    step = told(with_pods(a_gpu_pod()), signal=node)

    assert step.verb is Verb.HOLD
    assert "not proven idle" in step.reason.sentence


def test_a_pod_that_came_back_undoes_the_cordon() -> None:
    """Between look and cordon somebody's pod was bound."""
    step = told(a_cordon(with_pods(a_gpu_pod(interruptible=False)), key="gpuwatch-9"))

    assert step.verb is Verb.UNCORDON
    assert step.arguments[UNDOES] == "gpuwatch-9"
    assert step.arguments[NODE] == "node-1"


@pytest.mark.parametrize("verb", [Verb.HOLD, Verb.WITHDRAW, Verb.PROTECT, Verb.NOTICE])
def test_what_is_not_to_be_removed_any_more_gets_its_pods_back(verb: Verb) -> None:
    """The node works, somebody keeps it, or the floor holds it: the reason is that of the step."""
    step = told(a_cordon(NODE_1), verb, code="busy")

    assert step.verb is Verb.UNCORDON
    assert step.reason.sentence.startswith("It has been idle for 2h.")


def test_unknown_use_waits_for_the_end_of_the_cordons_time() -> None:
    """One lost answer of an agent undoes nothing, a silence does."""
    assert told(a_cordon(NODE_1), Verb.HOLD, code="unknown").verb is Verb.HOLD
    late = a_cordon(NODE_1, at=NOW - 31 * MINUTE)
    assert told(late, Verb.HOLD, code="unknown").verb is Verb.UNCORDON


@pytest.mark.parametrize(
    ("pods", "minutes", "verb"),
    [
        ((a_pod(),), 15, Verb.DRAIN),
        ((a_pod(),), 16, Verb.UNCORDON),
        ((a_pod(ends_at=NOW),), 16, Verb.UNCORDON),
        ((), 16, Verb.TERMINATE),
        ((), 31, Verb.UNCORDON),
        ((), -2, Verb.UNCORDON),
    ],
)
def test_a_cordon_has_its_time(pods: tuple[Pod, ...], minutes: float, verb: Verb) -> None:
    """Fifteen minutes to drain, as long again to remove; a cordon of the future has no time at all."""
    assert told(a_cordon(with_pods(*pods), at=NOW - minutes * MINUTE)).verb is verb


def test_a_cordon_of_unknown_time_is_undone() -> None:
    """Nobody knows how long it has been so."""
    assert told(replace(a_cordon(NODE_1), cordoned_at=None)).verb is Verb.UNCORDON


@pytest.mark.parametrize(
    ("known", "ledger"),
    [
        (replace(NODE_1, unschedulable=True), {}),
        (a_cordon(NODE_1, key="gpuwatch-other-1"), {"foreign": ("gpuwatch-other-1",)}),
    ],
    ids=["a person's", "another controller's"],
)
@pytest.mark.parametrize("verb", [*Verb])
def test_somebody_elses_cordon_is_neither_undone_nor_used(
    verb: Verb, known: KubernetesNode, ledger: dict[str, object]
) -> None:
    """Whatever is decided about the node."""
    step = told(known, verb, ledger=ledger)

    assert step.verb not in {Verb.CORDON, Verb.DRAIN, Verb.STOP, Verb.TERMINATE, Verb.UNPROTECT, Verb.NOTICE}
    assert step.verb is not Verb.UNCORDON or verb is Verb.UNCORDON


def test_a_cluster_in_doubt_gives_back_and_takes_nothing() -> None:
    """The notice waits; the cordon does not."""
    notice = {"notices": (a_notice(action="terminate"),)}
    for known, verb in ((NODE_1, Verb.HOLD), (a_cordon(NODE_1), Verb.UNCORDON), (None, Verb.HOLD)):
        step = told(known, trouble="It is silent.", ledger=notice)
        assert step.verb is verb
        assert "It is silent." in step.reason.sentence


def test_an_older_machine_beside_a_silent_cluster_is_no_node_of_it() -> None:
    """It was there when the cluster was seen last and was none of its nodes; a young one may have become one."""
    view = ClusterView(name="prod", trouble="It is silent.", silent_seconds=300.0, nodes=(NODE_1,))
    for launched, verb in ((NOW - timedelta(days=1), Verb.STOP), (NOW - 12 * MINUTE, Verb.HOLD), (None, Verb.HOLD)):
        fleet = Fleet(observed_at=NOW, nodes=(a_node(launched_at=launched),), cluster=view)
        observation = Observation(now=NOW, fleet=fleet)
        assert node_steps([a_step(Verb.STOP)], observation, RULES)[0].verb is verb


@pytest.mark.parametrize(
    ("rules", "labels", "word"),
    [
        (KubernetesRules(), None, "does not say who"),
        (KubernetesRules(node_owner="karpenter"), None, "karpenter removes"),
        (KubernetesRules(node_owner="cluster-autoscaler"), None, "cluster-autoscaler removes"),
        (CLUSTER, "karpenter", "marks say that karpenter"),
    ],
)
def test_other_autoscalers_are_not_fought(rules: KubernetesRules, labels: str | None, word: str) -> None:
    """Its pool names another owner or none, or its labels do: not even a notice."""
    known = replace(NODE_1, owner=labels)  # type: ignore[arg-type]  # one of its words
    for verb in (Verb.NOTICE, Verb.TERMINATE):
        step = told(known, verb, rules)
        assert step.verb is Verb.HOLD
        assert word in step.reason.sentence


def test_marks_on_the_node_object_keep_it() -> None:
    """do-not-disrupt and its like."""
    step = told(replace(NODE_1, keep="karpenter.sh/do-not-disrupt is true"), Verb.NOTICE)

    assert (step.verb, step.reason.code) == (Verb.HOLD, "kept_node")


def test_a_machine_of_the_pool_that_is_no_node_is_left_alone() -> None:
    """Its node object is gone, or it never joined: nobody knows what runs there."""
    assert told(None).verb is Verb.HOLD
    assert told(None, machine=NodeState.STOPPED, signal=NodeReport()).verb is Verb.TERMINATE


def test_after_an_undone_cordon_the_notice_is_withdrawn_with_the_reason_and_the_node_rests() -> None:
    """Its owner reads why it stays; an hour later all begins anew."""
    ledger = {"recent": (done(Verb.UNCORDON, 5),), "notices": (a_notice(age=1200.0, action="terminate"),)}
    step = told(NODE_1, ledger=ledger)
    assert (step.verb, step.reason.sentence) == (Verb.WITHDRAW, "Its drain was not over.")

    for minutes, verb in ((5, Verb.HOLD), (59, Verb.HOLD), (60, Verb.NOTICE)):
        assert told(NODE_1, Verb.NOTICE, ledger={"recent": (done(Verb.UNCORDON, minutes),)}).verb is verb


def test_what_somebody_uncordoned_is_not_cordoned_again() -> None:
    """`kubectl uncordon` is a word like any other: notice withdrawn, then the rest."""
    ledger = {"recent": (done(Verb.CORDON, 3),), "notices": (a_notice(age=1200.0, action="terminate"),)}
    assert told(NODE_1, ledger=ledger).verb is Verb.WITHDRAW
    assert told(replace(NODE_1, cordoned_by="k", cordoned_at=NOW)).verb is Verb.UNCORDON


def test_a_view_that_lags_behind_the_cordon_is_waited_for() -> None:
    """For two minutes nobody takes it for an uncordoning."""
    ledger = {"recent": (done(Verb.CORDON, 1),), "notices": (a_notice(age=1200.0, action="terminate"),)}
    assert told(NODE_1, ledger=ledger).verb is Verb.HOLD


def test_a_pause_and_the_end_of_enrolment_give_the_node_back() -> None:
    """Nothing will happen to it: no pod has to wait for that."""
    pause = {"pauses": (Pause(pool=None, at=NOW, who="ann", reason=""),)}
    assert told(a_cordon(NODE_1), ledger=pause).verb is Verb.UNCORDON
    assert told(a_cordon(NODE_1), enrolled=False).verb is Verb.UNCORDON
    assert told(NODE_1, ledger=pause).verb is Verb.CORDON  # the guard says no


@pytest.mark.parametrize(
    ("state", "ready", "verb"),
    [
        (NodeState.STOPPING, True, Verb.HOLD),
        (NodeState.TERMINATING, False, Verb.HOLD),
        (NodeState.STOPPED, True, Verb.HOLD),
        (NodeState.STOPPED, False, Verb.UNCORDON),
    ],
)
def test_a_machine_on_its_way_down_keeps_its_cordon_until_kubernetes_knows(
    state: NodeState, verb: Verb, *, ready: bool
) -> None:
    """And gets it off then: whoever starts it again finds it as it was."""
    known = replace(a_cordon(NODE_1), ready=ready)
    assert told(known, Verb.HOLD, machine=state, code="not_running").verb is verb
