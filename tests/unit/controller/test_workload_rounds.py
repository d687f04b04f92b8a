"""Idle workloads in a controller's rounds: told, then ended as their people have said, and settled by what shows."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.controller.round import Round
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.kubernetes import Pod, Target, Workload, WorkloadNow
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import ClusterDesk, a_cluster_desk
from tests.support.builders.fleet import RULES
from tests.support.builders.workloads import a_notebook, its_pod

ALICE = "kube:prod/team-a/Notebook/alice"
TARGET = Target(namespace="team-a", kind="Notebook", name="alice", uid="uid-alice")
PODS = IdlePodRules(action="as-annotated", timeout=3600.0, grace_period=600.0, rest=1800.0)
POOL = replace(RULES, idle=replace(RULES.idle, action="report"), kubernetes=KubernetesRules(pods=PODS))


def a_desk(*pods: Pod, state: State = State.IDLE, rules: IdlePodRules = PODS) -> ClusterDesk:
    """A machine without use for two hours that these pods have been on for two days."""
    pool = replace(POOL, kubernetes=replace(POOL.kubernetes, pods=rules))
    return a_cluster_desk(pool, *(pods or (its_pod(),)), state=state)


def done(rounds: list[Round]) -> list[tuple[Verb, Status]]:
    """What was done about Alice's notebook."""
    acts = [act for each in rounds for act in each.acts if act.review.step.node_id == ALICE]
    return [(act.review.step.verb, act.outcome.status) for act in acts]


def live(desk: ClusterDesk, rounds: int) -> list[Round]:
    """So many rounds, a minute each."""
    return [desk.round() for _ in range(rounds)]


def test_an_idle_notebook_is_told_and_after_its_grace_stopped() -> None:
    """The annotation says when, an Event why; the ledger has each step before it."""
    desk = a_desk()
    first = live(desk, 1)

    assert done(first) == [(Verb.NOTICE, Status.SETTLED)]
    shown = desk.cluster.workloads.workload(TARGET)
    assert shown is not None
    assert shown.stop_at is not None
    assert [about for about, _, _ in desk.cluster.workloads.events] == ["Notebook team-a/alice"]

    rest = live(desk, 13)
    assert done(rest) == [(Verb.RELEASE, Status.ACCEPTED)]
    assert [call for call, _, _ in desk.cluster.workloads.calls] == ["announce", "release"]
    shown = desk.cluster.workloads.workload(TARGET)
    assert shown is not None
    assert (shown.wants, shown.pods, shown.stop_at) == (0, (), None)
    view = desk.ledger.view(desk.clock.now())
    assert [(each.verb, each.status) for each in view.recent] == [(Verb.RELEASE, Status.SETTLED)]
    assert (view.notices, view.open_intents) == ((), ())


def test_observing_it_is_decided_refused_and_told_to_nobody() -> None:
    """The default mode."""
    desk = a_desk()
    desk.enforce = False
    rounds = live(desk, 20)

    assert {each.workloads[0].verb for each in rounds} == {Verb.NOTICE}
    refused = [answer.rule for review in rounds[0].reviews for answer in review.refusals]
    assert refused == ["observe_only"]
    assert (desk.cluster.workloads.calls, desk.cluster.workloads.events) == ([], [])


def test_a_plan_says_it_and_does_nothing() -> None:
    """Before anything is written down."""
    desk = a_desk()
    planned = desk.plan()

    assert [(each.step.node_id, each.step.verb, each.allowed) for each in planned.reviews] == [
        (ALICE, Verb.NOTICE, True)
    ]
    assert desk.cluster.workloads.calls == []


def test_who_works_again_has_the_notice_withdrawn() -> None:
    """And its annotation taken away."""
    desk = a_desk()
    live(desk, 3)
    desk.fleet.show("i-1", State.BUSY)
    rounds = live(desk, 12)

    assert done(rounds) == [(Verb.WITHDRAW, Status.SETTLED)]
    shown = desk.cluster.workloads.workload(TARGET)
    assert shown is not None
    assert shown.stop_at is None
    assert desk.ledger.view(desk.clock.now()).notices == ()


def test_a_notice_of_what_is_gone_is_closed() -> None:
    """Its owner has scaled it to zero; the machine list of the cloud has nothing to do with it."""
    desk = a_desk()
    live(desk, 2)
    node = desk.cluster.nodes["node-1"]
    desk.cluster.put(replace(node, pods=tuple(pod for pod in node.pods if pod.gpus == 0)))
    live(desk, 1)
    history = desk.ledger.history(ALICE)

    assert desk.ledger.view(desk.clock.now()).notices == ()
    assert [each.intent.verb for each in history] == [Verb.WITHDRAW, Verb.NOTICE]
    assert history[0].intent.reason.code == "gone"


def test_a_silent_api_server_closes_no_notice_and_ends_nothing() -> None:
    """Unknown is not gone."""
    desk = a_desk()
    live(desk, 2)
    desk.cluster.trouble = "No answer."
    rounds = live(desk, 15)

    assert done(rounds) == []
    assert len(desk.ledger.view(desk.clock.now()).notices) == 1


def test_a_cluster_that_left_the_settings_leaves_no_notice() -> None:
    """Nobody could ever use it."""
    desk = a_desk()
    live(desk, 1)
    desk.forget_cluster()
    live(desk, 1)

    assert desk.ledger.view(desk.clock.now()).notices == ()


def test_after_its_end_it_rests_and_then_has_a_new_notice() -> None:
    """Somebody has brought it back, and it is idle again."""
    desk = a_desk()
    live(desk, 14)
    desk.cluster.workloads.put(replace(desk.cluster.workloads.shown["uid-alice"], wants=1, released_by=None))
    desk.cluster.bind("node-1", its_pod("alice-0"))
    rest, later = live(desk, 20), live(desk, 20)

    assert done(rest) == []
    assert {each.workloads[0].reason.code for each in rest} == {"rest"}
    assert done(later)[0] == (Verb.NOTICE, Status.SETTLED)


