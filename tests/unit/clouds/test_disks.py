"""Disks in use, and the times that clouds write."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.disks import HasDisks, by_id, in_use, of_machines
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import a_node
from tests.support.fakes.several_clouds import Clouds, machine


@pytest.mark.parametrize("state", NodeState)
def test_only_a_stopped_machines_disks_are_not_in_use(state: NodeState) -> None:
    """In doubt a disk is in use: it is not left over."""
    assert in_use([replace(a_node("i-1"), state=state)]) == (frozenset() if state is NodeState.STOPPED else {"i-1"})


@given(st.lists(st.tuples(st.text(min_size=1), st.none() | st.text(min_size=1))))
def test_what_a_machine_has_is_in_use_and_nothing_else(shown: list[tuple[str, str | None]]) -> None:
    """In the order of the ids."""
    disks = [
        Leftover(id=name, kind=LeftoverKind.UNATTACHED_VOLUME, region="r", node_id=node_id) for name, node_id in shown
    ]
    found = by_id(of_machines(disks))

    assert [each.id for each in found] == sorted(name for name, node_id in shown if node_id)
    assert {each.kind for each in found} <= {LeftoverKind.RUNNING_VOLUME}


def test_disks_of_several_clouds_have_their_clouds_names() -> None:
    """As what is left over has."""
    clouds = Clouds("bj", "us")
    for name, each in clouds.items():
        each.add(machine(f"i-{name}"))
    assert isinstance(clouds.all, HasDisks)

    assert [(each.node_id, each.cloud) for each in clouds.all.disks()] == [("i-bj", "bj"), ("i-us", "us")]
