"""Auto Scaling of the fake, as its pages in Alibaba's reference describe it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tests.support.clouds.alibaba.errors import Refusal
from tests.support.clouds.alibaba.pages import page_of, values
from tests.support.clouds.alibaba.state import Activity, ScalingGroup, State


def describe_groups(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeScalingGroups: an id that is not there is left out."""
    del now
    wanted = values(query, "ScalingGroupIds")
    found = [each for each in state.groups.values() if each.region == query["RegionId"]]
    found = [each for each in found if not wanted or each.id in wanted]
    page, told = page_of(found, query, largest=50)
    return {"ScalingGroups": [_described(state, each) for each in page], **told}


def _described(state: State, group: ScalingGroup) -> dict[str, Any]:
    told: dict[str, Any] = {
        "ScalingGroupId": group.id,
        "ScalingGroupName": group.name,
        "RegionId": group.region,
        "GroupType": "ECS",
        "LifecycleState": group.state,
        "MinSize": group.min_size,
        "MaxSize": group.max_size,
        "TotalCapacity": len([each for each in state.members(group) if each.member_state != "Removing"]),
        "EnableDesiredCapacity": group.desired is not None,
        "SuspendedProcesses": list(group.suspended),
        "ActiveScalingConfigurationId": f"asc-{group.id}",
        "VSwitchIds": ["vsw-bp1fake"],
        "Tags": [{"TagKey": key, "TagValue": value, "Propagate": True} for key, value in group.tags.items()],
    }
    return told if group.desired is None else {**told, "DesiredCapacity": group.desired}


def describe_members(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeScalingInstances."""
    del now
    wanted, group = values(query, "InstanceIds"), query.get("ScalingGroupId")
    found = [
        each
        for each in state.machines.values()
        if each.group is not None
        and each.region == query["RegionId"]
        and (not wanted or each.id in wanted)
        and group in (None, each.group)
    ]
    page, told = page_of(found, query, largest=100)
    entries = [
        {
            "InstanceId": each.id,
            "ScalingGroupId": each.group,
            "LifecycleState": each.member_state,
            "HealthStatus": "Healthy" if each.status == "Running" else "Unhealthy",
            "CreationType": each.created_by,
            "Entrusted": False,
            "ZoneId": f"{each.region}-b",
        }
        for each in page
    ]
    return {"ScalingInstances": entries, **told}


def describe_configurations(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeScalingConfigurations."""
    del now
    wanted = values(query, "ScalingConfigurationIds")
    found = [
        {"ScalingConfigurationId": f"asc-{each.id}", "ScalingGroupId": each.id, "InstanceTypes": [each.type]}
        for each in state.groups.values()
        if each.region == query["RegionId"] and (not wanted or f"asc-{each.id}" in wanted)
    ]
    page, told = page_of(found, query, largest=50)
    return {"ScalingConfigurations": page, **told}


def describe_activities(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """DescribeScalingActivities of a group: the newest first, with times to the minute."""
    del now
    group = _group(state, query)
    found = [
        _activity(group, each)
        for each in reversed(group.activities)
        if query.get("StatusCode", each.status) == each.status
    ]
    page, told = page_of(found, query, largest=50)
    return {"ScalingActivities": page, **told}


def _activity(group: ScalingGroup, activity: Activity) -> dict[str, Any]:
    at = activity.began.strftime("%Y-%m-%dT%H:%MZ")
    told: dict[str, Any] = {
        "ScalingActivityId": activity.id,
        "ScalingGroupId": group.id,
        "StatusCode": activity.status,
        "StartTime": at,
        "EndTime": at,
        "Progress": 100,
        "Description": 'Add "1" ECS instance',
        "CreatedCapacity": len(activity.made),
        "CreatedInstances": activity.made,
        "TriggerSourceType": "Ess",
    }
    if activity.error is not None:
        code, message = activity.error
        why = {"Code": code, "Message": message, "Description": "Fail to create instances into scaling group."}
        told["ErrorMessages"] = [why]
        if activity.status == "Failed":
            told |= {"ErrorCode": code, "ErrorMessage": message}
    return {**told, **activity.changes}


def remove(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """RemoveInstances: a member that the group made is released, one that was attached is let go."""
    group = _group(state, query)
    token = query.get("ClientToken", "")
    (node_id,) = values(query, "InstanceIds")
    if token and state.removed.get(token) == node_id:
        return {"ScalingActivityId": "asa-bp1again"}
    member = state.machines.get(node_id)
    if member is None or member.group != group.id:
        raise Refusal(404, "InvalidInstanceId.NotFound", "The specified instance does not exist.")
    _refuse_idle(group, "ScaleIn")
    staying = [each for each in state.members(group) if each.member_state != "Removing"]
    if len(staying) - 1 < group.min_size:
        text = "To remove the instances, the total capacity will be lesser than the MinSize."
        raise Refusal(400, "IncorrectCapacity.MinSize", text)
    assert "StopInstanceTimeout" not in query, "the machine has the time that it needs"
    if member.created_by != "AutoCreated":
        member.group = None
    else:
        member.member_state, member.status = "Removing", "Stopping"
        member.next = (state.soon(now), None)
    if query.get("DecreaseDesiredCapacity", "true") == "true" and group.desired is not None:
        group.desired -= 1
    state.removed[token] = node_id
    return {"ScalingActivityId": "asa-bp1fake"}


def scale(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """ScaleWithAdjustment by a number."""
    group = _group(state, query)
    assert query["AdjustmentType"] == "QuantityChangeInCapacity"
    token, more = query.get("ClientToken", ""), int(query["AdjustmentValue"])
    if token in group.tokens:
        return {"ScalingActivityId": group.tokens[token][0]}
    _refuse_idle(group, "ScaleOut")
    size = len(state.members(group)) if group.desired is None else group.desired
    size = min(group.max_size, max(group.min_size, size + more))
    if group.desired is not None:
        group.desired = size
    else:
        for _ in range(size - len(state.members(group))):
            state.add_member(group, now)
    activity = state.name("asa")
    group.tokens[token] = (activity, more)
    return {"ScalingActivityId": activity}


def protect(state: State, query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """SetInstancesProtection."""
    del now
    group = _group(state, query)
    for name in values(query, "InstanceIds"):
        if name not in state.machines or state.machines[name].group != group.id:
            raise Refusal(404, "InvalidInstanceId.NotFound", "The specified instance does not exist.")
        state.machines[name].member_state = "Protected" if query["ProtectedFromScaleIn"] == "true" else "InService"
    return {}


def _group(state: State, query: Mapping[str, str]) -> ScalingGroup:
    if query.get("ScalingGroupId") not in state.groups:
        raise Refusal(404, "InvalidScalingGroupId.NotFound", "The specified scaling group does not exist.")
    return state.groups[query["ScalingGroupId"]]


def _refuse_idle(group: ScalingGroup, process: str) -> None:
    if group.state != "Active":
        raise Refusal(400, "IncorrectScalingGroupStatus", "The current status of the scaling group is not supported.")
    assert process not in group.suspended, "what ESS answers then is not documented"


HANDLERS: dict[str, Callable[[State, Mapping[str, str], datetime], dict[str, Any]]] = {
    "DescribeScalingGroups": describe_groups,
    "DescribeScalingInstances": describe_members,
    "DescribeScalingConfigurations": describe_configurations,
    "DescribeScalingActivities": describe_activities,
    "RemoveInstances": remove,
    "ScaleWithAdjustment": scale,
    "SetInstancesProtection": protect,
}
