"""What is done to machines and groups on Alibaba Cloud: one target a call, sent once, while its permit holds.

What ECS and ESS do not refuse by themselves (a member that its owner protects, a group without consent) is asked for
right before, and the permit is checked after that.
"""

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from re import fullmatch
from typing import Any

from gpuwatch.clouds import FLEET_TAG, POOL_TAG, CloudError, ProtectedError
from gpuwatch.clouds.alibaba.errors import INCORRECT_STATE
from gpuwatch.clouds.alibaba.groups import Group, one_group, template_reference
from gpuwatch.clouds.alibaba.instances import STOP_CHARGING, Instance, describe_instance
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.groups import lower, refuse_end_below, refuse_size
from gpuwatch.clouds.permit import Permit, permit_in_force
from gpuwatch.clouds.tags import claims
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import DEFAULT_POOL, NodeState

_TOKEN_LENGTH = 64  # of a ClientToken, in ASCII
_NAME = r"[A-Za-z0-9:_.-]{1,100}"  # what may follow a letter in an InstanceName
_IN_SERVICE = ("InService", "Protected")


def stop(place: Region, node_id: str, permit: Permit) -> None:
    """Stop it as its own operating system does, and end the bill. Source: StopInstance.

    Without StoppedMode the account's own default would decide, which may go on charging.
    """
    asked = {"InstanceId": node_id, "StoppedMode": STOP_CHARGING, "ForceStop": False}
    place.acting.change("ecs:StopInstance", asked, permit)


def start(place: Region, node_id: str) -> None:
    """Start a machine. Source: ECS StartInstance."""
    place.acting.change("ecs:StartInstance", {"InstanceId": node_id}, permit_in_force())


def terminate(place: Region, node_id: str, permit: Permit) -> None:
    """Release it, a running one after its own shutdown. Source: DeleteInstance, which has no ClientToken.

    ForceStop is true where nobody says otherwise, which would be as cutting the power.
    """
    asked = {"InstanceId": node_id, "Force": True, "ForceStop": False}
    place.acting.change("ecs:DeleteInstance", asked, permit)


def terminate_member(
    place: Region, node_id: str, group_id: str, permit: Permit, *, key: str, fleet: str, now: datetime
) -> None:
    """End a member with its place. Source: RemoveInstances with DecreaseDesiredCapacity.

    ESS waits for the machine's own shutdown, since no StopInstanceTimeout is given. It would also end a machine that
    its owner's tag protects, so the machine is looked at first.
    """
    instance = Instance(described=describe_instance(place, place.acting, node_id))
    group = one_group(place, place.acting, group_id)
    member = group.members.get(node_id)
    if instance.state is NodeState.TERMINATING or (member is not None and member.leaving):
        return
    if member is None:
        raise CloudError(f"{node_id} is no member of {group.name} any more: it is left alone", code="NotAMember")
    if member.state not in _IN_SERVICE:
        raise CloudError(f"{node_id} is {member.state} in {group.name}: it is left alone", code=INCORRECT_STATE)
    if member.attached:
        raise CloudError(f"{node_id} was put into {group.name} by hand, which would not release it", code="Attached")
    _refuse_group(group, fleet=fleet, process="ScaleIn")
    refuse_end_below(group.name, group.size, group.min_size, left=min(group.size, group.total) - 1)
    protected = claims(instance.tags, fleet=fleet, now=now)["protected"]
    if protected or instance.described.get("DeletionProtection"):
        raise ProtectedError(f"{node_id}: {protected or 'its deletion protection is on'}", code="DeletionProtection")
    place.acting.change(
        "ess:RemoveInstances",
        {
            "RegionId": place.region,
            "ScalingGroupId": group_id,
            "InstanceIds": [node_id],
            "RemovePolicy": "release",
            "DecreaseDesiredCapacity": True,
            "ClientToken": token(f"{key}-{node_id}"),
        },
        permit,
    )


def launch(place: Region, request: Mapping[str, object]) -> str:
    """One machine; gives its id. Source: RunInstances."""
    call = "ecs:RunInstances"
    answer = place.acting.change(call, request, permit_in_force())
    with reading(place.acting.name_call(call)):
        found: str = answer["InstanceIdSets"]["InstanceIdSet"][0]
        return found


