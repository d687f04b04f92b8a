"""A Kubernetes node with a failing GPU: its cordon, what may leave it, and what has to stay."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Observation, Reason, Status, Step, Verb
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Pod
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.nodes import node_steps
from gpuwatch.policies.kubernetes.steps import FREED, NODE, PODS, TAINT, UNDOES
from tests.support.builders.clusters import OURS, a_cordon, a_daemon, a_gpu_pod, a_kubernetes_node, a_pod
from tests.support.builders.fleet import NOW, a_node, a_notice, a_verdict, an_observation

NODE_1 = a_kubernetes_node()
MINUTE = timedelta(minutes=1)


def seen(known: KubernetesNode, others: int = 0, *, ledger: object = None, **node: object) -> Observation:
    """A fleet of one machine and its node, and `others` with a failing GPU of the same pool."""
    more = tuple(a_node(f"i-{9 - each}", signal=a_sick_report()) for each in range(others))
    observation = an_observation(a_node(kubernetes=known, **node), *more, **(ledger or {}))  # type: ignore[arg-type]
    return replace(observation, fleet=replace(observation.fleet, cluster=ClusterView(name="prod", nodes=(known,))))


def told(known: KubernetesNode, verb: Verb = Verb.TERMINATE, **other: object) -> Step:
    """The step that comes of it; what the pool does about sick nodes is `health`, `cordon` by default."""
    reason = Reason(code=str(other.pop("code", "expired")), sentence="It has been idle for 2h.")
    step = Step(node_id="i-1", verb=verb, reason=reason, change="Use.")
    health: object = other.pop("health", HealthRules(action="cordon"))
    pool = replace(OURS, health=health)  # type: ignore[arg-type]
    return node_steps([step], seen(known, **other), pool)[0]  # type: ignore[arg-type]


def with_pods(*pods: Pod, **other: object) -> KubernetesNode:
    """The node with these pods and that of a DaemonSet."""
    return replace(NODE_1, pods=(a_daemon(), *pods), **other)  # type: ignore[arg-type]


def done(verb: Verb, minutes_ago: float, **other: object) -> Done:
    """What the ledger holds of that."""
    at = NOW - minutes_ago * MINUTE
    base = Done(key="gpuwatch-1", verb=verb, node_id="i-1", pool="default", status=Status.SETTLED, at=at)
    return replace(base, **other)  # type: ignore[arg-type]


def a_sick_report(state: State = State.BUSY) -> NodeReport:
    """An agent that calls its GPU failing."""
    verdict = a_verdict(state=state, held=7200.0)
    gpus = tuple(replace(gpu, health=GpuHealth(state=Health.FAILING, since=NOW)) for gpu in verdict.gpus)
    return NodeReport(verdict=replace(verdict, gpus=gpus))


def test_a_sick_node_gets_no_new_pods_and_keeps_those_that_it_has() -> None:
    """Also one that works: it is cordoned once, never drained, and given back once it is well."""
    ill = a_sick_report()
    known = with_pods(a_gpu_pod(interruptible=False))
    step = told(known, Verb.HOLD, code="busy", signal=ill)
    assert (step.verb, step.arguments[NODE]) == (Verb.QUARANTINE, "node-1")
    assert "GPU 0 is failing" in step.reason.sentence

    late = a_cordon(known, at=NOW - timedelta(days=3))
    assert told(late, Verb.HOLD, code="busy", signal=ill).verb is Verb.HOLD
    assert told(late, Verb.WITHDRAW, code="busy", signal=ill).verb is Verb.WITHDRAW
    assert told(late, Verb.HOLD, code="busy", signal=NodeReport(verdict=a_verdict(state=State.BUSY))).verb is (
        Verb.UNCORDON
    )


def test_a_silent_agent_does_not_heal_its_node() -> None:
    """What was cordoned for its health stays so until somebody says that it is well."""
    ledger = {"recent": (done(Verb.QUARANTINE, 40),)}
    late = a_cordon(NODE_1, at=NOW - 40 * MINUTE)
    assert told(late, Verb.HOLD, code="unknown", ledger=ledger, signal=NodeReport(failure="silence")).verb is Verb.HOLD


def test_a_sick_node_that_somebody_uncordoned_is_not_cordoned_again_at_once() -> None:
    """A person's word."""
    ledger = {"recent": (done(Verb.QUARANTINE, 30),)}
    assert told(NODE_1, Verb.HOLD, code="busy", ledger=ledger, signal=a_sick_report()).verb is Verb.HOLD


