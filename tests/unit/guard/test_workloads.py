"""The guard's rules on workloads: each refuses by itself, whatever the policy has decided."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard import Limits
from gpuwatch.guard.mass_idleness import Burst
from gpuwatch.guard.settings import WorkloadLimits
from gpuwatch.guard.workloads import WORKLOAD_RULES, WorkloadCase, judge, review
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Intent, Observation, OpenIntent, Outcome, Reason, Status, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import Pod, PodPhase, Target
from gpuwatch.model.orders import Pause, Snooze
from gpuwatch.policies import PoolRules
from gpuwatch.policies.kubernetes.idle_pods import GPUS, HOW, PODS, WorkloadStep, steps
from gpuwatch.policies.kubernetes.workload_use import workloads
from tests.support.builders.fleet import NOW
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
REASON = Reason(code="expired", sentence="Its GPU pod has been idle for 30h.")
GOES = {HOW: "stop", PODS: "1", GPUS: "1.0"}
ALICE_NOW = Target(namespace="team-a", kind="Notebook", name="alice", uid="uid-alice")
Spoil = Callable[[WorkloadCase], WorkloadCase]


def a_case(*nodes: Node, **ledger: object) -> WorkloadCase:
    """The end of Alice's notebook, after its notice; nothing stands against it unless a test says so."""
    told: dict[str, object] = {"notices": (its_notice(),), **ledger}
    return case_of(seen(*(nodes or (a_host(1, (its_pod(), IDLE)),)), **told))  # type: ignore[arg-type]


def case_of(observation: Observation) -> WorkloadCase:
    """The end of the one workload there is, whatever it does."""
    (use,) = workloads(observation)
    step = WorkloadStep(use=use, verb=Verb.RELEASE, reason=REASON, change="Work.", arguments=GOES)
    return WorkloadCase(step=step, observation=observation, rulebook=RULEBOOK)


def ruled(case: WorkloadCase, **rulebook: object) -> WorkloadCase:
    """Under other rules."""
    return replace(case, rulebook=replace(case.rulebook, **rulebook))  # type: ignore[arg-type]  # fields of Rulebook


def refused(case: WorkloadCase) -> set[str]:
    """The rules that object."""
    return {answer.rule for answer in judge(case).refusals}


def with_pod(**pod: object) -> WorkloadCase:
    """Alice's pod is otherwise."""
    return a_case(a_host(1, (its_pod(**pod), IDLE)))  # type: ignore[arg-type]  # fields of Pod


def pool_of(**rules: object) -> WorkloadCase:
    """Its pool has other rules, too."""
    pool = replace(RULEBOOK.pools["default"], **rules)  # type: ignore[arg-type]  # fields of PoolRules
    return ruled(a_case(), pools={"default": pool})


def snoozed() -> Snooze:
    """Somebody keeps it for an hour."""
    return Snooze(node_id=ALICE, at=NOW, until=NOW + timedelta(hours=1), who="ann", reason="")


def paused(pool: str | None, minutes: float) -> Pause:
    """Until so many minutes from now."""
    return Pause(pool=pool, at=NOW, who="ann", reason="", until=NOW + timedelta(minutes=minutes))


def ended(minutes_ago: float, **other: object) -> Done:
    """Another workload's end, of one pod with one GPU."""
    at = NOW - timedelta(minutes=minutes_ago)
    base = Done(
        key="k",
        verb=Verb.RELEASE,
        node_id="kube:prod/a/Job/b",
        pool="default",
        status=Status.SETTLED,
        at=at,
        arguments=GOES,
    )
    return replace(base, **other)  # type: ignore[arg-type]  # fields of Done


def under_way(workload: str, status: Status | None, arguments: dict[str, str]) -> OpenIntent:
    """An end without its outcome."""
    intent = Intent(
        key="k", verb=Verb.RELEASE, node_id=workload, pool="default", at=NOW, reason=REASON, arguments=arguments
    )
    last = None if status is None else Outcome(key="k", at=NOW, status=status, detail="")
    return OpenIntent(intent=intent, attempts=1, last=last)


def announced(workload: str) -> OpenIntent:
    """A notice without its outcome."""
    entry = under_way(workload, None, {})
    return replace(entry, intent=replace(entry.intent, verb=Verb.NOTICE))


