"""A case that the guard allows, and for each of its rules what spoils it: the guard's tests and its mutation check."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from gpuwatch.guard import Burst, Case, Limits, Rulebook
from gpuwatch.model.activity import LocalDisks, State
from gpuwatch.model.budget import Scope
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import CapacityType, NodeReport, NodeState
from gpuwatch.model.money import Price
from gpuwatch.model.orders import Pause
from gpuwatch.policies import PoolRules
from tests.support.builders import foreign_decisions as foreign
from tests.support.builders.backtests import a_backtest
from tests.support.builders.fleet import NOW, RULES, a_node, a_notice, a_stop, a_verdict, an_observation
from tests.support.builders.money import alone, budgeted
from tests.support.builders.past_steps import a_done, a_group, a_step, an_open, launching_since, received

NOWHERE = Rulebook(pools={"prod-inference": RULES}).doubt("Prod-Inference")  # a tag with a slip
SILENT, SUDDEN = NodeReport(failure="its agent did not answer"), Burst(count=9, members=10, first=NOW, last=NOW)


def a_rulebook(rules: PoolRules, limits: Limits) -> Rulebook:
    """Rules in force."""
    return Rulebook(pools={"default": rules}, limits=limits, enforce=True)


def a_case() -> Case:
    """A stop to which no rule objects; each test spoils one thing."""
    nodes = (a_node("i-1"), a_node("i-2"), a_node("i-3", State.BUSY))
    return Case(
        step=a_step(),
        node=nodes[0],
        pool="default",
        pool_rules=RULES,
        limits=Limits(),
        observation=an_observation(*nodes, notices=(a_notice(),)),
        enforce=True,
        burst=None,
    )


def with_node(case: Case, **changes: object) -> Case:
    """The case with its node changed, in the fleet as well."""
    assert case.node is not None
    node, fleet = replace(case.node, **changes), case.observation.fleet  # type: ignore[arg-type]
    fleet = replace(fleet, nodes=tuple(node if each.id == node.id else each for each in fleet.nodes))
    return replace(case, node=node, observation=replace(case.observation, fleet=fleet))


def with_ledger(case: Case, **changes: object) -> Case:
    """The case with another past."""
    ledger = replace(case.observation.ledger, **changes)  # type: ignore[arg-type]
    return replace(case, observation=replace(case.observation, ledger=ledger))


def with_verdict(case: Case, **changes: object) -> Case:
    """The case with another answer of its agent."""
    return with_node(case, signal=NodeReport(verdict=replace(a_verdict(), **changes)))  # type: ignore[arg-type]


def with_disks(case: Case, local_disks: LocalDisks) -> Case:
    """The case of a type with local disks, whose agent says that of them."""
    return with_node(with_verdict(case, local_disks=local_disks), instance_store=True)


def blind(case: Case) -> Case:
    """The case in a pool of which most is unknown."""
    deaf = tuple(a_node(f"i-d{n}", signal=NodeReport(failure="no answer")) for n in range(4))
    fleet = replace(case.observation.fleet, nodes=case.observation.fleet.nodes + deaf)
    return replace(case, observation=replace(case.observation, fleet=fleet))


def promising(case: Case, *, age: float = 900.0, **document: Any) -> Case:  # noqa: ANN401  of a Promise
    """The case whose notice is so old and promised something else."""
    return with_ledger(case, notices=(a_notice(age=age, **document),))


def with_group(case: Case, **changes: object) -> Case:
    """The case as the termination of a group's member."""
    group = a_group(**changes)
    nodes = tuple(replace(node, group=group.id) for node in case.observation.fleet.nodes)
    fleet = replace(case.observation.fleet, nodes=nodes, groups=(group,))
    assert case.node is not None
    case = promising(case, action="terminate")
    assert case.node is not None
    return replace(
        case,
        step=replace(case.step, verb=Verb.TERMINATE),
        node=replace(case.node, group=group.id),
        group=group,
        pool_rules=with_idle(action="terminate"),
        observation=replace(case.observation, fleet=fleet),
    )


def with_idle(**changes: object) -> PoolRules:
    """The pool's rules with another idle policy."""
    return replace(RULES, idle=replace(RULES.idle, **changes))  # type: ignore[arg-type]


def in_state(case: Case, state: State, **rules: object) -> Case:
    """The case of a node that does something else, under another idle policy."""
    case = with_node(case, signal=NodeReport(verdict=a_verdict(state=state)))
    return replace(case, pool_rules=with_idle(**rules))


