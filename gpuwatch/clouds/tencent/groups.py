"""Auto Scaling's groups in our words. A group is known by its id, which no other region has."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.clouds import NotFoundError
from gpuwatch.clouds.groups import Attempt, ScalingGroup
from gpuwatch.clouds.tags import tags_among
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.errors import asking, no_machine
from gpuwatch.clouds.tencent.owners import managed_by
from gpuwatch.clouds.tencent.places import Region
from gpuwatch.clouds.times import need_time
from gpuwatch.model.fleet import NodeGroup

_DESCRIBE = "DescribeAutoScalingGroups"
_MEMBERS = "DescribeAutoScalingInstances"
_IDS_A_CALL = 100
# A group that is switched off neither launches nor ends machines. It has one switch for both.
_SWITCHED_OFF = frozenset({"Launch", "Terminate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One machine of a group; `state` is its LifeCycleState, such as IN_SERVICE.

    `made` is whether the group made it: a machine that was attached by hand is only detached when the group removes it.
    """

    group_id: str
    state: str
    protected: bool
    instance_type: str
    made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(ScalingGroup):
    """One Auto Scaling group, as the service describes it."""

    desired: int
    zones: tuple[str, ...]
    members: Mapping[str, Member]
    types: frozenset[str]  # of its members and of its launch configuration

    @property
    def owner(self) -> str | None:
        """The other system that drives the group, whatever its tags consent to."""
        return managed_by(self.tags, name=self.name, in_own_group=True)

    def as_node_group(self, place: Region, *, fleet: str, now: datetime) -> NodeGroup:
        """The group in our words."""
        return NodeGroup(
            min_size=self.min_size,
            max_size=self.max_size,
            desired=self.desired,
            region=place.region,
            zones=self.zones,
            suspended=self.suspended,
            instance_type=next(iter(self.types)) if len(self.types) == 1 else None,
            account=place.account,
            node_ids=tuple(sorted(self.members)),
            **self.consent(fleet, now),
        )


def members(place: Region) -> dict[str, Member]:
    """Every machine in a group of the place, by its id. Source: DescribeAutoScalingInstances to its last page."""
    return _members(place.reading, place.reading.list_all("as", _MEMBERS, "AutoScalingInstanceSet", "InstanceId"))


def member(line: Line, node_id: str) -> Member | None:
    """A machine as a member of its group; None: it is in none. Source: DescribeAutoScalingInstances."""
    by_id = [{"Name": "instance-id", "Values": [node_id]}]  # a call by ids may refuse one that is in no group
    own = line.list_all("as", _MEMBERS, "AutoScalingInstanceSet", "InstanceId", Filters=by_id)
    return _members(line, own).get(node_id)


def every_group(place: Region, known: Mapping[str, Member]) -> list[Group]:
    """Every group of the place; `known` are the members of all of them.

    Sources: DescribeAutoScalingGroups and DescribeLaunchConfigurations, to their last pages.
    """
    line = place.reading
    found = line.list_all("as", _DESCRIBE, "AutoScalingGroupSet", "AutoScalingGroupId")
    return _groups(line, found, known)


def one_group(line: Line, group_id: str) -> Group:
    """The group of that id as it is now.

    Raises:
        NotFoundError: there is no such group here.
        CloudError: no answer.

    """
    try:
        answer = line.ask("as", _DESCRIBE, AutoScalingGroupIds=[group_id])
    except NotFoundError as error:
        raise NotFoundError(f"there is no Auto Scaling group {group_id}", code=error.code) from None
    with asking(line.name_call(_DESCRIBE)):
        found = list(answer["AutoScalingGroupSet"])
    if not found:
        raise NotFoundError(f"there is no Auto Scaling group {group_id}", code="GroupNotFound")
    by_group = [{"Name": "auto-scaling-group-id", "Values": [group_id]}]
    own = line.list_all("as", _MEMBERS, "AutoScalingInstanceSet", "InstanceId", Filters=by_group)
    return _groups(line, found[:1], _members(line, own))[0]


def _members(line: Line, described: list[dict[str, Any]]) -> dict[str, Member]:
    with asking(line.name_call(_MEMBERS)):
        return {
            each["InstanceId"]: Member(
                group_id=each["AutoScalingGroupId"],
                state=each["LifeCycleState"],
                protected=each["ProtectedFromScaleIn"],
                instance_type=each.get("InstanceType") or "",
                made=each["CreationType"] == "AUTO_CREATION",
            )
            for each in described
        }