SPOILED: dict[str, tuple[str, Callable[[], WorkloadCase]]] = {
    "observing": ("observe_only", lambda: ruled(a_case(), enforce=False)),
    "everything is paused": ("paused", lambda: a_case(pauses=(paused(None, 5),))),
    "its pool is paused": ("paused", lambda: a_case(pauses=(paused("default", 5),))),
    "not enrolled": ("not_ours", lambda: a_case(a_host(1, (its_pod(), IDLE), enrolled=False))),
    "reporting pool": ("not_ours", lambda: ruled(a_case(), pools={"default": PoolRules()})),
    "no word of its people": ("no_consent", lambda: with_pod(workload=a_notebook(idle_action=None))),
    "a sharper end": (
        "no_consent",
        lambda: replace(a_case(), step=replace(a_case().step, arguments={**GOES, HOW: "delete"})),
    ),
    "protected": ("kept", lambda: with_pod(protected="an annotation")),
    "snoozed": ("kept", lambda: with_pod(workload=a_notebook(snoozed_until=NOW + timedelta(minutes=1)))),
    "snoozed by an order": ("kept", lambda: a_case(snoozes=(snoozed(),))),
    "on a protected machine": ("kept", lambda: a_case(a_host(1, (its_pod(), IDLE), protected="a tag"))),
    "on a snoozed machine": ("kept", lambda: a_case(a_host(1, (its_pod(), IDLE), snoozed="until 14:00"))),
    "in another cloud": ("other_cloud", lambda: pool_of(clouds=("aws",))),
    "bare": ("would_lose", lambda: with_pod(bare=True)),
    "local data": ("would_lose", lambda: with_pod(local_data="scratch")),
    "ending": ("changing", lambda: with_pod(ends_at=NOW)),
    "its use is not known": ("unknown", lambda: a_case(a_host(1, (its_pod(), UNKNOWN)))),
    "not running": ("unknown", lambda: with_pod(phase=PodPhase.UNKNOWN)),
    "silent API server": ("unknown", lambda: a_case(trouble="No answer.")),
    "stale": ("stale", lambda: a_case(a_host(1, (its_pod(), IDLE), now=NOW - timedelta(seconds=31)))),
    "from the future": ("stale", lambda: a_case(a_host(1, (its_pod(), IDLE), now=NOW + timedelta(seconds=31)))),
    "busy": ("busy", lambda: a_case(a_host(1, (its_pod(), BUSY)))),
    "one of two is busy": ("busy", lambda: a_case(a_host(1, (its_pod(), IDLE), (its_pod("alice-1"), BUSY)))),
    "the use of one of two is not known": (
        "busy",
        lambda: a_case(a_host(1, (its_pod(), IDLE)), a_host(2, (its_pod("alice-1", gpus=0.0), IDLE))),
    ),
    "idle for less": ("too_soon", lambda: a_case(a_host(1, (its_pod(), IDLE), held=HOUR))),
    "young": ("too_soon", lambda: with_pod(created_at=NOW - timedelta(hours=1))),
    "of unknown age": ("too_soon", lambda: with_pod(created_at=None)),
    "mass idleness": (
        "mass_idleness",
        lambda: replace(a_case(), bursts={"default": Burst(count=9, members=9, first=NOW, last=NOW)}),
    ),
    "ended lately": ("resting", lambda: a_case(recent=(ended(59, node_id=ALICE),))),
    "under way": ("in_flight", lambda: a_case(open_intents=(under_way(ALICE, None, GOES),))),
    "refused, with another end": (
        "in_flight",
        lambda: a_case(open_intents=(under_way(ALICE, Status.REFUSED, {**GOES, HOW: "delete"}),)),
    ),
    "no notice": ("no_notice", lambda: a_case(notices=())),
    "grace": ("no_notice", lambda: a_case(notices=(its_notice(age=HOUR - 1),))),
    "notice of another end": ("no_notice", lambda: a_case(notices=(its_notice(action="delete"),))),
    "notice of another object": (
        "no_notice",
        lambda: a_case(notices=(replace(its_notice(), target=replace(ALICE_NOW, uid="uid-before")),)),
    ),
    "not approved": ("approval", lambda: pool_of(approval=True)),
    "approval promised": ("approval", lambda: a_case(notices=(its_notice(approval=True),))),
    "not told": ("not_notified", lambda: ruled(a_case(), limits=Limits(require_notification=True))),
    "told late": ("not_notified", lambda: a_case(notices=(replace(its_notice(heard=True), told_at=NOW),))),
    "notices of a round": (
        "notice_rate",
        lambda: replace(a_case(), step=replace(a_case().step, verb=Verb.NOTICE), notices=50),
    ),
    "larger than a round": ("too_large", lambda: limited(max_pods_per_round=0)),
    "larger than an hour": ("too_large", lambda: limited(max_pods_per_hour=0)),
    "more GPUs than an hour": ("too_large", lambda: limited(max_gpus_per_hour=0)),
    "more GPUs than an owner": ("too_large", lambda: limited(max_gpus_per_owner_per_hour=0)),
    "on too many machines": (
        "too_large",
        lambda: limiting(
            a_case(*(a_host(number, (its_pod(f"alice-{number}"), IDLE)) for number in range(17))),
            max_pods_per_round=99,
        ),
    ),
    "its notice failed": (
        "resting",
        lambda: a_case(recent=(ended(9, node_id=ALICE, verb=Verb.NOTICE, status=Status.FAILED),)),
    ),
    "pods of a round": ("blast_radius", lambda: limited(max_pods_per_round=0)),
    "pods of an hour": ("blast_radius", lambda: limited(max_pods_per_hour=1)),
    "GPUs of an hour": ("blast_radius", lambda: limited(max_gpus_per_hour=1)),
    "GPUs of an owner": ("blast_radius", lambda: limited(max_gpus_per_owner_per_hour=1, owner="alice")),
}