def unshielding(case: Case) -> Case:
    """The case as the end of a member's scale-in protection."""
    case = with_ledger(with_node(with_group(case), scale_in_protected=True), shields=("i-1",))
    return replace(case, step=replace(case.step, verb=Verb.UNPROTECT))


def a_launch(case: Case) -> Case:
    """The case as the launch of a new node."""
    step = a_step("new:default:1", Verb.LAUNCH)
    return replace(case, node=None, step=replace(step, arguments={"template": "lt-1", "instance_type": "g6.xlarge"}))


def a_growth(case: Case, size: int = 4, **changes: object) -> Case:
    """The case as the growth of a group."""
    case = with_group(case, **changes)
    step = a_step("g-1", Verb.GROW)
    return replace(case, node=None, step=replace(step, arguments={"size": str(size), "adds": str(size - 3)}))


def a_start(case: Case) -> Case:
    """The case as the start of its node, which is stopped."""
    case = with_node(case, state=NodeState.STOPPED, signal=NodeReport(failure="it is stopped"))
    case = with_ledger(case, stopped=(a_stop("i-1", at=NOW - timedelta(days=1)),))
    return replace(case, step=replace(case.step, verb=Verb.START))


def asleep(case: Case, *, days: float = 8.0, terminate_after: float | None = 604800.0) -> Case:
    """The case as the termination of a node that gpuwatch stopped days ago."""
    case = with_node(
        case,
        state=NodeState.STOPPED,
        signal=NodeReport(failure="it is stopped"),
        launched_at=NOW - timedelta(days=days + 1),
    )
    case = promising(case, action="terminate", idle_seconds=None)
    case = with_ledger(case, stopped=(a_stop("i-1", at=NOW - timedelta(days=days)),))
    return replace(
        case, step=replace(case.step, verb=Verb.TERMINATE), pool_rules=with_idle(terminate_after=terminate_after)
    )


def priced(case: Case, usd: str = "10") -> Case:
    """The case with a price for its machines."""
    price = Price(usd_per_hour=Decimal(usd), as_of=NOW.date(), source="a test")
    return replace(case, observation=replace(case.observation, prices={"g6.xlarge": price}))


def tried(case: Case, **changes: object) -> Case:
    """The case where a backtest a month old at most is required, and one of its pool's rules of yesterday is kept."""
    return with_ledger(replace(case, limits=Limits(require_backtest=30 * 86400.0)), backtests=(a_backtest(**changes),))


