"""Scaling rules that cannot be meant as they are written, what would be right, and what misleads."""

import pytest

from gpuwatch.policies import scaling
from gpuwatch.policies.scaling import Metric, ScalingRules

PATH = ("pools", "a", "scaling")
QUEUE = Metric(signal="promql", expression="sum(q)", target=10.0, per_node=True)


@pytest.mark.parametrize(
    "metric",
    [
        QUEUE,
        Metric(target=0.6),
        Metric(signal="cpu_utilization", steps={"above 0.8": "add 1", "below 0.3": "remove 1"}),
        Metric(signal="sm_activity", steps={"above 0.8": "add 2", "above 0.9": "add 50%", "below 0.2": "exactly 1"}),
        Metric(signal="promql", expression="x", steps={"above -5": "add 12.5%", "below -40": "remove 1"}),
    ],
)
def test_right_rules_are_not_doubted(metric: Metric) -> None:
    """Nothing is wrong with them, nor with rules without metrics."""
    assert list(scaling.contradictions(ScalingRules(metrics={"m": metric}), PATH)) == []
    assert list(scaling.contradictions(ScalingRules(), PATH)) == []


@pytest.mark.parametrize(
    ("metric", "key", "wrong", "right"),
    [
        (Metric(signal="promql", target=1.0), "expression", "is missing", "a PromQL expression"),
        (Metric(expression="up", target=0.5), "expression", "signal is gpu_utilization", "signal: promql"),
        (Metric(), "target", "neither a target nor steps", "one of target and steps"),
        (Metric(target=0.5, steps={"above 0.8": "add 1"}), "target", "both a target and steps", "one of"),
        (Metric(target=60.0), "target", "is 60, and gpu_utilization never exceeds 1", "such as 0.6"),
        (Metric(target=0.5, per_node=True), "per_node", "gpu_utilization is a mean", "signal: promql"),
        (
            Metric(signal="promql", expression="x", per_node=True, steps={"above 8": "add 1"}),
            "per_node",
            "steps compare the number as it is",
            "a target",
        ),
        (Metric(steps={"over 0.8": "add 1"}), "steps", "`over 0.8` is no threshold", "`above 0.8`"),
        (Metric(steps={"above 80%": "add 1"}), "steps", "`above 80%` is no threshold", "`above 0.8`"),
        (Metric(steps={"above 0.8": "2"}), "steps", "`2` is no change", "`add 2`"),
        (Metric(steps={"above 0.8": "add 1.5"}), "steps", "`add 1.5` is no change", "`add 2`"),
        (Metric(steps={"above 0.8": "exactly 50%"}), "steps", "`exactly 50%` is no change", "`exactly 3`"),
        (Metric(steps={"above 0.8": "remove 1"}), "steps", "goes the wrong way", "`above …: add …`"),
        (Metric(steps={"below 0.2": "add 1"}), "steps", "goes the wrong way", "`below …: remove …`"),
        (Metric(steps={"above 80": "add 1"}), "steps", "a bound of 80", "a ratio from 0 to 1"),
        (
            Metric(steps={"above 0.5": "add 1", "below 0.5": "remove 1"}),
            "steps",
            "grow and shrink at once",
            "well under",
        ),
    ],
)
def test_wrong_rules_are_told_with_their_key_and_the_remedy(metric: Metric, key: str, wrong: str, right: str) -> None:
    """The first key is the culprit's."""
    (problem,) = scaling.contradictions(ScalingRules(metrics={"m": metric}), PATH)

    assert problem.keys[0] == (*PATH, "metrics", "m", key)
    assert f"pools.a.scaling.metrics.m.{key} " in problem.wrong
    assert wrong in problem.wrong
    assert right in problem.right


def test_an_expression_may_not_take_a_device_signals_name() -> None:
    """Their numbers would be mixed up."""
    metric = Metric(signal="promql", expression="x", target=1.0)
    (problem,) = scaling.contradictions(ScalingRules(metrics={"gpu_memory": metric}), PATH)

    assert "has the name of another signal" in problem.wrong


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (Metric(target=0.6), "hides hot nodes"),
        (Metric(signal="gpu_memory", target=0.6), "above 85%: frameworks take memory in advance"),
        (Metric(signal="sm_activity", target=0.6), "hides hot nodes"),
        (QUEUE, "how fast it is served"),
        (Metric(signal="promql", expression="avg(x)", target=2.0), "nothing brings the pool back"),
    ],
)
def test_numbers_that_mislead_come_with_a_warning(metric: Metric, says: str) -> None:
    """It names the metric, says why, and what would be better; it refuses nothing."""
    (warning,) = scaling.warnings(ScalingRules(metrics={"m": metric}), PATH)

    assert warning.keys == ((*PATH, "metrics", "m"),)
    assert says in warning.wrong
    assert warning.right
