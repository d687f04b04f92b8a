"""Images left behind on Tencent Cloud: told only where nothing names them and they are old."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import LeftoverKind
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.tencent.world import REGION, TencentWorld, a_world
from tests.support.fakes.cloud_worlds import MINE

OLD, USED = "2020-01-01T00:00:00Z", "img-8toqc6s3"  # the latter is what the fake's machines and templates have


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account with templates."""
    with a_world(ManualClock()) as world:
        yield world


def told(world: TencentWorld) -> list[str]:
    """The images among what is left."""
    return [each.id for each in world.cloud.leftovers() if each.kind is LeftoverKind.IMAGE]


def test_an_old_image_that_nothing_names_is_told(world: TencentWorld) -> None:
    """With its size; the image of templates stays."""
    world.fake.state.images |= {"img-1": (REGION, OLD), USED: (REGION, OLD), "img-3": ("ap-beijing", OLD)}

    (found,) = [each for each in world.cloud.leftovers() if each.kind is LeftoverKind.IMAGE]

    assert (found.id, found.region, found.size_bytes, found.provider) == ("img-1", REGION, 50 * 1024**3, "tencent")


def test_an_image_of_a_machine_is_left_alone(world: TencentWorld) -> None:
    """Of whatever type."""
    world.fake.state.templates.clear()
    world.fake.state.images[USED] = (REGION, OLD)
    assert told(world) == [USED]

    world.launch(MINE, gpus=False)

    assert told(world) == []


def test_an_image_of_this_month_is_left_alone(world: TencentWorld) -> None:
    """Tomorrow's template may name it; nothing else is asked then."""
    world.fake.state.images["img-1"] = (REGION, f"{world.clock.now():%Y-%m-%dT%H:%M:%SZ}")

    assert told(world) == []
    assert world.sent("DescribeLaunchTemplates") == []
