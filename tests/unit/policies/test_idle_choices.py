"""The idle policy's choices: how long it waits, what it does with what is not quite idle, what it tells, what ends."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import REMOVALS, Observation, Step, Verb, Wait
from gpuwatch.model.fleet import GpuVerdict, Node, NodeReport, NodeState
from gpuwatch.model.money import Price
from gpuwatch.policies import idle
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.node_wait import wait_seconds
from tests.support.builders.fleet import (
    HOUR,
    NOW,
    RULES,
    a_node,
    a_notice,
    a_stop,
    a_verdict,
    an_activity,
    an_observation,
)
from tests.support.builders.money import a_price

DAY = 24 * HOUR
EVEN = replace(RULES.idle, timeout="break_even")


def the_step(observation: Observation, rules: IdleRules = RULES.idle) -> Step:
    """What the policy proposes for the first node."""
    return idle.propose(observation, "default", rules).steps[0]


def codes(node: Node, rules: IdleRules) -> list[str]:
    """What it advises."""
    return [each.reason.code for each in idle.propose(an_observation(node), "default", rules).advice]


def the_wait(rules: IdleRules, price: Price | None, found: Wait | None = None) -> float | None:
    """How long the first node is to be idle."""
    prices = {} if price is None else {"g6.xlarge": price}
    waits = {} if found is None else {"i-1": found}
    return wait_seconds(a_node("i-1"), replace(an_observation(), prices=prices, waits=waits), rules)


def test_a_learned_wait_is_half_an_hour_at_least_where_no_session_was_looked_for() -> None:
    """Other exporters show nothing of people; a longer wait stays, and other timeouts are as written."""
    rules = replace(EVEN, timeout="learned", grace_period=120.0)

    assert the_wait(rules, None) == 1800.0
    assert the_wait(rules, None, Wait(seconds=0.0, why="a test")) == 1800.0
    assert the_wait(rules, None, Wait(seconds=2400.0, why="a test")) == 2280.0
    assert the_wait(EVEN, None) == 600.0


def test_break_even_waits_as_long_as_a_restart_takes() -> None:
    """Without money involved the price cancels out: waiting for restart_cost costs what a restart costs."""
    assert the_wait(EVEN, None) == 600.0
    assert the_wait(replace(EVEN, restart_cost=900.0), a_price("98.32")) == 900.0


def test_break_even_adds_what_a_restart_costs_in_money_at_the_machines_price() -> None:
    """Five dollars of people's time are half an hour of a machine at ten dollars."""
    rules = replace(EVEN, restart_usd=Decimal(5))

    assert the_wait(rules, a_price("10")) == 600.0 + 1800.0


@pytest.mark.parametrize("price", [None, a_price("0"), a_price("-1")], ids=["none", "zero", "negative"])
def test_break_even_without_a_price_removes_nothing(price: Price | None) -> None:
    """A wait that cannot be worked out never ends; a notice given before is withdrawn."""
    rules = replace(EVEN, restart_usd=Decimal(5))
    prices = {} if price is None else {"g6.xlarge": price}

    held = the_step(replace(an_observation(a_node(held=30 * DAY)), prices=prices), rules)
    noticed = the_step(replace(an_observation(a_node(held=30 * DAY), notices=(a_notice(),)), prices=prices), rules)
    assert (held.verb, held.reason.code) == (Verb.HOLD, "no_price")
    assert noticed.verb is Verb.WITHDRAW


@given(usd=st.decimals("0.01", "500", places=2), restart=st.decimals("0", "100", places=2), cost=st.floats(60, 7200))
def test_break_even_never_costs_more_than_twice_the_best(usd: Decimal, restart: Decimal, cost: float) -> None:
    """The wait is worth the restart, so whoever knew the future would have spent at least half (ski rental)."""
    wait = the_wait(replace(EVEN, restart_cost=cost, restart_usd=restart), a_price(str(usd)))

    assert wait is not None
    assert wait * float(usd) / 3600 == pytest.approx(cost * float(usd) / 3600 + float(restart))


