"""More rows for `guard_cases.py`: launches that bring no node, starts of what others stopped, oddities of machines."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from gpuwatch.guard import Case
from gpuwatch.guard.case import Surge
from gpuwatch.guard.settings import OwnerLimits
from gpuwatch.model.activity import State
from gpuwatch.model.budget import Scope
from gpuwatch.model.decision import INTERRUPTIBLE_TAG, Intent, OpenIntent, Outcome, Status, Verb
from gpuwatch.model.fleet import CapacityType, NodeReport, NodeState
from gpuwatch.model.health import Finding, GpuHealth, Health, Remedy
from gpuwatch.model.sight import Silence
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import NOW, RULES, a_node, a_stop, a_verdict
from tests.support.builders.guard_cases import (
    a_case,
    a_growth,
    a_launch,
    a_start,
    asleep,
    promising,
    with_idle,
    with_ledger,
    with_node,
)
from tests.support.builders.money import budgeted
from tests.support.builders.offers import OFFERS
from tests.support.builders.past_steps import REASON, a_done, a_step

ASKED = {"template": "lt-1", "instance_type": "g6.xlarge"}
UNSEEN = "the cloud launched i-9, and after 10m it does not appear as a node of pool default: it is in pool dev"


def an_unseen(**changes: object) -> OpenIntent:
    """A launch whose machine is no node of the pool."""
    at = NOW - timedelta(minutes=20)
    intent = Intent(
        key="k-9", verb=Verb.LAUNCH, node_id="new:default:9", pool="default", at=at, reason=REASON, arguments=ASKED
    )
    intent = replace(intent, **changes)  # type: ignore[arg-type]
    last = Outcome(key="k-9", at=NOW, status=Status.UNSEEN, detail=UNSEEN)
    return OpenIntent(intent=intent, attempts=1, last=last, reached=True)


def beside(case: Case, **changes: object) -> Case:
    """A stop in a pool that must keep two nodes, where one of the other two is as told."""
    other = replace(a_node("i-2"), **changes)  # type: ignore[arg-type]
    nodes = (case.machine, other, a_node("i-3", State.BUSY))
    fleet = replace(case.observation.fleet, nodes=nodes)
    observation = replace(case.observation, fleet=fleet)
    return replace(case, observation=observation, pool_rules=replace(RULES, min_nodes=2))


def failing(node_id: str) -> NodeReport:
    """The word of an agent whose GPU is failing."""
    finding = Finding(
        code="xid_79", health=Health.FAILING, sentence="It fell off the bus.", remedy=Remedy.REBOOT, source="a test"
    )
    verdict = a_verdict(node_id)
    health = GpuHealth(state=Health.FAILING, since=NOW, findings=(finding,))
    return NodeReport(verdict=replace(verdict, gpus=tuple(replace(gpu, health=health) for gpu in verdict.gpus)))


def terminating(case: Case, **node: object) -> Case:
    """A termination in a pool that terminates."""
    case = promising(case, action="terminate")
    case = replace(case, step=a_step(verb=Verb.TERMINATE), pool_rules=with_idle(action="terminate"))
    return with_node(case, **node)


def in_cloud(case: Case, cloud: str) -> Case:
    """The case in that cloud, in a pool that is for the cloud bj."""
    node = None if case.node is None else replace(case.node, cloud=cloud)
    group = None if case.group is None else replace(case.group, cloud=cloud)
    return replace(case, node=node, group=group, pool_rules=replace(case.pool_rules, clouds=("bj",)))


def silent(case: Case, cloud: str, *, known: bool = False) -> Case:
    """The case while a region of that cloud gives no answer; `known`: what it has was seen before."""
    silence = Silence(cloud=cloud, where="ap-1", reason="no answer", known=known)
    fleet = replace(case.observation.fleet, silent=(silence,))
    return replace(case, observation=replace(case.observation, fleet=fleet))


def at_home(case: Case, regions: str, region: str | None = None) -> Case:
    """The case of a pool with these regions; a launch is in that region."""
    arguments = {**case.step.arguments, **({"region": region} if region else {})}
    rules = replace(case.pool_rules, regions=tuple(regions.split()))
    return replace(case, step=replace(case.step, arguments=arguments), pool_rules=rules)


ONE_TIME = "its spot request sir-1 is one-time"
LOCAL_DISKS = "its cloud does not stop the charges of a machine with local disks"
COMES_BACK = "its persistent spot request sir-1 would launch it again"


def spent_in(cloud: str | None, case: Case, owner: str | None = None) -> Case:
    """The case when a month's budget of that cloud, or that owner, is used up."""
    return budgeted(case, scope=Scope(cloud=cloud, owner=owner))


