"""EC2's Auto Scaling groups in our words. A group is known by its ARN: equal names in two regions are two groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.clouds import NotFoundError
from gpuwatch.clouds.aws.client import ClientPool
from gpuwatch.clouds.aws.owners import managed_by
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.groups import Attempt, ScalingGroup
from gpuwatch.clouds.tags import tags_among
from gpuwatch.model.fleet import NodeGroup

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

SERVICE = "Auto Scaling"
_DESCRIBE = "DescribeAutoScalingGroups"
_PAGE_SIZE = 100  # the largest that DescribeAutoScalingGroups takes
_NAME_IN_ARN = ":autoScalingGroupName/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One instance of a group; `state` is its lifecycle state, such as InService or Terminating:Wait.

    `weight`: what it counts in the group's sizes.
    """

    state: str
    protected: bool
    instance_type: str
    weight: int = 1

    @property
    def ending(self) -> bool:
        """Whether the group is ending it: then it counts no more."""
        return self.state.startswith("Terminating")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(ScalingGroup):
    """One Auto Scaling group, as the service describes it."""

    desired: int
    zones: tuple[str, ...]
    members: Mapping[str, Member]
    types: frozenset[str]  # of its members and of its overrides
    template: tuple[str, str] | None  # id and version of the launch template that alone says the type
    weighted: bool = False  # its sizes are sums of weights, and not numbers of machines

    @property
    def machines(self) -> int:
        """How many machines it has that stay."""
        return sum(not member.ending for member in self.members.values())

    @property
    def least(self) -> int:
        """Its minimum in machines. With weights that many must stay, whichever go: the heaviest could."""
        if not self.weighted:
            return self.min_size
        spare, staying = self.desired - self.min_size, self.machines
        for weight in sorted((each.weight for each in self.members.values() if not each.ending), reverse=True):
            spare -= weight
            if spare < 0:
                break
            staying -= 1
        return staying

    @property
    def owner(self) -> str | None:
        """The other system that drives the group, whatever its tags consent to."""
        return managed_by(self.tags, group=self.tags)

    def as_node_group(self, place: Region, *, fleet: str, now: datetime) -> NodeGroup:
        """The group in our words. The type of an empty one is asked for, where somebody may let it grow."""
        types = self.types
        if not types and self.is_enrolled(fleet):
            types = frozenset(filter(None, [template_type(place, self)]))
        return NodeGroup(
            min_size=self.least,
            max_size=self.machines if self.weighted else self.max_size,  # nobody can ask it for one machine more
            desired=self.machines if self.weighted else self.desired,
            region=place.region,
            zones=self.zones,
            suspended=self.suspended,
            instance_type=next(iter(types)) if len(types) == 1 else None,
            account=account_of_group(self.id),
            node_ids=tuple(sorted(self.members)),
            **self.consent(fleet, now),
        )


def every_group(place: Region) -> list[Group]:
    """Every group of the place. Source: DescribeAutoScalingGroups to its last page."""
    pages = place.reading.autoscaling.get_paginator("describe_auto_scaling_groups")
    with place.asking(_DESCRIBE, service=SERVICE):
        return [
            _group(group)
            for page in pages.paginate(PaginationConfig={"PageSize": _PAGE_SIZE})
            for group in page["AutoScalingGroups"]
        ]


def find_group(place: Region, line: ClientPool, name: str) -> Group | None:
    """The group of that name as it is now; None where no group has it. Source: DescribeAutoScalingGroups."""
    with place.asking(_DESCRIBE, service=SERVICE):
        groups = line.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return _group(groups[0]) if groups else None


def one_group(place: Region, line: ClientPool, group_id: str) -> Group:
    """The group of that id as it is now.

    Raises:
        NotFoundError: the group is gone; a new group of the same name is another group.
        CloudError: no answer.

    """
    group = find_group(place, line, name_of_group(group_id))
    if group is None or group.id != group_id:
        raise NotFoundError(f"there is no Auto Scaling group {group_id}", code="GroupNotFound")
    return group


