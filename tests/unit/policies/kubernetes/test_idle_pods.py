"""Workloads whose GPU pods are without use: told, then ended as their people have said, and never while one works."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Observation, Status, Verb
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.kubernetes import Pod, PodPhase, Workload
from gpuwatch.model.promise import Interruption
from gpuwatch.policies.kubernetes.idle_pods import HOW, WorkloadStep, notices_of_gone, steps
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.pod_use import unused_pods
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.workloads import (
    ACTING,
    ALICE,
    BY_POOL,
    HOUR,
    a_host,
    a_notebook,
    its_notice,
    its_pod,
    seen,
)

IDLE, BUSY, PARKED, STALLED, UNKNOWN = State.IDLE, State.BUSY, State.PARKED, State.STALLED, State.UNKNOWN


def told(observation: Observation, rules: IdlePodRules = ACTING) -> WorkloadStep:
    """The step of the one workload there is."""
    (found,) = steps(observation, {"default": rules, "other": rules})
    return found


def an_end(minutes_ago: float, status: Status = Status.SETTLED) -> Done:
    """An earlier end of its pods in the ledger."""
    at = NOW - timedelta(minutes=minutes_ago)
    arguments = {HOW: "stop"}
    return Done(key="k", verb=Verb.RELEASE, node_id=ALICE, pool="default", status=status, at=at, arguments=arguments)


@pytest.mark.parametrize("state", [IDLE, PARKED, STALLED])
def test_a_workload_without_use_gets_a_notice_of_what_its_people_have_said(state: State) -> None:
    """It names the action, the grace, and how long its pods have been so."""
    step = told(seen(a_host(1, (its_pod(), state))))

    assert (step.use.id, step.verb) == (ALICE, Verb.NOTICE)
    assert step.arguments == {
        **step.use.target.arguments,
        "action": "stop",
        "grace_seconds": "3600.0",
        "owner": "alice",
        "idle_seconds": "108000.0",
        "pods": "1",
        "gpus": "1.0",
    }
    assert "follows in 1h unless" in step.reason.sentence


def test_after_the_grace_its_pods_are_ended_and_the_limits_know_how_many() -> None:
    """The step names the object by its uid."""
    step = told(seen(a_host(1, (its_pod(), IDLE)), notices=(its_notice(),)))

    assert step.verb is Verb.RELEASE
    assert step.arguments == {
        "namespace": "team-a",
        "kind": "Notebook",
        "name": "alice",
        "uid": "uid-alice",
        "how": "stop",
        "pods": "1",
        "gpus": "1.0",
    }


def test_the_grace_passes_on_our_clock_and_by_the_agents_count() -> None:
    """Whichever is later."""
    host = a_host(1, (its_pod(), IDLE))
    early, uncounted = its_notice(age=HOUR - 1), its_notice(idle_seconds=30 * HOUR - 60.0)

    assert told(seen(host, notices=(early,))).reason.code == "grace"
    assert told(seen(host, notices=(uncounted,))).reason.code == "grace"


@pytest.mark.parametrize(("state", "needed"), [(IDLE, 2 * HOUR), (PARKED, 20 * HOUR), (STALLED, 20 * HOUR)])
def test_it_waits_as_long_as_its_pool_says(state: State, needed: float) -> None:
    """Longer where memory is held, or a program hangs."""
    assert told(seen(a_host(1, (its_pod(), state), held=needed - 1))).reason.code == "too_soon"
    assert told(seen(a_host(1, (its_pod(), state), held=needed))).verb is Verb.NOTICE


def test_its_people_may_ask_for_a_longer_wait_and_for_no_shorter() -> None:
    """The pool's is the administrator's."""
    for asked, held, move in (
        (9 * HOUR, 9 * HOUR - 1, Verb.HOLD),
        (9 * HOUR, 9 * HOUR, Verb.NOTICE),
        (60.0, 2 * HOUR - 1, Verb.HOLD),
    ):
        pod = its_pod(workload=a_notebook(idle_timeout=asked))
        assert told(seen(a_host(1, (pod, IDLE), held=held))).verb is move


def test_one_busy_pod_keeps_the_workload() -> None:
    """Wherever it runs; a notice is withdrawn."""
    hosts = (a_host(1, (its_pod("alice-0"), IDLE)), a_host(2, (its_pod("alice-1"), BUSY)))

    assert told(seen(*hosts)).reason.code == "busy"
    step = told(seen(*hosts, notices=(its_notice(),)))
    assert step.verb is Verb.WITHDRAW
    assert step.reason.sentence == "It works: team-a/alice-1."


@pytest.mark.parametrize("state", [IDLE, PARKED])
@pytest.mark.parametrize("gpus", [0.0, 1.0])
def test_a_static_pod_without_use_is_found_and_left_alone_with_the_reason(state: State, gpus: float) -> None:
    """Whether it requests the GPU or only uses it, and whatever its namespace allows: a file makes it again."""
    mine = Workload(namespace="team-a", kind="Pod", name="triton-gpu-1", uid="hash", idle_action="delete")
    pod = its_pod("triton-gpu-1", workload=mine, gpus=gpus, daemon=True, static=True)
    found = seen(a_host(1, (pod, state)))
    step = told(found, replace(ACTING, bare_pods="delete"))

    assert (step.verb, step.reason.code, step.use.state) == (Verb.HOLD, "static_pod", state)
    assert "static pod" in step.reason.sentence
    assert "manifests" in step.change
    assert [str(each.pod) for each in unused_pods(found)] == ["team-a/triton-gpu-1"]


@pytest.mark.parametrize("kind", ["JobSet", "PyTorchJob", "RayCluster", "TrainJob"])
def test_a_job_that_is_suspended_comes_back_though_an_evicted_pod_of_it_would_not(kind: str) -> None:
    """Its people may have it stopped; what would be a failure of it is none."""
    step = told(seen(a_host(1, (its_pod(workload=a_notebook(kind=kind), bare=True), IDLE))))

    assert (step.verb, step.arguments.get("action")) == (Verb.NOTICE, "stop")


def test_a_static_pod_of_the_system_is_no_finding() -> None:
    """It serves the cluster."""
    pod = its_pod("watch-gpu-1", daemon=True, static=True, system=True)

    assert steps(seen(a_host(1, (pod, IDLE))), BY_POOL) == ()


UNCLEAR: dict[str, Observation] = {
    "an agent is silent": seen(a_host(1, (its_pod(), UNKNOWN)), notices=(its_notice(),)),
    "the API server is silent": seen(a_host(1, (its_pod(), IDLE)), trouble="No answer.", notices=(its_notice(),)),
    "a pod waits": seen(
        a_host(1, (its_pod(), IDLE)),
        pending=(its_pod("alice-1", phase=PodPhase.PENDING),),
        notices=(its_notice(),),
    ),
    "a pod without GPUs": seen(
        a_host(1, (its_pod(), IDLE), (its_pod("alice-1", gpus=0.0), BUSY)), notices=(its_notice(),)
    ),
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_what_nobody_knows_ends_nothing_and_withdraws_nothing(case: str) -> None:
    """The notice waits."""
    step = told(UNCLEAR[case])

    assert (step.verb, step.reason.code) == (Verb.HOLD, "unknown")


def test_a_pod_on_a_machine_that_nobody_watches_is_not_known() -> None:
    """It may work there."""
    observation = seen(a_host(1, (its_pod(), IDLE)), notices=(its_notice(),))
    elsewhere = a_host(2, (its_pod("alice-1"), IDLE)).kubernetes
    view = observation.fleet.cluster
    assert view is not None
    assert elsewhere is not None
    whole = replace(view, nodes=(*view.nodes, elsewhere))
    step = told(replace(observation, fleet=replace(observation.fleet, cluster=whole)))

    assert step.reason.sentence == "The use of some of its pods is not known: team-a/alice-1."


KEPT: dict[str, tuple[str, Pod]] = {
    "protected": ("protected", its_pod(protected="an annotation")),
    "snoozed": ("snoozed", its_pod(workload=a_notebook(snoozed_until=NOW + timedelta(hours=1)))),
    "no annotation": ("no_consent", its_pod(workload=a_notebook(idle_action=None))),
    "told only": ("no_consent", its_pod(workload=a_notebook(idle_action="notify"))),
    "not for its kind": ("no_consent", its_pod(workload=a_notebook(idle_action="scale-to-zero"))),
    "unknown kind": ("no_consent", its_pod(workload=a_notebook(kind="RayService"))),
    "interruptible alone": ("no_consent", its_pod(workload=a_notebook(idle_action=None), interruptible=True)),
    "ending": ("ending", its_pod(ends_at=NOW)),
    "local data": ("would_lose", its_pod(local_data="scratch")),
    "bare": ("would_lose", its_pod(workload=a_notebook(kind="Pod", idle_action="delete"), bare=True)),
    "its owner is gone": ("would_lose", its_pod(bare=True)),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_to_be_kept_is_kept_and_its_notice_withdrawn(case: str) -> None:
    """Whatever its GPUs show."""
    code, pod = KEPT[case]
    plain, noticed = seen(a_host(1, (pod, IDLE))), seen(a_host(1, (pod, IDLE)), notices=(its_notice(),))
    if case in {"bare", "unknown kind"}:
        noticed = plain  # its id is another
    for observation, move in ((plain, Verb.HOLD), (noticed, Verb.HOLD if noticed is plain else Verb.WITHDRAW)):
        step = told(observation)
        assert (step.verb, step.reason.code) == (move, code)


@pytest.mark.parametrize(("action", "code"), [("stop", "notice"), ("delete", "would_lose")])
def test_a_job_without_a_failure_left_is_stopped_and_not_restarted(action: str, code: str) -> None:
    """It is resumed after a stop, and fails for good by an eviction."""
    pod = its_pod(workload=a_notebook(kind="Job", idle_action=action), bare=True)

    assert told(seen(a_host(1, (pod, IDLE)))).reason.code == code


def test_a_bare_pod_goes_only_where_pool_and_people_say_so() -> None:
    """And its local data only where they say that, too."""
    told_so = replace(ACTING, bare_pods="delete")
    bare = its_pod(workload=a_notebook(kind="Pod", idle_action="delete"), bare=True)

    assert told(seen(a_host(1, (bare, IDLE))), told_so).verb is Verb.NOTICE
    lossy = replace(bare, local_data="scratch")
    assert told(seen(a_host(1, (lossy, IDLE))), told_so).reason.code == "would_lose"
    assert told(seen(a_host(1, (replace(lossy, loses_local_data=True), IDLE))), told_so).verb is Verb.NOTICE


def test_a_machine_that_is_not_enrolled_and_a_pool_that_reports_keep_it() -> None:
    """One of them is enough."""
    hosts = a_host(1, (its_pod(), IDLE)), a_host(2, (its_pod("alice-1"), IDLE), pool="other", enrolled=False)
    assert told(seen(*hosts)).reason.sentence == "team-a/alice-1 is on i-2, which is not enrolled."

    enrolled = hosts[0], replace(hosts[1], enrolled=True)
    (step,) = steps(seen(*enrolled), BY_POOL | {"other": IdlePodRules()})
    assert step.reason.sentence == "The pool other only reports such pods."
    assert steps(seen(*enrolled), BY_POOL)[0].verb is Verb.NOTICE


A_PAUSE = Interruption(why="paused", since=NOW - timedelta(minutes=9), until=NOW - timedelta(minutes=5))


@pytest.mark.parametrize(
    ("notice", "why"),
    [
        (its_notice(action="delete"), "did not announce"),
        (its_notice(age=31 * HOUR), "has worked since"),
        (its_notice(pool="other"), "was for pool other"),
        (its_notice(age=29 * HOUR), "ago"),
        (
            replace(its_notice(), interruptions=(A_PAUSE,)),
            "came before a time without action",
        ),
    ],
)
def test_a_notice_that_does_not_stand_is_withdrawn(notice: object, why: str) -> None:
    """Another action, work in between, another pool, too old, a pause."""
    step = told(seen(a_host(1, (its_pod(), IDLE)), notices=(notice,)))

    assert (step.verb, step.reason.code) == (Verb.WITHDRAW, "notice_over")
    assert why in step.reason.sentence


def test_a_notice_stays_while_a_pause_goes_on() -> None:
    """It is withdrawn when the pause is over, and given again; work withdraws it at once."""
    caught = replace(its_notice(), interruptions=(replace(A_PAUSE, until=None),))

    assert told(seen(a_host(1, (its_pod(), IDLE)), notices=(caught,))).verb is not Verb.WITHDRAW
    assert told(seen(a_host(1, (its_pod(), BUSY)), notices=(caught,))).verb is Verb.WITHDRAW


def test_work_in_the_first_minute_after_a_notice_takes_it_back() -> None:
    """The count lags behind by the age and two intervals of its agent and 5 s, as a machine's, and by no minute."""
    rules, since = replace(ACTING, timeout=900.0), HOUR / 2
    for late, move in ((9.0, Verb.WITHDRAW), (8.0, Verb.HOLD)):
        host = a_host(1, (its_pod(), IDLE), held=since - late)
        notice = its_notice(age=since, idle_seconds=900.0)

        assert told(seen(host, notices=(notice,)), rules).verb is move


