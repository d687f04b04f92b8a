"""The guard's rules on workloads: each refuses by itself, whatever the policy has decided."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard import RULES, Burst, Bursts, Limits, WorkloadCase, judge, review, workload_case
from gpuwatch.guard.settings import WorkloadLimits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.kubernetes import Pod, PodPhase
from gpuwatch.policies.kubernetes.idle_pods import HOW, PODS, steps
from gpuwatch.policies.kubernetes.workload_use import workloads
from tests.support.builders.fleet import NOW
from tests.support.builders.guard_cases_workloads import (
    GOES,
    SPOILED_WORKLOADS,
    an_end,
    announced,
    case_of,
    ended,
    limited,
    limiting,
    noticed,
    paused,
    under_way,
)
from tests.support.builders.workloads import (
    ALICE,
    BY_POOL,
    HOUR,
    RULEBOOK,
    a_host,
    a_notebook,
    its_notice,
    its_pod,
    seen,
)

IDLE, BUSY, UNKNOWN = State.IDLE, State.BUSY, State.UNKNOWN
WORKLOAD_RULES = {name for name, rule in RULES.items() if rule.workloads is not None}


def refused(case: WorkloadCase) -> set[str]:
    """The rules that object."""
    return {answer.rule for answer in judge(case).refusals}


def test_nothing_stands_against_an_idle_workload_after_its_notice() -> None:
    """Every rule was asked."""
    assert judge(an_end()).allowed
    cases = (an_end(), noticed(an_end()))
    assert {answer.rule for case in cases for answer in judge(case).answers} == WORKLOAD_RULES


@pytest.mark.parametrize("name", SPOILED_WORKLOADS)
def test_each_rule_refuses_by_itself(name: str) -> None:
    """Whatever was decided."""
    rule, spoiled = SPOILED_WORKLOADS[name]
    refusals = {answer.rule: answer for answer in judge(spoiled()).refusals}

    assert rule in refusals
    assert all(answer.sentence and answer.remedy for answer in refusals.values())


ALL = {Verb.NOTICE, Verb.WITHDRAW, Verb.RELEASE}
# What each rule is about; all others are about notices and ends.
ABOUT = {
    **dict.fromkeys(("observe_only", "in_flight"), ALL),
    **{key: {Verb.RELEASE} for key in ("no_notice", "not_notified", "approval", "blast_radius", "often_vetoed")},
    "notice_rate": {Verb.NOTICE},
}


@pytest.mark.parametrize("rule", sorted(WORKLOAD_RULES))
def test_each_rule_holds_for_what_it_is_about(rule: str) -> None:
    """What stands against an end stands against its notice: nobody is told what could not be done."""
    cases = [spoiled() for name, spoiled in SPOILED_WORKLOADS.values() if name == rule]
    refusing = {
        verb for verb in ALL for case in cases if rule in refused(replace(case, step=replace(case.step, verb=verb)))
    }

    assert refusing == ABOUT.get(rule, {Verb.NOTICE, Verb.RELEASE})


def test_each_rule_is_among_the_cases() -> None:
    """None is without a case."""
    assert {rule for rule, _ in SPOILED_WORKLOADS.values()} == WORKLOAD_RULES


@pytest.mark.parametrize(
    "case",
    [
        an_end(pauses=(paused("other", 5),)),
        an_end(pauses=(paused(None, -5),)),
        an_end(open_intents=(under_way(ALICE, Status.REFUSED, GOES, 30.0),)),
        an_end(open_intents=(under_way("kube:prod/a/Job/b", None, GOES),)),
        an_end(recent=(ended(61, node_id=ALICE),)),
        replace(
            an_end(),
            bursts=Bursts(
                by_group={
                    ("of the pool", "default"): Burst(count=9, members=9, first=NOW, last=NOW - timedelta(hours=3))
                }
            ),
        ),
        an_end(notices=(replace(its_notice(heard=True), told_at=NOW - timedelta(hours=2)),)),
        limiting(an_end(open_intents=(under_way("kube:prod/a/Job/b", Status.REFUSED, GOES),)), max_pods_per_hour=1),
        limiting(an_end(open_intents=(announced("kube:prod/a/Job/b"),)), max_pods_per_hour=1),
        limited(max_gpus_per_owner_per_hour=1, owner="bob"),
        limiting(an_end(recent=(ended(61),)), max_pods_per_hour=1),
        limiting(an_end(recent=(ended(9, status=Status.CANCELLED),)), max_pods_per_hour=1),
    ],
    ids=[
        *("another pool", "over", "the same again", "another's", "rested", "freeze over", "told", "another's refused"),
        *("notice", "owner", "hour", "cancelled"),
    ],
)
def test_what_is_about_others_or_over_refuses_nothing(case: WorkloadCase) -> None:
    """So that what may go does."""
    assert judge(case).allowed


@pytest.mark.parametrize(("status", "seconds"), [(Status.REFUSED, 30.0), (Status.DENIED, 1800.0)])
def test_an_end_that_was_not_carried_out_is_tried_again_after_its_wait(status: Status, seconds: float) -> None:
    """As a machine's stop is: soon, or once somebody may have given the right to do it."""
    early, due = (an_end(open_intents=(under_way(ALICE, status, GOES, ago),)) for ago in (seconds - 1, seconds))

    assert refused(early) == {"in_flight"}
    assert judge(due).allowed