def name_of_group(group_id: str) -> str:
    """The name within an ARN."""
    return group_id.partition(_NAME_IN_ARN)[2]


def region_of_group(group_id: str) -> str:
    """The region within an ARN.

    Raises:
        NotFoundError: it is no group's ARN.

    """
    parts = group_id.split(":")
    if _NAME_IN_ARN not in group_id or len(parts) < 6:  # noqa: PLR2004  an ARN has six parts
        raise NotFoundError(f"{group_id!r} is no ARN of an Auto Scaling group", code="GroupNotFound")
    return parts[3]


def account_of_group(group_id: str) -> str:
    """The account within an ARN."""
    return group_id.split(":")[4]


def template_type(place: Region, group: Group) -> str | None:
    """The type that the group's launch template names. Source: DescribeLaunchTemplateVersions."""
    if group.template is None:
        return None
    template, version = group.template
    with place.asking("DescribeLaunchTemplateVersions"):
        reply = place.reading.ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=[version])
        versions = reply["LaunchTemplateVersions"]
        return versions[0]["LaunchTemplateData"].get("InstanceType") if versions else None


def _group(described: "AutoScalingGroupTypeDef") -> Group:
    mixed = described.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    template = mixed.get("LaunchTemplateSpecification") or described.get("LaunchTemplate") or {}
    weights = {each.get("InstanceType", ""): each.get("WeightedCapacity") for each in mixed.get("Overrides", ())}
    overrides = list(weights)
    members = {
        each["InstanceId"]: Member(
            state=each["LifecycleState"],
            protected=each["ProtectedFromScaleIn"],
            instance_type=each.get("InstanceType", ""),
            weight=int(each.get("WeightedCapacity") or weights.get(each.get("InstanceType", "")) or 1),
        )
        for each in described.get("Instances", ())
    }
    return Group(
        id=described["AutoScalingGroupARN"],
        name=described["AutoScalingGroupName"],
        min_size=described["MinSize"],
        max_size=described["MaxSize"],
        desired=described["DesiredCapacity"],
        zones=tuple(described["AvailabilityZones"]),
        suspended=frozenset(each["ProcessName"] for each in described.get("SuspendedProcesses", ())),
        tags=tags_among(described.get("Tags")),
        members=members,
        types=frozenset(filter(None, [*overrides, *(member.instance_type for member in members.values())])),
        template=(template["LaunchTemplateId"], template.get("Version", "$Default"))
        if "LaunchTemplateId" in template and not overrides
        else None,
        weighted=any(
            each.get("WeightedCapacity") not in {None, "", "1"}
            for each in (*mixed.get("Overrides", ()), *described.get("Instances", ()))
        ),
    )


# What an Auto Scaling group tried to launch, by its own record.

_NEWEST = 20  # activities; the newest come first
_LAUNCHES = "Launching a new EC2 instance"  # how the description of a launch begins
_FAILED = frozenset({"Failed", "Cancelled"})
_ENDED = _FAILED | {"Successful"}


def attempts(place: Region, group: Group) -> list[Attempt]:
    """The newest that have ended. A group's record has no codes, so each failure is a refusal.

    Source: DescribeScalingActivities.

    Raises:
        CloudError: no answer, or no right to ask.

    """
    with place.asking("DescribeScalingActivities", service=SERVICE):
        auto_scaling = place.reading.autoscaling
        found = auto_scaling.describe_scaling_activities(AutoScalingGroupName=group.name, MaxRecords=_NEWEST)
        return [
            Attempt(
                began=each["StartTime"],
                ended=each.get("EndTime") or each["StartTime"],
                refused=each.get("StatusMessage") or "it failed" if each["StatusCode"] in _FAILED else None,
            )
            for each in found["Activities"]
            if each.get("Description", "").startswith(_LAUNCHES) and each["StatusCode"] in _ENDED
        ]
