"""The guard's edges: what is just not objected to, and what objects although something else looks well."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuwatch.guard import Case, Limits, judge, untried_pools
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Step, Verb
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.orders import BacktestRecord, Pause
from gpuwatch.policies import PoolRules
from tests.support.builders.backtests import a_backtest
from tests.support.builders.fleet import NOW, RULES, a_node, a_stop
from tests.support.builders.guard_cases import (
    a_case,
    a_growth,
    a_launch,
    a_rulebook,
    a_start,
    asleep,
    in_state,
    priced,
    with_group,
    with_idle,
    with_ledger,
    with_node,
)
from tests.support.builders.past_steps import a_done, a_group, a_step, an_open

DAY = 86400.0


def a_pause(pool: str | None, *, minutes: float | None = None) -> Pause:
    """A pause that ends so many minutes from now."""
    until = None if minutes is None else NOW + timedelta(minutes=minutes)
    return Pause(pool=pool, at=NOW - timedelta(hours=2), who="ann", reason="", until=until)


def granting(case: Case, *node_ids: str, verb: Verb = Verb.TERMINATE) -> Case:
    """The case after these steps were allowed in the same round."""
    return replace(case, granted=tuple(a_step(node_id, verb) for node_id in node_ids))


def in_zones(case: Case, *shielded: str, listed: tuple[str, ...] = ("i-1", "i-2", "i-3")) -> Case:
    """The case as the end of a member of a group of two zones, some of whose members are shielded."""
    case = with_group(case, zones=("a", "b"), node_ids=listed)
    nodes = tuple(replace(node, scale_in_protected=node.id in shielded) for node in case.observation.fleet.nodes)
    fleet = replace(case.observation.fleet, nodes=nodes)
    return replace(case, observation=replace(case.observation, fleet=fleet))


def joining(case: Case) -> Case:
    """The case beside a new member, allowed to go, that its group does not list yet."""
    case = with_group(case, min_size=2, node_ids=("i-1", "i-3"))
    return granting(case, "i-2")


def stranger(case: Case) -> Case:
    """The case beside a machine of no group."""
    fleet = case.observation.fleet
    nodes = (*fleet.nodes, a_node("i-9"))
    return replace(case, observation=replace(case.observation, fleet=replace(fleet, nodes=nodes)))


def stopped_long_ago(case: Case, node_id: str, days: float) -> Case:
    """The case with a stop of that node in its past."""
    stop = a_stop(node_id, at=NOW - timedelta(days=days))
    return with_ledger(case, stopped=(stop, *case.observation.ledger.stopped))


def notice_to_terminate(case: Case, seconds_short: float, verb: Verb) -> Case:
    """The case as a step on a node stopped that much short of its week."""
    case = asleep(case, days=(7 * DAY - seconds_short) / DAY)
    return with_ledger(replace(case, step=replace(case.step, verb=verb)), notices=case.observation.ledger.notices)


def noticing(case: Case) -> Case:
    """The case while a notice of the second node waits for its next attempt."""
    entry = an_open("i-2", Status.THROTTLED)
    return with_ledger(case, open_intents=(replace(entry, intent=replace(entry.intent, verb=Verb.NOTICE)),))


# What is looked at, the rule, whether it objects.
EDGES: list[tuple[str, str, bool, Callable[[Case], Case]]] = [
    ("a pause of another pool", "paused", False, lambda c: with_ledger(c, pauses=(a_pause("other"),))),
    ("a pause that is over", "paused", False, lambda c: with_ledger(c, pauses=(a_pause(None, minutes=0),))),
    ("a pause of all with a time", "paused", True, lambda c: with_ledger(c, pauses=(a_pause(None, minutes=1),))),
    ("asleep and snoozed past its cap", "snoozed", False, lambda c: with_node(asleep(c, days=7.1), snoozed="later")),
    (
        "another's stop",
        "snoozed",
        True,
        lambda c: stopped_long_ago(with_node(asleep(c, days=6), snoozed="x"), "i-2", 9),
    ),
    ("stopped by others", "snoozed", True, lambda c: with_ledger(with_node(asleep(c), snoozed="x"), stopped=())),
    (
        "idle past the cap",
        "snoozed",
        False,
        lambda c: replace(with_node(c, snoozed="x"), pool_rules=with_idle(max_snooze=7199.0)),
    ),
    (
        "idle up to the cap",
        "snoozed",
        True,
        lambda c: replace(with_node(c, snoozed="x"), pool_rules=with_idle(max_snooze=7200.0)),
    ),
    ("a group not listed", "group", True, lambda c: replace(with_group(c), group=None)),
    ("another member goes too", "group", True, lambda c: granting(with_group(c, min_size=2), "i-2")),
    ("a stranger goes too", "group", False, lambda c: granting(stranger(with_group(c, min_size=2)), "i-9")),
    ("somebody unknown goes too", "group", False, lambda c: granting(with_group(c, min_size=2), "i-404")),
    ("it goes itself", "group", False, lambda c: granting(with_group(c, min_size=2), "i-1")),
    ("a member not listed yet goes too", "group", True, joining),
    ("all others shielded", "group", False, lambda c: in_zones(c, "i-2", "i-3")),
    ("one other open", "group", True, lambda c: in_zones(c, "i-1", "i-2")),
    ("a member nobody sees", "group", True, lambda c: in_zones(c, "i-2", "i-3", listed=("i-1", "i-2", "i-3", "i-4"))),
    ("machines of no group", "group", False, lambda c: stranger(in_zones(c, "i-2", "i-3"))),
    (
        "rebalancing suspended",
        "group",
        False,
        lambda c: with_group(c, zones=("a", "b"), suspended=frozenset({"AZRebalance"})),
    ),
    (
        "a notice of a member that stays",
        "owned",
        False,
        lambda c: replace(with_group(c), step=a_step(verb=Verb.NOTICE)),
    ),
    (
        "shielding where the pool stops",
        "owned",
        False,
        lambda c: replace(with_group(c), step=a_step(verb=Verb.PROTECT), pool_rules=with_idle()),
    ),
    ("a stop of what is stopped", "not_running", True, lambda c: replace(asleep(c), step=a_step())),
    ("a notice of what is stopped", "not_running", False, lambda c: replace(asleep(c), step=a_step(verb=Verb.NOTICE))),
    ("the end of what is stopping", "not_running", True, lambda c: with_node(with_group(c), state=NodeState.STOPPING)),
    ("a notice in time", "not_stopped_by_us", False, lambda c: notice_to_terminate(c, 600.0, Verb.NOTICE)),
    ("a notice too early", "not_stopped_by_us", True, lambda c: notice_to_terminate(c, 601.0, Verb.NOTICE)),
    ("an end too early", "not_stopped_by_us", True, lambda c: notice_to_terminate(c, 600.0, Verb.TERMINATE)),
    ("silence", "stale", True, lambda c: with_node(c, signal=NodeReport(failure="no answer"))),
    ("parked where reclaimed", "busy", False, lambda c: in_state(c, State.PARKED, parked="stop")),
    ("stalled where reclaimed", "busy", False, lambda c: in_state(c, State.STALLED, stalled="stop")),
    ("occupied where reclaimed", "busy", False, lambda c: in_state(c, State.OCCUPIED, occupied="stop")),
    ("occupied where told", "busy", True, lambda c: in_state(c, State.OCCUPIED, parked="stop")),
    ("stalled where told", "busy", True, lambda c: in_state(c, State.STALLED, parked="stop")),
    (
        "failed long ago",
        "cooling_down",
        False,
        lambda c: with_ledger(c, recent=(a_done("i-1", Status.FAILED, minutes_ago=61),)),
    ),
    ("done lately", "cooling_down", False, lambda c: with_ledger(c, recent=(a_done("i-1"),))),
    ("another failed", "cooling_down", False, lambda c: with_ledger(c, recent=(a_done("i-2", Status.FAILED),))),
    (
        "asleep below the minimum",
        "min_nodes",
        False,
        lambda c: replace(asleep(c), pool_rules=replace(asleep(c).pool_rules, min_nodes=9)),
    ),
    (
        "within the money of the hour",
        "blast_radius",
        False,
        lambda c: priced(replace(c, limits=Limits(max_stopped_usd_per_hour=Decimal(10)))),
    ),
    (
        "a notice of another is open",
        "min_nodes",
        False,
        lambda c: replace(noticing(c), pool_rules=replace(RULES, min_nodes=2)),
    ),
]


@pytest.mark.parametrize(("told", "rule", "objects", "change"), EDGES, ids=[row[0] for row in EDGES])
def test_a_rule_objects_exactly_where_it_should(
    told: str, rule: str, objects: bool, change: Callable[[Case], Case]
) -> None:
    """One step beside the edge a rule says yes, on the edge it says no."""
    answers = {answer.rule: answer for answer in judge(change(a_case())).answers}

    assert answers[rule].refused is objects, f"{told}: {answers[rule].sentence}"
    assert answers[rule].sentence


def launching(case: Case, *earlier: Step, most: int | None = None, **limits: object) -> Case:
    """A launch after these additions of the same round, under other limits."""
    rules = replace(case.pool_rules, max_nodes=most)
    return replace(a_launch(case), granted=earlier, pool_rules=rules, limits=Limits(**limits))  # type: ignore[arg-type]


A_LAUNCH = a_step("new:default:9", Verb.LAUNCH)
ELSEWHERE = a_step("new:other:1", Verb.LAUNCH)


def test_additions_of_the_round_count_towards_the_ceiling_of_their_own_pool() -> None:
    """Three nodes run and four are allowed: one launch passes, the next does not; another pool's are its own."""

    def refused(*earlier: Step) -> bool:
        return "max_nodes" in {each.rule for each in judge(launching(a_case(), *earlier, most=4)).refusals}

    assert not refused()
    assert refused(A_LAUNCH)
    assert refused(replace(a_growth(a_case()).step, node_id="i-2", verb=Verb.START))
    assert not refused(ELSEWHERE)
    assert not refused(a_step("i-2"))