def test_then_terminate_ends_an_idle_node_after_its_notice() -> None:
    """The way to terminate is the way to stop: wait, notice, grace."""
    rules = replace(RULES.idle, action="terminate")

    assert the_step(an_observation(a_node()), rules).verb is Verb.NOTICE
    notice = a_notice(action="terminate")
    assert the_step(an_observation(a_node(), notices=(notice,)), rules).verb is Verb.TERMINATE


@pytest.mark.parametrize("then", ["stop", "terminate"])
@pytest.mark.parametrize("state", [State.OCCUPIED, State.PARKED, State.STALLED])
def test_somebodys_nodes_follow_their_own_choice(state: State, then: str) -> None:
    """Each waits for its own time, whatever `timeout` and `action` say."""
    key = state.value
    rules = replace(RULES.idle, action="report", **{key: then, f"{key}_timeout": 5 * HOUR})  # type: ignore[arg-type]
    notices = (a_notice(action=then),)

    assert (
        the_step(an_observation(a_node(state=state, held=5 * HOUR - 1), notices=notices), rules).verb is Verb.WITHDRAW
    )
    assert the_step(an_observation(a_node(state=state, held=5 * HOUR)), rules).verb is Verb.NOTICE
    assert the_step(an_observation(a_node(state=state, held=5 * HOUR), notices=notices), rules).verb is Verb(then)


def test_required_evidence_that_is_missing_makes_a_node_unknown() -> None:
    """A verdict counts as idle only with a signal of each required kind; doubt keeps the notice in force."""
    observation = an_observation(a_node(), notices=(a_notice(),))

    step = the_step(observation, replace(RULES.idle, required_evidence=("gpu*.utilization_max", "people")))
    assert (step.verb, step.reason.code) == (Verb.HOLD, "unknown")
    assert "people" in step.reason.sentence
    assert the_step(observation, replace(RULES.idle, required_evidence=("gpu*.utilization_max",))).verb is Verb.STOP


def test_evidence_that_says_nothing_is_none() -> None:
    """A required signal that could not be read is as good as missing."""
    blank = Evidence(
        name="people", says=State.UNKNOWN, observed=None, limit=None, unit="", source="utmp", note="no utmp here"
    )
    verdict = replace(a_verdict(), activity=replace(an_activity(), evidence=(*an_activity().evidence, blank)))
    observation = an_observation(a_node(signal=NodeReport(verdict=verdict)), notices=(a_notice(),))

    assert the_step(observation, replace(RULES.idle, required_evidence=("people",))).verb is Verb.HOLD


def test_busy_evidence_withdraws_a_notice_whatever_else_is_missing() -> None:
    """A required signal that is missing does not keep a busy node under notice (P2)."""
    observation = an_observation(a_node(state=State.BUSY), notices=(a_notice(),))

    assert the_step(observation, replace(RULES.idle, required_evidence=("people",))).verb is Verb.WITHDRAW


def test_resize_advice_gives_advice_and_no_notice() -> None:
    """`action: resize-advice` tells people what may do, and leaves the node alone."""
    rules = replace(RULES.idle, action="resize-advice")

    assert the_step(an_observation(a_node()), rules).verb is Verb.HOLD
    assert codes(a_node(), rules) == ["resize"]
    assert codes(a_node(state=State.BUSY), rules) == []


def a_partly_idle_node(*idle_seconds: float, busy: int = 1) -> Node:
    """A busy node of which some GPUs have been idle for so long."""
    gpus = [
        GpuVerdict(uuid=f"GPU-{n}", index=n, activity=an_activity(held=held)) for n, held in enumerate(idle_seconds)
    ]
    gpus += [GpuVerdict(uuid=f"GPU-b{n}", index=90 + n, activity=an_activity(State.BUSY)) for n in range(busy)]
    verdict = replace(a_verdict(state=State.BUSY), gpus=tuple(gpus))
    return a_node(signal=NodeReport(verdict=verdict), gpu_count=len(gpus))


def test_a_partly_idle_node_is_advice_and_stays() -> None:
    """Three of four GPUs idle for longer than `timeout`: people are told, nothing is removed."""
    node = a_partly_idle_node(1800.0, 9000.0, 1800.0)
    advice = idle.propose(an_observation(node), "default", RULES.idle).advice

    assert [each.target for each in advice] == [node.id]
    assert "3 of its 4 GPUs" in advice[0].reason.sentence
    assert the_step(an_observation(node, notices=(a_notice(),))).verb is Verb.WITHDRAW


