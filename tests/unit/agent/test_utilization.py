"""agent/usage.py: the utilization of the last minute, and what a pool's mean makes of it."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.agent.usage import RecentUtilization
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.activity import GpuUse
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.gpu import GIB, a_reading


def test_use_is_the_mean_of_the_samples_of_the_last_minute() -> None:
    """A minute of work, then half a minute of rest: half; after another one nothing is left of the work."""
    used = RecentUtilization()
    seen = {
        second: used.add_cycle(
            float(second), [a_reading(utilization_ratio=float(second < 60), memory_used_bytes=8 * GIB)]
        )
        for second in range(180)
    }

    assert seen[59]["GPU-0"].utilization_ratio == 1.0
    assert seen[89]["GPU-0"].utilization_ratio == pytest.approx(0.5, abs=0.05)
    assert seen[125]["GPU-0"].utilization_ratio == 0.0
    assert seen[125]["GPU-0"].memory_used_ratio == pytest.approx(0.1)
    assert 55 <= seen[125]["GPU-0"].over_seconds <= 60


def test_what_was_not_read_is_not_known() -> None:
    """A GPU without GPM has no SM activity; one that is down has no use at all, its last minute notwithstanding."""
    used = RecentUtilization()
    used.add_cycle(0.0, [a_reading(0), a_reading(1)])
    seen = used.add_cycle(1.0, [a_reading(0, utilization_ratio=None)])

    assert list(seen) == ["GPU-0"]
    assert seen["GPU-0"].sm_active_ratio is None
    assert seen["GPU-0"].utilization_ratio == 0.0  # of the sample before


def a_member(node_id: str, *ratios: float | None, **other: Any) -> Node:  # noqa: ANN401  any field of Node
    """A node whose GPUs tell this utilization."""
    verdict = a_verdict(node_id, gpus=len(ratios))
    uses = [None if ratio is None else GpuUse(over_seconds=60.0, utilization_ratio=ratio) for ratio in ratios]
    gpus = tuple(replace(gpu, use=use) for gpu, use in zip(verdict.gpus, uses, strict=True))
    signal = NodeReport(verdict=replace(verdict, gpus=gpus))
    return a_node(node_id, signal=signal, **{"gpu_count": len(ratios), **other})


def measured(query: MetricQuery, *nodes: Node) -> tuple[float | None, str | None, int | None, int | None]:
    """What asking the agents gives."""
    source = ScrapeSource(settings=ObserveSettings(), clock=ManualClock(wall=NOW), max_age_seconds=30.0)
    found = source.measure(Fleet(observed_at=NOW, nodes=nodes), [query])[0]
    return found.value, found.doubt, found.samples, found.expected


UTILIZATION = MetricQuery(pool="default", name="gpu_utilization")


def test_a_pools_mean_is_over_the_gpus_of_its_running_enrolled_nodes() -> None:
    """A machine with three GPUs counts three times; who else there is does not count."""
    nodes = [
        a_member("i-1", 1.0),
        a_member("i-2", 0.2, 0.2, 0.2),
        a_member("i-3", 1.0, pool="other"),
        a_member("i-4", 1.0, enrolled=False),
        replace(a_member("i-5", 1.0), state=NodeState.STOPPED),
    ]

    value, *rest = measured(UTILIZATION, *nodes)
    assert value == pytest.approx(0.4)
    assert rest == [None, 2, 2]


def test_a_node_of_which_a_gpu_is_missing_or_silent_does_not_count_and_is_counted_as_expected() -> None:
    """The policy sees how much of the pool the mean is of."""
    nodes = [a_member("i-1", 0.5), a_member("i-2", 0.9, None), a_member("i-3", 0.9, gpu_count=2)]

    assert measured(UTILIZATION, *nodes) == (0.5, None, 1, 3)


def test_what_nobody_tells_is_unknown() -> None:
    """No verdict, a name that agents do not tell, an expression without a Prometheus, an empty pool."""
    silent = a_node("i-1", signal=NodeReport(failure="its agent did not answer"))

    assert measured(UTILIZATION, silent) == (None, "none of 1 running nodes reports it", 0, 1)
    assert measured(UTILIZATION) == (None, "the pool has no running node", 0, 0)
    assert "agents report no queue" in (measured(MetricQuery(pool="default", name="queue"))[1] or "")
    assert measured(MetricQuery(pool="p", name="x", expression="1"))[1] == "an expression needs signals.promql.url"