def test_each_open_step_of_a_workload_counts() -> None:
    """Not only the oldest: one that may have happened stands in the way behind one that was refused."""
    steps_open = (under_way(ALICE, Status.REFUSED, GOES, 60.0), under_way(ALICE, Status.UNAVAILABLE, GOES))

    assert refused(an_end(open_intents=steps_open)) == {"in_flight"}


def test_a_freeze_of_workloads_begins_again_when_their_pool_is_resumed() -> None:
    """As one of machines does: while it was paused nobody saw that all had turned idle at once."""
    last = NOW - timedelta(hours=3)
    case = replace(
        an_end(), bursts=Bursts(by_group={("of the pool", "default"): Burst(count=9, members=9, first=last, last=last)})
    )
    ledger = replace(case.observation.ledger, resumed=(("default", NOW - timedelta(minutes=59)),))

    assert judge(case).allowed
    assert refused(replace(case, observation=replace(case.observation, ledger=ledger))) == {"mass_idleness"}


def test_ends_count_against_each_other_and_what_cannot_be_read_is_beyond_each_limit() -> None:
    """Within the round, with what is under way, and with a record of another version."""
    open_end = under_way("kube:prod/a/Job/b", Status.UNAVAILABLE, GOES)
    unread = ended(9, arguments={HOW: "stop", PODS: "nan"})
    for case in (an_end(open_intents=(open_end,)), an_end(recent=(unread,))):
        assert refused(limiting(case, max_pods_per_hour=1)) == {"blast_radius"}
    assert refused(an_end(recent=(unread,))) == {"blast_radius"}


def test_a_round_allows_as_many_as_its_limits_say() -> None:
    """The first by their ids."""
    names = ("alice", "bob", "carol")
    pods = [its_pod(f"{name}-0", a_notebook(name=name, uid=f"uid-{name}")) for name in names]
    hosts = [a_host(number, (pod, IDLE)) for number, pod in enumerate(pods)]
    notices = tuple(replace(its_notice(), node_id=f"kube:prod/team-a/Notebook/{name}") for name in names)
    observation = seen(*hosts, notices=notices)

    rulebook = replace(RULEBOOK, limits=Limits(workloads=WorkloadLimits(max_pods_per_round=2)))

    assert [each.allowed for each in review(observation, [], rulebook, steps(observation, BY_POOL))] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("past", "last"),
    [
        ({}, "bob"),
        ({"recent": (ended(9, node_id=ALICE, status=Status.CANCELLED),)}, "alice"),
        ({"recent": (ended(61, node_id=ALICE, status=Status.CANCELLED),)}, "bob"),
        ({"recent": (ended(9, node_id=ALICE, verb=Verb.NOTICE, status=Status.CANCELLED),)}, "bob"),
        ({"open_intents": (under_way(ALICE, Status.REFUSED, GOES),)}, "alice"),
    ],
    ids=["by their ids", "vetoed lately", "vetoed long ago", "another step", "refused"],
)
def test_what_came_to_nothing_lately_has_its_turn_last(past: dict[str, object], last: str) -> None:
    """It must not take the place of the others within the limits."""
    names = ("alice", "bob")
    pods = [its_pod(f"{name}-0", a_notebook(name=name, uid=f"uid-{name}")) for name in names]
    hosts = [a_host(number, (pod, IDLE)) for number, pod in enumerate(pods)]
    notices = tuple(replace(its_notice(), node_id=f"kube:prod/team-a/Notebook/{name}") for name in names)
    observation = seen(*hosts, notices=notices, **past)  # type: ignore[arg-type]  # fields of LedgerView
    reviews = review(observation, [], RULEBOOK, steps(observation, BY_POOL))

    assert reviews[-1].step.node_id == f"kube:prod/team-a/Notebook/{last}"