# What is spoiled, which rule must object, and what its sentence must name.
SPOILED: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("observing", "observe_only", lambda c: replace(c, enforce=False), "observes"),
    *foreign.SPOILED,
    ("no tag", "not_enrolled", lambda c: with_node(c, enrolled=False), "enrolled"),
    ("protect tag", "protected", lambda c: with_node(c, protected="tag gpuwatch:protect"), "gpuwatch:protect"),
    ("in no pool", "unknown_pool", lambda c: replace(c, unknown_pool=NOWHERE), "Prod-Inference"),
    (
        "in no pool, unshielded",
        "unknown_pool",
        lambda c: replace(unshielding(c), unknown_pool=NOWHERE),
        "Prod-Inference",
    ),
    ("in no pool, growing", "unknown_pool", lambda c: replace(a_growth(c), unknown_pool=NOWHERE), "Prod-Inference"),
    ("in no pool, starting", "unknown_pool", lambda c: replace(a_start(c), unknown_pool=NOWHERE), "Prod-Inference"),
    ("in a group", "owned", lambda c: with_node(c, managed_by="Auto Scaling group web"), "web"),
    ("stopping", "not_running", lambda c: with_node(c, state=NodeState.STOPPING), "stopping"),
    ("silent", "unknown", lambda c: with_node(c, signal=NodeReport(failure="no answer")), "no answer"),
    ("old by its count", "stale", lambda c: with_verdict(c, age_seconds=31.0), "31s"),
    ("old by our clock", "stale", lambda c: with_verdict(c, at=NOW - timedelta(seconds=40)), "40s"),
    ("long ago", "stale", lambda c: with_node(c, signal=received(31.0)), "31s"),
    ("from the future", "stale", lambda c: with_verdict(c, at=NOW + timedelta(seconds=40)), "40s in the future"),
    ("busy", "busy", lambda c: with_node(c, signal=NodeReport(verdict=a_verdict(state=State.BUSY))), "busy"),
    ("parked", "busy", lambda c: with_node(c, signal=NodeReport(verdict=a_verdict(state=State.PARKED))), "parked"),
    ("occupied", "busy", lambda c: in_state(c, State.OCCUPIED, parked="stop", stalled="stop"), "occupied"),
    ("one GPU busy", "busy", lambda c: with_verdict(c, gpus=a_verdict(state=State.BUSY).gpus), "busy"),
    ("GPU not seen", "gpus_missing", lambda c: with_node(c, gpu_count=8), "1 of 8"),
    ("young", "warm_up", lambda c: with_node(c, launched_at=NOW - timedelta(seconds=899)), "14m59s"),
    ("unknown age", "warm_up", lambda c: with_node(c, launched_at=None), "start time is not known"),
    ("impossible", "warm_up", lambda c: with_node(c, launched_at=NOW - timedelta(seconds=7000)), "claims"),
    ("mostly deaf pool", "low_coverage", blind, "3 of 7"),
    ("failed lately", "cooling_down", lambda c: with_ledger(c, recent=(a_done("i-1", Status.FAILED),)), "given up"),
    ("nobody knows", "in_flight", lambda c: with_ledger(c, open_intents=(an_open("i-1", Status.UNAVAILABLE),)), "i-1"),
    ("accepted", "in_flight", lambda c: with_ledger(c, open_intents=(an_open("i-1", Status.ACCEPTED),)), "i-1"),
    ("nothing on record", "in_flight", lambda c: with_ledger(c, open_intents=(an_open("i-1", None),)), "i-1"),
    (
        "another launch is open",
        "in_flight",
        lambda c: with_ledger(a_start(c), open_intents=(launching_since(540.0),)),
        "new:default:9",
    ),
    (
        "refused for good",
        "cooling_down",
        lambda c: with_ledger(
            c, recent=(replace(a_done("i-1", Status.FAILED, minutes_ago=350.0), refused=True, reached=False),)
        ),
        "given up",
    ),
    (
        "backing off",
        "in_flight",
        lambda c: with_ledger(c, open_intents=(an_open("i-1", Status.THROTTLED, seconds_ago=5.0),)),
        "throttled",
    ),
    ("no notice", "no_notice", lambda c: with_ledger(c, notices=()), "no notice"),
    ("young notice", "no_notice", lambda c: promising(c, age=599.0), "Wait for 1s"),
    ("minimum", "min_nodes", lambda c: replace(c, pool_rules=replace(RULES, min_nodes=3)), "2 running nodes"),
    ("per round", "blast_radius", lambda c: replace(c, limits=Limits(max_stops_per_round=0)), "max_stops_per_round"),
    (
        "per hour",
        "blast_radius",
        lambda c: with_ledger(replace(c, limits=Limits(max_stops_per_hour=1)), recent=(a_done(),)),
        "max_stops_per_hour",
    ),
    (
        "share",
        "blast_radius",
        lambda c: with_ledger(c, recent=(a_done(key="a"), a_done(key="b"))),
        "max_stops_per_hour_ratio",
    ),
    ("paused", "paused", lambda c: with_ledger(c, pauses=(Pause(pool=None, at=NOW, who="ann", reason="demo"),)), "ann"),
    (
        "pool paused",
        "paused",
        lambda c: with_ledger(
            c, pauses=(Pause(pool="default", at=NOW, who="ann", reason="", until=NOW + timedelta(hours=1)),)
        ),
        "13:00",
    ),
    ("no consent", "not_enrolled", lambda c: with_group(c, enrolled=False), "trainers"),
    ("group protected", "protected", lambda c: with_group(c, protected="tag gpuwatch:protect"), "gpuwatch:protect"),
    ("stop of a member", "owned", lambda c: replace(with_group(c), step=c.step), "terminate"),
    ("group not listed", "owned", lambda c: replace(with_group(c), group=None), "g-1"),
    ("block", "reserved_capacity", lambda c: with_node(c, capacity_type=CapacityType.CAPACITY_BLOCK), "Capacity Block"),
    ("reserved", "reserved_capacity", lambda c: with_node(c, capacity_type=CapacityType.RESERVED), "reservation"),
    ("local disks", "data_loss", lambda c: with_node(c, instance_store=True), "It is not known whether"),
    ("used disks", "data_loss", lambda c: with_disks(c, LocalDisks.USED), "are in use"),
    ("disks of a silent node", "data_loss", lambda c: with_node(c, instance_store=True, signal=SILENT), "not known"),
    ("smallest group", "group", lambda c: with_group(c, min_size=3), "MinSize"),
    ("suspended", "group", lambda c: with_group(c, suspended=frozenset({"Terminate"})), "Terminate"),
    ("rebalanced", "group", lambda c: with_group(c, zones=("a", "b")), "AZRebalance"),
    ("largest group", "group", lambda c: a_growth(c, size=10), "MaxSize"),
    ("no launches", "group", lambda c: a_growth(c, suspended=frozenset({"Launch"})), "Launch"),
    ("running", "not_running", lambda c: replace(c, step=replace(c.step, verb=Verb.START)), "stopped"),
    ("kept for good", "not_stopped_by_us", lambda c: asleep(c, terminate_after=None), "terminate_after"),
    ("not its time", "not_stopped_by_us", lambda c: asleep(c, days=6.0), "6d"),
    ("others stopped it", "not_stopped_by_us", lambda c: with_ledger(asleep(c), stopped=()), "no stop of it on record"),
    (
        "started since",
        "not_stopped_by_us",
        lambda c: with_node(asleep(c), launched_at=NOW - timedelta(days=1)),
        "again",
    ),
    ("all at once", "mass_idleness", lambda c: replace(c, burst=SUDDEN), "9 of 10"),
    ("all at once, unshielded", "mass_idleness", lambda c: replace(unshielding(c), burst=SUDDEN), "9 of 10"),
    ("blind, unshielded", "low_coverage", lambda c: blind(unshielding(c)), "3 of 7"),
    ("protected, unshielded", "protected", lambda c: with_node(unshielding(c), protected="a tag"), "a tag"),
    ("snoozed", "snoozed", lambda c: with_node(c, snoozed="2026-03-03T12:00Z"), "2026-03-03T12:00Z"),
    ("snoozed, unshielded", "snoozed", lambda c: with_node(unshielding(c), snoozed="2026-03-03T12:00Z"), "12:00Z"),
    ("snoozed asleep", "snoozed", lambda c: with_node(asleep(c, days=7.0), snoozed="2026-03-03T12:00Z"), "at most"),
    ("only told", "action_not_enabled", lambda c: replace(c, pool_rules=with_idle(action="report")), "report"),
    (
        "only advice",
        "action_not_enabled",
        lambda c: replace(c, pool_rules=with_idle(action="resize-advice")),
        "resize-advice",
    ),
    ("never tried", "backtest", lambda c: replace(c, limits=Limits(require_backtest=86400.0)), "No backtest"),
    ("another pool tried", "backtest", lambda c: tried(c, pool="training"), "No backtest"),
    ("changed since", "backtest", lambda c: replace(tried(c), pool_rules=with_idle(timeout=1200.0)), "other rules"),
    ("trial failed", "backtest", lambda c: tried(c, failure="wrong stops, 2 of 9"), "wrong stops"),
    ("trial too old", "backtest", lambda c: tried(c, at=NOW - timedelta(days=31)), "31d old"),
    ("trial not yet", "backtest", lambda c: tried(c, at=NOW + timedelta(hours=1)), "clock"),
    (
        "never tried, unshielded",
        "backtest",
        lambda c: replace(unshielding(c), limits=Limits(require_backtest=86400.0)),
        "No backtest",
    ),
    ("only stops", "action_not_enabled", lambda c: replace(c, step=a_step(verb=Verb.TERMINATE)), "stop"),
    (
        "only tells occupied",
        "action_not_enabled",
        lambda c: in_state(c, State.OCCUPIED, parked="stop"),
        "idle.occupied",
    ),
    ("only tells parked", "action_not_enabled", lambda c: in_state(c, State.PARKED, stalled="stop"), "idle.parked"),
    ("only tells stalled", "action_not_enabled", lambda c: in_state(c, State.STALLED, parked="stop"), "idle.stalled"),
    ("busy, unopted", "action_not_enabled", lambda c: in_state(c, State.BUSY), "No setting"),
    ("stopped by its owner", "no_notice", lambda c: with_ledger(asleep(c), notices=(a_notice(age=8 * 86400.0),)), "no"),
    ("start of a member", "owned", lambda c: replace(with_group(c), step=a_step(verb=Verb.START)), "group"),
    (
        "notice of a member",
        "owned",
        lambda c: replace(with_group(c), step=a_step(verb=Verb.NOTICE), pool_rules=RULES),
        "r",
    ),
    ("grown meanwhile", "group", lambda c: a_growth(c, size=4, desired=4), "has 4 nodes now"),
    ("shrunk meanwhile", "group", lambda c: a_growth(c, size=4, desired=2), "has 2 nodes now"),
    ("clock set back", "warm_up", lambda c: with_node(c, launched_at=NOW + timedelta(hours=1)), "warms up"),
    ("largest pool", "max_nodes", lambda c: replace(a_growth(c), pool_rules=replace(RULES, max_nodes=3)), "max_nodes"),
    (
        "per owner",
        "blast_radius",
        lambda c: with_ledger(
            replace(c, limits=Limits(max_stops_per_owner_per_hour=1, max_stops_per_hour_ratio=1.0)), recent=(a_done(),)
        ),
        "max_stops_per_owner_per_hour",
    ),
    (
        "money stopped",
        "blast_radius",
        lambda c: priced(replace(c, limits=Limits(max_stopped_usd_per_hour=Decimal(9)))),
        "max_stopped_usd_per_hour",
    ),
    (
        "price not known",
        "blast_radius",
        lambda c: replace(c, limits=Limits(max_stopped_usd_per_hour=Decimal(9))),
        "price",
    ),
    (
        "growth in a round",
        "growth_rate",
        lambda c: replace(a_growth(c, size=9), limits=Limits(max_additions_per_round=5)),
        "max_additions_per_round",
    ),
    (
        "growth in an hour",
        "growth_rate",
        lambda c: with_ledger(
            replace(a_growth(c), limits=Limits(max_additions_per_hour=1)), recent=(replace(a_done(), verb=Verb.START),)
        ),
        "max_additions_per_hour",
    ),
    (
        "too dear",
        "hourly_cost_limit",
        lambda c: priced(replace(a_growth(c), limits=Limits(max_usd_per_hour=Decimal(39)))),
        "max_usd_per_hour",
    ),
    ("month used up", "month_budget", lambda c: budgeted(a_growth(c)), "$5,120.00 of the $5,000.00"),
    ("month used up, start", "month_budget", lambda c: budgeted(a_start(c), scope=Scope(pool="default")), "ml"),
    ("month used up, launch", "month_budget", lambda c: budgeted(a_launch(c), scope=Scope(pool="default")), "ml"),
    ("month not known", "month_budget", lambda c: budgeted(a_growth(c), blocked=None, doubt="no ledger"), "no ledger"),
    ("two budgets", "month_budget", lambda c: budgeted(budgeted(a_growth(c), name="b", blocked=None)), "budget ml"),
    ("nobody's pool", "month_budget", lambda c: budgeted(alone(a_launch(c)), scope=Scope(owner="ann")), "budget ml"),
    (
        "no price",
        "hourly_cost_limit",
        lambda c: replace(a_growth(c), limits=Limits(max_usd_per_hour=Decimal(39))),
        "price",
    ),
    (
        "failed start",
        "cooling_down",
        lambda c: with_ledger(
            a_start(c), recent=(replace(a_done("i-1", Status.FAILED, minutes_ago=2.0), verb=Verb.START),)
        ),
        "given up",
    ),
]

