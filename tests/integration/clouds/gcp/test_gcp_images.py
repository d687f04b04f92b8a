"""Images left behind on Google Cloud: told only where no disk and no template names them and they are old."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.gcp.world import PROJECT, GcpWorld, a_world
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project with templates."""
    with a_world(ManualClock()) as world:
        yield world


def add(world: GcpWorld, name: str, *, days: float = 400.0, **more: Any) -> str:  # noqa: ANN401  members of an image
    """An image of the project; gives its link."""
    link = world.project.link(f"global/images/{name}")
    made = world.clock.now() - timedelta(days=days)
    world.project.images.append(
        {
            "kind": "compute#image",
            "id": str(500 + len(world.project.images)),
            "name": name,
            "selfLink": link,
            "status": "READY",
            "archiveSizeBytes": "5368709120",
            "storageLocations": ["us"],
            "creationTimestamp": made.isoformat(timespec="milliseconds"),
            **more,
        }
    )
    return link


def told(world: GcpWorld) -> list[str]:
    """The names of the images among what is left."""
    return [each.name for each in world.cloud.leftovers() if each.kind is LeftoverKind.IMAGE]


def test_an_old_image_that_nothing_names_is_told(world: GcpWorld) -> None:
    """With what is stored, and where."""
    add(world, "old")
    add(world, "young", days=29)
    add(world, "pending", status="PENDING")

    assert list(world.cloud.leftovers()) == [
        Leftover(
            id="500",
            kind=LeftoverKind.IMAGE,
            region="us",
            account=PROJECT,
            provider="gcp",
            size_bytes=5 * 1024**3,
            name="old",
        )
    ]


def test_an_image_of_a_disk_or_of_a_template_is_left_alone(world: GcpWorld) -> None:
    """By either of the two hosts that Google writes in links, or by a path."""
    world.launch(MINE)
    (disk,) = world.project.disks.values()
    disk["sourceImage"] = add(world, "of-a-disk").replace("www.googleapis.com", "compute.googleapis.com")
    add(world, "of-a-template")
    template = next(iter(world.project.templates.values()))
    source = {"initializeParams": {"sourceImage": f"projects/{PROJECT}/global/images/of-a-template"}}
    template["properties"]["disks"] = [source]

    assert told(world) == []


def test_of_a_family_the_newest_is_kept(world: GcpWorld) -> None:
    """A template may name the family; an image that is deprecated is not what it gives."""
    add(world, "first", days=500, family="trainer")
    add(world, "second", days=400, family="trainer")
    add(world, "third", days=300, family="trainer", deprecated={"state": "DEPRECATED"})

    assert told(world) == ["first", "third"]
