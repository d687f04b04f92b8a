"""What the provider tells of Azure's machines, and which machine it acts on, where Azure is not like other clouds."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.clouds import CloudError, NotFoundError, ProtectedError
from gpuwatch.clouds.azure.settings import SubscriptionSettings
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.azure import sizes
from tests.support.clouds.azure.world import COMPUTE, OTHER_SUB, ROOT, SUB, AzureWorld, an_azure
from tests.support.clouds.faults import Fault, when
from tests.support.fakes.cloud_worlds import MINE

HOST = {"id": f"{COMPUTE}/hostGroups/hosts/hosts/one"}
RESERVED = {"capacityReservationGroup": {"id": f"{COMPUTE}/capacityReservationGroups/ours"}}
EPHEMERAL = {"osDisk": {"createOption": "FromImage", "diffDiskSettings": {"option": "Local"}}}


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def shown(world: AzureWorld) -> Node:
    """The only machine; list and single answer agree."""
    (node,) = world.cloud.nodes()
    assert world.cloud.node(node.id) == node
    return node


# What a stop is


def test_a_stop_deallocates_and_never_powers_off(world: AzureWorld) -> None:
    """The one ends the bill; the other leaves a machine that is off and billed."""
    node_id = world.launch(MINE)

    world.cloud.stop(node_id, "key", permit=a_permit())
    world.settle(node_id)

    assert [entry.asked.operation for entry in world.server.changes()] == ["VirtualMachines_Deallocate"]
    assert (world.vm(node_id).power, shown(world).state) == ("deallocated", NodeState.STOPPED)
    assert shown(world).still_billed is None


@pytest.mark.parametrize("power", ["stopped", "stopping"])
def test_a_machine_that_was_powered_off_is_still_billed(world: AzureWorld, power: str) -> None:
    """Somebody's shutdown within the machine ends nothing of its bill; a stop by us then does."""
    vm = world.add(MINE)
    vm.power = power

    assert shown(world).still_billed == "it was powered off and not deallocated: Azure goes on billing it"
    world.cloud.stop(vm.vm_id, "key", permit=a_permit())
    world.settle(vm.vm_id)

    assert (shown(world).state, shown(world).still_billed) == (NodeState.STOPPED, None)


@pytest.mark.parametrize(
    ("properties", "capacity", "billed"),
    [
        ({}, CapacityType.ON_DEMAND, None),
        ({"priority": "Regular"}, CapacityType.ON_DEMAND, None),
        ({"priority": "Spot", "evictionPolicy": "Deallocate"}, CapacityType.SPOT, None),
        ({"host": HOST}, CapacityType.DEDICATED_HOST, "dedicated host"),
        ({"hostGroup": HOST}, CapacityType.DEDICATED_HOST, "dedicated host"),
        ({"capacityReservation": RESERVED}, CapacityType.RESERVED, "capacity reservation"),
    ],
    ids=["plain", "regular", "spot", "host", "host group", "reservation"],
)
def test_what_is_paid_for_anyway_is_told(
    world: AzureWorld, properties: dict[str, Any], capacity: CapacityType, billed: str | None
) -> None:
    """A host and a reservation cost the same whether the machine runs or not."""
    world.add(MINE, **properties)
    node = shown(world)

    assert node.capacity_type is capacity
    assert (node.still_billed is None) if billed is None else billed in (node.still_billed or "")


def test_a_machine_with_an_ephemeral_system_disk_cannot_be_stopped(world: AzureWorld) -> None:
    """Azure refuses to deallocate it; its data would be gone."""
    world.add(MINE, storageProfile=EPHEMERAL)
    node = shown(world)

    assert (node.cannot_stop, node.instance_store) == (
        "its system disk is ephemeral, and Azure deallocates no such machine",
        True,
    )
    with pytest.raises(CloudError, match="ephemeral") as caught:
        world.cloud.stop(node.id, "key", permit=a_permit())
    assert caught.value.code == "OperationNotAllowed"


@pytest.mark.parametrize(("size", "disks"), [(sizes.GPU, False), (sizes.LARGER, True), (sizes.PART, True)])
def test_a_temporary_disk_is_lost_at_a_stop(world: AzureWorld, size: str, disks: bool) -> None:
    """The size says whether it has one."""
    world.add(MINE, size=size)

    assert (shown(world).instance_store, shown(world).gpu_count) == (disks, 1)


# Locks


@pytest.mark.parametrize("scope", [f"/subscriptions/{SUB}", ROOT.removesuffix("/providers"), "machine"])
@pytest.mark.parametrize("level", ["CanNotDelete", "ReadOnly"])
def test_a_lock_is_told_before_it_refuses(world: AzureWorld, level: str, scope: str) -> None:
    """A lock holds for what is below it: CanNotDelete against an end, ReadOnly against a stop too."""
    vm = world.add(MINE)
    scope = vm.path if scope == "machine" else scope
    path = f"{scope}/providers/Microsoft.Authorization/locks/keep"
    world.state.locks[path.lower()] = {"id": path, "name": "keep", "properties": {"level": level}}

    node = shown(world)

    assert node.cannot_terminate == f"the lock keep ({level}) forbids it"
    assert (node.cannot_stop is not None) == (level == "ReadOnly")
    with pytest.raises(ProtectedError) as caught:
        world.cloud.terminate(vm.vm_id, "key", permit=a_permit())
    assert caught.value.code == "ScopeLocked"
    assert vm.power == "running"