def test_a_pod_that_came_since_the_notice_ends_it() -> None:
    """It has had no notice."""
    new = its_pod("alice-1", created_at=NOW - timedelta(minutes=30))
    step = told(seen(a_host(1, (its_pod(), IDLE), (new, IDLE)), notices=(its_notice(),)))

    assert step.verb is Verb.WITHDRAW


def test_what_was_ended_lately_rests() -> None:
    """Somebody, or a program, has started it again; what was never sent does not count."""
    host = a_host(1, (its_pod(), IDLE))

    assert told(seen(host, recent=(an_end(59),))).reason.code == "rest"
    assert told(seen(host, recent=(an_end(59, Status.FAILED),))).reason.code == "rest"
    assert told(seen(host, recent=(an_end(61),))).verb is Verb.NOTICE
    assert told(seen(host, recent=(an_end(59, Status.CANCELLED),))).verb is Verb.NOTICE


def test_the_notice_of_a_workload_without_gpus_is_over_where_the_cluster_is_known() -> None:
    """It was ended, or scaled, by somebody else. Notices of machines are none of it."""
    notices = (its_notice(), replace(its_notice(), node_id="i-1"))

    assert [each.node_id for each in notices_of_gone(seen(a_node(), notices=notices))] == [ALICE]
    assert not list(notices_of_gone(seen(a_node(), notices=notices, trouble="No answer.")))
    assert not list(notices_of_gone(seen(a_host(1, (its_pod(), IDLE)), notices=notices)))


