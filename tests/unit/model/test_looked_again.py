"""A fleet of which one node was looked at again is that fleet, counted from the beginning."""

from dataclasses import replace

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.looked_again import looked_again
from tests.support.builders.fleet import NOW, a_node


@pytest.mark.parametrize(
    "again",
    [
        a_node("i-1", State.IDLE, 700.0),
        a_node("i-1", State.BUSY, 5.0),
        replace(a_node("i-1", State.IDLE, 700.0), state=NodeState.STOPPED),
        a_node("i-1", State.IDLE, 700.0, pool="other"),
        a_node("i-1", State.IDLE, 700.0, enrolled=False),
        a_node("i-9", State.IDLE, 700.0),
    ],
)
def test_its_pools_come_to_what_they_would_if_counted_again(again: Node) -> None:
    """Whatever the node has become: another state, another pool, not enrolled, or one that the fleet lacks."""
    fleet = Fleet(observed_at=NOW, nodes=(a_node("i-1", State.IDLE, 600.0), a_node("i-2", State.BUSY, 60.0)))
    seen = looked_again(fleet, again, fleet.groups, NOW)
    plain = Fleet(observed_at=NOW, nodes=tuple(again if each.id == again.id else each for each in fleet.nodes))

    assert seen == plain
    assert seen.rosters == plain.rosters
    assert seen.find(again.id) == plain.find(again.id)