def test_without_the_right_to_see_locks_the_fleet_is_seen_all_the_same(world: AzureWorld) -> None:
    """Azure refuses by itself what a lock forbids."""
    world.launch(MINE)
    world.fake.refused["Locks_List"] = (403, "AuthorizationFailed", "no")

    assert [node.cannot_terminate for node in world.cloud.nodes()] == [None]


# Which machine


def test_a_machine_that_took_anothers_name_is_never_touched(world: AzureWorld) -> None:
    """Paths can be used again: what was decided about one machine is not done to its successor."""
    old = world.add({**MINE, "Name": "gpu"})
    world.cloud.nodes()
    world.state.vms.clear()
    new = world.add({**MINE, "Name": "gpu"})

    for ask in (world.cloud.stop, world.cloud.terminate):
        with pytest.raises(NotFoundError):
            ask(old.vm_id, "key", permit=a_permit())

    assert (new.power, world.server.changes()) == ("running", [])


def test_a_machine_that_was_moved_is_found_again(world: AzureWorld) -> None:
    """A move to another resource group keeps the id and changes the path: it is neither gone nor lost."""
    vm = world.add(MINE)
    world.cloud.nodes()
    world.clock.advance(7200)
    del world.state.vms[vm.path.lower()]
    vm.path = vm.path.replace("fleet-rg", "other-rg")
    world.state.vms[vm.path.lower()] = vm

    assert world.cloud.node(vm.vm_id).state is NodeState.RUNNING  # type: ignore[union-attr]
    world.cloud.stop(vm.vm_id, "key", permit=a_permit())

    assert vm.power == "deallocating"


def test_a_new_process_finds_a_machine_by_its_id_alone(world: AzureWorld) -> None:
    """After a restart no path is known."""
    vm = world.add(MINE)

    world.connect().stop(vm.vm_id, "key", permit=a_permit())

    assert vm.power == "deallocating"


def test_what_is_nowhere_is_gone_only_after_a_while(world: AzureWorld) -> None:
    """A machine that vanishes without having been seen to go may only be late in an answer."""
    vm = world.add(MINE)
    world.cloud.nodes()
    world.state.vms.clear()

    with pytest.raises(NotFoundError):
        world.cloud.node(vm.vm_id)
    assert [node.state for node in world.cloud.nodes()] == [NodeState.UNKNOWN]

    world.clock.advance(900)

    assert world.cloud.node(vm.vm_id).state is NodeState.TERMINATED  # type: ignore[union-attr]
    assert list(world.cloud.nodes()) == []


def test_tags_are_never_those_of_the_list_of_states(world: AzureWorld) -> None:
    """The list of states has no tags and writes resource groups in capitals; joined, nothing is lost."""
    ids = {world.launch({**MINE, "Name": name}) for name in ("a", "b", "c")}

    nodes = world.cloud.nodes()

    assert {node.id for node in nodes} == ids
    assert all(node.enrolled and node.state is NodeState.RUNNING for node in nodes)


def test_a_machine_that_one_list_leaves_out_is_asked_for_by_itself(world: AzureWorld) -> None:
    """A lost page of one list takes neither its tags nor its state away."""
    ids = [world.launch(MINE) for _ in range(5)]
    world.server.plan.strike(Fault.LOST_TOKEN, when(operation="VirtualMachines_ListAll"))

    nodes = world.cloud.nodes()

    assert [node.id for node in nodes] == sorted(ids)
    assert all(node.enrolled and node.state is NodeState.RUNNING for node in nodes)
    assert world.server.count("VirtualMachines_Get") == 3


def test_a_machine_is_placed_by_its_network_interface(world: AzureWorld) -> None:
    """The private address of the primary interface, and zone and region."""
    world.launch(MINE)
    node = shown(world)

    assert (node.address, node.zone, node.account) == ("10.0.0.5", "eastus-1", SUB)


def test_a_size_that_azure_does_not_describe_is_left_alone(world: AzureWorld) -> None:
    """With the fleet's tag it counts with an unknown number of GPUs; without it, it is no node."""
    world.add(MINE, size="Standard_NC999_v9")
    world.add({}, size="Standard_NC999_v9")

    assert shown(world).gpu_count is None


@pytest.mark.parametrize("spelling", ["West US 3", "WestUS3", "westus3"])
@pytest.mark.parametrize("named", ["West US 3", "westus3"])
def test_a_region_is_the_same_in_every_spelling(world: AzureWorld, spelling: str, named: str) -> None:
    """In Azure's answers and in the settings; prices and launches know one of them."""
    world.add(MINE, region=spelling)
    (node,) = world.connect(regions=(named,)).nodes()

    assert node.region == "westus3"


