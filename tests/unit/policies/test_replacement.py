"""A machine that was terminated while its GPU was failing comes back once, within its pool's limits."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch import policies
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Done, Observation, OpenIntent, Reason, Status, Step, Verb
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.model.measurement import MetricValue
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.replacement import CLOUD, FAILING_SINCE, KIND, note_sick_ends, owed_replacements
from tests.support.builders.fleet import NOW, RULES, a_node, a_verdict, an_observation
from tests.support.builders.past_steps import a_done, an_open
from tests.support.builders.scaled_pools import TARGET, free_rules

REPLACE = HealthRules(action="replace")
HOUR = timedelta(hours=1)
SINCE = {FAILING_SINCE: (NOW - 5 * HOUR).isoformat(), KIND: "g6.xlarge", CLOUD: ""}


def lost(hours_ago: float, **other: object) -> Done:
    """A sick machine was terminated."""
    base = replace(a_done(), verb=Verb.TERMINATE, at=NOW - hours_ago * HOUR, arguments=SINCE, status=Status.SETTLED)
    return replace(base, **{"pool": "default", **other})  # type: ignore[arg-type]


def came(hours_ago: float, count: int = 1, **other: object) -> Done:
    """So many nodes came."""
    base = replace(a_done(), verb=Verb.GROW, at=NOW - hours_ago * HOUR, arguments={"size": "9", "adds": str(count)})
    return replace(base, **{"pool": "default", **other})  # type: ignore[arg-type]


def seen(*recent: Done, sick: int = 0, nodes: int = 10, **ledger: object) -> Observation:
    """Ten nodes of which so many are sick, and what the ledger holds of the last day."""
    fleet = [a_sick_node(f"i-{each}") if each < sick else a_node(f"i-{each}", State.BUSY) for each in range(nodes)]
    return an_observation(*fleet, recent=recent, **ledger)  # type: ignore[arg-type]


def a_sick_node(node_id: str = "i-1", **other: object) -> Node:
    """Its agent calls its GPU failing since five hours."""
    verdict = a_verdict(node_id)
    health = GpuHealth(state=Health.FAILING, since=NOW - 5 * HOUR)
    gpus = tuple(replace(gpu, health=health) for gpu in verdict.gpus)
    return a_node(node_id, signal=NodeReport(verdict=replace(verdict, gpus=gpus)), **other)  # type: ignore[arg-type]


def count(*recent: Done, rules: HealthRules = REPLACE, **other: object) -> int:
    """How many are to come."""
    return owed_replacements(seen(*recent, **other), "default", rules)[0]  # type: ignore[arg-type]


def test_a_sick_machine_that_was_terminated_comes_back_once() -> None:
    """What came since is its replacement, whoever wanted it."""
    assert count(lost(1)) == 1
    assert count(lost(1), came(0.5)) == 0
    assert count(lost(1), came(2)) == 1
    assert count(lost(2), lost(1), came(0.5)) == 1
    assert count(lost(2), lost(1), came(0.5, 2)) == 0


@pytest.mark.parametrize("action", ["tell", "cordon", "drain"])
def test_only_a_pool_that_replaces_has_replacements(action: str) -> None:
    """The record of the loss is not enough."""
    assert count(lost(1), rules=HealthRules(action=action)) == 0  # type: ignore[arg-type]


def test_what_was_not_sick_not_ended_or_long_ago_is_not_replaced() -> None:
    """An idle machine that was well goes for good."""
    assert count(lost(1, arguments={})) == 0
    assert count(lost(1, status=Status.FAILED)) == 0
    assert count(lost(1, status=Status.CANCELLED)) == 0
    assert count(lost(1, verb=Verb.STOP)) == 0
    assert count(lost(25)) == 0
    assert count(lost(1, pool="other")) == 0


def test_an_addition_that_may_have_happened_counts_and_one_that_did_not_is_tried_again() -> None:
    """Two for one loss cost more than one too few."""
    assert count(lost(1), came(0.5, reached=True)) == 0
    assert count(lost(1), replace(came(0.5, reached=False), status=Status.FAILED)) == 1
    doubt = replace(came(0.5, reached=True), status=Status.FAILED, reached_at=NOW)
    assert count(lost(1), doubt) == 0
    assert count(lost(1), replace(doubt, reached_at=None)) == 1, "its one answer was a refusal"


def test_so_many_a_day_and_no_more() -> None:
    """The sentence names the setting."""
    losses = [lost(each) for each in (5, 4, 3, 2)]
    rules = replace(REPLACE, max_failing_ratio=1.0)
    assert owed_replacements(seen(*losses), "default", rules)[0] == 2
    number, why = owed_replacements(seen(*losses, came(1, 2)), "default", rules)
    assert number == 0
    assert "max_replacements_per_day" in why


def test_while_many_are_sick_none_comes() -> None:
    """Those that went within the day count as well: a new one with the same fault would follow."""
    assert count(lost(1), sick=2) == 1
    number, why = owed_replacements(seen(lost(1), sick=3), "default", REPLACE)
    assert number == 0
    assert "4 of 11 nodes were failing within a day" in why


def test_the_termination_of_a_sick_machine_says_since_when_it_failed() -> None:
    """And of which kind it was; any other step stays as it is."""
    observation = an_observation(a_sick_node(cloud="aws"))
    reason = Reason(code="expired", sentence="It has been idle for 2h.")
    step = Step(node_id="i-1", verb=Verb.TERMINATE, reason=reason, change="Use.", arguments={"x": "y"})

    stop = replace(step, verb=Verb.STOP)
    told, same = note_sick_ends((step, stop), observation, REPLACE)
    assert told.arguments == {"x": "y", **SINCE, CLOUD: "aws"}
    assert same == stop
    assert note_sick_ends((step,), observation, HealthRules(action="drain")) == (step,)
    assert note_sick_ends((step,), an_observation(a_node()), REPLACE) == (step,)


def test_the_pool_is_brought_back_to_the_number_that_it_had() -> None:
    """By a launch of its template; the removal of others is not held up by it."""
    rules = replace(RULES, health=REPLACE, launch=LaunchRules(template="lt-1"))
    observation = seen(lost(1))
    decision = policies.resolve(observation, "default", policies.propose(observation, "default", rules), rules)
    assert [step.verb for step in decision.steps if step.verb is not Verb.HOLD] == [Verb.LAUNCH]
    assert decision.target == 11

    nothing = replace(rules, launch=LaunchRules())
    decision = policies.resolve(observation, "default", policies.propose(observation, "default", nothing), nothing)
    assert "nothing to get them from" in " ".join(decision.clamps)


def test_where_the_load_decides_it_alone_does() -> None:
    """A pool that follows its load gets a new node if one is needed, and none for its own sake."""
    metrics = free_rules(load=TARGET)
    rules = replace(RULES, health=REPLACE, launch=LaunchRules(template="lt-1"), scaling=metrics)
    load = MetricValue(pool="default", name="gpu_utilization", at=NOW, value=0.3)
    observation = replace(seen(lost(1)), measures=(load,))
    decision = policies.resolve(observation, "default", policies.propose(observation, "default", rules), rules)
    assert Verb.LAUNCH not in {step.verb for step in decision.steps}


@given(
    losses=st.lists(st.floats(0.01, 23.9), max_size=6),
    additions=st.lists(st.tuples(st.floats(0.01, 23.9), st.integers(1, 3)), max_size=6),
    pending=st.integers(0, 3),
    most=st.integers(0, 4),
)
def test_never_two_for_one_loss(
    losses: list[float], additions: list[tuple[float, int]], pending: int, most: int
) -> None:
    """What is owed and what came since the first loss are never more than the losses, nor than a day's limit."""
    entries = tuple(an_open_growth(number) for number in range(pending))
    recent = [lost(each) for each in losses] + [came(at, adds) for at, adds in additions]
    rules = replace(REPLACE, max_replacements_per_day=most, max_failing_ratio=1.0)
    number = count(*recent, rules=rules, open_intents=entries)

    assert number <= min(len(losses), most)
    if losses:
        since = sum(adds for at, adds in additions if at <= min(losses)) + pending
        assert number <= max(0, len(losses) - since)


def an_open_growth(number: int) -> OpenIntent:
    """A group is being grown by one."""
    entry = an_open(f"g-{number}", Status.ACCEPTED, seconds_ago=60.0)
    return replace(entry, intent=replace(entry.intent, verb=Verb.GROW, arguments={"size": "9", "adds": "1"}))
