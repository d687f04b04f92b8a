"""The scaling policy: what a number makes of a pool's size, and the arithmetic it tells."""

from dataclasses import replace

import pytest

from gpuwatch.model.decision import Intent, OpenIntent, Reason, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.measurement import MetricQuery
from gpuwatch.policies import scaling
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import NOW
from tests.support.builders.scaled_pools import (
    POOL,
    QUEUE,
    TARGET,
    a_measure,
    free_rules,
    nodes,
    proposed,
    seen,
    utilization,
)


@pytest.mark.parametrize(
    ("count", "value", "target", "wanted"),
    [
        # https://kubernetes.io/blog/2025/04/28/kubernetes-v1-33-hpa-configurable-tolerance/: 50 times 90/75 is 60
        (50, 0.90, 0.75, 60),
        # https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/: 200m of 100m doubles,
        # 50m of 100m halves, a ratio within 0.1 of 1 changes nothing
        (3, 0.200, 0.100, 6),
        (4, 0.050, 0.100, 2),
        (4, 0.109, 0.100, 4),
        (4, 0.091, 0.100, 4),
        # https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale-walkthrough/: 305% of 50% at one
        # replica asks for 7
        (1, 3.05, 0.50, 7),
    ],
)
def test_a_target_gives_the_numbers_that_kubernetes_publishes(
    count: int, value: float, target: float, wanted: int
) -> None:
    """Nodes times value over target, rounded up, with a dead band of a tenth."""
    rules = free_rules(m=Metric(signal="promql", expression="avg(load)", target=target))

    assert proposed(seen(count, a_measure("m", value)), rules).desired_nodes == wanted


@pytest.mark.parametrize("value", [1e10, 1e25, 1e308])
def test_no_number_of_an_exporter_asks_for_more_than_a_ledger_can_hold(value: float) -> None:
    """P22: PostgreSQL's integer ends at 2,147,483,647, and MessagePack's at 64 bits; both ended the whole round."""
    rules = free_rules(m=Metric(signal="promql", expression="avg(load)", target=1.0))
    found = proposed(seen(10, a_measure("m", value)), rules)

    assert max(found.desired_nodes or 0, found.raw_desired_nodes or 0) <= 1_000_000


def test_rounding_errors_add_no_node() -> None:
    """Ten times 0.9 / 0.6 is 15, though floating point makes it a little more."""
    assert utilization(0.9, 10).desired_nodes == 15


def test_steps_give_the_numbers_that_aws_publishes() -> None:
    """10 % at 60 and 30 % at 70, both ways: 10 → 11 → 14 → 13 → 10.

    Source: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-simple-step.html, and the same walk at
    https://www.pulumi.com/docs/reference/pkg/nodejs/pulumi/awsx/classes/classic.autoscaling.StepScalingPolicy.html
    """
    steps = {"above 60": "add 10%", "above 70": "add 30%", "below 40": "remove 10%", "below 30": "remove 30%"}
    rules = free_rules(cpu=Metric(signal="promql", expression="avg(cpu)", steps=steps))
    walk = [(10, 50.0, 10), (10, 60.0, 11), (11, 70.0, 14), (14, 40.0, 13), (13, 30.0, 10)]

    assert [proposed(seen(count, a_measure("cpu", value)), rules).desired_nodes for count, value, _ in walk] == [
        wanted for _, _, wanted in walk
    ]


def test_a_deeper_breach_during_warm_up_adds_only_what_is_missing() -> None:
    """10 nodes and one warming up, 30 % asked for: 13, counted from the ten (AWS: instance warm-up of step scaling)."""
    rules = free_rules(cpu=Metric(signal="promql", expression="avg(cpu)", steps={"above 70": "add 30%"}))
    pool = [*nodes(10), *nodes(1, first=10, age=60.0)]

    assert proposed(seen(pool, a_measure("cpu", 75.0)), rules).desired_nodes == 13


def test_a_queue_is_shared_out_among_the_nodes() -> None:
    """`per_node`: a total of 95 with 10 for each node needs 10 nodes, however many there are."""
    assert [
        proposed(seen(count, a_measure("q", 95.0)), free_rules(q=QUEUE)).desired_nodes for count in (0, 1, 10, 20)
    ] == [
        10,
        10,
        10,
        10,
    ]