@pytest.mark.parametrize(("other", "allowed"), [("ann", [True, False]), ("bob", [True, True])])
def test_within_a_round_an_owner_has_a_limit_of_his_own(other: str, allowed: list[bool]) -> None:
    """Others' do not count."""
    owners = {"alice": "ann", "bob": other}
    pods = [its_pod(f"{name}-0", a_notebook(name=name, uid=name, owner=owner)) for name, owner in owners.items()]
    notices = tuple(replace(its_notice(), node_id=f"kube:prod/team-a/Notebook/{name}") for name in owners)
    observation = seen(*(a_host(number, (pod, IDLE)) for number, pod in enumerate(pods)), notices=notices)
    rulebook = replace(RULEBOOK, limits=Limits(workloads=WorkloadLimits(max_gpus_per_owner_per_hour=1)))

    assert [each.allowed for each in review(observation, [], rulebook, steps(observation, BY_POOL))] == allowed


def test_a_round_gives_fifty_notices() -> None:
    """The next one goes on; each is two calls of the API server."""
    names = [f"w{number:02}" for number in range(60)]
    pods = [its_pod(f"{name}-0", a_notebook(name=name, uid=f"uid-{name}")) for name in names]
    observation = seen(*(a_host(number, (pod, IDLE)) for number, pod in enumerate(pods)))
    reviews = review(observation, [], RULEBOOK, steps(observation, BY_POOL))

    assert [each.allowed for each in reviews] == [True] * 50 + [False] * 10
    assert {answer.rule for each in reviews for answer in each.refusals} == {"notice_rate"}


_PODS = st.builds(
    its_pod,
    name=st.sampled_from(["alice-0", "alice-1", "alice-2", "alice-3"]),
    phase=st.sampled_from([PodPhase.RUNNING, PodPhase.RUNNING, PodPhase.PENDING, PodPhase.UNKNOWN]),
    protected=st.sampled_from([None, None, "an annotation"]),
    gpus=st.sampled_from([1.0, 1.0, 0.0]),
    created_at=st.sampled_from([NOW - timedelta(days=2), NOW - timedelta(hours=1), None]),
)
_STATE = st.sampled_from([IDLE, IDLE, State.PARKED, State.STALLED, BUSY, UNKNOWN])


@given(
    pods=st.lists(st.tuples(_PODS, _STATE, st.sampled_from([0.0, 2 * HOUR, 30 * HOUR])), min_size=1, max_size=4),
    trouble=st.sampled_from([None, None, "No answer."]),
)
def test_nothing_is_ended_of_which_one_pod_is_busy_unknown_young_or_protected(
    pods: list[tuple[Pod, State, float]], trouble: str | None
) -> None:
    """P1, P2, P3 and P10 for workloads, each pod on a machine of its own, whatever the policy may have decided."""
    unique = {pod.name: (pod, state, held) for pod, state, held in pods}
    hosts = [a_host(number, (pod, state), held=held) for number, (pod, state, held) in enumerate(unique.values())]
    observation = seen(*hosts, notices=(its_notice(),), trouble=trouble)
    if not workloads(observation):
        return
    sure = trouble is None and all(
        state not in {BUSY, UNKNOWN}
        and held >= (2 * HOUR if all(other is IDLE for _, other, _ in unique.values()) else 20 * HOUR)
        and (pod.phase, pod.protected, pod.gpus) == (PodPhase.RUNNING, None, 1.0)
        and pod.created_at == NOW - timedelta(days=2)
        for pod, state, held in unique.values()
    )
    assert judge(case_of(observation)).allowed <= sure
    for step in steps(observation, BY_POOL):
        assert (step.verb in {Verb.NOTICE, Verb.RELEASE}) <= sure


def test_a_workload_in_a_pool_that_turned_idle_at_once_is_frozen_wherever_it_is_judged() -> None:
    """In the round, before the end, and where it is explained: nobody has to find out about the freeze."""
    hosts = [a_host(number, (its_pod(f"alice-{number}"), IDLE), held=2 * HOUR) for number in range(5)]
    observation = seen(*(replace(host, launched_at=NOW - timedelta(days=3)) for host in hosts))
    (step,) = steps(observation, BY_POOL)

    assert refused(workload_case(step, observation, RULEBOOK)) == {"mass_idleness"}
    assert {answer.rule for answer in review(observation, [], RULEBOOK, [step])[0].refusals} == {"mass_idleness"}