def test_gpus_idle_for_a_moment_are_no_advice() -> None:
    """The GPU that has been idle the shortest decides; a node that uses all of its GPUs is none either."""
    assert codes(a_partly_idle_node(1799.0, 9000.0), RULES.idle) == []
    assert codes(a_partly_idle_node(), RULES.idle) == []


def test_a_node_past_its_age_is_told_about_while_it_works() -> None:
    """The clean-up after 24 hours that people ask for never takes a working machine."""
    rules = replace(RULES.idle, max_age=DAY)

    assert codes(a_node(state=State.BUSY), rules) == ["max_age"]
    assert the_step(an_observation(a_node(state=State.BUSY), notices=(a_notice(),)), rules).verb is Verb.WITHDRAW
    assert codes(a_node(state=State.BUSY, launched_at=NOW - timedelta(hours=23)), rules) == []
    assert codes(a_node(state=State.BUSY, launched_at=None), rules) == []


def test_a_node_past_its_age_waits_five_minutes_once_it_is_idle() -> None:
    """Then its notice and grace follow as for any other; a wait shorter than that stays as it is."""
    rules = replace(RULES.idle, max_age=DAY)

    assert the_step(an_observation(a_node(held=299.0)), rules).verb is Verb.HOLD
    assert the_step(an_observation(a_node(held=300.0)), rules).verb is Verb.NOTICE
    assert the_step(an_observation(a_node(held=300.0, launched_at=NOW - timedelta(hours=23))), rules).verb is Verb.HOLD
    assert the_step(an_observation(a_node(held=100.0)), replace(rules, timeout=100.0)).verb is Verb.NOTICE


def test_time_alone_is_seen_where_the_pool_goes_by_it() -> None:
    """Of the very same node a later look says what has become of its age, and of its time since the stop."""
    young = an_observation(a_node(state=State.BUSY, launched_at=NOW - timedelta(hours=23)))
    asleep = down(7 * DAY - HOUR - 1)
    later = timedelta(hours=2)
    aged = replace(RULES.idle, max_age=DAY)
    before = idle.propose(young, "default", aged).advice, the_step(asleep, TERMINATE_AFTER).verb
    after = idle.propose(replace(young, now=NOW + later), "default", aged).advice

    assert before == ((), Verb.HOLD)
    assert [each.reason.code for each in after] == ["max_age"]
    assert the_step(replace(asleep, now=NOW + later), TERMINATE_AFTER).verb is Verb.NOTICE


def test_a_snooze_takes_a_notice_back_up_to_the_pools_cap() -> None:
    """Also at the cap itself; beyond it the notice stays, and the node goes. A protection has no cap."""
    rules = replace(RULES.idle, max_snooze=7200.0)

    def verb(held: float, **said: str) -> Verb:
        node = replace(a_node(held=held), **said)  # type: ignore[arg-type]  # texts
        return the_step(an_observation(node, notices=(a_notice(),)), rules).verb

    assert verb(7200.0, snoozed="2026-03-03T12:00Z") is Verb.WITHDRAW
    assert verb(7201.0, snoozed="2026-03-03T12:00Z") is Verb.STOP
    assert verb(99 * HOUR, protected="a tag") is Verb.WITHDRAW


def test_a_busy_node_says_how_long_it_would_have_to_be_idle() -> None:
    """Where that is known: break_even with money needs a price."""
    priced = replace(EVEN, restart_usd=Decimal(5))
    busy = an_observation(a_node(state=State.BUSY))

    assert the_step(busy, EVEN).change == "It would have to be idle for 10m."
    assert the_step(busy, priced).change == "It would have to be idle."


TERMINATE_AFTER = replace(RULES.idle, terminate_after=7 * DAY, terminate_grace_period=HOUR)


def down(age: float, *, notice: float | None = None, ours: bool = True) -> Observation:
    """A node that gpuwatch, or somebody else, stopped so many seconds ago, with a notice of so many seconds ago."""
    node = replace(a_node(), state=NodeState.STOPPED, signal=NodeReport(failure="it is stopped"))
    past = (a_stop(node.id, at=NOW - timedelta(seconds=age)),) if ours else ()
    result = a_notice(age=notice or 0.0, grace=HOUR, action="terminate", idle_seconds=None)
    notices = () if notice is None else (result,)
    return an_observation(node, stopped=past, notices=notices)


