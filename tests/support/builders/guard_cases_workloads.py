"""The end of a workload's pods that the guard allows, and for each of its rules on workloads what spoils it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from gpuwatch.guard import Burst, Bursts, Limits, WorkloadCase
from gpuwatch.guard.settings import WorkloadLimits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Intent, Observation, OpenIntent, Outcome, Reason, Status, Step, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import PodPhase, Target
from gpuwatch.model.orders import Pause, Snooze
from gpuwatch.policies import PoolRules
from gpuwatch.policies.kubernetes.idle_pods import GPUS, HOW, PODS
from gpuwatch.policies.kubernetes.workload_use import workloads
from tests.support.builders.fleet import NOW
from tests.support.builders.past_steps import vetoes
from tests.support.builders.workloads import ALICE, HOUR, RULEBOOK, a_host, a_notebook, its_notice, its_pod, seen

IDLE, BUSY, UNKNOWN = State.IDLE, State.BUSY, State.UNKNOWN
REASON = Reason(code="expired", sentence="Its GPU pod has been idle for 30h.")
GOES = {HOW: "stop", PODS: "1", GPUS: "1.0"}
ALICE_NOW = Target(namespace="team-a", kind="Notebook", name="alice", uid="uid-alice")
Spoil = Callable[[WorkloadCase], WorkloadCase]


def an_end(*nodes: Node, **ledger: object) -> WorkloadCase:
    """The end of Alice's notebook, after its notice; nothing stands against it unless a test says so."""
    told: dict[str, object] = {"notices": (its_notice(),), **ledger}
    return case_of(seen(*(nodes or (a_host(1, (its_pod(), IDLE)),)), **told))  # type: ignore[arg-type]


def case_of(observation: Observation) -> WorkloadCase:
    """The end of the one workload there is, whatever it does."""
    (use,) = workloads(observation)
    step = Step(node_id=use.id, verb=Verb.RELEASE, reason=REASON, change="Work.", arguments=GOES)
    return WorkloadCase(step=step, use=use, observation=observation, rulebook=RULEBOOK)


def noticed(case: WorkloadCase) -> WorkloadCase:
    """The case as the notice of that end."""
    return replace(case, step=replace(case.step, verb=Verb.NOTICE))


def ruled(case: WorkloadCase, **rulebook: object) -> WorkloadCase:
    """Under other rules."""
    return replace(case, rulebook=replace(case.rulebook, **rulebook))  # type: ignore[arg-type]  # fields of Rulebook


def with_pod(**pod: object) -> WorkloadCase:
    """Alice's pod is otherwise."""
    return an_end(a_host(1, (its_pod(**pod), IDLE)))  # type: ignore[arg-type]  # fields of Pod


def pool_of(**rules: object) -> WorkloadCase:
    """Its pool has other rules, too."""
    pool = replace(RULEBOOK.pools["default"], **rules)  # type: ignore[arg-type]  # fields of PoolRules
    return ruled(an_end(), pools={"default": pool})


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


def under_way(workload: str, status: Status | None, arguments: dict[str, str], seconds_ago: float = 0.0) -> OpenIntent:
    """An end without its outcome, and when it was tried last."""
    intent = Intent(
        key="k", verb=Verb.RELEASE, node_id=workload, pool="default", at=NOW, reason=REASON, arguments=arguments
    )
    last = (
        None if status is None else Outcome(key="k", at=NOW - timedelta(seconds=seconds_ago), status=status, detail="")
    )
    return OpenIntent(intent=intent, attempts=1, last=last)


def announced(workload: str) -> OpenIntent:
    """A notice without its outcome."""
    entry = under_way(workload, None, {})
    return replace(entry, intent=replace(entry.intent, verb=Verb.NOTICE))


