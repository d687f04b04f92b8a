"""What a pod does besides its GPUs, as its agent says it of the pod alone: policy and guard go by it."""

from dataclasses import replace

import pytest

from gpuwatch.guard import review
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Node, NodeReport, PodVerdict
from gpuwatch.model.promise import Notice
from gpuwatch.policies.kubernetes import idle_pods
from gpuwatch.policies.kubernetes.idle_pods import WorkloadStep
from gpuwatch.policies.kubernetes.workload_use import workloads
from tests.support.builders.clusters import a_workload
from tests.support.builders.fleet import NOW
from tests.support.builders.workloads import BY_POOL, HOUR, RULEBOOK, a_host, its_notice, its_pod, seen

IDLE, BUSY, UNKNOWN = State.IDLE, State.BUSY, State.UNKNOWN
COLLEAGUE = its_pod("bob-0", a_workload("bob"))
LOAD = Evidence(name="network", says=BUSY, observed=9e6, limit=1e3, unit="bytes per second", source="/proc")


def shared(state: State | None, held: float = 0.0, uid: str = "uid-alice-0") -> Node:
    """A machine of which a colleague's pod computes and downloads; what its agent says of Alice's pod, if anything."""
    node = a_host(1, (its_pod(), IDLE), (COLLEAGUE, BUSY))
    verdict = node.verdict
    assert verdict is not None
    doubt = "pods: it has no control group any more" if state is UNKNOWN else None
    said = (
        ()
        if state is None
        else (
            PodVerdict(
                uid=uid,
                activity=Activity(
                    state=state, since=NOW, held_seconds=held, evidence=(LOAD,) if state is BUSY else (), doubt=doubt
                ),
            ),
        )
    )
    activity = replace(verdict.activity, evidence=(LOAD,))
    return replace(node, signal=NodeReport(verdict=replace(verdict, activity=activity, pods=said)))


def step_of(node: Node, notices: tuple[Notice, ...] = ()) -> WorkloadStep:
    """What becomes of Alice's notebook."""
    return next(
        each for each in idle_pods.steps(seen(node, notices=notices), BY_POOL) if each.use.workload.name == "alice"
    )


def test_an_idle_pod_gets_its_notice_beside_a_busy_one() -> None:
    """The neighbour's load is none of its; the guard agrees."""
    observation = seen(shared(IDLE, 30 * HOUR))
    step = step_of(shared(IDLE, 30 * HOUR))
    (answer,) = [each for each in review(observation, [], RULEBOOK, [step]) if each.step.verb is Verb.NOTICE]

    assert step.verb is Verb.NOTICE
    assert answer.allowed, answer.refusals


def test_its_pods_are_ended_after_the_grace_as_those_of_a_machine_that_is_idle() -> None:
    """The same notice, and the same grace."""
    notice = its_notice(age=2 * HOUR)
    node = shared(IDLE, 32 * HOUR)
    step = step_of(node, notices=(notice,))
    (answer,) = review(seen(node, notices=(notice,)), [], RULEBOOK, [step])

    assert step.verb is Verb.RELEASE
    assert answer.allowed, answer.refusals


def test_without_that_word_the_neighbour_keeps_it_as_before() -> None:
    """An older agent, one that sees no control groups, and one that speaks of another pod of the name."""
    for node in (shared(None), shared(IDLE, 30 * HOUR, uid="uid-of-a-former-one")):
        assert (step_of(node).verb, step_of(node).reason.code) == (Verb.HOLD, "too_soon")


def test_a_pod_that_works_beside_its_gpus_withdraws_its_notice() -> None:
    """However idle its GPUs are; the sentence says by what."""
    step = step_of(shared(BUSY), notices=(its_notice(),))

    assert (step.verb, step.reason.code) == (Verb.WITHDRAW, "busy")
    assert step.reason.sentence == "It works: team-a/alice-0 (network)."


def test_a_pod_in_doubt_keeps_its_workload_and_its_notice_waits() -> None:
    """Unknown is never idle, and no reason to take a notice back."""
    step = step_of(shared(UNKNOWN), notices=(its_notice(),))

    assert (step.verb, step.reason.code) == (Verb.HOLD, "unknown")
    assert step.reason.sentence == ("What team-a/alice-0 does is not known: pods: it has no control group any more.")


@pytest.mark.parametrize("state", [BUSY, UNKNOWN])
@pytest.mark.parametrize("verb", [Verb.NOTICE, Verb.RELEASE])
def test_the_guard_refuses_what_a_policy_might_overlook(state: State, verb: Verb) -> None:
    """P1 and P2 for pods."""
    observation = seen(shared(state), notices=(its_notice(age=2 * HOUR),))
    use = next(each for each in workloads(observation) if each.workload.name == "alice")
    step = replace(step_of(shared(IDLE, 30 * HOUR)), use=use, verb=verb)
    (answer,) = review(observation, [], RULEBOOK, [step])
    rules = {each.rule for each in answer.refusals}

    assert ("busy" if state is BUSY else "unknown") in rules


def test_it_has_been_without_use_for_no_longer_than_it_was_quiet() -> None:
    """Both of them count: its GPUs and what is besides them."""
    (use,) = [each for each in workloads(seen(shared(IDLE, 3 * HOUR))) if each.workload.name == "alice"]

    assert (use.state, use.held_seconds) == (IDLE, 3 * HOUR)
