"""An empty list of Alibaba Cloud is believed only where the right to it is proven."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import AuthFailedError, LeftoverKind
from gpuwatch.clouds.silence import Listed
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.world import AlibabaWorld, a_world
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def test_an_empty_list_without_the_right_to_it_is_no_empty_region(world: AlibabaWorld) -> None:
    """ECS answered so with HTTP 200: the machines stay as they were seen, and no machine is proved gone by it."""
    node_id = world.launch(MINE)
    (seen,) = world.cloud.nodes()
    world.fake.hidden.add("ecs:DescribeInstances")

    with pytest.raises(AuthFailedError, match=r"Forbidden\.RAM"):
        world.cloud.nodes()
    with pytest.raises(AuthFailedError):
        world.another().nodes()
    assert isinstance(world.cloud, Listed)
    with pytest.raises(AuthFailedError):
        world.cloud.lacks(seen)

    world.fake.hidden.clear()
    assert [(node.id, node.state) for node in world.cloud.nodes()] == [(node_id, NodeState.RUNNING)]


def test_a_list_that_stays_empty_is_proven_once_an_hour(world: AlibabaWorld) -> None:
    """An account without machines costs no second call in each round."""
    for _ in range(5):
        assert world.cloud.nodes() == ()
        world.clock.advance(60)
    assert world.server.count("DescribeInstances") == 6

    world.clock.advance(3600)
    world.cloud.nodes()
    assert world.server.count("DescribeInstances") == 8


@pytest.mark.parametrize("call", ["ecs:DescribeDisks", "ecs:DescribeSnapshots", "ecs:DescribeImages"])
def test_nothing_left_over_is_said_only_with_the_right_to_look(world: AlibabaWorld, call: str) -> None:
    """Disks, snapshots and images are listed in the same way."""
    world.launch(MINE)
    assert all(each.kind is not LeftoverKind.UNATTACHED_VOLUME for each in world.cloud.leftovers())
    world.fake.hidden.add(call)

    with pytest.raises(AuthFailedError):
        world.another().leftovers()