def test_a_new_machine_needs_no_tag_and_a_start_needs_one() -> None:
    """A launch is enrolled from its beginning."""
    assert judge(a_launch(a_case())).allowed
    assert {each.rule for each in judge(with_node(a_start(a_case()), enrolled=False)).refusals} == {"not_enrolled"}


def test_what_is_on_its_way_counts_towards_the_money() -> None:
    """Three machines at ten dollars and a group that still lacks two cost fifty: a launch at sixty is the last."""
    case = priced(a_case())
    fleet = replace(case.observation.fleet, groups=(a_group(desired=2, node_ids=()),))
    case = replace(case, observation=replace(case.observation, fleet=fleet))

    assert judge(launching(case, max_usd_per_hour=60)).allowed
    assert {each.rule for each in judge(launching(case, max_usd_per_hour=59)).refusals} == {"hourly_cost_limit"}
    assert {each.rule for each in judge(launching(case, A_LAUNCH, max_usd_per_hour=60)).refusals} == {
        "hourly_cost_limit"
    }


def test_a_price_of_another_region_counts_as_in_the_dearest_one() -> None:
    """Three machines of ten dollars that may cost thirteen, and one more of them: 52 and not 40."""
    case = priced(a_case())
    far = {kind: replace(each, most_usd_per_hour=Decimal(13)) for kind, each in case.observation.prices.items()}
    case = replace(case, observation=replace(case.observation, prices=far))

    assert judge(launching(case, max_usd_per_hour=52)).allowed
    assert {each.rule for each in judge(launching(case, max_usd_per_hour=51)).refusals} == {"hourly_cost_limit"}