def launched_in(case: Case, cloud: str, others: str) -> Case:
    """A launch in that cloud, of a pool whose nodes are in that other one."""
    case = a_launch(with_node(case, cloud=others))
    seen = case.observation
    nodes = tuple(replace(node, cloud=others) for node in seen.fleet.nodes)
    arguments = {**case.step.arguments, **({"cloud": cloud} if cloud else {})}
    seen = replace(seen, fleet=replace(seen.fleet, nodes=nodes))
    return replace(case, step=replace(case.step, arguments=arguments), observation=seen)


BACK = replace(RULES, offers=OFFERS, interruptible="any")


def given_back(case: Case, tags: dict[str, str] | None = None, **rules: object) -> Case:
    """A machine that works, in whose place spot works; its people consent unless told otherwise."""
    case = promising(case, idle_seconds=None)
    step = replace(case.step, reason=replace(case.step.reason, code=back.CODE))
    case = replace(case, step=step, pool_rules=replace(BACK, **rules))  # type: ignore[arg-type]
    verdict = a_verdict("i-1", State.BUSY)
    consent = {INTERRUPTIBLE_TAG: "true"} if tags is None else tags
    return with_node(case, signal=NodeReport(verdict=verdict), tags=consent)


def a_spot_launch(case: Case, interruptible: Literal["never", "any"], **rules: object) -> Case:
    """The launch of a spot node on top of what is wanted."""
    case = a_launch(case)
    reason = replace(case.step.reason, code=back.CODE)
    step = replace(case.step, reason=reason, arguments={**case.step.arguments, "capacity": "spot"})
    pool = replace(BACK, interruptible=interruptible, **rules)  # type: ignore[arg-type]
    return replace(case, step=step, pool_rules=pool, surge=Surge(left=1))


def rationed(
    case: Case, running: int, *, gpus: int | None = 8, max_nodes: int | None = None, max_gpus: int | None = None
) -> Case:
    """The case of i-1 of ann's, who has so many running nodes besides and alone, under a limit for each owner."""
    kind, there = "g6.xlarge", case.observation.fleet.nodes
    nodes = [replace(each, owner="ann", gpu_count=gpus, instance_type=kind) for each in there if each.id == "i-1"]
    more = [a_node(f"i-ann-{number}", owner="ann", gpu_count=gpus, instance_type=kind) for number in range(running)]
    fleet = replace(case.observation.fleet, nodes=(*nodes, *more))
    node = None if case.node is None else replace(case.node, owner="ann", gpu_count=gpus)
    limits = replace(case.limits, per_owner=OwnerLimits(max_nodes=max_nodes, max_gpus=max_gpus))
    return replace(case, node=node, limits=limits, observation=replace(case.observation, fleet=fleet))


