"""Launches, groups, leftovers, tags and quotas, as far as they are Tencent Cloud's own."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import FLEET_TAG, PROTECT_TAG, CloudError, LeftoverKind, ProtectedError
from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.tencent.world import GPU_TYPE, REGION, TencentWorld, a_world
from tests.support.fakes.cloud_worlds import MINE, TEMPLATE


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


# Launches


def test_a_launch_keeps_the_templates_tags_and_is_named_by_its_key(world: TencentWorld) -> None:
    """What a request gives replaces the template's, so both are sent; the name finds the machine again."""
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "vision"}]}]
    world.add_template("lt-tagged", "tagged", InstanceType=GPU_TYPE, TagSpecification=tags)

    node_id = world.cloud.launch({"template": "tagged", "pool": "train"}, "key-1")

    made = world.machine(node_id)
    assert made.tags["team"] == "vision"
    assert (made.tags[FLEET_TAG], made.name) == ("lab", "key-1")


def test_a_launch_in_another_subnet_names_its_network_and_zone(world: TencentWorld) -> None:
    """CVM wants all three to fit."""
    node_id = world.cloud.launch({"template": TEMPLATE, "subnet": "subnet-zone4"}, "key-1")

    (request,) = world.sent("RunInstances")
    assert request["VirtualPrivateCloud"] == {"VpcId": "vpc-1", "SubnetId": "subnet-zone4"}
    assert world.machine(node_id).zone == f"{REGION}-4"


@pytest.mark.parametrize(("version", "number"), [("$Default", 1), ("$Latest", 2), ("2", 2)])
def test_a_version_is_a_number_or_a_word(world: TencentWorld, version: str, number: int) -> None:
    """RunInstances takes the number alone."""
    template = world.fake.state.templates["lt-00000001"]
    template.versions.append(dict(template.versions[0]))

    world.cloud.launch({"template": TEMPLATE, "version": version}, "key-1")

    assert world.sent("RunInstances")[0]["LaunchTemplate"] == {
        "LaunchTemplateId": "lt-00000001",
        "LaunchTemplateVersion": number,
    }


def test_a_version_that_is_no_version_is_told(world: TencentWorld) -> None:
    """With what it could be."""
    with pytest.raises(CloudError, match=r"'newest' of the launch template gpu-node is not a number"):
        world.cloud.launch({"template": TEMPLATE, "version": "newest"}, "key-1")


def test_a_template_that_buys_a_month_is_refused(world: TencentWorld) -> None:
    """Nobody gets that money back."""
    world.add_template("lt-month", "month", InstanceType=GPU_TYPE, InstanceChargeType="PREPAID")

    with pytest.raises(CloudError) as caught:
        world.cloud.launch({"template": "month"}, "key-1")

    assert caught.value.code == "Prepaid"
    assert world.sent("RunInstances") == []


def test_a_key_that_is_no_client_token_launches_nothing(world: TencentWorld) -> None:
    """64 ASCII characters at most."""
    with pytest.raises(ValueError, match="up to 64 ASCII characters"):
        world.cloud.launch({"template": TEMPLATE}, "k" * 65)

    assert world.fake.sent == []


def test_a_name_that_only_begins_like_the_key_is_another_machine(world: TencentWorld) -> None:
    """The filter by name finds parts of names."""
    world.launch({**MINE, "Name": "key-10"})

    assert world.cloud.find("key-1") is None


# Groups


def test_a_machine_that_was_attached_by_hand_is_never_removed(world: TencentWorld) -> None:
    """RemoveInstances would let it go, and it would run on without its group."""
    group_id = world.add_group("train", MINE, size=2)
    group = world.fake.state.groups[group_id]
    node_id = min(group.members)
    group.attached.add(node_id)

    assert "attached" in (world.shown(node_id).cannot_terminate or "")
    with pytest.raises(CloudError) as caught:
        world.cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert caught.value.code == "AttachedByHand"
    assert world.sent("RemoveInstances") == []


@pytest.mark.parametrize(
    ("state", "owner"), [("IN_SERVICE", None), ("DETACHING", "Auto Scaling group train (DETACHING)")]
)
def test_a_member_on_its_way_out_is_somebodys(world: TencentWorld, state: str, owner: str | None) -> None:
    """Only a member that serves is its group's and ours."""
    group_id = world.add_group("train", MINE, size=1)
    group = world.fake.state.groups[group_id]
    (node_id,) = group.members
    world.machine(node_id).state = "REBOOTING"  # the fake changes its place in the group no more
    group.members[node_id] = state

    assert world.shown(node_id).managed_by == owner


def test_a_member_that_is_protected_against_an_end_is_left_alone(world: TencentWorld) -> None:
    """Auto Scaling itself does not look at DisableApiTermination."""
    group_id = world.add_group("train", MINE, size=2)
    node_id = world.cloud.nodes()[0].id
    world.machine(node_id).protected = True

    with pytest.raises(ProtectedError):
        world.cloud.terminate(node_id, "key", group=group_id, permit=a_permit())


def test_a_protecting_tag_on_the_group_protects_it(world: TencentWorld) -> None:
    """As on a machine."""
    world.add_group("train", {**MINE, PROTECT_TAG: "true"}, size=1)

    (group,) = world.cloud.groups()
    assert group.protected == "tag gpuwatch:protect protects it"


# What is left, tags, quotas


def test_addresses_of_stopped_machines_and_of_none_are_told(world: TencentWorld) -> None:
    """A public address that goes with its machine is no leftover."""
    stopped, running = world.launch(MINE, state="STOPPED"), world.launch(MINE)
    free, bound = world.add_address(), world.add_address(stopped)
    world.add_address(running)
    world.fake.state.addresses[world.add_address(stopped)].type = "WanIP"

    found = {each.id: (each.kind, each.node_id) for each in world.cloud.leftovers() if each.id.startswith("eip-")}

    assert found == {free: (LeftoverKind.UNUSED_ADDRESS, None), bound: (LeftoverKind.STOPPED_ADDRESS, stopped)}


def test_tags_that_were_not_set_are_an_error(world: TencentWorld) -> None:
    """The tag service answers well, with the failure in a list."""
    node_id = world.launch(MINE)
    world.cloud.nodes()
    del world.fake.state.machines[node_id]

    with pytest.raises(CloudError, match=f"the tags of {node_id} were not set") as caught:
        world.cloud.tag(node_id, {"gpuwatch:stop-at": "2026-01-05T12:00:00+00:00"}, "key")

    assert caught.value.code == "InvalidParameterValue.ResourceIdInvalid"


def test_quotas_say_what_is_left(world: TencentWorld) -> None:
    """Machines by the hour, and vCPUs of spot machines, in each zone."""
    cloud = world.cloud
    assert isinstance(cloud, TencentCloud)
    world.launch(MINE)
    world.launch(MINE, charge="SPOTPAID")

    assert [(each.name, each.unit, each.limit, each.used, each.left) for each in cloud.quotas()] == [
        (f"PostPaidQuotaSet of {REGION}-3", "machines", 288.0, 1.0, 287.0),
        (f"SpotPaidQuotaSet of {REGION}-3", "vCPUs", 244.0, 8.0, 236.0),
    ]