SPOILED_WORKLOADS: dict[str, tuple[str, Callable[[], WorkloadCase]]] = {
    "observing": ("observe_only", lambda: ruled(an_end(), enforce=False)),
    "everything is paused": ("paused", lambda: an_end(pauses=(paused(None, 5),))),
    "its pool is paused": ("paused", lambda: an_end(pauses=(paused("default", 5),))),
    "not enrolled": ("not_ours", lambda: an_end(a_host(1, (its_pod(), IDLE), enrolled=False))),
    "reporting pool": ("not_ours", lambda: ruled(an_end(), pools={"default": PoolRules()})),
    "no word of its people": ("no_consent", lambda: with_pod(workload=a_notebook(idle_action=None))),
    "a sharper end": (
        "no_consent",
        lambda: replace(an_end(), step=replace(an_end().step, arguments={**GOES, HOW: "delete"})),
    ),
    "protected": ("kept", lambda: with_pod(protected="an annotation")),
    "snoozed": ("kept", lambda: with_pod(workload=a_notebook(snoozed_until=NOW + timedelta(minutes=1)))),
    "snoozed by an order": ("kept", lambda: an_end(snoozes=(snoozed(),))),
    "on a protected machine": ("kept", lambda: an_end(a_host(1, (its_pod(), IDLE), protected="a tag"))),
    "on a snoozed machine": ("kept", lambda: an_end(a_host(1, (its_pod(), IDLE), snoozed="until 14:00"))),
    "in another cloud": ("other_cloud", lambda: pool_of(clouds=("aws",))),
    "bare": ("would_lose", lambda: with_pod(bare=True)),
    "local data": ("would_lose", lambda: with_pod(local_data="scratch")),
    "ending": ("changing", lambda: with_pod(ends_at=NOW)),
    "its use is not known": ("unknown", lambda: an_end(a_host(1, (its_pod(), UNKNOWN)))),
    "not running": ("unknown", lambda: with_pod(phase=PodPhase.UNKNOWN)),
    "silent API server": ("unknown", lambda: an_end(trouble="No answer.")),
    "stale": ("stale", lambda: an_end(a_host(1, (its_pod(), IDLE), now=NOW - timedelta(seconds=31)))),
    "from the future": (
        "stale",
        lambda: an_end(a_host(1, (its_pod(), IDLE), now=NOW + timedelta(seconds=31))),
    ),
    "busy": ("busy", lambda: an_end(a_host(1, (its_pod(), BUSY)))),
    "one of two is busy": ("busy", lambda: an_end(a_host(1, (its_pod(), IDLE), (its_pod("alice-1"), BUSY)))),
    "the use of one of two is not known": (
        "busy",
        lambda: an_end(a_host(1, (its_pod(), IDLE)), a_host(2, (its_pod("alice-1", gpus=0.0), IDLE))),
    ),
    "idle for less": ("too_soon", lambda: an_end(a_host(1, (its_pod(), IDLE), held=HOUR))),
    "young": ("too_soon", lambda: with_pod(created_at=NOW - timedelta(hours=1))),
    "of unknown age": ("too_soon", lambda: with_pod(created_at=None)),
    "mass idleness": (
        "mass_idleness",
        lambda: replace(
            an_end(),
            bursts=Bursts(by_group={("of the pool", "default"): Burst(count=9, members=9, first=NOW, last=NOW)}),
        ),
    ),
    "always vetoed": (
        "often_vetoed",
        lambda: an_end(recent=tuple(replace(each, verb=Verb.RELEASE) for each in vetoes(3, ALICE))),
    ),
    "ended lately": ("resting", lambda: an_end(recent=(ended(59, node_id=ALICE),))),
    "under way": ("in_flight", lambda: an_end(open_intents=(under_way(ALICE, None, GOES),))),
    "refused, with another end": (
        "in_flight",
        lambda: an_end(open_intents=(under_way(ALICE, Status.REFUSED, {**GOES, HOW: "delete"}),)),
    ),
    "no notice": ("no_notice", lambda: an_end(notices=())),
    "grace": ("no_notice", lambda: an_end(notices=(its_notice(age=HOUR - 1),))),
    "notice of another end": ("no_notice", lambda: an_end(notices=(its_notice(action="delete"),))),
    "notice of another object": (
        "no_notice",
        lambda: an_end(notices=(replace(its_notice(), target=replace(ALICE_NOW, uid="uid-before")),)),
    ),
    "not approved": ("approval", lambda: pool_of(approval=True)),
    "approval promised": ("approval", lambda: an_end(notices=(its_notice(approval=True),))),
    "not told": ("not_notified", lambda: ruled(an_end(), limits=Limits(require_notification=True))),
    "told late": ("not_notified", lambda: an_end(notices=(replace(its_notice(heard=True), told_at=NOW),))),
    "notices of a round": (
        "notice_rate",
        lambda: replace(noticed(an_end()), notices=50),
    ),
    "larger than a round": ("too_large", lambda: limited(max_pods_per_round=0)),
    "larger than an hour": ("too_large", lambda: limited(max_pods_per_hour=0)),
    "more GPUs than an hour": ("too_large", lambda: limited(max_gpus_per_hour=0)),
    "more GPUs than an owner": ("too_large", lambda: limited(max_gpus_per_owner_per_hour=0)),
    "on too many machines": (
        "too_large",
        lambda: limiting(
            an_end(*(a_host(number, (its_pod(f"alice-{number}"), IDLE)) for number in range(17))),
            max_pods_per_round=99,
        ),
    ),
    "its notice failed": (
        "resting",
        lambda: an_end(
            recent=(ended(9, node_id=ALICE, verb=Verb.NOTICE, status=Status.FAILED, detail="the API server is away"),)
        ),
    ),
    "pods of a round": ("blast_radius", lambda: limited(max_pods_per_round=0)),
    "pods of an hour": ("blast_radius", lambda: limited(max_pods_per_hour=1)),
    "GPUs of an hour": ("blast_radius", lambda: limited(max_gpus_per_hour=1)),
    "GPUs of an owner": ("blast_radius", lambda: limited(max_gpus_per_owner_per_hour=1, owner="alice")),
}


def limited(owner: str | None = None, **limits: int) -> WorkloadCase:
    """One GPU pod of somebody was ended half an hour ago."""
    return limiting(an_end(recent=(ended(30, owner=owner),)), **limits)


def limiting(case: WorkloadCase, **limits: int) -> WorkloadCase:
    """Under these limits."""
    return ruled(case, limits=Limits(workloads=WorkloadLimits(**limits)))
