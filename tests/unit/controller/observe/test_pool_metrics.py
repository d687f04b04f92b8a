"""Numbers of a pool from its agents' verdicts: what counts, with which weight, and what is unknown."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpuwatch.controller.observe.pool_metrics import of_verdicts
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from tests.support.builders.fleet import NOW, a_node, a_verdict


def a_host(node_id: str, cpu: float | None, *, gpus: int = 1) -> Node:
    """A node whose agent reports so much use of its processors."""
    verdict = replace(a_verdict(node_id, gpus=gpus), cpu_utilization_ratio=cpu)
    return a_node(node_id, signal=NodeReport(verdict=verdict), gpu_count=gpus)


def measured(*nodes: Node) -> MetricValue:
    """The pool's use of processors."""
    fleet = Fleet(observed_at=NOW, nodes=nodes)
    (value,) = of_verdicts(fleet, [MetricQuery(pool=nodes[0].pool, name="cpu_utilization")], NOW)
    return value


def test_each_host_counts_once() -> None:
    """A machine with eight GPUs has no more say about processors than one with a single GPU."""
    assert measured(a_host("i-1", 0.9, gpus=8), a_host("i-2", 0.1)).value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("nodes", "samples", "expected"),
    [
        ({"i-1": 0.4, "i-2": None}, 1, 2),
        ({"i-1": None}, 0, 1),
        ({"i-1": float("nan")}, 0, 1),
    ],
)
def test_hosts_that_do_not_report_are_missing(nodes: Mapping[str, float | None], samples: int, expected: int) -> None:
    """An older agent, or one whose signal is off: the number is partial, or unknown with a reason; never zero."""
    value = measured(*(a_host(node_id, cpu) for node_id, cpu in nodes.items()))

    assert (value.samples, value.expected) == (samples, expected)
    assert (value.value is None) is (samples == 0)
    assert (value.doubt is None) is (samples > 0)


def test_stopped_machines_do_not_count() -> None:
    """What does not run has no load."""
    assert measured(a_host("i-1", 0.4), replace(a_host("i-2", 0.0), state=NodeState.STOPPED)).value == pytest.approx(
        0.4
    )
