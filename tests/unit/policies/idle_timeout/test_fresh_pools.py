"""A pool that nobody knows yet waits for a fixed time; once it has shown how it pauses, its waits are learned."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.activity import Evidence, State, Tally
from gpuwatch.model.decision import Observation, Step, Verb, Wait
from gpuwatch.model.fleet import Node
from gpuwatch.model.measurement import Pauses
from gpuwatch.policies import PoolRules, idle, propose
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.gap_history import ENOUGH_DAYS, ENOUGH_PAUSES, GapHistory
from gpuwatch.policies.idle_timeout.timeouts import Timed, time_round
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import HOUR, NOW, a_node, a_notice, an_observation

BALANCED = PoolRules()
NOBODY = Evidence(
    name="people", says=State.IDLE, observed=None, limit=1800.0, unit="seconds since input", source="utmp"
)
DAY = 24 * HOUR
AT = NOW.timestamp()


def still(held: float, node_id: str = "i-1") -> Node:
    """An idle node at which its agent saw nobody."""
    node = a_node(node_id, held=held)
    verdict = node.verdict
    assert verdict is not None
    activity = replace(verdict.activity, evidence=(*verdict.activity.evidence, NOBODY))
    return replace(node, signal=replace(node.signal, verdict=replace(verdict, activity=activity)))


def shown(seconds: float, count: int = ENOUGH_PAUSES, *, names: tuple[str, ...] = ("i-1",)) -> GapHistory:
    """What a pool knows whose nodes paused so often, for so long, until two hours ago, with days enough."""
    history, at = GapHistory(pauses=Pauses(days=ENOUGH_DAYS)), AT - 2 * HOUR - count * 12 * HOUR
    for _ in range(count):
        at += 12 * HOUR
        for name in names:
            history = gaps.went_idle(history, name, at - seconds, 600.0)
        for edge in (0.0, 0.1, 0.5, 0.9):
            history = gaps.after_time(history, at - seconds * (1 - edge))
        for name in names:
            history = gaps.need_node(history, name, at)
    return replace(history, saved=50000.0)


def round_of(history: GapHistory, *nodes: Node, rules: PoolRules = BALANCED, **ledger: object) -> tuple[Timed, Step]:
    """A round of a pool that knows so much: its timing, and what the policy says of the first node."""
    seen = an_observation(*nodes, now=NOW, **ledger)
    found = time_round(seen, "default", rules, history)
    return found, idle.propose(told(seen, found), "default", rules.idle).steps[0]


def told(seen: Observation, found: Timed) -> Observation:
    """The observation with what the timing says."""
    fresh = {} if found.fresh is None else {"default": found.fresh}
    return replace(seen, waits=found.waits, fresh=fresh, restarts={"default": found.restarts})


def test_a_fresh_pool_stops_after_a_quarter_of_an_hour_where_nobody_is_there_and_ten_minutes_of_it_are_notice() -> None:
    """What it may learn later says nothing yet; the notice is as long as anybody's."""
    _, before = round_of(GapHistory(), still(299.0))
    found, notice = round_of(GapHistory(), still(300.0))

    assert (before.verb, notice.verb) == (Verb.HOLD, Verb.NOTICE)
    assert notice.arguments["grace_seconds"] == repr(600.0)
    assert (found.waits, found.fresh) == ({}, Pauses())


def test_a_fresh_pool_gives_half_an_hour_and_ten_minutes_where_somebody_may_be_there() -> None:
    """No look at sessions is no absence; a shorter wait is for machines of which it is sure that nobody is there."""
    _, before = round_of(GapHistory(), a_node(held=1799.0))
    _, notice = round_of(GapHistory(), a_node(held=1800.0))

    assert (before.verb, notice.verb) == (Verb.HOLD, Verb.NOTICE)
    assert notice.arguments["grace_seconds"] == repr(600.0)


def test_it_says_how_much_it_has_seen_of_what_it_takes() -> None:
    """Before and at the notice, in numbers."""
    known = replace(shown(3 * HOUR, 12), pauses=Pauses(ended=12, days=2))
    _, waits = round_of(known, still(180.0))
    _, notice = round_of(known, still(300.0))

    assert waits.reason.sentence == (
        "It has been idle for 3m of 5m (until its pool is known: 12 of 20 pauses and 2 of 3 days seen)."
    )
    assert "12 of 20 pauses and 2 of 3 days seen" in notice.reason.sentence