def test_a_sick_node_that_becomes_idle_goes_as_any_other() -> None:
    """However long it has been cordoned: notice, drain in its time from the notice's end on, and the end."""
    ill, long_ago = a_sick_report(State.IDLE), NOW - timedelta(days=3)
    empty, full = a_cordon(NODE_1, at=long_ago), a_cordon(with_pods(a_pod()), at=long_ago)
    assert told(empty, Verb.NOTICE, signal=ill).verb is Verb.NOTICE
    fresh = {"notices": (a_notice(age=660.0, action="terminate"),)}
    assert told(full, signal=ill, ledger=fresh).verb is Verb.DRAIN
    assert told(empty, signal=ill, ledger=fresh).verb is Verb.TERMINATE
    old = {"notices": (a_notice(age=3600.0, action="terminate"),)}
    assert told(full, signal=ill, ledger=old).verb is Verb.HOLD
    unconsented = a_cordon(with_pods(a_gpu_pod(interruptible=False)), at=long_ago)
    assert told(unconsented, signal=ill, ledger=fresh).verb is Verb.WITHDRAW
    assert told(unconsented, Verb.NOTICE, signal=ill).verb is Verb.HOLD


def drained(*pods: Pod, state: State = State.IDLE, age: timedelta = timedelta(minutes=20), **other: object) -> Step:
    """The step of a node that was cordoned so long ago for its health, has these pods, and is otherwise kept."""
    known = a_cordon(with_pods(*pods), at=NOW - age)
    health = other.pop("health", None) or HealthRules(action="drain", **other.pop("rules", {}))  # type: ignore[arg-type]
    return told(known, Verb.HOLD, code="waiting", signal=a_sick_report(state), health=health, **other)


BUSY = {"drain_busy": True}


@pytest.mark.parametrize(
    ("pods", "state", "rules", "asked"),
    [
        ((a_pod("web"), a_gpu_pod("idle")), State.IDLE, {}, "uid-idle uid-web"),
        ((a_pod("web"), a_gpu_pod("mine", interruptible=False)), State.IDLE, {}, None),
        ((a_gpu_pod("idle"), a_gpu_pod("mine", interruptible=False)), State.IDLE, {}, "uid-idle"),
        ((a_pod("web"), a_pod("kept", protected="a mark")), State.IDLE, {}, "uid-web"),
        ((a_pod("bare", bare=True),), State.IDLE, {}, None),
        ((a_pod("data", local_data="scratch"),), State.IDLE, {}, None),
        ((a_gpu_pod("young", created_at=NOW),), State.IDLE, {}, None),
        ((a_pod("web"), a_gpu_pod("works")), State.BUSY, {}, None),
        ((a_gpu_pod("parked"),), State.PARKED, {}, None),
        ((a_gpu_pod("unseen"),), State.UNKNOWN, {}, None),
        ((a_pod("web"), a_gpu_pod("works")), State.BUSY, BUSY, "uid-web uid-works"),
        ((a_pod("web"), a_gpu_pod("works", interruptible=False)), State.BUSY, BUSY, None),
        ((a_gpu_pod("works", protected="a mark"),), State.BUSY, BUSY, None),
        ((a_gpu_pod("unseen"),), State.UNKNOWN, BUSY, "uid-unseen"),
        ((a_pod("ending", ends_at=NOW),), State.IDLE, {}, None),
    ],
)
def test_who_may_leave_a_sick_node(
    pods: tuple[Pod, ...], state: State, rules: dict[str, object], asked: str | None
) -> None:
    """What is idle and let go; what works only where pool and people say so; the rest is named and stays."""
    step = drained(*pods, state=state, rules=rules)

    assert step.verb is (Verb.HOLD if asked is None else Verb.EVICT)
    assert step.arguments.get(PODS) == asked
    assert "GPU 0 is failing" in step.reason.sentence


def test_consent_for_idle_pods_is_none_for_busy_ones() -> None:
    """`gpuwatch.io/idle-action` speaks of idle pods."""
    pod = a_gpu_pod("nb", interruptible=False)
    consents = replace(pod, workload=replace(pod.workload, idle_action="stop"))
    assert drained(consents).verb is Verb.EVICT
    assert drained(consents, state=State.BUSY, rules=BUSY).verb is Verb.HOLD