SPOILED_GROWTH: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("given back without the tag", "busy", lambda c: given_back(c, {}), "does not say true"),
    ("given back with another word", "busy", lambda c: given_back(c, {INTERRUPTIBLE_TAG: "yes"}), "does not say true"),
    ("given back, pool says never", "busy", lambda c: given_back(c, interruptible="never"), "must not be interrupted"),
    (
        "given back, reserved",
        "busy",
        lambda c: with_node(given_back(c), capacity_type=CapacityType.SPOT),
        "stand in for spot",
    ),
    ("given back, pool reports", "action_not_enabled", lambda c: given_back(c, idle=IdleRules(action="report")), ""),
    ("spot in a pool that says never", "interruptible", lambda c: a_spot_launch(c, "never"), "interruptible: any"),
    (
        "more than the surge",
        "max_nodes",
        lambda c: a_spot_launch(c, "any", max_nodes=1, capacity=MixRules(surge=0)),
        "capacity.surge is 1",
    ),
    (
        "in the place of none",
        "gives_way",
        lambda c: replace(a_spot_launch(c, "any"), surge=Surge(left=0, against="i-1 stays: it is snoozed.")),
        "i-1 stays",
    ),
    ("nobody knows in whose place", "gives_way", lambda c: replace(a_spot_launch(c, "any"), surge=None), "place."),
    ("unseen", "launch_unseen", lambda c: with_ledger(a_launch(c), open_intents=(an_unseen(),)), "i-9"),
    (
        "unseen in another subnet",
        "launch_unseen",
        lambda c: with_ledger(a_launch(c), open_intents=(an_unseen(arguments={**ASKED, "subnet": "s-1"}),)),
        "gpuwatch resume --pool default",
    ),
    ("a cloud that never answered", "cloud_silent", lambda c: silent(a_launch(c), "us"), "ap-1 of cloud us"),
    (
        "the pool's cloud never answered",
        "cloud_silent",
        lambda c: in_cloud(silent(a_start(c), "bj"), "bj"),
        "pools.default.clouds",
    ),
    ("an unnamed region", "residency", lambda c: at_home(a_launch(c), "eu-*"), "No region is given"),
    ("a launch abroad", "residency", lambda c: at_home(a_launch(c), "eu-*", "us-east-1"), "launch.region"),
    (
        "a start abroad",
        "residency",
        lambda c: at_home(a_start(c), "eu-central-1"),
        "not among pools.default.regions (eu-central-1)",
    ),
    (
        "a group abroad",
        "residency",
        lambda c: at_home(a_growth(c), "eu-central-1"),
        "not among pools.default.regions (eu-central-1)",
    ),
    ("others stopped it", "start_consent", lambda c: with_ledger(a_start(c), stopped=()), "did not stop it"),
    (
        "started since our stop",
        "start_consent",
        lambda c: with_node(a_start(c), launched_at=NOW - timedelta(hours=1)),
        "did not stop it",
    ),
    (
        "another launch time",
        "start_consent",
        lambda c: with_ledger(a_start(c), stopped=(a_stop("i-1", at=NOW, launched_at=NOW - timedelta(days=9)),)),
        "did not stop it",
    ),
    (
        "stopped after our start",
        "start_consent",
        lambda c: with_ledger(
            replace(a_start(c), pool_rules=replace(RULES, start="any")),
            stopped=(),
            recent=(replace(a_done("i-1"), verb=Verb.START),),
        ),
        "stopped again",
    ),
    ("one-time spot", "unsupported", lambda c: with_node(c, cannot_stop=ONE_TIME), "one-time"),
    (
        "notice of one-time spot",
        "unsupported",
        lambda c: with_node(replace(c, step=a_step(verb=Verb.NOTICE)), cannot_stop=ONE_TIME),
        "one-time",
    ),
    ("persistent spot", "unsupported", lambda c: terminating(c, cannot_terminate=COMES_BACK), "launch it again"),
    (
        "notice of persistent spot",
        "unsupported",
        lambda c: replace(terminating(c, cannot_terminate=COMES_BACK), step=a_step(verb=Verb.NOTICE)),
        "launch it again",
    ),
    (
        "notice of a stopped one",
        "unsupported",
        lambda c: with_node(replace(asleep(c), step=a_step(verb=Verb.NOTICE)), cannot_terminate=COMES_BACK),
        "launch it again",
    ),
    ("of another cloud", "other_cloud", lambda c: in_cloud(c, "us"), "in the cloud us"),
    ("start in another cloud", "other_cloud", lambda c: in_cloud(a_start(c), "us"), "its pool is for bj"),
    ("group in another cloud", "other_cloud", lambda c: in_cloud(a_growth(c), "us"), "pools.default.clouds"),
    ("of no named cloud", "other_cloud", lambda c: in_cloud(c, ""), "without a name"),
    (
        "a cloud's month, start",
        "month_budget",
        lambda c: spent_in("bj", with_node(a_start(c), cloud="bj")),
        "budget ml",
    ),
    ("month, no price", "month_budget", lambda c: budgeted(a_growth(c), blocked=None), "The price of what is added"),
    ("a cloud's month, launch", "month_budget", lambda c: spent_in("bj", launched_in(c, "bj", "bj")), "budget ml"),
    ("a cloud's month, first launch", "month_budget", lambda c: spent_in("bj", launched_in(c, "bj", "us")), "ml"),
    ("a cloud's month, only cloud", "month_budget", lambda c: spent_in("bj", launched_in(c, "", "bj")), "budget ml"),
    ("a cloud's month, group", "month_budget", lambda c: spent_in("bj", a_growth(c, cloud="bj")), "budget ml"),
    ("too many nodes", "owner_limit", lambda c: rationed(a_start(c), 1, max_nodes=1), "ann would have 2 nodes"),
    ("too many GPUs", "owner_limit", lambda c: rationed(a_start(c), 2, max_gpus=16), "ann would have 24 GPUs"),
    ("a launch for an owner", "owner_limit", lambda c: rationed(a_launch(c), 1, max_nodes=2), "ann would have 3 nodes"),
    ("growth for an owner", "owner_limit", lambda c: rationed(a_growth(c), 2, max_gpus=24), "ann would have 48 GPUs"),
    ("unknown GPUs", "owner_limit", lambda c: rationed(a_start(c), 1, gpus=None, max_gpus=99), "is not known"),
    ("an owner's month", "month_budget", lambda c: spent_in(None, launched_in(c, "bj", "us"), owner="ann"), "ml"),
    ("prepaid", "reserved_capacity", lambda c: with_node(c, capacity_type=CapacityType.PREPAID), "end of its term"),
    ("prepaid for good", "reserved_capacity", lambda c: terminating(c, capacity_type=CapacityType.PREPAID), "prepaid"),
    ("stopped, billed", "still_billed", lambda c: with_node(c, still_billed=LOCAL_DISKS), "local disks"),
    (
        "prepaid, and billed when stopped",
        "reserved_capacity",
        lambda c: with_node(c, capacity_type=CapacityType.PREPAID, still_billed=LOCAL_DISKS),
        "end of its term",
    ),
    (
        "notice of a stop, billed",
        "still_billed",
        lambda c: with_node(replace(c, step=a_step(verb=Verb.NOTICE)), still_billed=LOCAL_DISKS),
        "would not end its bill",
    ),
    ("host", "reserved_capacity", lambda c: with_node(c, capacity_type=CapacityType.DEDICATED_HOST), "Dedicated Host"),
    ("type not known", "gpus_missing", lambda c: with_node(c, gpu_count=None), "g6.xlarge"),
    ("state not known", "not_running", lambda c: with_node(c, state=NodeState.UNKNOWN), "unknown"),
    ("dead agent", "min_nodes", lambda c: beside(c, signal=NodeReport(failure="no answer")), "1 more is unknown"),
    ("failing", "min_nodes", lambda c: beside(c, signal=failing("i-2")), "1 more is unknown"),
    (
        "deadlock",
        "min_nodes",
        lambda c: beside(c, signal=NodeReport(verdict=a_verdict("i-2", State.STALLED))),
        "1 running node of",
    ),
    ("pending", "min_nodes", lambda c: beside(c, state=NodeState.PENDING), "1 running node of"),
    ("state of another not known", "min_nodes", lambda c: beside(c, state=NodeState.UNKNOWN), "1 running node of"),
]