def _groups(line: Line, described: list[dict[str, Any]], known: Mapping[str, Member]) -> list[Group]:
    types = _types(line, sorted({each.get("LaunchConfigurationId") or "" for each in described} - {""}))
    with asking(line.name_call(_DESCRIBE)):
        return [_group(each, known, types.get(each.get("LaunchConfigurationId") or "", ())) for each in described]


def _types(line: Line, configurations: list[str]) -> dict[str, tuple[str, ...]]:
    """The machine types of launch configurations. Source: DescribeLaunchConfigurations."""
    found: dict[str, tuple[str, ...]] = {}
    call = "DescribeLaunchConfigurations"
    for begin in range(0, len(configurations), _IDS_A_CALL):
        ids = configurations[begin : begin + _IDS_A_CALL]
        shown = line.list_all("as", call, "LaunchConfigurationSet", "LaunchConfigurationId", LaunchConfigurationIds=ids)
        for each in shown:
            several = each.get("InstanceTypes") or [each.get("InstanceType")]
            found[each["LaunchConfigurationId"]] = tuple(filter(None, several))
    return found


def _group(described: Mapping[str, Any], known: Mapping[str, Member], types: tuple[str, ...]) -> Group:
    group_id = described["AutoScalingGroupId"]
    own = {node_id: member for node_id, member in known.items() if member.group_id == group_id}
    return Group(
        id=group_id,
        name=described["AutoScalingGroupName"],
        min_size=described["MinSize"],
        max_size=described["MaxSize"],
        desired=described["DesiredCapacity"],
        zones=tuple(described.get("ZoneSet") or ()),
        suspended=frozenset() if described["EnabledStatus"] == "ENABLED" else _SWITCHED_OFF,
        tags=tags_among(described.get("Tags")),
        members=own,
        types=frozenset(filter(None, [*types, *(member.instance_type for member in own.values())])),
    )


# What an Auto Scaling group tried to launch, by its own record.

_CALL = "DescribeAutoScalingActivities"
_LAUNCHES = "SCALE_OUT"
_LOOKED_BACK = timedelta(hours=1)  # nobody waits longer for a group
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_FAILED = frozenset({"FAILED", "PARTIALLY_SUCCESSFUL", "CANCELLED"})  # not at all, in part, not begun
# These tried, whatever they say. A cancelled one, such as during the cooldown, tried nothing where it names no reason.
_TRIED = frozenset({"FAILED", "PARTIALLY_SUCCESSFUL", "SUCCESSFUL"})
# Messages name CVM's own code, as in: LatestOperationCode: `ResourceInsufficient`.
_NAMED = re.compile(r"Code\W{1,3}([A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)*)")


def attempts(place: Region, group_id: str, now: datetime) -> list[Attempt]:
    """Those of the last hour that have ended. Source: DescribeAutoScalingActivities to its last page.

    Raises:
        CloudError: no answer, or no right to ask.

    """
    filters = [
        {"Name": "auto-scaling-group-id", "Values": [group_id]},
        {"Name": "activity-type", "Values": [_LAUNCHES]},
    ]
    since = (now - _LOOKED_BACK).strftime(_TIME)
    line = place.reading
    found = line.list_all("as", _CALL, "ActivitySet", "ActivityId", Filters=filters, StartTime=since)
    with asking(line.name_call(_CALL)):
        own = [each for each in found if (each["AutoScalingGroupId"], each["ActivityType"]) == (group_id, _LAUNCHES)]
        return [attempt for each in own for attempt in _attempt(each)]


def _attempt(described: Mapping[str, Any]) -> Iterator[Attempt]:
    """The activity as a try to launch; nothing where it tried nothing, or goes on."""
    status = described["StatusCode"]
    refused = _refusal_code(described) if status in _FAILED else None
    if refused is not None or status in _TRIED:
        began = need_time(described["StartTime"])
        yield Attempt(began=began, ended=need_time(described.get("EndTime") or described["StartTime"]), refused=refused)


def _refusal_code(described: Mapping[str, Any]) -> str | None:
    """The first of its errors that means that there is no machine."""
    for each in described.get("DetailedStatusMessageSet") or ():
        text = each.get("Message") or ""
        for code in (each.get("Code") or "", *_NAMED.findall(text)):
            if no_machine(code):
                return f"{code}: {text or described.get('StatusMessageSimplified') or 'no reason given'}"
    text = described.get("StatusMessage") or ""
    code = next(filter(no_machine, _NAMED.findall(text)), None)
    return None if code is None else f"{code}: {text}"