def test_only_the_regions_of_the_settings_are_looked_at(world: AzureWorld) -> None:
    """`all` and none are all regions; others are told by elsewhere(), with other subscriptions."""
    here, there = world.add(MINE), world.add(MINE, region="westeurope")
    far = world.add({}, sub=OTHER_SUB)
    world.state.subscriptions[OTHER_SUB] = "Sandbox"
    cloud = world.connect(regions=("eastus",))

    assert [node.id for node in cloud.nodes()] == [here.vm_id]
    for regions in ((), ("all",)):
        assert {node.id for node in world.connect(regions=regions).nodes()} == {here.vm_id, there.vm_id}
    assert {place.where: place.machines for place in cloud.elsewhere()} == {
        "westeurope of subscription main": (f"{there.vm_id} ({sizes.GPU})",),
        "eastus of subscription Sandbox": (f"{far.vm_id} ({sizes.GPU})",),
    }


def test_several_subscriptions_are_one_fleet(world: AzureWorld) -> None:
    """Each call goes to the machine's own."""
    near, far = world.add(MINE), world.add(MINE, sub=OTHER_SUB)
    both = {"main": SubscriptionSettings(id=SUB), "other": SubscriptionSettings(id=OTHER_SUB)}
    cloud = world.connect(subscriptions=both)

    assert {node.id: node.account for node in cloud.nodes()} == {near.vm_id: SUB, far.vm_id: OTHER_SUB}
    cloud.stop(far.vm_id, "key", permit=a_permit())

    assert (near.power, far.power) == ("running", "deallocating")


# When it was started


def test_a_new_tag_is_no_start(world: AzureWorld) -> None:
    """Azure tells the time of the last change alone; as long as the machine stays on, that is no start."""
    vm = world.add(MINE)
    before = shown(world).launched_at
    world.clock.advance(3600)
    vm.changed_at = world.clock.now()

    assert shown(world).launched_at == before


def test_a_start_between_two_looks_is_a_start(world: AzureWorld) -> None:
    """A machine that was seen off and is on again was started since, at the time of its last change."""
    vm = world.add(MINE)
    vm.power = "deallocated"
    world.cloud.nodes()
    world.clock.advance(3600)
    vm.power, vm.changed_at = "running", world.clock.now() - timedelta(seconds=60)

    assert shown(world).launched_at == vm.changed_at


NO_PLACE = ("AllocationFailed", "Allocation failed. We do not have sufficient capacity.")


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("code", ["AllocationFailed", "SkuNotAvailable", "OperationNotAllowed", "QuotaExceeded"])
def test_a_start_that_failed_makes_no_machine_gone_where_azure_leaves_its_power_out(
    world: AzureWorld, code: str, *, uniform: bool
) -> None:
    """The words of its last failure stand there for weeks; it is off, or runs, and has its disks."""
    if uniform:
        world.add_scale_set("gpus", MINE, size=1)
    else:
        world.add(MINE)
    (node,) = world.cloud.nodes()
    vm = world.vm(node.id)
    vm.provisioning, vm.failure, vm.changed_at = "Failed", (code, "quota, or no place"), world.clock.now()
    shown = []
    for power in ("deallocated", None, "running", None):
        vm.power = power
        for cloud in (world.cloud, world.connect()):
            shown.append([each.state for each in cloud.nodes()])
            cloud.node(node.id)

    assert shown == [
        *2 * [[NodeState.STOPPED]],
        *2 * [[NodeState.UNKNOWN]],
        *2 * [[NodeState.RUNNING]],
        *2 * [[NodeState.UNKNOWN]],
    ]


def test_a_failed_member_with_a_disk_is_no_empty_place(world: AzureWorld) -> None:
    """A scale set that is to be smaller gives it back by its name: with its data."""
    group_id = world.add_group("gpus", MINE, size=2)
    for vm in world.state.vms.values():
        if vm.member is not None:
            vm.power, vm.provisioning, vm.failure = None, "Failed", NO_PLACE

    assert not world.cloud.group(group_id).gives_back_places
    with pytest.raises(CloudError):
        world.cloud.shrink(group_id, 1, "key")
    assert len([vm for vm in world.state.vms.values() if vm.then[0] != "gone" and vm.member is not None]) == 2


def test_what_was_on_once_was_made_though_it_shows_no_disk(world: AzureWorld) -> None:
    """A machine with an ephemeral system disk has none; a new size that was not to be had fails within its hour."""
    node_id = world.cloud.launch({"template": "gpu-node"}, "key")
    world.settle(node_id)
    assert [node.state for node in world.cloud.nodes()] == [NodeState.RUNNING]
    vm = world.vm(node_id)
    del vm.properties["storageProfile"]["osDisk"]["managedDisk"]
    vm.power, vm.provisioning, vm.failure = None, "Failed", NO_PLACE

    assert [node.state for node in world.cloud.nodes()] == [NodeState.UNKNOWN]


def test_a_launch_that_found_no_place_is_gone(world: AzureWorld) -> None:
    """What we have launched, and has never been anywhere."""
    node_id = world.cloud.launch({"template": "gpu-node"}, "key")
    world.never_made(node_id)

    assert world.cloud.nodes() == ()
    node = world.connect().node(node_id)
    assert node is not None
    assert node.state is NodeState.TERMINATED
