"""Images left behind on Alibaba Cloud: told only where nothing names them and they are old."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.state import ACCOUNT, Image
from tests.support.clouds.alibaba.world import REGION, AlibabaWorld, a_world

OLD = "2020-01-01T00:00:00Z"


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account with two templates."""
    with a_world(ManualClock()) as world:
        yield world


def add(world: AlibabaWorld, **more: object) -> None:
    """An image of the account."""
    given = {"id": "m-1", "region": REGION, "made": OLD, **more}
    world.fake.state.images["m-1"] = Image(**given)  # type: ignore[arg-type]  # fields of Image


def test_an_old_image_that_nothing_names_is_told(world: AlibabaWorld) -> None:
    """With its size and name."""
    add(world)

    assert list(world.another().leftovers()) == [
        Leftover(
            id="m-1",
            kind=LeftoverKind.IMAGE,
            region=REGION,
            account=ACCOUNT,
            provider="alibaba",
            size_bytes=40 * 1024**3,
            name="name of m-1",
        )
    ]


@pytest.mark.parametrize("more", [{"usage": "instance"}, {"shared": True}, {"made": ""}], ids=str)
def test_an_image_that_may_be_used_is_left_alone(world: AlibabaWorld, more: dict[str, object]) -> None:
    """By a machine, by another account, or of an age that nobody knows."""
    add(world, **more)

    assert list(world.another().leftovers()) == []


def test_an_image_of_this_month_is_left_alone(world: AlibabaWorld) -> None:
    """Tomorrow's template may name it."""
    add(world, made=f"{world.clock.now():%Y-%m-%dT%H:%M:%SZ}")

    assert list(world.another().leftovers()) == []
    assert world.server.count("DescribeLaunchTemplates") == 0


def test_an_image_that_any_version_of_a_template_names_is_left_alone(world: AlibabaWorld) -> None:
    """The default's is not the newest's."""
    add(world)
    template = next(each for each in world.fake.state.templates.values() if each.region == REGION)
    template.image = "m-1"
    template.types.append(template.types[0])

    assert list(world.another().leftovers()) == []
