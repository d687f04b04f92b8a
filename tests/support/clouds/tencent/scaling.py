"""Auto Scaling's actions on the fake's state."""

from typing import Any

from tests.support.clouds.tencent.cvm import Parameters, filters, page
from tests.support.clouds.tencent.state import Activity, Refusal, ScalingGroup, State, written

_VALUES = 5


class Scaling:
    """One region at a time."""

    def __init__(self, state: State) -> None:
        self.state = state

    def describe_auto_scaling_groups(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeAutoScalingGroups."""
        found = [each for each in self.state.groups.values() if each.region == region]
        if "AutoScalingGroupIds" in asked:
            found = [each for each in found if each.id in asked["AutoScalingGroupIds"]]
        return page([_described(each) for each in found], asked, "AutoScalingGroupSet")

    def describe_auto_scaling_instances(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeAutoScalingInstances."""
        wanted = filters(asked, "", values=_VALUES)
        by_group, by_id = wanted.get("auto-scaling-group-id"), wanted.get("instance-id")
        shown = [
            {
                "InstanceId": node_id,
                "AutoScalingGroupId": group.id,
                "AutoScalingGroupName": group.name,
                "LaunchConfigurationId": f"asc-{group.id[4:]}",
                "LaunchConfigurationName": group.name,
                "LifeCycleState": state,
                "HealthStatus": "HEALTHY",
                "ProtectedFromScaleIn": node_id in group.protected,
                "Zone": group.zone,
                "CreationType": "MANUAL_ATTACHING" if node_id in group.attached else "AUTO_CREATION",
                "AddTime": "2026-01-01T00:00:00Z",
                "InstanceType": group.type,
                "VersionNumber": 1,
                "WarmupStatus": "NO_NEED_WARMUP",
            }
            for group in self.state.groups.values()
            if group.region == region and (by_group is None or group.id in by_group)
            for node_id, state in group.members.items()
            if by_id is None or node_id in by_id
        ]
        return page(shown, asked, "AutoScalingInstanceSet")

    def describe_launch_configurations(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeLaunchConfigurations."""
        shown = [
            {
                "ProjectId": 0,
                "LaunchConfigurationId": f"asc-{group.id[4:]}",
                "LaunchConfigurationName": group.name,
                "InstanceType": group.type,
                "InstanceTypes": [group.type],
                "InstanceChargeType": "POSTPAID_BY_HOUR",
                "InstanceTags": [{"Key": key, "Value": value} for key, value in group.tags.items()],
                "CreatedTime": "2026-01-01T00:00:00Z",
                "LaunchConfigurationStatus": "NORMAL",
            }
            for group in self.state.groups.values()
            if group.region == region
            and (f"asc-{group.id[4:]}" in asked.get("LaunchConfigurationIds", [f"asc-{group.id[4:]}"]))
        ]
        return page(shown, asked, "LaunchConfigurationSet")

    def describe_auto_scaling_activities(self, region: str, asked: Parameters) -> dict[str, Any]:
        """DescribeAutoScalingActivities: those that began since StartTime, in no order that is documented."""
        wanted = filters(asked, "", values=_VALUES)
        shown = [
            _activity(group, each)
            for group in self.state.groups.values()
            if group.region == region and group.id in wanted.get("auto-scaling-group-id", [group.id])
            for each in group.activities
            if written(each.began) >= asked.get("StartTime", "")
        ]
        kinds = wanted.get("activity-type")
        return page([each for each in shown if kinds is None or each["ActivityType"] in kinds], asked, "ActivitySet")

    def modify_desired_capacity(self, region: str, asked: Parameters) -> dict[str, Any]:
        """ModifyDesiredCapacity."""
        group = self._group(region, asked)
        size = asked["DesiredCapacity"]
        if size > group.max_size:
            raise Refusal("LimitExceeded.DesiredCapacityLimitExceeded")
        chosen = [each for each in group.members if each not in group.protected]
        for node_id in chosen[: max(0, len(group.members) - size)]:
            self.state.become(self.state.machines[node_id], "TERMINATING", "TerminateInstances")
        group.desired = size
        return {}

    def remove_instances(self, region: str, asked: Parameters) -> dict[str, Any]:
        """RemoveInstances."""
        group = self._group(region, asked)
        for node_id in asked["InstanceIds"]:
            if node_id not in group.members:
                raise Refusal("ResourceNotFound.InstancesNotInAutoScalingGroup")
            serving = sum(state == "IN_SERVICE" for state in group.members.values())
            if group.enabled and serving - 1 < group.min_size:
                raise Refusal("ResourceInsufficient.InServiceInstanceBelowMinSize")
            group.desired -= 1
            if node_id in group.attached:
                del group.members[node_id]
            else:
                group.members[node_id] = "TERMINATING"
                self.state.become(self.state.machines[node_id], "TERMINATING", "TerminateInstances")
        return {"ActivityId": f"asa-{self.state.number():08x}"}

    def set_instances_protection(self, region: str, asked: Parameters) -> dict[str, Any]:
        """SetInstancesProtection."""
        group = self._group(region, asked)
        if set(asked["InstanceIds"]) - set(group.members):
            raise Refusal("ResourceNotFound.InstancesNotInAutoScalingGroup")
        change = group.protected.update if asked["ProtectedFromScaleIn"] else group.protected.difference_update
        change(asked["InstanceIds"])
        return {}

    def _group(self, region: str, asked: Parameters) -> ScalingGroup:
        group = self.state.groups.get(asked["AutoScalingGroupId"])
        if group is None or group.region != region:
            raise Refusal("ResourceNotFound.AutoScalingGroupNotFound")
        return group


def _activity(group: ScalingGroup, activity: Activity) -> dict[str, Any]:
    at = written(activity.began)
    cause = "Activity was launched in response to a difference between desired capacity and actual capacity"
    text = f"Failed to launch instance. Instance type: `{group.type}`, Zone: `{group.zone}`, "
    error = {
        "Code": "LaunchInstanceFailed",
        "Zone": group.zone,
        "InstanceId": "",
        "InstanceChargeType": "POSTPAID_BY_HOUR",
        "SubnetId": "subnet-zone3",
        "Message": f"{text}LatestOperationCode: `{activity.error}`.",
        "InstanceType": group.type,
    }
    return {
        "AutoScalingGroupId": group.id,
        "ActivityId": activity.id,
        "ActivityType": "SCALE_OUT",
        "StatusCode": activity.status,
        "StatusMessage": error["Message"] if activity.error else "Success",
        "StatusMessageSimplified": "Failed to launch instances" if activity.error else "Success",
        "Cause": f"{cause}.",
        "Description": f"{cause}, scale out 1 instance(s).",
        "StartTime": at,
        "EndTime": at,
        "CreatedTime": at,
        "LifecycleActionResultSet": [],
        "DetailedStatusMessageSet": [error] if activity.error else [],
        "InvocationResultSet": [],
        "RelatedInstanceSet": [{"InstanceId": each, "InstanceStatus": "SUCCESSFUL"} for each in activity.made],
        **activity.changes,
    }


def _described(group: ScalingGroup) -> dict[str, Any]:
    return {
        "AutoScalingGroupId": group.id,
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupStatus": "NORMAL",
        "CreatedTime": "2026-01-01T00:00:00Z",
        "DefaultCooldown": 300,
        "DesiredCapacity": group.desired,
        "EnabledStatus": "ENABLED" if group.enabled else "DISABLED",
        "InstanceCount": len(group.members),
        "InServiceInstanceCount": sum(state == "IN_SERVICE" for state in group.members.values()),
        "LaunchConfigurationId": f"asc-{group.id[4:]}",
        "LaunchConfigurationName": group.name,
        "MaxSize": group.max_size,
        "MinSize": group.min_size,
        "ZoneSet": [group.zone],
        "InActivityStatus": "NOT_IN_ACTIVITY",
        "Tags": [
            {"Key": key, "Value": value, "ResourceType": "auto-scaling-group"} for key, value in group.tags.items()
        ],
    }
