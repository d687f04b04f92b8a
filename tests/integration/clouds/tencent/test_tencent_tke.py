"""What TKE says of a machine is remembered by lists for ten minutes, and asked again right before a change."""

from collections.abc import Iterator

import pytest

from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.tencent.world import TencentWorld, a_world
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def test_a_machine_that_enters_a_cluster_between_two_questions_is_not_touched(world: TencentWorld) -> None:
    """Lists remember for ten minutes that it was in none; the last question before each change asks TKE."""
    node_id = world.launch(MINE)
    world.cloud.nodes()
    world.machine(node_id).cluster = "cls-1"
    world.clock.advance(599)

    assert [node.managed_by for node in world.cloud.nodes()] == [None]
    before = world.cloud.node(node_id)
    assert before is not None
    assert before.managed_by == "TKE cluster cls-1"
    assert [node.managed_by for node in world.cloud.nodes()] == ["TKE cluster cls-1"], "what was heard is remembered"

    world.machine(node_id).cluster = ""
    world.clock.advance(599)
    assert [node.managed_by for node in world.cloud.nodes()] == ["TKE cluster cls-1"], "it is left alone for longer"
    world.clock.advance(2)
    assert [node.managed_by for node in world.cloud.nodes()] == [None]


def test_lists_ask_tke_about_new_machines_and_about_each_one_every_ten_minutes(world: TencentWorld) -> None:
    """Ten questions for a thousand machines in each round are more than all others."""
    first = world.launch(MINE)
    world.cloud.nodes()
    second = world.launch(MINE)
    for _ in range(9):
        world.cloud.nodes()
        world.clock.advance(60)
    world.cloud.nodes()
    asked = [each["InstanceIds"] for each in world.sent("DescribeExistedInstances")]
    assert asked == [[first], [second]]

    world.clock.advance(60)
    world.cloud.nodes()
    asked = [each["InstanceIds"] for each in world.sent("DescribeExistedInstances")]
    assert asked[2:] == [sorted([first, second])]


def test_no_right_to_ask_tke_is_not_remembered(world: TencentWorld) -> None:
    """Once the right is there, the next list has its word; a machine that was asked about before keeps that answer."""
    node_id = world.launch(MINE)
    world.fake.refusals["DescribeExistedInstances"] = ["UnauthorizedOperation"]
    (doubt,) = (node.managed_by for node in world.cloud.nodes())

    assert "is not allowed" in str(doubt)
    assert world.shown(node_id).managed_by is None