# Steps that no rule objects to, besides `a_case`: each verb's rules are tried on one that is fair.
FAIR: list[tuple[str, Callable[[Case], Case]]] = [
    ("stop", lambda c: c),
    *foreign.FAIR,
    ("terminate a member", with_group),
    ("grow a group", a_growth),
    ("stop after a backtest", tried),
    ("start", a_start),
    ("terminate what was stopped", asleep),
    ("grow within the month", lambda c: budgeted(a_growth(c), blocked=None, assumed_types=("g6.xlarge",))),
    ("grow whatever is spent", lambda c: budgeted(a_growth(c), block_growth="never")),
    ("grow another pool", lambda c: budgeted(a_growth(c), scope=Scope(pool="training"))),
    ("launch for another pool", lambda c: budgeted(alone(a_launch(c)), scope=Scope(pool="training"))),
    ("start somebody else's", lambda c: budgeted(a_start(c), scope=Scope(owner="ann"))),
    ("grow within the money", lambda c: priced(replace(a_growth(c), limits=Limits(max_usd_per_hour=Decimal(40))))),
    (
        "local disks",
        lambda c: replace(with_node(c, instance_store=True), pool_rules=with_idle(instance_store="discard")),
    ),
    ("unused disks", lambda c: with_disks(c, LocalDisks.UNUSED)),
    ("stopped, with local disks", lambda c: with_node(asleep(c), instance_store=True)),
    ("no disks after all", lambda c: with_disks(c, LocalDisks.NONE)),
]
