"""What every cloud says of the disks of machines that are in use."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import LeftoverKind
from gpuwatch.clouds.disks import HasDisks
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cloud_worlds import MINE, WORLDS, World, a_world


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each cloud in turn."""
    with a_world(request.param) as world:
        yield world


def test_disks_in_use_are_those_of_machines_that_are_not_stopped(world: World) -> None:
    """disks() tells them with type, size and machine; each disk is either there or in leftovers()."""
    world.add_volume()
    stopped, running = world.launch(MINE), world.launch(MINE)
    world.cloud.stop(stopped, "key", permit=a_permit())
    world.settle(stopped)
    assert isinstance(world.cloud, HasDisks)

    found, left = world.cloud.disks(), world.cloud.leftovers()

    assert {(each.node_id, each.kind) for each in found} == {(running, LeftoverKind.RUNNING_VOLUME)}
    assert all(each.type and each.size_bytes and each.region == world.words.region for each in found)
    assert not {each.id for each in found} & {each.id for each in left}
    assert [each.id for each in found] == sorted(each.id for each in found)
    assert {each.provider for each in found} == {world.words.provider}


def test_without_a_machine_no_disk_is_in_use(world: World) -> None:
    """One that nothing is attached to is left over."""
    world.add_volume()
    assert isinstance(world.cloud, HasDisks)

    assert world.cloud.disks() == ()