def limited(owner: str | None = None, **limits: int) -> WorkloadCase:
    """One GPU pod of somebody was ended half an hour ago."""
    return limiting(a_case(recent=(ended(30, owner=owner),)), **limits)


def limiting(case: WorkloadCase, **limits: int) -> WorkloadCase:
    """Under these limits."""
    return ruled(case, limits=Limits(workloads=WorkloadLimits(**limits)))


def test_nothing_stands_against_an_idle_workload_after_its_notice() -> None:
    """Every rule was asked."""
    assert judge(a_case()).allowed
    announced = replace(a_case(), step=replace(a_case().step, verb=Verb.NOTICE))
    asked = {answer.rule for case in (a_case(), announced) for answer in judge(case).answers}
    assert asked == set(WORKLOAD_RULES)


@pytest.mark.parametrize("name", SPOILED)
def test_each_rule_refuses_by_itself(name: str) -> None:
    """Whatever was decided."""
    rule, spoiled = SPOILED[name]
    refusals = {answer.rule: answer for answer in judge(spoiled()).refusals}

    assert rule in refusals
    assert all(answer.sentence and answer.remedy for answer in refusals.values())


ALL = {Verb.NOTICE, Verb.WITHDRAW, Verb.RELEASE}
# What each rule is about; all others are about notices and ends.
ABOUT = {
    **dict.fromkeys(("observe_only", "paused", "in_flight"), ALL),
    **{key: {Verb.RELEASE} for key in ("no_notice", "not_notified", "approval", "blast_radius")},
    "notice_rate": {Verb.NOTICE},
}


@pytest.mark.parametrize("rule", WORKLOAD_RULES)
def test_each_rule_holds_for_what_it_is_about(rule: str) -> None:
    """What stands against an end stands against its notice: nobody is told what could not be done."""
    cases = [spoiled() for name, spoiled in SPOILED.values() if name == rule]
    refusing = {
        verb for verb in ALL for case in cases if rule in refused(replace(case, step=replace(case.step, verb=verb)))
    }

    assert refusing == ABOUT.get(rule, {Verb.NOTICE, Verb.RELEASE})


def test_each_rule_is_among_the_cases() -> None:
    """None is without a case."""
    assert {rule for rule, _ in SPOILED.values()} == set(WORKLOAD_RULES)


