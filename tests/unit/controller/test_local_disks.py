"""controller: a machine's local disks are asked about until the last moment."""

from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.guard import Limits
from gpuwatch.model.activity import LocalDisks
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import RULES, Desk, a_node, a_verdict

LIMITS = Limits(max_stops_per_hour_ratio=1.0)


def with_disks(local_disks: LocalDisks | None) -> Node:
    """An idle machine of a type with instance store."""
    verdict = replace(a_verdict(), local_disks=local_disks)
    return a_node("i-1", instance_store=True, signal=NodeReport(verdict=verdict))


def a_desk(local_disks: LocalDisks | None) -> Desk:
    """A controller that would stop it soon."""
    desk = Desk(limits=LIMITS)
    desk.fleet.put(with_disks(local_disks))
    return desk


@pytest.mark.parametrize(
    ("local_disks", "stops"),
    [(LocalDisks.NONE, True), (LocalDisks.UNUSED, True), (LocalDisks.USED, False), (None, False)],
)
def test_a_machine_goes_only_where_nothing_is_lost(local_disks: LocalDisks | None, stops: bool) -> None:
    """Disks that nobody uses hold nothing back; used ones do, and so does an agent that does not know."""
    desk = a_desk(local_disks)
    for _ in range(20):
        desk.round()

    assert desk.fleet.stops() == (["i-1"] if stops else [])


@pytest.mark.parametrize("later", [LocalDisks.USED, None])
def test_a_disk_formatted_since_the_round_began_vetoes(later: LocalDisks | None) -> None:
    """The last confirmation looks at the disks, too: what it says of them counts, and not what the round saw."""
    desk = a_desk(LocalDisks.UNUSED)
    for _ in range(10):
        desk.round()
    assert desk.fleet.stops() == []

    def formatted(call: str, node_id: str) -> CloudError | None:
        if call == "node" and node_id == "i-1":  # the first question of a confirmation
            now = desk.fleet.nodes_["i-1"].signal.verdict
            assert now is not None
            desk.fleet.put(
                replace(desk.fleet.nodes_["i-1"], signal=NodeReport(verdict=replace(now, local_disks=later)))
            )
        return None

    desk.fleet.fault = formatted
    done = desk.round()

    assert [(act.review.step.node_id, act.outcome.status) for act in done.acts] == [("i-1", "cancelled")]
    assert "local disks" in done.acts[0].outcome.detail
    assert desk.fleet.stops() == []


def test_the_default_asks() -> None:
    """Nobody has decided: used disks are kept, and the doctor says so."""
    assert IdleRules().instance_store == "ask"
    assert RULES.idle.instance_store == "ask"