def test_terminate_after_gives_notice_and_then_terminates_what_gpuwatch_stopped() -> None:
    """The notice comes early enough that the node ends when its time is over, and not before."""
    assert the_step(down(7 * DAY - HOUR - 1), TERMINATE_AFTER).verb is Verb.HOLD
    assert the_step(down(7 * DAY - HOUR), TERMINATE_AFTER).verb is Verb.NOTICE
    assert the_step(down(7 * DAY - 1, notice=HOUR), TERMINATE_AFTER).verb is Verb.HOLD
    assert the_step(down(7 * DAY, notice=HOUR - 1), TERMINATE_AFTER).verb is Verb.HOLD
    assert the_step(down(7 * DAY, notice=HOUR), TERMINATE_AFTER).verb is Verb.TERMINATE


def test_terminate_after_takes_nothing_that_others_stopped_and_nothing_unasked() -> None:
    """Without terminate_after, or without a stop of gpuwatch's own, a stopped node stays for good."""
    assert the_step(down(99 * DAY, notice=HOUR, ours=False), TERMINATE_AFTER).verb is Verb.WITHDRAW
    assert the_step(down(99 * DAY, notice=HOUR), replace(TERMINATE_AFTER, terminate_after=None)).verb is Verb.WITHDRAW


def test_the_notice_of_the_stop_is_no_notice_of_the_end() -> None:
    """A controller that was away for a week does not end a node on the notice that it was stopped with."""
    assert the_step(down(8 * DAY, notice=8 * DAY + HOUR), TERMINATE_AFTER).verb is Verb.WITHDRAW


@given(age=st.floats(0, 20 * DAY), notice=st.none() | st.floats(0, 20 * DAY), ours=st.booleans())
def test_no_stopped_node_ends_before_its_time_or_without_a_notice_of_its_own(
    age: float, notice: float | None, ours: bool
) -> None:
    """Whatever the past: the end comes `terminate_after` after the stop and `notice` after a notice given since."""
    verb = the_step(down(age, notice=notice, ours=ours), TERMINATE_AFTER).verb

    due = ours and age >= 7 * DAY and notice is not None and HOUR <= notice < age
    assert (verb is Verb.TERMINATE) is due
    assert due or verb not in REMOVALS


def test_the_proposal_counts_its_steps() -> None:
    """One sentence says how many nodes get what; a pool without nodes has one as well."""
    said = idle.propose(an_observation(a_node("i-1"), a_node("i-2"), a_node("i-3", State.BUSY)), "default", RULES.idle)

    assert said.reason.sentence == "1 hold, 2 notice"
    assert idle.propose(an_observation(), "default", RULES.idle).reason.sentence == "the pool has no nodes"


def test_doubt_is_told_as_the_agent_tells_it() -> None:
    """An unknown node says why, as far as anybody knows."""
    blank = replace(a_verdict(), activity=replace(an_activity(State.UNKNOWN), doubt=None))

    assert "could not be read" in the_step(an_observation(a_node(state=State.UNKNOWN))).reason.sentence
    assert "no reason was given" in the_step(an_observation(a_node(signal=NodeReport(verdict=blank)))).reason.sentence


def test_machines_that_do_not_run_get_no_advice() -> None:
    """Whatever their last verdict was."""
    assert codes(replace(a_node(state=State.BUSY), state=NodeState.STOPPING), replace(RULES.idle, max_age=DAY)) == []


def test_a_verdict_may_lag_behind_its_notice_a_little() -> None:
    """A sample, its age and a round trip lie between what an agent counts and what the ledger does: 8 s here."""
    rules = replace(RULES.idle, timeout=300.0)

    notices = (a_notice(age=900.0, idle_seconds=0.0),)

    assert the_step(an_observation(a_node(held=892.0), notices=notices), rules).verb is Verb.STOP
    assert the_step(an_observation(a_node(held=891.0), notices=notices), rules).verb is Verb.WITHDRAW