@pytest.mark.parametrize(
    "case",
    [
        a_case(pauses=(paused("other", 5),)),
        a_case(pauses=(paused(None, -5),)),
        a_case(open_intents=(under_way(ALICE, Status.REFUSED, GOES),)),
        a_case(open_intents=(under_way("kube:prod/a/Job/b", None, GOES),)),
        a_case(recent=(ended(61, node_id=ALICE),)),
        replace(a_case(), bursts={"default": Burst(count=9, members=9, first=NOW, last=NOW - timedelta(hours=3))}),
        a_case(notices=(replace(its_notice(heard=True), told_at=NOW - timedelta(hours=2)),)),
        limiting(a_case(open_intents=(under_way("kube:prod/a/Job/b", Status.REFUSED, GOES),)), max_pods_per_hour=1),
        limiting(a_case(open_intents=(announced("kube:prod/a/Job/b"),)), max_pods_per_hour=1),
        limited(max_gpus_per_owner_per_hour=1, owner="bob"),
        limiting(a_case(recent=(ended(61),)), max_pods_per_hour=1),
        limiting(a_case(recent=(ended(9, status=Status.CANCELLED),)), max_pods_per_hour=1),
    ],
    ids=[
        *("another pool", "over", "the same again", "another's", "rested", "freeze over", "told", "another's refused"),
        *("notice", "owner", "hour", "cancelled"),
    ],
)
def test_what_is_about_others_or_over_refuses_nothing(case: WorkloadCase) -> None:
    """So that what may go does."""
    assert judge(case).allowed


def test_ends_count_against_each_other_and_what_cannot_be_read_is_beyond_each_limit() -> None:
    """Within the round, with what is under way, and with a record of another version."""
    open_end = under_way("kube:prod/a/Job/b", Status.UNAVAILABLE, GOES)
    unread = ended(9, arguments={HOW: "stop", PODS: "nan"})
    for case in (a_case(open_intents=(open_end,)), a_case(recent=(unread,))):
        assert refused(limiting(case, max_pods_per_hour=1)) == {"blast_radius"}
    assert refused(a_case(recent=(unread,))) == {"blast_radius"}


def test_a_round_allows_as_many_as_its_limits_say() -> None:
    """The first by their ids."""
    names = ("alice", "bob", "carol")
    pods = [its_pod(f"{name}-0", a_notebook(name=name, uid=f"uid-{name}")) for name in names]
    hosts = [a_host(number, (pod, IDLE)) for number, pod in enumerate(pods)]
    notices = tuple(replace(its_notice(), node_id=f"kube:prod/team-a/Notebook/{name}") for name in names)
    observation = seen(*hosts, notices=notices)

    rulebook = replace(RULEBOOK, limits=Limits(workloads=WorkloadLimits(max_pods_per_round=2)))

    assert [each.allowed for each in review(observation, steps(observation, BY_POOL), rulebook)] == [True, True, False]


@pytest.mark.parametrize(
    ("past", "last"),
    [
        ({}, "bob"),
        ({"recent": (ended(9, node_id=ALICE, status=Status.CANCELLED),)}, "alice"),
        ({"recent": (ended(61, node_id=ALICE, status=Status.CANCELLED),)}, "bob"),
        ({"recent": (ended(9, node_id=ALICE, verb=Verb.STOP, status=Status.CANCELLED),)}, "bob"),
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
    reviews = review(observation, steps(observation, BY_POOL), RULEBOOK)

    assert reviews[-1].step.node_id == f"kube:prod/team-a/Notebook/{last}"


@pytest.mark.parametrize(("other", "allowed"), [("ann", [True, False]), ("bob", [True, True])])
def test_within_a_round_an_owner_has_a_limit_of_his_own(other: str, allowed: list[bool]) -> None:
    """Others' do not count."""
    owners = {"alice": "ann", "bob": other}
    pods = [its_pod(f"{name}-0", a_notebook(name=name, uid=name, owner=owner)) for name, owner in owners.items()]
    notices = tuple(replace(its_notice(), node_id=f"kube:prod/team-a/Notebook/{name}") for name in owners)
    observation = seen(*(a_host(number, (pod, IDLE)) for number, pod in enumerate(pods)), notices=notices)
    rulebook = replace(RULEBOOK, limits=Limits(workloads=WorkloadLimits(max_gpus_per_owner_per_hour=1)))

    assert [each.allowed for each in review(observation, steps(observation, BY_POOL), rulebook)] == allowed


def test_a_round_gives_fifty_notices() -> None:
    """The next one goes on; each is two calls of the API server."""
    names = [f"w{number:02}" for number in range(60)]
    pods = [its_pod(f"{name}-0", a_notebook(name=name, uid=f"uid-{name}")) for name in names]
    observation = seen(*(a_host(number, (pod, IDLE)) for number, pod in enumerate(pods)))
    reviews = review(observation, steps(observation, BY_POOL), RULEBOOK)

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
