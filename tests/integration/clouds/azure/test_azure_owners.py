"""Whose machine it is on Azure: by tags, by the names of resource groups, and by Azure's own word on these."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.model.fleet import Node
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure.world import RG, SUB, AzureWorld, an_azure
from tests.support.clouds.faults import Fault, when
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def shown(world: AzureWorld) -> Node:
    """The only machine."""
    (node,) = world.cloud.nodes()
    return node


@pytest.mark.parametrize(
    ("tags", "group", "owner"),
    [
        ({}, "MC_rg_cluster_eastus", "AKS cluster of the resource group MC_rg_cluster_eastus"),
        ({"aks-managed-poolName": "gpu"}, "fleet-rg", "AKS cluster gpu"),
        ({"ClusterId": "hpc"}, "fleet-rg", "Azure CycleCloud hpc"),
        ({"Vendor": "Databricks", "ClusterId": "1120-x", "ClusterName": "etl"}, "fleet-rg", "Databricks"),
        ({}, "fleet-rg", None),
    ],
)
def test_what_another_system_made_is_its_own(
    world: AzureWorld, tags: dict[str, str], group: str, owner: str | None
) -> None:
    """By the tags of such systems, and by the names of their resource groups."""
    world.add({**MINE, **tags}, group=group)

    assert shown(world).managed_by == owner


AKS, DATABRICKS, APPLICATION, OTHER = (
    f"/subscriptions/{SUB}/resourceGroups/apps/providers/{kind}"
    for kind in (
        "Microsoft.ContainerService/managedClusters/prod",
        "Microsoft.Databricks/workspaces/etl",
        "Microsoft.Solutions/applications/render",
        "Contoso.Quantum/labs/one",
    )
)
OWNERS = {
    AKS: "AKS cluster prod",
    AKS.upper(): "AKS cluster PROD",
    DATABRICKS: "Databricks workspace etl",
    APPLICATION: "managed application render",
    OTHER: f"the resource {OTHER}",
}


@pytest.mark.parametrize("manager", OWNERS)
def test_what_a_service_keeps_in_a_resource_group_of_any_name_is_the_services(world: AzureWorld, manager: str) -> None:
    """AKS and Databricks let people name the group; Azure's own word on it is `managedBy`, in any case of the name."""
    world.add(MINE, group="Analytics")
    world.add_scale_set("pool", MINE, size=1)
    world.state.managers["analytics"] = manager
    assert {node.managed_by for node in world.cloud.nodes()} == {OWNERS[manager], None}

    world.state.managers[RG.lower()] = manager
    world.clock.advance(3600)
    assert {node.managed_by for node in world.cloud.nodes()} == {OWNERS[manager]}
    (group,) = world.cloud.groups()
    assert not group.enrolled
    with pytest.raises(CloudError, match="left alone"):
        world.cloud.grow(group.id, 5, "key")


def test_resource_groups_are_asked_for_once_an_hour_and_when_a_new_one_comes(world: AzureWorld) -> None:
    """They hardly ever change; a cluster that somebody makes now is seen now."""
    world.add(MINE, group="first")
    for _ in range(3):
        world.cloud.nodes()
        world.clock.advance(60)
    assert world.server.count("ResourceGroups_List") == 1

    world.add(MINE, group="second")
    world.state.managers["second"] = AKS
    assert [node.managed_by for node in world.cloud.nodes()].count("AKS cluster prod") == 1
    assert world.server.count("ResourceGroups_List") == 2


def test_without_the_right_to_see_resource_groups_names_and_tags_tell_alone(world: AzureWorld) -> None:
    """A custom role of before has no such right: its machines are seen as before."""
    world.add(MINE, group="analytics")
    world.state.managers["analytics"] = AKS
    world.fake.refused["ResourceGroups_List"] = (403, "AuthorizationFailed", "no right")
    assert shown(world).managed_by is None

    world.clock.advance(3600)
    assert shown(world).managed_by == "AKS cluster prod"
    world.clock.advance(3600)
    world.server.plan.strike(Fault.ERROR_BEFORE, when(operation="ResourceGroups_List"), times=9)
    assert shown(world).managed_by == "AKS cluster prod"