def launch_request(
    place: Region, arguments: Mapping[str, str], key: str, version: str | None, *, fleet: str
) -> dict[str, Any]:
    """What RunInstances is asked for one machine: the key is its ClientToken, and in its name to find it again.

    `version` None is the template's default.

    Raises:
        ValueError: the key is no ClientToken.

    """
    if not key.isascii() or not 0 < len(key) <= _TOKEN_LENGTH:
        raise ValueError(
            f"the key {key!r} is not up to {_TOKEN_LENGTH} ASCII characters, which ECS asks of a ClientToken"
        )
    tags = {FLEET_TAG: fleet, POOL_TAG: arguments.get("pool") or DEFAULT_POOL, DECISION_TAG: key}
    return {
        "RegionId": place.region,
        "Amount": 1,
        "ClientToken": key,
        **template_reference(arguments["template"]),
        "LaunchTemplateVersion": version,
        "InstanceName": name_of(key),
        "Tag": [{"Key": name, "Value": tags[name]} for name in sorted(tags)],
        "VSwitchId": arguments.get("subnet") or None,
        "InstanceType": arguments.get("instance_type") or None,
    }


def name_of(key: str) -> str:
    """The name of the machine that was launched with a key: ECS cannot be asked by ClientToken."""
    return f"gpuwatch-{key}" if fullmatch(_NAME, key) else f"gpuwatch-{sha256(key.encode()).hexdigest()[:40]}"


def token(text: str) -> str:
    """A ClientToken for a change of a group."""
    return text if text.isascii() and len(text) <= _TOKEN_LENGTH else sha256(text.encode()).hexdigest()


def grow(place: Region, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Add what is missing to the desired size at this moment. Source: ScaleWithAdjustment.

    An addition, and no new total: it cannot take machines away where somebody has raised the size meanwhile.
    """
    group = one_group(place, place.acting, group_id)
    if group.size >= size:
        return
    refuse_size(group.name, size, most=group.max_size)
    _refuse_group(group, fleet=fleet, process="ScaleOut", grows=True)
    _adjust(place, group, size, key)


def shrink(place: Region, group_id: str, size: int, *, key: str, fleet: str) -> None:
    """Take the desired size back, where no member can go for it. Source: ScaleWithAdjustment by a negative number.

    A group without a desired size lacks nothing.
    """
    group = one_group(place, place.acting, group_id)
    if group.size <= size:
        return
    _refuse_group(group, fleet=fleet, process="ScaleIn", grows=True)
    refuse_size(group.name, size, least=group.min_size)
    lower(
        group,
        group.size,
        size,
        lambda: one_group(place, place.acting, group_id),
        lambda new: _adjust(place, group, new, key),
        lambda raised: _adjust(place, one_group(place, place.acting, group_id), raised, key),
    )


def _adjust(place: Region, group: Group, size: int, key: str) -> None:
    place.acting.change(
        "ess:ScaleWithAdjustment",
        {
            "ScalingGroupId": group.id,
            "AdjustmentType": "QuantityChangeInCapacity",
            "AdjustmentValue": size - group.size,
            "ClientToken": token(f"{key}-{group.size}-{size}"),
        },
        permit_in_force(),
    )


def protect(place: Region, node_id: str, group_id: str, *, on: bool, fleet: str) -> None:
    """Source: SetInstancesProtection, where it is not so already."""
    group = one_group(place, place.acting, group_id)
    _refuse_group(group, fleet=fleet)
    member = group.members.get(node_id)
    if member is not None and member.protected is on:
        return
    asked = {"ScalingGroupId": group_id, "InstanceIds": [node_id], "ProtectedFromScaleIn": on}
    place.acting.change("ess:SetInstancesProtection", asked, permit_in_force())


def tag(place: Region, node_id: str, tags: Mapping[str, str]) -> None:
    """Set tags of a machine. Source: ECS TagResources."""
    asked = {
        "RegionId": place.region,
        "ResourceType": "instance",
        "ResourceId": [node_id],
        "Tag": [{"Key": name, "Value": tags[name]} for name in sorted(tags)],
    }
    place.acting.change("ecs:TagResources", asked, permit_in_force())


def _refuse_group(group: Group, *, fleet: str, process: str | None = None, grows: bool = False) -> None:
    """Touch no group without its owner's consent, and ask for nothing that a suspended process would leave undone."""
    group.refuse_unless_ours("scaling group", fleet, grows=grows)
    idle = {process, "Inactive", "Deleting", "Locked"} & group.suspended
    if process is not None and idle:
        raise CloudError(
            f"{group.name} does not work: {', '.join(sorted(filter(None, idle)))}", code="ProcessSuspended"
        )