def test_an_hour_counts_what_may_have_happened_in_it_and_nothing_else() -> None:
    """Settled and failed stops, and open ones of other nodes that may have happened, count; others do not."""
    past = (
        a_done("i-7", key="a"),
        a_done("i-8", Status.FAILED, key="b"),
        a_done("i-9", Status.CANCELLED, key="c"),
        a_done("i-10", key="d", minutes_ago=60),
        replace(a_done("i-11", key="e"), verb=Verb.START),
        replace(a_done("i-12", Status.FAILED, key="f"), reached=False),
        replace(a_done("i-13", key="g"), reached_at=NOW - timedelta(minutes=60)),
    )
    hangs = replace(an_open("i-9", Status.ACCEPTED), reached_at=NOW - timedelta(minutes=60))
    counts = replace(an_open("i-2", Status.INTERRUPTED), reached=True, reached_at=NOW - timedelta(minutes=59))
    open_intents = (an_open("i-1", Status.THROTTLED), counts, an_open("i-3", Status.THROTTLED), hangs)
    case = with_ledger(a_case(), recent=past, open_intents=open_intents)

    def allowed(most: int, *, granted: tuple[str, ...] = ()) -> bool:
        limits = Limits(max_stops_per_hour=most, max_stops_per_hour_ratio=1.0)
        return judge(replace(granting(case, *granted, verb=Verb.STOP), limits=limits)).allowed

    assert allowed(4)
    assert not allowed(3)
    assert allowed(4, granted=("i-2",)), "an open intent counts once, also when it goes on in this round"
    assert not allowed(4, granted=("i-3",))
    assert allowed(5, granted=("i-3",))