def test_a_total_brings_a_pool_to_zero_and_back() -> None:
    """Nothing waits: no node; one job waits: one node."""
    rules = free_rules(q=QUEUE)

    assert proposed(seen(3, a_measure("q", 0.0)), rules).desired_nodes == 0
    assert proposed(seen(0, a_measure("q", 1.0)), rules).desired_nodes == 1
    assert proposed(seen(0, a_measure("q", 0.0)), rules).desired_nodes == 0


def test_the_smallest_total_there_is_still_needs_a_node() -> None:
    """Shared out among the nodes it would vanish in rounding, and the pool would go to zero and back for ever."""
    rules = free_rules(q=replace(QUEUE, target=1.0))

    assert [proposed(seen(count, a_measure("q", 5e-324)), rules).desired_nodes for count in (0, 1, 3)] == [1, 1, 1]


def test_a_mean_of_gpus_never_empties_a_pool() -> None:
    """Without nodes it has no value, so it could not bring them back: it asks for one at least."""
    assert utilization(0.0, 5).desired_nodes == 1


@pytest.mark.parametrize("steps", [{"below 0.1": "exactly 0"}, {"below 0.1": "remove 100%"}])
def test_a_step_on_a_mean_of_gpus_never_empties_a_pool_either(steps: dict[str, str]) -> None:
    """`exactly 0` comes to one node where the number dies with the last."""
    rules = free_rules(load=Metric(steps=steps))

    assert proposed(seen(5, a_measure("gpu_utilization", 0.0)), rules).desired_nodes == 1


def test_percent_steps_are_rounded_towards_zero_but_move_one_node() -> None:
    """25 % of 5 is one node, 10 % of 5 as well, and at no nodes 50 % is one."""
    steps = {"above 10": "add 25%"}
    rules = free_rules(q=Metric(signal="promql", expression="q", steps=steps))

    assert proposed(seen(5, a_measure("q", 10.0)), rules).desired_nodes == 6
    assert proposed(seen(0, a_measure("q", 10.0)), rules).desired_nodes == 1
    assert proposed(seen(9, a_measure("q", 10.0)), rules).desired_nodes == 11


def test_an_exact_step_never_goes_against_its_direction() -> None:
    """`above 0.9: exactly 4` leaves ten nodes at ten."""
    rules = free_rules(load=Metric(steps={"above 0.9": "exactly 4"}))

    assert proposed(seen(10, a_measure("gpu_utilization", 0.95)), rules).desired_nodes == 10
    assert proposed(seen(2, a_measure("gpu_utilization", 0.95)), rules).desired_nodes == 4


def test_a_step_in_stops_where_the_next_round_would_add_again() -> None:
    """Four nodes at 0.45 would be at 0.9 when two; over 0.8, so three stay (0.6)."""
    rules = free_rules(load=Metric(steps={"above 0.8": "add 1", "below 0.5": "exactly 1"}))
    proposal = proposed(seen(4, a_measure("gpu_utilization", 0.45)), rules)

    assert proposal.desired_nodes == 3
    assert "1 would bring it to the step at 0.8" in proposal.reason.sentence


def test_the_sentence_tells_the_arithmetic() -> None:
    """Value, target, formula, result and limit can be checked by hand."""
    proposal = utilization(0.82, max_out=2)

    assert (
        proposal.reason.sentence == "load 0.82 over target 0.6: 6 × 0.82/0.6 → 9 nodes, limited to +2."  # noqa: RUF001  people read it as times
    )
    assert (proposal.desired_nodes, proposal.raw_desired_nodes, proposal.grows, proposal.reason.code) == (
        8,
        9,
        True,
        "scale_out",
    )


def test_pending_nodes_are_capacity_without_load() -> None:
    """Four loaded nodes and four on their way are eight at half the load: nothing is added twice."""
    pool = [*nodes(4), *nodes(4, first=4, state=NodeState.PENDING)]

    assert proposed(seen(pool, a_measure("gpu_utilization", 1.0)), free_rules(load=TARGET)).desired_nodes == 8


