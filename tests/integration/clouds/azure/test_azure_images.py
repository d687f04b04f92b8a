"""Images left behind on Azure: told only where no machine, scale set or template names them and they are old."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import LeftoverKind
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure.world import COMPUTE, REGION, AzureWorld, an_azure
from tests.support.fakes.cloud_worlds import MINE

OLD = "2020-01-01T00:00:00.1234567Z"


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def add(world: AzureWorld, name: str, made: str = OLD) -> str:
    """A managed image; gives its path."""
    path = f"{COMPUTE}/images/{name}"
    disk = {"osType": "Linux", "osState": "Generalized", "diskSizeGB": 30}
    image = {"id": path, "name": name, "location": REGION, "properties": {"storageProfile": {"osDisk": disk}}}
    world.state.images[path.lower()] = image
    world.state.made[path.lower()] = made
    return path


def told(world: AzureWorld) -> list[str]:
    """The names of the images among what is left."""
    return [each.name for each in world.cloud.leftovers() if each.kind is LeftoverKind.IMAGE]


def test_an_old_image_that_nothing_names_is_told(world: AzureWorld) -> None:
    """With the size of what it makes."""
    path = add(world, "old")
    add(world, "young", made=f"{world.clock.now():%Y-%m-%dT%H:%M:%SZ}")
    add(world, "ageless", made="")

    (found,) = [each for each in world.cloud.leftovers() if each.kind is LeftoverKind.IMAGE]

    assert (found.id, found.name, found.size_bytes, found.provider) == (path, "old", 30 * 1024**3, "azure")


def test_an_image_of_a_machine_is_left_alone(world: AzureWorld) -> None:
    """In whatever letters its path is written."""
    path = add(world, "used")
    node_id = world.launch(MINE)
    assert told(world) == ["used"]

    vm = next(vm for vm in world.state.vms.values() if vm.vm_id == node_id)
    vm.properties["storageProfile"]["imageReference"] = {"id": path.upper()}

    assert told(world) == []
