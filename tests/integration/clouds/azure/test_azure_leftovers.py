"""What goes on costing money without a running machine: disks, addresses, snapshots."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpuwatch.clouds import LeftoverKind
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.azure.world import (
    COMPUTE,
    GIB,
    NETWORK,
    REGION,
    SUB,
    AzureWorld,
    a_disk,
    an_azure,
    an_interface,
)
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def add_address(world: AzureWorld, name: str, *, interface: str | None) -> str:
    """A public address, with what holds it."""
    path = f"{NETWORK}/publicIPAddresses/{name}"
    properties: dict[str, object] = {"publicIPAllocationMethod": "Static", "ipAddress": "203.0.113.1"}
    if interface is not None:
        properties["ipConfiguration"] = {"id": f"{interface}/ipConfigurations/ip"}
    world.state.addresses[path.lower()] = {"id": path, "name": name, "location": REGION, "properties": properties}
    return path


MADE = {"timeCreated": "2026-01-02T03:04:05.1234567+00:00"}


def add_snapshot(world: AzureWorld, name: str, source: str, region: str = REGION) -> str:
    """A snapshot of a disk."""
    path = f"{COMPUTE}/snapshots/{name}"
    world.state.snapshots[path.lower()] = {
        "id": path,
        "name": name,
        "location": region,
        "sku": {"name": "Standard_ZRS"},
        "properties": {"creationData": {"createOption": "Copy", "sourceResourceId": source}, "diskSizeGB": 8, **MADE},
    }
    return path


def told(world: AzureWorld) -> dict[LeftoverKind, list[str]]:
    """The names by their kinds."""
    found: dict[LeftoverKind, list[str]] = {}
    for each in world.cloud.leftovers():
        found.setdefault(each.kind, []).append(each.name)
    return found


def test_addresses_of_running_machines_are_in_use_and_others_are_not(world: AzureWorld) -> None:
    """Held by nothing, by an interface whose machine is gone, by a stopped machine; a running one's is left out."""
    running, stopped = world.add({**MINE, "Name": "on"}), world.add({**MINE, "Name": "off"})
    nic = f"{NETWORK}/networkInterfaces/lost-nic"
    world.state.interfaces[nic.lower()] = an_interface(nic, REGION, machine=None)
    add_address(world, "free", interface=None)
    add_address(world, "orphan", interface=nic)
    add_address(world, "used", interface=f"{NETWORK}/networkInterfaces/on-nic")
    add_address(world, "kept", interface=f"{NETWORK}/networkInterfaces/off-nic".upper())
    world.cloud.stop(stopped.vm_id, "key", permit=a_permit())
    world.settle(stopped.vm_id)

    assert told(world) == {
        LeftoverKind.UNUSED_ADDRESS: ["free", "orphan"],
        LeftoverKind.STOPPED_ADDRESS: ["kept"],
        LeftoverKind.STOPPED_VOLUME: ["off_OsDisk"],
    }
    assert {each.node_id for each in world.cloud.leftovers() if each.node_id} == {stopped.vm_id}
    assert running.power == "running"


def test_a_disk_is_told_with_what_its_price_depends_on(world: AzureWorld) -> None:
    """Type, size, operations and throughput a second."""
    path = world.add_volume()

    (disk,) = world.cloud.leftovers()

    assert (disk.id, disk.type, disk.size_bytes, disk.account) == (path, "Premium_LRS", 8 * GIB, SUB)
    assert (disk.iops, disk.throughput_bytes_per_second) == (120, 25_000_000)


def test_a_snapshot_is_left_over_once_its_disk_is_gone(world: AzureWorld) -> None:
    """One of a disk that is there is somebody's backup; one of something else says nothing of a disk."""
    there = f"{COMPUTE}/disks/there"
    world.state.disks[there.lower()] = a_disk(there, REGION, owner=f"{COMPUTE}/virtualMachines/x")
    add_snapshot(world, "backup", there)
    add_snapshot(world, "copy", f"{COMPUTE}/snapshots/backup")
    add_snapshot(world, "lost", f"{COMPUTE}/disks/gone")

    assert told(world) == {LeftoverKind.SNAPSHOT: ["lost"]}
    assert [each.made for each in world.cloud.leftovers()] == [datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)]


def test_what_a_deleted_machine_leaves_behind_is_told(world: AzureWorld) -> None:
    """Azure keeps the disks of a machine that was not made to take them along."""
    vm = world.add({**MINE, "Name": "gpu"})

    world.cloud.terminate(vm.vm_id, "key", permit=a_permit())
    world.settle(vm.vm_id)

    assert told(world) == {LeftoverKind.UNATTACHED_VOLUME: ["gpu_OsDisk"]}


def test_other_regions_leftovers_are_not_ours(world: AzureWorld) -> None:
    """As their machines are not."""
    far = f"{COMPUTE}/disks/far"
    world.state.disks[far.lower()] = a_disk(far, "westeurope")
    add_snapshot(world, "far", f"{COMPUTE}/disks/gone", region="westeurope")
    world.cloud = world.connect(regions=("eastus",))

    assert told(world) == {}