def test_launches_that_the_cloud_does_not_show_yet_are_capacity() -> None:
    """An open launch counts, so the next round asks for nothing more."""
    launch = Intent(
        key="k",
        verb=Verb.LAUNCH,
        node_id="new:default:1",
        pool=POOL,
        at=NOW,
        reason=Reason(code="scale_out", sentence="more"),
    )
    opened = (OpenIntent(intent=launch, attempts=1, last=None, reached=True),)

    assert proposed(seen(1, a_measure("q", 15.0), open_intents=opened), free_rules(q=QUEUE)).desired_nodes == 2
    assert proposed(seen(1, a_measure("q", 15.0), open_intents=opened), free_rules(q=QUEUE)).reason.code == "steady"


def test_nodes_that_warm_up_do_not_let_the_pool_shrink() -> None:
    """Four new nodes without load halve the mean; they count as loaded, so eight stay eight."""
    pool = [*nodes(4), *nodes(4, first=4, age=60.0)]
    busy = proposed(seen(pool, a_measure("gpu_utilization", 0.3)), free_rules(load=TARGET))
    old = proposed(seen(8, a_measure("gpu_utilization", 0.3)), free_rules(load=TARGET))

    assert (busy.desired_nodes, old.desired_nodes) == (8, 4)
    assert "young and missing nodes counted as loaded" in busy.reason.sentence


@pytest.mark.parametrize("other", [{"launched_at": None}, {"launched_at": NOW.replace(year=2027)}])
def test_a_node_of_unknown_age_counts_as_young(other: dict[str, object]) -> None:
    """Neither a missing nor a future start proves that a node has warmed up."""
    pool = [replace(node, **other) for node in nodes(4)]  # type: ignore[arg-type]

    assert proposed(seen(pool, a_measure("gpu_utilization", 0.0)), free_rules(load=TARGET)).desired_nodes == 4


def test_steps_in_wait_for_nodes_that_warm_up() -> None:
    """As with EC2: no step removes anything while a node is young."""
    rules = free_rules(load=Metric(steps={"below 0.2": "remove 1"}))
    pool = [*nodes(3), *nodes(1, first=3, age=60.0)]

    assert proposed(seen(pool, a_measure("gpu_utilization", 0.1)), rules).desired_nodes == 4
    assert proposed(seen(4, a_measure("gpu_utilization", 0.1)), rules).desired_nodes == 3


def test_out_if_any_metric_wants_it_and_in_only_if_all_agree() -> None:
    """The largest number wins."""
    rules = free_rules(load=TARGET, q=QUEUE)

    def want(load: float, waiting: float) -> int | None:
        return proposed(seen(6, a_measure("gpu_utilization", load), a_measure("q", waiting)), rules).desired_nodes

    assert want(0.1, 120.0) == 12
    assert want(0.9, 0.0) == 9
    assert want(0.1, 30.0) == 3
    assert want(0.6, 0.0) == 6


def test_each_number_is_asked_for_once() -> None:
    """Device signals by their own names, expressions by the metric's."""
    rules = free_rules(a=TARGET, b=Metric(target=0.9), q=QUEUE)

    assert scaling.queries(POOL, rules) == (
        MetricQuery(pool=POOL, name="gpu_utilization"),
        MetricQuery(pool=POOL, name="q", expression="sum(jobs_waiting)"),
    )


def test_without_metrics_the_policy_has_no_say() -> None:
    """Neither a size nor a floor: an idle pool can still be reclaimed."""
    proposal = proposed(seen(3), ScalingRules())

    assert (proposal.desired_nodes, proposal.min_nodes, proposal.max_nodes, proposal.grows) == (None, None, None, False)


def test_full_memory_gives_advice() -> None:
    """Above 85 % the number says what is held and not what is done; people are told."""
    rules = free_rules(mem=Metric(signal="gpu_memory", target=0.8))

    assert [each.reason.code for each in proposed(seen(2, a_measure("gpu_memory", 0.91)), rules).advice] == [
        "misleading_metric"
    ]
    assert proposed(seen(2, a_measure("gpu_memory", 0.7)), rules).advice == ()