@pytest.mark.parametrize("pauses", [Pauses(ended=ENOUGH_PAUSES - 1, days=99), Pauses(ended=999, days=ENOUGH_DAYS - 1)])
def test_it_takes_pauses_and_days(pauses: Pauses) -> None:
    """Many pauses of one day are one day's work; a month without a pause has shown none."""
    assert round_of(replace(shown(3 * HOUR), pauses=pauses), still(1000.0))[0].waits == {}


def test_a_pool_that_is_known_waits_as_it_learned_and_where_nobody_is_there_gives_a_minute() -> None:
    """A node whose pauses always outlasted a restart goes early."""
    found, step = round_of(shown(3 * HOUR), still(120.0))

    assert (step.verb, step.arguments["grace_seconds"]) == (Verb.NOTICE, repr(60.0))
    assert found.fresh is None
    assert "seldom needed again soon" in step.reason.sentence


def test_a_known_pool_gives_the_whole_grace_where_somebody_may_be_there() -> None:
    """No look at sessions is no absence: half an hour, and ten minutes of notice."""
    _, early = round_of(shown(3 * HOUR), a_node(held=1700.0))
    _, late = round_of(shown(3 * HOUR), a_node(held=1800.0))

    assert early.verb is Verb.HOLD
    assert (late.verb, late.arguments["grace_seconds"]) == (Verb.NOTICE, repr(600.0))


def watched(node: Node, seconds: float) -> Node:
    """The node as an agent sees it that began so long ago."""
    verdict = node.verdict
    assert verdict is not None
    tally = Tally(since=NOW - timedelta(seconds=seconds), node_seconds={"idle": seconds}, gpu_seconds={})
    return replace(node, signal=replace(node.signal, verdict=replace(verdict, tally=tally)))


@pytest.mark.parametrize("history", [GapHistory(), shown(3 * HOUR), shown(3 * HOUR, names=("i-2", "i-3"))])
def test_an_agent_that_has_just_begun_has_not_seen_who_comes_by(history: GapHistory) -> None:
    """Known pool or not: no notice before half an hour of watching.

    Who copies a file each 45 minutes has not come yet. One that has watched for longer waits as before.
    """
    early, late = (round_of(history, watched(still(held), held))[1] for held in (1799.0, 1800.0))
    _, usual = round_of(history, watched(still(900.0), 1800.0))

    assert (early.verb, late.verb, usual.verb) == (Verb.HOLD, Verb.NOTICE, Verb.NOTICE)


def test_the_first_pause_of_a_node_has_the_fixed_wait_whatever_others_showed() -> None:
    """Its work may be of a kind that the pool has not seen; the notice is within the quarter of an hour."""
    history = shown(3 * HOUR, names=("i-2", "i-3"))
    found, early = round_of(history, still(800.0))
    _, late = round_of(history, still(840.0))

    assert found.waits["i-1"] == Wait(seconds=900.0, why="no pause of it was seen before")
    assert (early.verb, late.verb) == (Verb.HOLD, Verb.NOTICE)
    assert late.arguments["grace_seconds"] == repr(60.0)


def test_a_stop_that_was_wrong_teaches_the_pool_to_wait() -> None:
    """Whoever starts his node again soon is a pause that ended soon; after some the wait outlasts it."""
    history = shown(3 * HOUR, 40)
    at, stopped = AT, 0
    for number in range(12):
        at = AT + number * HOUR
        history = gaps.after_time(gaps.went_idle(history, "i-1", at, 600.0), at)
        stopped = number
        if (history.open["i-1"].wish or 0.0) > 240.0:
            break
        history = gaps.need_node(gaps.reclaim_node(history, "i-1", at + 120.0), "i-1", at + 240.0)

    assert 0 < stopped < 11


