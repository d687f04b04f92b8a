"""Snapshots left behind on Tencent Cloud: told where their disk is gone and no image rests on them."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpuwatch.clouds import CloudUnavailableError, Leftover, LeftoverKind
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.tencent.world import REGION, TencentWorld, a_world
from tests.support.fakes.cloud_worlds import MINE

AN_IMAGE = {"ImageId": "img-1", "ImageName": "base"}


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def left_over(world: TencentWorld) -> list[Leftover]:
    """The snapshots among what is left."""
    return [each for each in world.cloud.leftovers() if each.kind is LeftoverKind.SNAPSHOT]


def test_a_snapshot_of_a_disk_that_is_gone_is_told_with_its_age(world: TencentWorld) -> None:
    """The size is that of the disk; CBS writes the time of Beijing."""
    world.fake.state.snapshots["snap-1"] = (REGION, {"SnapshotName": "scratch"})

    (found,) = left_over(world)

    assert (found.id, found.name, found.size_bytes, found.provider) == ("snap-1", "scratch", 50 * 1024**3, "tencent")
    assert found.made == datetime(2026, 1, 1, 18, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "more",
    [{"Images": [AN_IMAGE], "ImageCount": 1}, {"CopyFromRemote": True}, {"SnapshotType": "SHARED_SNAPSHOT"}],
    ids=["an image rests on it", "a copy from another region", "another account's"],
)
def test_a_snapshot_that_may_be_in_use_is_left_out(world: TencentWorld, more: dict[str, object]) -> None:
    """Nobody can tell of which disk a copy is."""
    world.fake.state.snapshots["snap-1"] = (REGION, more)

    assert left_over(world) == []


def test_a_snapshot_of_a_disk_that_is_there_is_somebodys_backup(world: TencentWorld) -> None:
    """Of a machine that runs, and of none."""
    world.launch(MINE)
    world.add_volume()
    for number, disk in enumerate(world.fake.state.disks):
        world.fake.state.snapshots[f"snap-{number}"] = (REGION, {"DiskId": disk})

    assert left_over(world) == []


def test_an_answer_that_breaks_off_is_no_empty_list(world: TencentWorld) -> None:
    """A gateway's page."""
    world.fake.state.snapshots["snap-1"] = (REGION, {})
    world.server.plan.strike(Fault.GATEWAY, when(operation="DescribeSnapshots"), times=None)

    with pytest.raises(CloudUnavailableError, match="DescribeSnapshots"):
        left_over(world)