def test_the_notice_of_another_cluster_is_over() -> None:
    """The settings have none any more, or another: silent or not, nobody could use it."""
    others = replace(its_notice(), node_id="kube:staging/team-a/Notebook/alice")
    alone = seen(a_host(1, (its_pod(), IDLE)), notices=(its_notice(), others), trouble="No answer.")

    assert [each.node_id for each in notices_of_gone(alone)] == [others.node_id]
    without = replace(alone, fleet=replace(alone.fleet, cluster=None))
    assert {each.node_id for each in notices_of_gone(without)} == {ALICE, others.node_id}


def test_where_prometheus_counts_times_without_rounds_are_no_grace() -> None:
    """A window's count of idleness goes on while nobody decides; other interruptions end the notice anyway."""
    host = a_host(1, (its_pod(), IDLE))
    verdict = NodeReport(verdict=host.verdict, windowed=True)
    away = Interruption(why="away", since=NOW - timedelta(minutes=20), until=NOW - timedelta(minutes=10))
    passed, interrupted = its_notice(), replace(its_notice(), interruptions=(away,))

    assert told(seen(replace(host, signal=verdict), notices=(passed,))).verb is Verb.RELEASE
    assert told(seen(replace(host, signal=verdict), notices=(interrupted,))).reason.code == "grace"
    assert told(seen(host, notices=(interrupted,))).verb is Verb.RELEASE


_STATES = st.sampled_from([IDLE, PARKED, STALLED, BUSY, UNKNOWN])


@given(
    states=st.lists(_STATES, min_size=1, max_size=4),
    held=st.sampled_from([0.0, HOUR, 2 * HOUR, 30 * HOUR]),
    noticed=st.booleans(),
)
def test_nothing_is_said_or_done_while_one_pod_is_busy_or_not_known(
    states: list[State], held: float, *, noticed: bool
) -> None:
    """Whatever the others do, wherever they are, and for however long."""
    hosts = [a_host(number, (its_pod(f"alice-{number}"), state), held=held) for number, state in enumerate(states)]
    step = told(seen(*hosts, notices=(its_notice(),) if noticed else ()))

    if {BUSY, UNKNOWN} & set(states):
        assert step.verb in {Verb.HOLD, Verb.WITHDRAW}
        assert (step.verb is Verb.WITHDRAW) is (noticed and BUSY in states)