def test_an_answer_that_was_lost_is_found_on_the_object() -> None:
    """It is not asked again."""
    desk = a_desk()
    live(desk, 10)
    lost: Callable[[str, str], CloudError | None] = lambda call, _: (  # noqa: E731  as the fake takes it
        CloudUnavailableError("timeout") if call == "release" else None
    )
    desk.cluster.workloads.lose = lost
    rounds = live(desk, 4)

    assert done(rounds) == [(Verb.RELEASE, Status.UNAVAILABLE)]
    assert [call for call, _, _ in desk.cluster.workloads.calls].count("release") == 1
    assert [(each.verb, each.status) for each in desk.ledger.view(desk.clock.now()).recent] == [
        (Verb.RELEASE, Status.SETTLED)
    ]


def test_a_budget_that_keeps_a_jobs_pod_is_asked_twice_and_then_left_alone() -> None:
    """A refusal is an answer."""
    job = Workload(namespace="team-a", kind="Job", name="train", uid="uid-train", idle_action="delete")
    desk = a_desk(its_pod("train-0", job))
    desk.cluster.workloads.budgets.add("train-0")
    rounds = live(desk, 30)
    acts = [act.outcome.status for each in rounds for act in each.acts if act.review.step.verb is Verb.RELEASE]

    assert acts == [Status.REFUSED, Status.REFUSED]
    assert [each.status for each in desk.ledger.view(desk.clock.now()).recent] == [Status.FAILED]
    assert desk.cluster.nodes["node-1"].gpu_pods


def test_a_jobs_pod_is_evicted_as_told() -> None:
    """The Job makes another."""
    job = Workload(namespace="team-a", kind="Job", name="train", uid="uid-train", idle_action="delete")
    desk = a_desk(its_pod("train-0", job))
    rounds = live(desk, 14)
    acts = [act.outcome for each in rounds for act in each.acts if act.review.step.verb is Verb.RELEASE]

    assert [each.status for each in acts] == [Status.SETTLED]
    assert acts[0].detail == "1 pod asked to go; 1 pod still there"
    assert desk.cluster.nodes["node-1"].gpu_pods == ()


@pytest.mark.parametrize("told", [False, True])
def test_a_bare_pod_goes_only_where_the_pool_says_so_and_never_with_local_data(*, told: bool) -> None:
    """Nothing would make it again."""
    bare = Workload(namespace="team-a", kind="Pod", name="alone", uid="uid-alone", idle_action="delete")
    rules = replace(PODS, bare_pods="delete" if told else "keep")
    desk = a_desk(its_pod("alone", bare, bare=True), rules=rules)
    kept = a_desk(its_pod("alone", bare, bare=True, local_data="scratch"), rules=rules)
    live(desk, 14)
    live(kept, 14)

    assert bool(desk.cluster.workloads.calls) is told
    assert kept.cluster.workloads.calls == []


def test_the_limits_look_back_over_a_restart(tmp_path: object) -> None:
    """An end counts for an hour, whoever reads the ledger."""
    del tmp_path
    desk = a_desk()
    live(desk, 14)
    again = Ledger(desk.ledger.store)

    (ended,) = again.view(desk.clock.now()).recent
    assert (ended.verb, ended.owner, ended.arguments["pods"]) == (Verb.RELEASE, "alice", "1")
    assert a_notebook().owner == ended.owner


def test_a_notice_that_cannot_be_written_is_not_tried_each_round() -> None:
    """Somebody else's kind of the same name, or an object that is gone: it rests."""
    desk = a_desk()
    desk.cluster.workloads.put(WorkloadNow(target=replace(TARGET, name="another"), wants=1))
    rounds = live(desk, 20)

    assert done(rounds) == [(Verb.NOTICE, Status.FAILED)]
    assert rounds[-1].workloads[0].reason.code == "rest"


def test_a_stateful_set_whose_volumes_would_go_has_no_notice() -> None:
    """The attempt is on record with its reason, and it rests."""
    owner = Workload(namespace="team-a", kind="StatefulSet", name="store", uid="uid-store", idle_action="scale-to-zero")
    desk = a_desk(its_pod("store-0", owner))
    desk.cluster.workloads.volumes.add("uid-store")
    rounds = live(desk, 20)
    acts = [act for each in rounds for act in each.acts]

    assert [(act.review.step.verb, act.outcome.status) for act in acts] == [(Verb.NOTICE, Status.FAILED)]
    assert "volumes" in acts[0].outcome.detail
    assert desk.cluster.workloads.calls == []


def test_a_right_that_one_kind_lacks_holds_up_no_other_kind() -> None:
    """Nor does it fill the ledger: it rests after a few attempts."""
    job = Workload(namespace="team-a", kind="Job", name="train", uid="uid-train", idle_action="stop")
    desk = a_desk(its_pod("train-0", job), its_pod())
    denied: Callable[[str, str], CloudError | None] = lambda call, about: (  # noqa: E731  as the fake takes it
        AuthFailedError("jobs is forbidden") if call == "announce" and about.startswith("Job") else None
    )
    desk.cluster.workloads.fault = denied
    rounds = live(desk, 20)
    tried = [act.outcome.status for each in rounds for act in each.acts if "Job" in act.review.step.node_id]

    assert done(rounds) == [(Verb.NOTICE, Status.SETTLED), (Verb.RELEASE, Status.ACCEPTED)]
    assert tried == [Status.DENIED] * 5
