"""The scaling policy waits: for cooldowns, for the stabilisation window, and whenever it is in doubt."""

import math
from datetime import timedelta

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.measurement import MetricValue
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.scaled_pools import (
    QUEUE,
    TARGET,
    a_measure,
    done,
    free_rules,
    nodes,
    proposed,
    seen,
    utilization,
    wished,
)

PLAIN = ScalingRules(metrics={"load": TARGET})
HIGH, LOW = a_measure("gpu_utilization", 0.9), a_measure("gpu_utilization", 0.1)


@pytest.mark.parametrize("verb", [Verb.START, Verb.LAUNCH, Verb.GROW])
def test_additions_wait_for_five_minutes_by_default(verb: Verb) -> None:
    """Within 300 s of the last settled addition the size stays; then it grows."""
    waiting = proposed(seen(6, HIGH, recent=(done(verb, 299.0),)), PLAIN)

    assert (waiting.desired_nodes, waiting.reason.code) == (6, "cooldown_out")
    assert "in 1s" in waiting.reason.sentence
    assert proposed(seen(6, HIGH, recent=(done(verb, 300.0),)), PLAIN).desired_nodes == 9


@pytest.mark.parametrize("verb", [Verb.START, Verb.STOP, Verb.TERMINATE])
def test_shrinking_waits_for_ten_minutes_after_any_change_by_default(verb: Verb) -> None:
    """An addition and a removal both begin the 600 s."""
    past = {"wishes": (wished(1, 400.0),)}

    assert proposed(seen(6, LOW, recent=(done(verb, 599.0),), **past), PLAIN).reason.code == "cooldown_in"
    assert proposed(seen(6, LOW, recent=(done(verb, 600.0),), **past), PLAIN).desired_nodes == 1


def test_an_addition_does_not_wait_for_a_removal() -> None:
    """Load that comes back is answered at once (EC2: scale-out interrupts a scale-in cooldown)."""
    assert proposed(seen(6, HIGH, recent=(done(Verb.STOP, 10.0),)), PLAIN).desired_nodes == 9


@pytest.mark.parametrize(
    "entry", [done(Verb.START, 10.0, status=Status.FAILED), done(Verb.NOTICE, 10.0), done(Verb.PROTECT, 10.0)]
)
def test_what_changed_nothing_begins_no_cooldown(entry: object) -> None:
    """A failed start, a notice or a protection leaves the size as it was."""
    assert proposed(seen(6, HIGH, recent=(entry,)), PLAIN).desired_nodes == 9


def test_shrinking_goes_no_further_than_the_largest_wish_of_the_window() -> None:
    """Four were wanted 299 s ago, so four stay, although one is enough now; none is bought for what only stays."""
    wishes = (wished(4, 299.0), wished(2, 100.0))
    proposal = proposed(seen(6, LOW, wishes=wishes), PLAIN)

    assert (proposal.desired_nodes, proposal.kept_nodes, proposal.raw_desired_nodes) == (1, 4, 1)
    assert "within the last 5m it was 4" in proposal.reason.sentence


def test_a_wish_before_the_window_does_not_count() -> None:
    """301 s ago is over."""
    assert proposed(seen(6, LOW, wishes=(wished(6, 301.0), wished(2, 100.0))), PLAIN).kept_nodes == 2


def test_the_first_round_of_all_does_not_shrink() -> None:
    """Nobody knows what the window held: the first wish only begins it."""
    assert (proposed(seen(6, LOW), PLAIN).kept_nodes, proposed(seen(6, LOW), PLAIN).raw_desired_nodes) == (6, 1)


def test_doubt_is_a_wish_to_stay() -> None:
    """A number that is gone for a moment keeps the pool for a whole window."""
    proposal = proposed(seen(6, a_measure("gpu_utilization", None)), PLAIN)

    assert (proposal.desired_nodes, proposal.kept_nodes, proposal.raw_desired_nodes) == (None, 6, 6)


def test_of_two_limits_the_larger_holds() -> None:
    """Four nodes or as many as there are (HPA's defaults); with one limit that one, with none none."""
    assert utilization(6.0, 2, max_out=4, max_out_ratio=1.0).desired_nodes == 6
    assert utilization(6.0, 8, max_out=4, max_out_ratio=1.0).desired_nodes == 16
    assert utilization(6.0, 8, max_out=4).desired_nodes == 12
    assert utilization(6.0, 8).desired_nodes == 80


def test_shrinking_has_limits_too() -> None:
    """At most `max_in` nodes or `max_in_ratio` of them in one decision, and one is always possible."""
    assert utilization(0.0, 10, max_in=3).kept_nodes == 7
    assert utilization(0.0, 10, max_in_ratio=0.25).kept_nodes == 7
    assert utilization(0.0, 10, max_in_ratio=0.01).kept_nodes == 9


def test_a_share_of_nothing_is_one_node() -> None:
    """A pool without nodes grows even where the only limit is a share."""
    rules = ScalingRules(metrics={"q": QUEUE}, max_out=None, max_out_ratio=0.5)

    assert proposed(seen(0, a_measure("q", 100.0)), rules).desired_nodes == 1


