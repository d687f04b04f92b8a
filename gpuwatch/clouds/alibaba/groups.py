"""Alibaba Cloud's scaling groups in our words. A group is known by its id, which is its own in every region."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds import NotFoundError
from gpuwatch.clouds.alibaba.client import Client
from gpuwatch.clouds.alibaba.errors import no_machine
from gpuwatch.clouds.alibaba.owners import managed_by
from gpuwatch.clouds.alibaba.pages import List, by_number
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.groups import Attempt, ScalingGroup
from gpuwatch.clouds.tags import tags_among
from gpuwatch.clouds.times import need_time
from gpuwatch.model.fleet import NodeGroup

NO_GROUP = "InvalidScalingGroupId.NotFound"
_GROUPS = List(call="ess:DescribeScalingGroups", path=("ScalingGroups",), identity="ScalingGroupId")
_MEMBERS = List(call="ess:DescribeScalingInstances", path=("ScalingInstances",), identity="InstanceId")
_CONFIGURATIONS = "ess:DescribeScalingConfigurations"
_VERSIONS = "ecs:DescribeLaunchTemplateVersions"
_GROUPS_A_PAGE, _MEMBERS_A_PAGE = 50, 100  # the largest that the calls take
_ACTIVE = "Active"
_PROTECTED = "Protected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One instance of a group; `state` is its lifecycle state, such as InService or Removing:Wait.

    `attached`: somebody put it into the group, and a removal from there does not release it.
    """

    state: str
    attached: bool

    @property
    def protected(self) -> bool:
        """Whether the group may not choose it for a scale-in."""
        return self.state == _PROTECTED

    @property
    def leaving(self) -> bool:
        """Whether the group is releasing it."""
        return self.state.startswith("Removing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(ScalingGroup):
    """One scaling group as ESS describes it. `desired` None: it has no desired size, only rules."""

    desired: int | None
    total: int
    members: Mapping[str, Member]
    configuration: str | None  # of the machines that it makes
    template: tuple[str, str] | None  # id and version of the launch template that it makes them from
    types: frozenset[str]  # of the overrides of that template

    @property
    def owner(self) -> str | None:
        """The other system that drives the group, whatever its tags consent to."""
        return managed_by(self.tags, group=self.tags)

    @property
    def size(self) -> int:
        """How many machines it is to have; without a desired size, how many it has."""
        return self.total if self.desired is None else self.desired

    def as_node_group(
        self, place: Region, *, fleet: str, now: datetime, types: Iterable[str], zones: Iterable[str]
    ) -> NodeGroup:
        """The group in our words. `types` and `zones` are of its members, or of what it would launch."""
        types = frozenset(types)
        return NodeGroup(
            min_size=self.min_size,
            max_size=self.max_size,
            desired=self.size,
            region=place.region,
            zones=tuple(sorted(zones)),
            suspended=self.suspended,
            instance_type=next(iter(types)) if len(types) == 1 else None,
            account=place.account,
            node_ids=tuple(sorted(self.members)),
            **self.consent(fleet, now),
        )


def every_group(place: Region) -> list[Group]:
    """Every group of the place with its members. Source: DescribeScalingGroups, DescribeScalingInstances."""
    asked = {"RegionId": place.region}
    groups = by_number(place.reading, _GROUPS, {**asked, "GroupType": "ECS"}, size=_GROUPS_A_PAGE)
    members = by_number(place.reading, _MEMBERS, asked, size=_MEMBERS_A_PAGE) if groups else []
    with reading(place.reading.name_call(_GROUPS.call)):
        return [
            _group(each, [one for one in members if one["ScalingGroupId"] == each["ScalingGroupId"]]) for each in groups
        ]


def one_group(place: Region, line: Client, group_id: str) -> Group:
    """The group of that id as it is now.

    Raises:
        NotFoundError: ESS knows no such group here.
        CloudError: no answer.

    """
    asked = {"RegionId": place.region, "ScalingGroupIds": [group_id]}
    groups = by_number(line, _GROUPS, asked, size=_GROUPS_A_PAGE)
    if not any(each.get("ScalingGroupId") == group_id for each in groups):
        raise NotFoundError(f"there is no scaling group {group_id} in {place.name}", code=NO_GROUP)
    members = by_number(line, _MEMBERS, {"RegionId": place.region, "ScalingGroupId": group_id}, size=_MEMBERS_A_PAGE)
    with reading(line.name_call(_GROUPS.call)):
        return _group(next(each for each in groups if each["ScalingGroupId"] == group_id), members)


def group_of(place: Region, line: Client, node_id: str) -> Group | None:
    """The group that a machine is a member of now; None where it is in none."""
    members = by_number(line, _MEMBERS, {"RegionId": place.region, "InstanceIds": [node_id]}, size=_MEMBERS_A_PAGE)
    with reading(line.name_call(_MEMBERS.call)):
        names = [each["ScalingGroupId"] for each in members if each["InstanceId"] == node_id]
    return one_group(place, line, names[0]) if names else None


def types_of(place: Region, group: Group) -> frozenset[str]:
    """What a group launches. Sources: DescribeScalingConfigurations, DescribeLaunchTemplateVersions."""
    if group.types:
        return group.types
    if group.configuration is not None:
        answer = place.reading.ask(
            _CONFIGURATIONS, {"RegionId": place.region, "ScalingConfigurationIds": [group.configuration]}
        )
        with reading(place.reading.name_call(_CONFIGURATIONS)):
            found = answer["ScalingConfigurations"]
            names = [name for each in found for name in each.get("InstanceTypes") or [each.get("InstanceType")]]
        return frozenset(filter(None, names))
    if group.template is not None:
        name, version = group.template
        return frozenset(filter(None, [template_type(place, name, version)]))
    return frozenset()


def template_type(place: Region, template: str, version: str | None) -> str | None:
    """The machine type that a launch template's version names; None where it leaves it open.

    `version` is a number, Latest, or None or Default for the template's default.

    Raises:
        NotFoundError: there is no such template or version.
        CloudError: no answer.

    """
    found = _newest(place, template, version)
    with reading(place.reading.name_call(_VERSIONS)):
        return found["LaunchTemplateData"].get("InstanceType") or None


def newest_version(place: Region, template: str) -> str:
    """The number of a launch template's newest version; raises CloudError."""
    found = _newest(place, template, "Latest")
    with reading(place.reading.name_call(_VERSIONS)):
        return str(found["VersionNumber"])


def _newest(place: Region, template: str, version: str | None) -> dict[str, Any]:
    """Return a version of a launch template. Source: ECS DescribeLaunchTemplateVersions."""
    asked: dict[str, object] = {"RegionId": place.region, "PageSize": 50, **template_reference(template)}
    if version in (None, "", "Default"):
        asked["DefaultVersion"] = True
    elif version != "Latest":
        asked["LaunchTemplateVersion"] = [version]
    answer = place.reading.ask(_VERSIONS, asked)
    with reading(place.reading.name_call(_VERSIONS)):
        versions = answer["LaunchTemplateVersionSets"]["LaunchTemplateVersionSet"]
        if not versions:
            code = "InvalidLaunchTemplate.NotFound"
            raise NotFoundError(f"there is no launch template {template} in {place.name}", code=code)
        found: dict[str, Any] = max(versions, key=lambda each: int(each["VersionNumber"]))
        return found


def template_reference(template: str) -> dict[str, str]:
    """A launch template by its id, or by its name."""
    return {"LaunchTemplateId" if template.startswith("lt-") else "LaunchTemplateName": template}


def _group(described: Mapping[str, Any], members: Iterable[Mapping[str, Any]]) -> Group:
    state = described.get("LifecycleState", _ACTIVE)
    overrides = described.get("LaunchTemplateOverrides") or ()
    template = described.get("LaunchTemplateId")
    desired = described.get("DesiredCapacity")
    return Group(
        id=described["ScalingGroupId"],
        name=described["ScalingGroupName"],
        min_size=int(described["MinSize"]),
        max_size=int(described["MaxSize"]),
        desired=None if desired is None or described.get("EnableDesiredCapacity") is False else int(desired),
        total=int(described["TotalCapacity"]),
        # A group that is not active does nothing at all.
        suspended=frozenset({*(described.get("SuspendedProcesses") or ()), *([] if state == _ACTIVE else [state])}),
        tags=tags_among(described.get("Tags"), key="TagKey", value="TagValue"),
        members={each["InstanceId"]: _member(each) for each in members},
        configuration=described.get("ActiveScalingConfigurationId") or None,
        template=(template, str(described.get("LaunchTemplateVersion") or "")) if template else None,
        types=frozenset(filter(None, (each.get("InstanceType") for each in overrides))),
    )


def _member(described: Mapping[str, Any]) -> Member:
    # Whether a managed one (Entrusted) is released at a removal, Alibaba's own pages say both ways.
    return Member(state=described["LifecycleState"], attached=described["CreationType"] != "AutoCreated")


# What a scaling group tried to launch, by its own record.

_CALL = "ess:DescribeScalingActivities"
_A_PAGE = 50  # the largest; the newest come first, and older ones say nothing of today
_FAILED = frozenset({"Failed", "Warning", "Rejected"})  # not at all, in part, not begun
_SUCCEEDED = frozenset({"Successful", "Warning"})
_MADE = ("CreatedCapacity", "StartedCapacity", "CreatedInstances", "StartedInstances")


def attempts(place: Region, group_id: str) -> list[Attempt]:
    """The newest that have ended. Source: DescribeScalingActivities.

    Raises:
        CloudError: no answer, or no right to ask.

    """
    line = place.reading
    answer = line.ask(_CALL, {"RegionId": place.region, "ScalingGroupId": group_id, "PageSize": _A_PAGE})
    with reading(line.name_call(_CALL)):
        own = [each for each in answer["ScalingActivities"] if each["ScalingGroupId"] == group_id]
        return [found for each in own for found in _attempt(each)]


def _attempt(described: Mapping[str, Any]) -> Iterator[Attempt]:
    """The activity as a try to launch; nothing where it tried nothing, or goes on."""
    status = described["StatusCode"]
    refused = _refusal_code(described) if status in _FAILED else None
    made = status in _SUCCEEDED and any(described.get(name) for name in _MADE)
    if refused is not None or made or status == "Failed":
        began = need_time(described["StartTime"])
        # Times have no seconds. The minute's end is taken: a group that has no stock says so within seconds.
        ended = need_time(described.get("EndTime") or described["StartTime"]).replace(second=59)
        yield Attempt(began=began, ended=ended, refused=refused)


def _refusal_code(described: Mapping[str, Any]) -> str | None:
    """The first of its errors that means that there is no machine."""
    errors = [(described.get("ErrorCode"), described.get("ErrorMessage"))]
    errors += [(each.get("Code"), each.get("Message")) for each in described.get("ErrorMessages") or ()]
    return next((f"{code}: {text or 'no reason given'}" for code, text in errors if code and no_machine(code)), None)
