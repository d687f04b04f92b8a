"""Auto Scaling groups on moto: what AWS refuses and shows there, and moto does not."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from moto.autoscaling.models import autoscaling_backends

Refusal = tuple[str, str]  # AWS's code and message

_ENDED = (
    '<TerminateInstanceInAutoScalingGroupResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">'
    "<TerminateInstanceInAutoScalingGroupResult><Activity><ActivityId>1</ActivityId></Activity>"
    "</TerminateInstanceInAutoScalingGroupResult></TerminateInstanceInAutoScalingGroupResponse>"
)

RESIZED = (
    '<SetDesiredCapacityResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">'
    "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></SetDesiredCapacityResponse>"
)


def all_groups() -> Iterator[Any]:
    """Every group of every account and region."""
    for regions in list(autoscaling_backends.values()):
        for backend in list(regions.values()):
            yield from list(backend.autoscaling_groups.values())


def member(node_id: str) -> tuple[Any, Any]:
    """The group that has the machine, and the machine's state there; None and None where none has it."""
    for group in all_groups():
        for state in group.instance_states:
            if state.instance.id == node_id:
                return group, state
    return None, None


def refusal(action: str, fields: Mapping[str, str]) -> Refusal | None:
    """What AWS refuses and moto accepts."""
    rule = _REFUSALS.get(action)
    return None if rule is None else rule(fields)


def end_member(fields: Mapping[str, str]) -> str:
    """TerminateInstanceInAutoScalingGroup as on AWS: the member is Terminating for a while; gives the answer.

    Asked twice it takes a second place: nothing in AWS's documents says that it would not.
    """
    group, state = member(fields["InstanceId"])
    state.lifecycle_state = "Terminating"
    if fields["ShouldDecrementDesiredCapacity"] == "true":
        group.desired_capacity -= 1
    else:
        group.set_desired_capacity(group.desired_capacity)
    return _ENDED


def forget(node_id: str) -> None:
    """The machine is gone: its group shows it no longer, and launches another where one is missing."""
    group, state = member(node_id)
    if group is not None:
        group.instance_states = [each for each in group.instance_states if each is not state]
        group.set_desired_capacity(group.desired_capacity)


def out_of_stock(group_id: str) -> None:
    """The group gets no more machines than it has: it tries again and again."""
    for group in all_groups():
        if group.arn == group_id:
            group.stock = len(group.instance_states)


def wants(fields: Mapping[str, str]) -> bool:
    """SetDesiredCapacity of a group without stock: it wants more, and nothing comes; True: it was one."""
    for group in all_groups():
        if group.name == fields["AutoScalingGroupName"] and hasattr(group, "stock"):
            group.set_desired_capacity(min(int(fields["DesiredCapacity"]), group.stock))
            group.desired_capacity = int(fields["DesiredCapacity"])
            return True
    return False


def activities(fields: Mapping[str, str], now: datetime) -> str:
    """DescribeScalingActivities as on AWS: the newest first; moto says of every launch that it succeeded."""
    groups = [each for each in all_groups() if each.name == fields.get("AutoScalingGroupName", each.name)]
    failed = any(group.desired_capacity > len(group.instance_states) for group in groups)
    why = "We currently do not have sufficient g5.xlarge capacity in the Availability Zone you requested (a)."
    entry = (
        "<member><ActivityId>1</ActivityId><AutoScalingGroupName>g</AutoScalingGroupName>"
        f"<Description>Launching a new EC2 instance.  Status Reason: {why}</Description><Cause>-</Cause>"
        f"<StartTime>{now:%Y-%m-%dT%H:%M:%SZ}</StartTime><EndTime>{now:%Y-%m-%dT%H:%M:%SZ}</EndTime>"
        f"<StatusCode>Failed</StatusCode><StatusMessage>{why} Launching EC2 instance failed.</StatusMessage></member>"
    )
    return (
        '<DescribeScalingActivitiesResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">'
        f"<DescribeScalingActivitiesResult><Activities>{entry if failed else ''}</Activities>"
        "</DescribeScalingActivitiesResult></DescribeScalingActivitiesResponse>"
    )


def _ending(fields: Mapping[str, str]) -> Refusal | None:
    group, _ = member(fields["InstanceId"])
    if group is None:
        return "ValidationError", f"Instance Id not found - No managed instance found for {fields['InstanceId']}"
    if "Terminate" in group._suspended_processes:
        return "ValidationError", "The Terminate process is suspended"
    if fields["ShouldDecrementDesiredCapacity"] == "true" and group.desired_capacity - 1 < group.min_size:
        return "ValidationError", "Terminating instance without replacement will violate group's min size constraint."
    return None


def _resizing(fields: Mapping[str, str]) -> Refusal | None:
    size = int(fields["DesiredCapacity"])
    for group in all_groups():
        if group.name == fields["AutoScalingGroupName"] and not group.min_size <= size <= group.max_size:
            return "ValidationError", f"New SetDesiredCapacity value {size} is out of the group's bounds"
    return None


_REFUSALS = {"TerminateInstanceInAutoScalingGroup": _ending, "SetDesiredCapacity": _resizing}