def test_what_stays_is_named() -> None:
    """With the reason, beside what goes."""
    said = drained(a_gpu_pod("idle"), a_gpu_pod("mine", interruptible=False)).reason.sentence
    assert "team-a/idle is to move" in said
    assert "team-a/mine holds GPUs, and nobody has said that it may go" in said


@pytest.mark.parametrize("action", ["tell", "cordon"])
def test_without_the_word_of_its_pool_no_pod_is_asked(action: str) -> None:
    """`tell` undoes the cordon; `cordon` keeps it."""
    step = drained(a_pod("web"), health=HealthRules(action=action))  # type: ignore[arg-type]
    assert step.verb is (Verb.UNCORDON if action == "tell" else Verb.HOLD)


def test_the_first_pods_are_asked_some_time_after_the_cordon() -> None:
    """People have `drain_after` to look at it."""
    assert drained(a_pod("web"), age=9 * MINUTE).verb is Verb.HOLD
    assert "in 1m" in drained(a_pod("web"), age=9 * MINUTE).reason.sentence
    assert drained(a_pod("web"), age=11 * MINUTE).verb is Verb.EVICT


def test_after_its_time_a_drain_asks_once_an_hour_and_keeps_the_cordon() -> None:
    """A sick node is never given back because a time is over."""
    asked = {NODE: "node-1", "uid": "uid-node-1"}

    def after(minutes: float) -> Verb:
        ledger = {"recent": (done(Verb.EVICT, minutes, arguments=asked),)}
        return drained(a_pod("web"), age=timedelta(days=2), ledger=ledger).verb

    assert after(30) is Verb.HOLD
    assert after(61) is Verb.EVICT
    ledger = {"recent": (done(Verb.EVICT, 5, arguments=asked),)}
    assert drained(a_pod("web"), age=20 * MINUTE, ledger=ledger).verb is Verb.EVICT


def test_many_sick_nodes_at_once_keep_their_pods() -> None:
    """A driver's roll-out is likelier at fault."""
    step = drained(a_pod("web"), others=3)
    assert step.verb is Verb.HOLD
    assert "4 of the pool's 4 running nodes" in step.reason.sentence


def test_a_node_with_a_notice_goes_as_the_notice_says() -> None:
    """Nobody's pods leave before the end of the grace that its owner was promised."""
    ledger = {"notices": (a_notice(age=60.0, action="terminate"),)}
    assert drained(a_pod("web"), ledger=ledger).verb is Verb.HOLD


def test_a_taint_comes_with_the_cordon_where_the_pool_wants_it() -> None:
    """And only there."""
    for taint in (False, True):
        step = told(NODE_1, Verb.HOLD, signal=a_sick_report(), health=HealthRules(action="cordon", taint=taint))
        assert step.verb is Verb.QUARANTINE
        assert (TAINT in step.arguments) is taint


def test_a_taint_that_is_left_after_a_persons_uncordon_goes_and_the_node_rests() -> None:
    """Their word is not undone by what is left of ours."""
    left = replace(NODE_1, tainted_by="gpuwatch-1")
    step = told(left, Verb.HOLD, signal=a_sick_report())
    assert (step.verb, step.arguments[UNDOES]) == (Verb.UNCORDON, "gpuwatch-1")
    assert FREED in step.arguments

    ledger = {"recent": (done(Verb.UNCORDON, 30, arguments=step.arguments),)}
    assert told(NODE_1, Verb.HOLD, ledger=ledger, signal=a_sick_report()).verb is Verb.HOLD
    ledger = {"recent": (done(Verb.UNCORDON, 61, arguments=step.arguments),)}
    assert told(NODE_1, Verb.HOLD, ledger=ledger, signal=a_sick_report()).verb is Verb.QUARANTINE


def test_another_ledgers_taint_is_left_alone() -> None:
    """It is another controller's."""
    left = replace(NODE_1, tainted_by="gpuwatch-9")
    well = NodeReport(verdict=a_verdict(state=State.BUSY))
    assert told(left, Verb.HOLD, signal=well, ledger={"foreign": ("gpuwatch-9",)}).verb is Verb.HOLD