def test_an_hours_additions_count_open_intents_once() -> None:
    """A launch that was throttled and goes on in this round is one addition, not two."""
    entry = an_open("new:default:9", Status.THROTTLED)
    entry = replace(entry, intent=replace(entry.intent, verb=Verb.LAUNCH))
    case = with_ledger(launching(a_case(), A_LAUNCH), open_intents=(entry,))

    assert judge(replace(case, limits=Limits(max_additions_per_hour=2))).allowed
    assert not judge(replace(case, limits=Limits(max_additions_per_hour=1))).allowed
    assert not judge(replace(case, granted=(A_LAUNCH, ELSEWHERE), limits=Limits(max_additions_per_hour=2))).allowed


def test_foreign_and_stopped_machines_cost_the_fleet_nothing() -> None:
    """The limit is on what runs, or begins to, and is enrolled; a kind without a price that is on its way forbids."""
    case = priced(a_case())
    fleet = case.observation.fleet
    more = (a_node("i-8", enrolled=False), replace(a_node("i-9"), state=NodeState.STOPPED))

    def money(usd: int, **changes: object) -> bool:
        changed = replace(case.observation, fleet=replace(fleet, **changes))  # type: ignore[arg-type]
        return judge(launching(replace(case, observation=changed), max_usd_per_hour=usd)).allowed

    assert money(40, nodes=(*fleet.nodes, *more))
    assert not money(49, nodes=(*fleet.nodes, replace(a_node("i-9"), state=NodeState.PENDING)))
    assert not money(999, groups=(a_group(desired=1, node_ids=(), instance_type="p5.48xlarge"),))
    assert not money(999, groups=(a_group(desired=1, node_ids=(), instance_type=None),))


def test_a_stop_of_nobody_in_particular_says_so() -> None:
    """Machines without an owner share one limit, and the sentence has a word for them."""
    limits = Limits(max_stops_per_owner_per_hour=1, max_stops_per_hour_ratio=1.0)
    case = with_ledger(replace(a_case(), limits=limits), recent=(a_done(),))
    anns = with_node(case, owner="ann")

    assert "machines without an owner" in judge(case).refusals[0].sentence
    assert judge(anns).allowed
    assert "for ann" in judge(with_ledger(anns, recent=(replace(a_done(), owner="ann"),))).refusals[0].sentence
    assert judge(granting(anns, "i-404", verb=Verb.STOP)).allowed


def test_what_this_round_has_granted_counts_by_owner_and_in_money() -> None:
    """Two stops of one owner in a round are two, and cost what both cost."""
    case = priced(granting(a_case(), "i-2", verb=Verb.STOP))

    def said(**limits: object) -> list[str]:
        result = Limits(max_stops_per_hour_ratio=1.0, **limits)  # type: ignore[arg-type]  # numbers
        return [refusal.sentence for refusal in judge(replace(case, limits=result)).refusals]

    assert "max_stops_per_owner_per_hour allows 1" in said(max_stops_per_owner_per_hour=1)[0]
    assert "max_stopped_usd_per_hour allows $19.00" in said(max_stopped_usd_per_hour=Decimal(19))[0]
    assert said(max_stops_per_owner_per_hour=2, max_stopped_usd_per_hour=Decimal(20)) == []


def test_only_pools_that_let_nodes_go_want_for_a_backtest() -> None:
    """One that tells, and one that is vouched for, want for none."""
    limits = Limits(require_backtest=30 * DAY)

    def wanting(rules: PoolRules, *kept: BacktestRecord) -> list[str]:
        return [pool for pool, _ in untried_pools(["default"], a_rulebook(rules, limits), kept, NOW)]

    assert wanting(RULES) == ["default"]
    assert wanting(RULES, a_backtest()) == []
    assert wanting(with_idle(action="report")) == []
