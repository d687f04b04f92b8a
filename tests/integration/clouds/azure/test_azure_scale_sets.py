"""Scale sets of both kinds: whose their members are, how one of them goes, what can be asked of which kind."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.azure import sizes
from tests.support.clouds.azure.world import AzureWorld, an_azure
from tests.support.fakes.cloud_worlds import MINE

MODES = ("Uniform", "Flexible")


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


@pytest.mark.parametrize("mode", MODES)
def test_members_of_both_kinds_are_machines_of_their_group(world: AzureWorld, mode: str) -> None:
    """Flexible members are in the list of machines, Uniform ones in a list of their own; each comes once."""
    group_id = world.add_scale_set("train", MINE, size=3, mode=mode).lower()

    nodes = world.cloud.nodes()

    assert {(node.group, node.managed_by, node.enrolled, node.gpu_count) for node in nodes} == {
        (group_id, None, True, 1)
    }
    (group,) = world.cloud.groups()
    assert (group.id, group.desired, group.node_ids) == (group_id, 3, tuple(node.id for node in nodes))
    assert world.cloud.group(group_id) == group
    assert [world.cloud.node(node.id) for node in nodes] == list(nodes)


@pytest.mark.parametrize("mode", MODES)
def test_one_member_goes_by_name_with_its_place(world: AzureWorld, mode: str) -> None:
    """The scale set is told which one, and wants one less; the others stay."""
    group_id = world.add_scale_set("train", MINE, size=3, mode=mode).lower()
    gone, *others = (node.id for node in world.cloud.nodes())

    world.cloud.terminate(gone, "key", group=group_id, permit=a_permit())
    world.settle(gone)

    assert {node.id for node in world.cloud.nodes()} == set(others)
    assert world.cloud.group(group_id).desired == 2
    assert [entry.asked.operation for entry in world.server.changes()] == ["Scale_DeleteInstances"]


@pytest.mark.parametrize("mode", MODES)
def test_a_member_stops_and_starts_like_any_machine(world: AzureWorld, mode: str) -> None:
    """By the call of its kind."""
    world.add_scale_set("train", MINE, size=1, mode=mode)
    (node,) = world.cloud.nodes()

    world.cloud.stop(node.id, "key", permit=a_permit())
    world.settle(node.id)
    assert world.cloud.nodes()[0].state is NodeState.STOPPED
    world.cloud.start(node.id, "key")

    kind = {"Uniform": "ScaleVMs", "Flexible": "VirtualMachines"}[mode]
    assert [entry.asked.operation for entry in world.server.changes()] == [f"{kind}_Deallocate", f"{kind}_Start"]


def test_a_flexible_member_cannot_be_protected(world: AzureWorld) -> None:
    """Azure has no such protection there, and says so nowhere: we do."""
    group_id = world.add_scale_set("train", MINE, size=1, mode="Flexible").lower()
    (node,) = world.cloud.nodes()

    with pytest.raises(CloudError, match="is Flexible") as caught:
        world.cloud.protect(node.id, group_id, "key", on=True)

    assert (caught.value.code, world.server.changes()) == ("NoProtection", [])


def test_a_scale_set_that_changed_meanwhile_is_not_resized(world: AzureWorld) -> None:
    """The size is set only on what was read: whoever else resizes it is not undone."""
    group_id = world.add_scale_set("train", MINE, size=1).lower()
    world.cloud.groups()
    world.fake.refused["Scale_Update"] = (412, "PreconditionFailed", "The scale set has been changed since.")

    with pytest.raises(CloudError) as caught:
        world.cloud.grow(group_id, 3, "key")

    assert caught.value.code == "PreconditionFailed"
    sent = world.server.changes()[-1].request
    assert (sent.headers["if-match"], sent.json["sku"]) == (
        '"1"',
        {"name": sizes.GPU, "tier": "Standard", "capacity": 3},
    )


def test_scale_sets_without_gpus_are_not_even_listed(world: AzureWorld) -> None:
    """A subscription may have hundreds of others, each with a list of its own."""
    path = world.add_scale_set("web", {}, size=2)
    world.state.sets[path.lower()].described["sku"]["name"] = sizes.CPU

    assert (list(world.cloud.nodes()), list(world.cloud.groups())) == ([], [])
    assert world.server.count("ScaleVMs_List") == 0


def test_bounds_are_those_of_the_autoscale_setting(world: AzureWorld) -> None:
    """The narrowest of its profiles; one that is switched off bounds nothing."""
    group_id = world.add_group("train", MINE, size=2, MinSize=1, MaxSize=4)
    (setting,) = world.state.autoscale.values()
    setting["properties"]["profiles"].append(
        {"name": "night", "capacity": {"minimum": "0", "maximum": "2", "default": "0"}, "rules": []}
    )

    assert (world.cloud.group(group_id).min_size, world.cloud.group(group_id).max_size) == (1, 2)
    setting["properties"]["enabled"] = False
    assert (world.cloud.group(group_id).min_size, world.cloud.group(group_id).max_size) == (0, 1000)