@pytest.mark.parametrize(
    "measure",
    [
        None,
        a_measure("gpu_utilization", None),
        a_measure("gpu_utilization", 0.0, doubt="it is 10m old"),
        a_measure("gpu_utilization", math.nan),
        a_measure("gpu_utilization", math.inf),
        a_measure("gpu_utilization", 0.0, samples=0, expected=6),
        a_measure("gpu_utilization", 0.0, samples=-1, expected=6),
        a_measure("gpu_utilization", -0.5),
    ],
    ids=["not measured", "no answer", "a doubt", "NaN", "infinite", "no samples", "impossible samples", "negative"],
)
def test_an_unknown_number_holds_the_pool(measure: MetricValue | None) -> None:
    """No size, no growth, a floor of all that run, and the reason."""
    proposal = proposed(seen(6, *filter(None, (measure,))), free_rules(load=TARGET))

    assert (proposal.desired_nodes, proposal.kept_nodes, proposal.grows, proposal.reason.code) == (
        None,
        6,
        False,
        "unknown",
    )
    assert "all 6 running nodes stay" in proposal.reason.sentence


def test_an_unknown_number_blocks_shrinking_and_lets_another_one_grow_the_pool() -> None:
    """In needs all, out needs one."""
    rules, gone = free_rules(load=TARGET, q=QUEUE), a_measure("gpu_utilization", None)

    assert proposed(seen(6, gone, a_measure("q", 0.0)), rules).desired_nodes is None
    assert proposed(seen(6, gone, a_measure("q", 100.0)), rules).desired_nodes == 10


def test_missing_readings_cannot_shrink_a_pool() -> None:
    """Two of six nodes are known and idle: the other four count as fully loaded."""
    partial = a_measure("gpu_utilization", 0.0, samples=2, expected=6)

    assert proposed(seen(6, partial), free_rules(load=TARGET)).desired_nodes == 6


def test_a_few_missing_readings_do_not_hold_a_large_pool() -> None:
    """One of a hundred is missing and counts as 1: where all of them would ask for 50 nodes, these ask for 52."""
    partial = a_measure("gpu_utilization", 0.3, samples=99, expected=100)

    assert proposed(seen(100, partial), free_rules(load=TARGET)).desired_nodes == 52


def test_missing_readings_add_nothing() -> None:
    """Two of six nodes at full load are a third of the pool's: nobody knows of more."""
    partial = a_measure("gpu_utilization", 1.0, samples=2, expected=6)

    assert proposed(seen(6, partial), free_rules(load=TARGET)).desired_nodes == 6


@pytest.mark.parametrize(
    "metric",
    [
        QUEUE,
        Metric(signal="promql", expression="x", target=10.0),
        Metric(signal="promql", expression="x", steps={"below 5": "remove 1"}),
    ],
)
def test_a_partial_number_without_an_upper_limit_never_shrinks_a_pool(metric: Metric) -> None:
    """What is missing of a PromQL number could be anything."""
    proposal = proposed(seen(6, a_measure("q", 1.0, samples=5, expected=6)), free_rules(q=metric))

    assert (proposal.desired_nodes, proposal.kept_nodes) == (None, 6)
    assert "(of 5 of 6)" in proposal.reason.sentence


def test_a_partial_total_still_adds() -> None:
    """What is there is enough to ask for more: a total only rises with what is missing."""
    assert proposed(seen(6, a_measure("q", 100.0, samples=5, expected=6)), free_rules(q=QUEUE)).desired_nodes == 10


def test_partial_readings_take_no_step_in() -> None:
    """Half of the nodes idle and half unknown count as half loaded."""
    rules = free_rules(load=Metric(steps={"below 0.2": "remove 1"}))

    assert proposed(seen(6, a_measure("gpu_utilization", 0.0, samples=3, expected=6)), rules).desired_nodes == 6


def test_a_number_from_before_the_last_change_is_unknown() -> None:
    """It tells of another pool: whoever follows it adds or removes twice."""
    at = NOW - timedelta(seconds=30)
    rules, recent = free_rules(load=TARGET), (done(Verb.START, 20.0),)
    proposal = proposed(seen(6, a_measure("gpu_utilization", 0.9, at=at), recent=recent), rules)

    assert (proposal.desired_nodes, proposal.reason.code) == (None, "unknown")
    assert "measured before the pool last changed" in proposal.reason.sentence


def test_another_pools_past_is_not_ours() -> None:
    """Wishes of other policies do not count either."""
    rules = ScalingRules(metrics={"load": TARGET})
    foreign = wished(6, 10.0)
    others = tuple(
        type(foreign)(pool=pool, policy=policy, at=foreign.at, want=6)
        for pool, policy in (("other", "scaling"), ("default", "schedule"))
    )

    assert proposed(seen(6, LOW, wishes=(*others, wished(2, 20.0))), rules).kept_nodes == 2


def test_nodes_of_other_people_are_not_counted() -> None:
    """A node that is not enrolled neither carries the pool's load nor can be one of its nodes."""
    pool = [*nodes(4), a_node("i-x", State.BUSY, enrolled=False)]

    assert proposed(seen(pool, HIGH), free_rules(load=TARGET)).desired_nodes == 6
