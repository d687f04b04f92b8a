"""Scaling groups of Alibaba Cloud as they really are: who is released, what is added, what is left alone."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import CloudError, NotFoundError, ProtectedError
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.alibaba.world import GPU_TYPE, AlibabaWorld, a_world
from tests.support.clouds.faults import Fault, when
from tests.support.fakes.cloud_worlds import MINE


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def sent(world: AlibabaWorld, action: str) -> list[dict[str, str]]:
    """The parameters of such calls."""
    return [dict(entry.request.query) for entry in world.server.log if entry.asked.operation == action]


def refused(world: AlibabaWorld, node_id: str, group_id: str) -> str:
    """The code of a refused end of a member; nothing was asked of ESS."""
    with pytest.raises(CloudError) as caught:
        world.cloud.terminate(node_id, "key", group=group_id, permit=a_permit())
    assert sent(world, "RemoveInstances") == []
    assert world.state(node_id) is NodeState.RUNNING
    return caught.value.code


def test_a_member_is_released_by_name_with_its_place_and_its_own_time(world: AlibabaWorld) -> None:
    """No StopInstanceTimeout: ESS waits for the machine's own shutdown."""
    group_id = world.add_group("train", MINE, size=2)
    node_id = world.cloud.nodes()[0].id

    world.cloud.terminate(node_id, "key-7", group=group_id, permit=a_permit())

    assert sent(world, "RemoveInstances") == [
        {
            "RegionId": "cn-shanghai",
            "ScalingGroupId": group_id,
            "InstanceIds.1": node_id,
            "RemovePolicy": "release",
            "DecreaseDesiredCapacity": "true",
            "ClientToken": f"key-7-{node_id}",
        }
    ]


def test_a_machine_that_was_put_into_its_group_by_hand_is_left_alone(world: AlibabaWorld) -> None:
    """The group would let it go, and it would run on without anybody."""
    group_id = world.add_group("train", MINE, size=2)
    node_id = world.cloud.nodes()[0].id
    world.machine(node_id).created_by = "Attached"

    assert world.cloud.nodes()[0].cannot_terminate is not None
    assert refused(world, node_id, group_id) == "Attached"


def test_a_member_that_is_kept_from_scale_in_is_released_by_name(world: AlibabaWorld) -> None:
    """That protection is from the group's own choice."""
    group_id = world.add_group("train", MINE, size=2)
    node_id = world.cloud.nodes()[0].id
    world.cloud.protect(node_id, group_id, "key", on=True)

    world.cloud.terminate(node_id, "key", group=group_id, permit=a_permit())

    assert world.state(node_id) is NodeState.TERMINATING


def test_a_member_with_deletion_protection_is_left_alone(world: AlibabaWorld) -> None:
    """Whether ESS would heed it is not documented, so it is looked at."""
    group_id = world.add_group("train", MINE, size=2)
    node_id = world.cloud.nodes()[0].id
    world.machine(node_id).protected = True

    with pytest.raises(ProtectedError, match="deletion protection"):
        world.cloud.terminate(node_id, "key", group=group_id, permit=a_permit())
    assert sent(world, "RemoveInstances") == []


@pytest.mark.parametrize("state", ["Standby", "Pending:Wait", "Detaching"])
def test_a_member_that_does_not_serve_is_left_alone(world: AlibabaWorld, state: str) -> None:
    """Somebody has put it there."""
    group_id = world.add_group("train", MINE, size=2)
    node_id = world.cloud.nodes()[0].id
    world.machine(node_id).member_state = state

    if state != "Pending:Wait":
        assert world.cloud.nodes()[0].managed_by == f"Auto Scaling group train ({state})"
    assert refused(world, node_id, group_id) == "IncorrectInstanceStatus"


def test_an_inactive_group_is_told_and_left_alone(world: AlibabaWorld) -> None:
    """It would neither add nor replace anything."""
    group_id = world.add_group("train", MINE, size=2)
    world.fake.state.groups[group_id].state = "Inactive"

    assert world.cloud.group(group_id).suspended == {"Inactive"}
    assert refused(world, world.cloud.nodes()[0].id, group_id) == "ProcessSuspended"
    with pytest.raises(CloudError, match="train does not work: Inactive"):
        world.cloud.grow(group_id, 3, "key")


