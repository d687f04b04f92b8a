"""A fleet of which one node was looked at again is that fleet, counted from the beginning."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import CloudNotice, NoticeKind
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeState
from gpuwatch.model.looked_again import carry_facts_on, changed_since, looked_again
from gpuwatch.model.node_facts import changed_places
from gpuwatch.model.slurm import SlurmNode
from tests.support.builders.fleet import NOW, a_node

TAKEN = CloudNotice(kind=NoticeKind.SPOT_INTERRUPTION, action="terminate", deadline=NOW, seen_at=NOW)
GROUP = NodeGroup(id="g", name="g", pool="a", min_size=0, max_size=3, desired=1, region="r")


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
    assert list(changed_since(fleet.nodes, seen)) == changed_places(fleet.nodes, seen.nodes)


def test_both_nodes_of_one_id_are_looked_at_again() -> None:
    """A fleet that has two of that id gets the new one in both places."""
    twice = (a_node("i-1", State.IDLE, 600.0), a_node("i-2", State.BUSY, 60.0), a_node("i-1", State.BUSY, 60.0))
    again = a_node("i-1", State.IDLE, 700.0)

    assert looked_again(Fleet(observed_at=NOW, nodes=twice), again, (), NOW).nodes == (again, twice[1], again)


BECOMES = st.sampled_from(
    [
        lambda node: node,
        lambda node: a_node(node.id, State.BUSY, 5.0),
        lambda node: a_node(node.id, State.UNKNOWN),
        lambda node: a_node(node.id, State.STALLED),
        lambda node: a_node(node.id, enrolled=False),
        lambda node: replace(node, state=NodeState.STOPPED),
        lambda node: a_node(node.id, pool="b"),
        lambda node: a_node(f"{node.id}-new"),
        lambda node: a_node(node.id, slurm=SlurmNode(doubt="none")),
        lambda node: a_node(node.id, cloud_notice=TAKEN),
        lambda _: a_node("i-1"),
    ]
)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), BECOMES), max_size=3), min_size=1, max_size=5), st.booleans())
def test_what_is_carried_on_is_what_would_be_counted(
    rounds: list[list[tuple[int, Callable[[Node], Node]]]],
    all_asked: bool,
) -> None:
    """Round after round a few nodes become others, of two pools and with a group; now and then two have one id."""
    nodes = [a_node(f"i-{number}", pool="ab"[number % 3 == 0]) for number in range(10)]
    first = tuple(nodes)
    before = Fleet(observed_at=NOW, nodes=first, groups=(GROUP,))
    for changes in rounds:
        asked = before.rosters, before.find("i-1"), before.enrolled
        assert asked
        if all_asked:
            assert not before.in_kubernetes
            assert (before.in_slurm, before.with_notice) == (
                any(node.slurm is not None for node in nodes),
                any(node.cloud_notice is not None for node in nodes),
            )
        for place, become in changes:
            nodes[place] = become(nodes[place])
        plain = Fleet(observed_at=NOW, nodes=tuple(nodes), groups=(GROUP,))
        known, before = before, carry_facts_on(before, Fleet(observed_at=NOW, nodes=tuple(nodes), groups=(GROUP,)))

        assert before == plain
        assert list(changed_since(known.nodes, before)) == changed_places(known.nodes, before.nodes)
        assert list(changed_since(first, before)) == changed_places(first, before.nodes)
        assert before.rosters == plain.rosters
        assert [before.find(node.id) for node in nodes] == [plain.find(node.id) for node in nodes]
        assert (before.enrolled, before.in_slurm) == (plain.enrolled, plain.in_slurm)
        assert before.in_kubernetes == plain.in_kubernetes
        assert before.with_notice == plain.with_notice
        assert before.missing(["i-1", "i-0-new", "x"]) == plain.missing(["i-1", "i-0-new", "x"])


def test_a_fleet_with_few_changes_is_not_counted_again() -> None:
    """Of eight nodes one has changed: what its pool comes to is there before anybody asks."""
    nodes = [a_node(f"i-{number}") for number in range(8)]
    before = Fleet(observed_at=NOW, nodes=tuple(nodes))
    assert before.find("i-1") is not None
    assert before.rosters
    nodes[3] = a_node("i-3", State.BUSY)

    assert "rosters" in vars(carry_facts_on(before, Fleet(observed_at=NOW, nodes=tuple(nodes))))


def test_a_fleet_without_nodes_is_carried_on() -> None:
    """Nobody may have asked the one before for a node."""
    empty = Fleet(observed_at=NOW, nodes=())

    assert carry_facts_on(empty, replace(empty)).find("i-1") is None