def test_a_restart_that_costs_more_than_the_fixed_wait_makes_it_longer() -> None:
    """Nothing goes before break-even's wait while nothing is known: the bound holds from the first minute."""
    rules = replace(BALANCED, idle=replace(BALANCED.idle, restart_cost=3600.0))

    assert round_of(GapHistory(), still(2999.0), rules=rules)[1].verb is Verb.HOLD
    assert round_of(GapHistory(), still(3000.0), rules=rules)[1].arguments["grace_seconds"] == repr(600.0)
    assert (
        time_round(an_observation(still(60.0)), "default", rules, shown(HOUR, names=("x",))).waits["i-1"].seconds
        == 3600.0
    )


def test_what_the_fixed_waits_cost_is_not_taken_from_the_savings() -> None:
    """As at a floor: the pool has saved as much as if it had waited as break-even does."""
    found, _ = round_of(GapHistory(), still(2400.0))

    assert found.history.spare(AT) == pytest.approx(0.05 * 600.0)


def test_a_wait_of_a_window_is_a_written_one() -> None:
    """Its notice has the whole grace, also in a pool that is known."""
    rules = PoolRules(schedule={"night": Window(hours="00:00-23:59", idle_timeout=300.0)})
    seen = an_observation(still(400.0))
    seen = told(seen, time_round(seen, "default", rules, shown(3 * HOUR)))
    (step,) = next(each.steps for each in propose(seen, "default", rules) if each.policy == "idle")

    assert (step.verb, step.arguments["grace_seconds"]) == (Verb.NOTICE, repr(600.0))


def test_a_notice_of_the_fresh_pool_keeps_what_it_promised_once_the_pool_is_known() -> None:
    """Ten minutes stay ten minutes."""
    notice = a_notice(age=120.0, grace=600.0, idle_seconds=1800.0)
    _, step = round_of(shown(3 * HOUR), still(1920.0), notices=(notice,))

    assert (step.verb, step.reason.code) == (Verb.HOLD, "grace")


def test_work_that_waits_keeps_nodes_of_a_fresh_pool_as_it_does_with_any_fixed_wait() -> None:
    """Until the learned wait has its own way with it."""
    seen = replace(an_observation(still(1900.0)), queued={"default": 60.0})
    (step,) = next(each.steps for each in propose(seen, "default", BALANCED) if each.policy == "idle")

    assert (step.verb, step.reason.code) == (Verb.HOLD, "queued")


def test_a_busy_node_of_a_known_pool_promises_no_length() -> None:
    """Its wait is found once it is idle."""
    busy = a_node(state=State.BUSY)

    assert round_of(GapHistory(), busy)[1].change == "It would have to be idle for 5m."
    assert round_of(shown(3 * HOUR), busy)[1].change == "It would have to be idle."


def test_a_day_counts_when_it_is_over_and_days_that_nobody_saw_as_one() -> None:
    """A clock that is set forward and back adds no week."""
    history = gaps.after_look(GapHistory(), AT)
    assert gaps.after_look(history, AT + DAY - 1).pauses.days == 0
    assert gaps.after_look(history, AT + DAY).pauses.days == 1
    assert gaps.after_look(history, AT + 30 * DAY).pauses.days == 1
    assert gaps.after_look(gaps.after_look(history, AT + 30 * DAY), AT).pauses.days == 1

    for hour in range(24 * 20):
        history = gaps.after_look(history, AT + hour * HOUR)
    assert history.pauses.days == ENOUGH_DAYS


def test_only_pauses_that_end_in_work_count_and_no_more_than_it_takes() -> None:
    """A node that is gone has shown no pause; the count stays small for ever."""
    history = gaps.forget_node(gaps.went_idle(GapHistory(), "i-1", AT, 600.0), "i-1", AT + 60.0)
    assert history.pauses.ended == 0
    assert shown(300.0, 3 * ENOUGH_PAUSES).pauses.ended == ENOUGH_PAUSES


def test_learned_as_it_is_written_learns_at_once() -> None:
    """The fixed wait comes from the profile only."""
    rules = replace(BALANCED, idle=IdleRules(timeout="learned", fresh_timeout=None))
    found, _ = round_of(GapHistory(), still(120.0), rules=rules)

    assert found.waits["i-1"].seconds == 600.0
    assert found.fresh is None
