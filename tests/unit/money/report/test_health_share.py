"""The share of GPU-hours in each health, by type and driver: one number for the page and the report."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.money.report.health_share import health_share
from tests.support.builders.fleet import a_node, a_verdict

HEALTHS = st.lists(st.none() | st.sampled_from(Health), max_size=9)


def sick(node_id: str, healths: list[Health | None], driver: str | None = "570.1") -> Node:
    """A running machine whose GPUs have this health."""
    verdict = a_verdict(node_id, gpus=len(healths))
    gpus = tuple(
        replace(gpu, health=None if each is None else GpuHealth(state=each, since=None))
        for gpu, each in zip(verdict.gpus, healths, strict=True)
    )
    return a_node(node_id, signal=NodeReport(verdict=replace(verdict, gpus=gpus, driver_version=driver)))


@given(st.lists(st.lists(st.tuples(HEALTHS, st.none() | st.sampled_from(["570.1", "580.2"])), max_size=4), max_size=4))
def test_the_shares_are_those_of_the_gpus_at_each_look(
    looks: list[list[tuple[list[Health | None], str | None]]],
) -> None:
    """They add up to one, for the fleet and for each type and driver; what has no word on it is unknown."""
    nodes = [[sick(f"i-{number}", *each) for number, each in enumerate(look) if each[0]] for look in looks]
    gpus = [each or Health.UNKNOWN for look in looks for found, _ in look for each in found]

    share = health_share(nodes)

    if share is None:
        assert not gpus
        return
    assert share.gpus * len(looks) == pytest.approx(len(gpus))
    assert share.ratios == {each.value: pytest.approx(gpus.count(each) / len(gpus)) for each in Health}
    assert sum(each.gpus for each in share.by_driver) == pytest.approx(share.gpus)
    for each in share.by_driver:
        assert sum(each.ratios.values()) == pytest.approx(1)


def test_an_upgrade_divides_a_fleet_by_its_drivers() -> None:
    """Two hours before it and two after it, in which the machine with the new driver fails."""
    before, after = sick("i-1", [Health.HEALTHY] * 8), sick("i-1", [Health.FAILING, *[Health.HEALTHY] * 7], "580.2")

    share = health_share([[before], [before], [after], [after]])

    assert share is not None
    assert [(each.driver, each.gpus, each.ratios["healthy"]) for each in share.by_driver] == [
        ("570.1", 4.0, 1.0),
        ("580.2", 4.0, 0.875),
    ]
    assert share.ratios == {"healthy": 0.9375, "degraded": 0.0, "failing": 0.0625, "unknown": 0.0}


def test_a_silent_agents_gpus_are_not_healthy_and_a_stopped_machines_do_not_count() -> None:
    """Nobody knows what the first are; the second have no hours."""
    silent = replace(a_node("i-2", gpu_count=8), signal=NodeReport())
    stopped = replace(sick("i-3", [Health.FAILING]), state=NodeState.STOPPED)

    share = health_share([[sick("i-1", [Health.HEALTHY] * 8), silent, stopped]])

    assert share is not None
    assert (share.gpus, share.ratios["healthy"], share.ratios["unknown"]) == (16.0, 0.5, 0.5)
    assert health_share([[stopped]]) is None


def test_a_machine_without_known_gpus_has_no_share() -> None:
    """Nobody knows how many its type has, and its agent has not answered: the others' shares are as without it."""
    known, unknown = (
        sick("i-1", [Health.HEALTHY]),
        a_node("i-2", instance_type="x", gpu_count=None, signal=NodeReport()),
    )

    assert health_share([[known, unknown]]) == health_share([[known]])
    assert health_share([[unknown]]) is None
