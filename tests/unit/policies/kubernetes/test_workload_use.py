"""What the GPU pods of a workload do together, and what their machines' own signals say against that."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuwatch.model.activity import Evidence, LastBusy, State, Tally
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.policies.kubernetes.workload_use import quiet_seconds, workloads
from tests.support.builders.clusters import a_workload
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.money import a_price
from tests.support.builders.workloads import ALICE, HOUR, a_host, its_pod, seen

IDLE, BUSY, PARKED, STALLED = State.IDLE, State.BUSY, State.PARKED, State.STALLED
COLLEAGUE = its_pod("bob-0", a_workload("bob"))


def said(name: str, says: State = BUSY) -> Evidence:
    """One signal's evidence."""
    return Evidence(name=name, says=says, observed=9.0, limit=1.0, unit="cores", source="/proc")


def shared(*last: tuple[str, State, float], run: float = 99 * HOUR, agent_tells: bool = True, now: object = ()) -> Node:
    """A machine of which a colleague's pod is busy, and what its agent remembers of each signal."""
    node = a_host(1, (its_pod(), IDLE), (COLLEAGUE, BUSY))
    verdict = node.verdict
    assert verdict is not None
    tally = Tally(since=NOW - timedelta(seconds=run), node_seconds={}, gpu_seconds={})
    remembered = tuple(LastBusy(evidence=said(name, says), at=NOW, ago_seconds=ago) for name, says, ago in last)
    activity = replace(verdict.activity, evidence=(said("gpu1.utilization_max"), *now))  # type: ignore[misc]  # evidence
    told = replace(verdict, activity=activity, last_busy=remembered, tally=tally if agent_tells else None)
    return replace(node, signal=NodeReport(verdict=told))


GPU = ("gpu1.utilization_max", BUSY, 0.0)


def test_pods_of_one_workload_are_one_use() -> None:
    """Its GPUs, pools and costs together; for as long as the one that began last."""
    hosts = (
        a_host(1, (its_pod("alice-0"), IDLE), held=9 * HOUR),
        a_host(2, (its_pod("alice-1"), PARKED), held=5 * HOUR, pool="other"),
    )
    observation = replace(seen(*hosts), prices={"g6.xlarge": a_price("2")})
    (use,) = workloads(observation)

    assert (use.id, use.state, use.held_seconds) == (ALICE, PARKED, 5 * HOUR)
    assert (use.gpus, use.pools, use.usd_per_hour) == (2.0, ("default", "other"), Decimal(4))


def test_each_workload_is_by_itself() -> None:
    """A busy neighbour is none of its."""
    states = {use.workload.name: use.state for use in workloads(seen(shared(GPU)))}

    assert states == {"alice": IDLE, "bob": BUSY}


def test_a_machine_that_is_without_use_is_quiet_as_long_as_that() -> None:
    """Also by an agent that remembers nothing."""
    assert quiet_seconds(a_host(1, (its_pod(), IDLE), held=7 * HOUR), NOW) == 7 * HOUR


@pytest.mark.parametrize(
    ("node", "seconds"),
    [
        (shared(GPU), 99 * HOUR),
        (shared(GPU, ("stalled", STALLED, 60.0)), 99 * HOUR),
        (shared(GPU, ("cpu", BUSY, 3 * HOUR), ("people", BUSY, 2 * HOUR)), 2 * HOUR),
        (shared(GPU, ("doubt", State.UNKNOWN, 1 * HOUR)), 1 * HOUR),
        (shared(GPU, ("processes", State.OCCUPIED, 60.0)), 99 * HOUR),
        (shared(GPU, run=600.0), 600.0),
        (shared(GPU, agent_tells=False), 0.0),
        (shared(), 0.0),
        (shared(GPU, now=(said("gpu_process_cpu"),)), 0.0),
        (a_node(signal=NodeReport(failure="no answer")), 0.0),
    ],
    ids=[
        "gpus alone",
        "a deadlock",
        "people",
        "doubt",
        "a program that does nothing",
        "agent has begun",
        "older agent",
        "agent remembers nothing",
        "busy now",
        "no verdict",
    ],
)
def test_on_a_busy_machine_the_hosts_own_signals_count(node: Node, seconds: float) -> None:
    """A GPU shows nothing of work on the processor, and nobody knows whose that is."""
    assert quiet_seconds(node, NOW) == seconds


def test_a_pod_is_unused_no_longer_than_its_machine_was_quiet() -> None:
    """Its GPU has been idle for 30 hours, and somebody was at work on the machine an hour ago."""
    _, alice = workloads(seen(shared(GPU, ("people", BUSY, HOUR))))

    assert (alice.state, alice.held_seconds) == (IDLE, HOUR)


def test_without_a_cluster_there_is_no_workload() -> None:
    """Nor on a machine without pods."""
    observation = seen(a_host(1, (its_pod(), IDLE)))

    assert workloads(replace(observation, fleet=replace(observation.fleet, cluster=None))) == ()
    assert workloads(seen(a_host(1))) == ()