FAIR_GROWTH: list[tuple[str, Callable[[Case], Case]]] = [
    ("given back to spot with both consents", given_back),
    ("spot on top of the maximum, within the surge", lambda c: a_spot_launch(c, "any", max_nodes=3)),
    ("launch", a_launch),
    ("launch of another pool", lambda c: with_ledger(a_launch(c), open_intents=(an_unseen(pool="dev"),))),
    (
        "launch of what is corrected",
        lambda c: with_ledger(a_launch(c), open_intents=(an_unseen(arguments={**ASKED, "template": "lt-0"}),)),
    ),
    (
        "start of anybody's",
        lambda c: with_ledger(replace(a_start(c), pool_rules=replace(RULES, start="any")), stopped=()),
    ),
    (
        "start after our own stop",
        lambda c: with_ledger(a_start(c), stopped=(a_stop("i-1", at=a_start(c).machine.launched_at or NOW),)),
    ),
    (
        "start with the same launch time",
        lambda c: with_ledger(
            a_start(c),
            stopped=(a_stop("i-1", at=NOW - timedelta(days=9), launched_at=a_start(c).machine.launched_at),),
        ),
    ),
    ("start without a launch time", lambda c: with_node(a_start(c), launched_at=None)),
    ("stop persistent spot", lambda c: with_node(c, cannot_terminate=COMES_BACK)),
    ("of its pool's cloud", lambda c: in_cloud(c, "bj")),
    ("start in its pool's cloud", lambda c: in_cloud(a_start(c), "bj")),
    ("group in its pool's cloud", lambda c: in_cloud(a_growth(c), "bj")),
    ("launch of a pool that names clouds", lambda c: in_cloud(a_launch(c), "bj")),
    ("of any cloud", lambda c: with_node(c, cloud="us")),
    ("start in another cloud than the budget's", lambda c: spent_in("bj", with_node(a_start(c), cloud="us"))),
    ("launch in another cloud than the budget's", lambda c: spent_in("bj", launched_in(c, "us", "bj"))),
    ("launch of others' in the only cloud", lambda c: spent_in("us", launched_in(c, "", "bj"))),
    ("grow in another cloud than the budget's", lambda c: spent_in("bj", a_growth(c, cloud="us"))),
    ("launch beside others' in that cloud", lambda c: spent_in(None, launched_in(c, "bj", "bj"), owner="ann")),
    ("terminate what a stop leaves billed", lambda c: terminating(c, still_billed=LOCAL_DISKS)),
    (
        "notice of the termination of what a stop leaves billed",
        lambda c: replace(terminating(c, still_billed=LOCAL_DISKS), step=a_step(verb=Verb.NOTICE)),
    ),
    ("terminate what is stopped and billed", lambda c: with_node(asleep(c), still_billed=LOCAL_DISKS)),
    ("terminate one-time spot", lambda c: terminating(c, cannot_stop=ONE_TIME)),
    (
        "notice of a termination",
        lambda c: replace(terminating(c, cannot_stop=ONE_TIME), step=a_step(verb=Verb.NOTICE)),
    ),
    (
        "notice of a stop",
        lambda c: with_node(replace(c, step=a_step(verb=Verb.NOTICE)), cannot_terminate=COMES_BACK),
    ),
    ("a parked one keeps the floor", lambda c: beside(c, signal=NodeReport(verdict=a_verdict("i-2", State.PARKED)))),
    ("spot", lambda c: with_node(c, capacity_type=CapacityType.SPOT)),
]

assert a_case().pool == "default", "the rows name the pool"
