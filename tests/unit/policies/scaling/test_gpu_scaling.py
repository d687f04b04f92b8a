"""The load of a pool that counts GPUs: the same arithmetic, in GPUs."""

from dataclasses import replace

import pytest

from gpuwatch.model.decision import Proposal
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.policies import scaling
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.gpu_pools import gpu_rules, of_gpus
from tests.support.builders.scaled_pools import FREE, a_measure, seen

STEPS = Metric(signal="gpu_utilization", steps={"above 0.8": "add 3", "below 0.2": "remove 5"})
TARGET = Metric(signal="gpu_utilization", target=0.6)
QUEUE = Metric(signal="promql", expression="sum(jobs_waiting)", target=2.0, per_node=True)
POOL = [of_gpus(8, "i-1"), of_gpus(4, "i-2")]


def proposed(metric: Metric, value: float, nodes: list[Node] | None = None, **rules: object) -> Proposal:
    """What the policy says of twelve GPUs on two nodes."""
    name = "queue" if metric.signal == "promql" else metric.signal
    observation = seen(POOL if nodes is None else nodes, a_measure(name, value))
    scaled = ScalingRules(metrics={"queue" if metric.signal == "promql" else "load": metric}, **{**FREE, **rules})  # type: ignore[arg-type]
    sizes = gpu_rules(scaling=scaled).sizes(observation.fleet)
    return scaling.propose(observation, "default", scaled, warm_up=900.0, sizes=sizes)


@pytest.mark.parametrize(
    ("metric", "value", "wanted", "words"),
    [
        (STEPS, 0.9, 15, "12 → 15 GPUs"),  # three GPUs more, and not three nodes
        (STEPS, 0.1, 7, "12 → 7 GPUs"),
        (STEPS, 0.5, 12, "12 GPUs stay"),
        (TARGET, 0.9, 18, "12 × 0.9/0.6 → 18 GPUs"),  # noqa: RUF001  as the sentence has it
        (TARGET, 0.3, 6, "→ 6 GPUs"),
        (QUEUE, 40.0, 20, "40/2 → 20 GPUs"),  # two waiting for each GPU
        (QUEUE, 0.0, 0, "→ 0 GPUs"),
    ],
)
def test_a_load_is_answered_in_gpus(metric: Metric, value: float, wanted: int, words: str) -> None:
    """Steps add GPUs, a target is that of all GPUs, and a total is shared by each GPU."""
    proposal = proposed(metric, value)
    assert (proposal.desired_nodes, proposal.grows) == (wanted, True)
    assert words in proposal.reason.sentence


def test_limits_of_one_decision_are_gpus() -> None:
    """Four more at most, or as large a share as is given."""
    assert proposed(TARGET, 0.9, max_out=4).desired_nodes == 16
    assert proposed(TARGET, 0.9, max_out_ratio=0.25).desired_nodes == 15


def test_a_mean_says_nothing_while_nobody_knows_the_gpus_of_a_node() -> None:
    """It is no size, and every GPU that is known stays."""
    dark = replace(of_gpus(8, "i-3"), instance_type="x.large", gpu_count=None, signal=NodeReport(failure="no answer"))
    proposal = proposed(STEPS, 0.1, [*POOL, dark])
    assert (proposal.desired_nodes, proposal.kept_nodes, proposal.grows) == (None, 12, False)
    assert "nobody knows the GPUs of i-1 (x.large)" in proposal.reason.sentence or "x.large" in proposal.reason.sentence