def test_growth_adds_and_never_sets_a_total(world: AlibabaWorld) -> None:
    """Where somebody has raised the size meanwhile, a total would take machines away."""
    group_id = world.add_group("train", MINE, size=1)

    world.cloud.grow(group_id, 3, "key-7")

    (asked,) = sent(world, "ScaleWithAdjustment")
    assert (asked["AdjustmentType"], asked["AdjustmentValue"]) == ("QuantityChangeInCapacity", "2")


def test_growth_with_a_lost_answer_adds_once(world: AlibabaWorld) -> None:
    """Asked again, also after a late read, its token is the same."""
    group_id = world.add_group("train", MINE, size=1)
    world.server.plan.strike(Fault.RESET_AFTER, when(operation="ScaleWithAdjustment"))
    world.server.plan.strike(Fault.STALE, when(operation="DescribeScalingGroups"))
    with pytest.raises(CloudError):
        world.cloud.grow(group_id, 3, "key-7")

    world.cloud.grow(group_id, 3, "key-7")

    assert world.cloud.group(group_id).desired == 3


def test_a_group_without_a_desired_size_has_the_size_that_it_has(world: AlibabaWorld) -> None:
    """Such groups are driven by rules; the number of their machines can be raised all the same."""
    group_id = world.add_group("train", MINE, size=2)
    world.fake.state.groups[group_id].desired = None

    assert world.cloud.group(group_id).desired == 2
    world.cloud.grow(group_id, 3, "key")
    assert world.cloud.group(group_id).desired == 3


def test_a_node_pool_of_kubernetes_is_never_ours(world: AlibabaWorld) -> None:
    """ACK drives its scaling groups: the fleet's tag does not overrule that."""
    group_id = world.add_group("pool", {**MINE, "ack.aliyun.com": "c1a2"}, size=1)

    assert not world.cloud.group(group_id).enrolled
    assert world.cloud.nodes()[0].managed_by == "Container Service (ACK) cluster c1a2"
    with pytest.raises(CloudError, match="belongs to Container Service"):
        world.cloud.grow(group_id, 2, "key")


def test_a_group_without_gpus_and_consent_is_left_out(world: AlibabaWorld) -> None:
    """One of somebody else with GPUs is told."""
    world.add_group("theirs", {}, size=0)
    other = world.add_group("web", {}, size=0)
    world.fake.state.groups[other].type = "ecs.g7.large"

    assert [(group.name, group.instance_type) for group in world.cloud.groups()] == [("theirs", GPU_TYPE)]


@pytest.mark.parametrize("fault", [Fault.GARBLED, Fault.RESET_BEFORE, Fault.EXPIRED])
def test_without_its_groups_a_region_is_unknown(world: AlibabaWorld, fault: Fault) -> None:
    """A member would else look like a machine of its own."""
    world.add_group("train", MINE, size=1)
    (node,) = world.cloud.nodes()
    world.server.plan.strike(fault, when(operation="DescribeScalingInstances"), times=None)

    with pytest.raises(CloudError):
        world.cloud.nodes()
    world.server.plan.clear()
    assert world.cloud.nodes() == (node,)


def test_members_beyond_one_page_are_all_told(world: AlibabaWorld) -> None:
    """A page has a hundred at most, and the total is held to."""
    group_id = world.add_group("train", MINE, size=130, MaxSize=200)

    assert len(world.cloud.group(group_id).node_ids) == 130


def test_a_group_that_is_gone_is_not_found(world: AlibabaWorld) -> None:
    """Also one that was there a moment ago."""
    group_id = world.add_group("train", MINE, size=0)
    world.cloud.groups()
    del world.fake.state.groups[group_id]

    with pytest.raises(NotFoundError):
        world.cloud.group(group_id)
