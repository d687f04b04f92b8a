"""Auto Scaling's groups in our words. A group is known by its id, which no other region has."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds import FLEET_TAG, NotFoundError
from gpuwatch.clouds.tags import claims
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.owners import managed_by
from gpuwatch.clouds.tencent.places import Place
from gpuwatch.model.fleet import NodeGroup
from gpuwatch.model.kubernetes import of_a_cluster

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
class Group:
    """One Auto Scaling group, as the service describes it."""

    id: str
    name: str
    min_size: int
    max_size: int
    desired: int
    zones: tuple[str, ...]
    suspended: frozenset[str]
    tags: Mapping[str, str]
    members: Mapping[str, Member]
    types: frozenset[str]  # of its members and of its launch configuration

    @property
    def owner(self) -> str | None:
        """The other system that drives the group, whatever its tags consent to."""
        return managed_by(self.tags, in_own_group=True)

    def enrolled(self, fleet: str) -> bool:
        """Whether its owner consents to this fleet's controller: by the group's tag, and only where it is theirs."""
        return self.tags.get(FLEET_TAG) == fleet and self.owner is None

    def consents(self, fleet: str) -> bool:
        """Likewise of a Kubernetes cluster's group: whether its nodes may be touched is the guard's to say."""
        return self.tags.get(FLEET_TAG) == fleet and (self.owner is None or of_a_cluster(self.owner))

    def as_node_group(self, place: Place, *, fleet: str, now: datetime) -> NodeGroup:
        """The group in our words."""
        claimed = claims(self.tags, fleet=fleet, now=now)
        return NodeGroup(
            id=self.id,
            name=self.name,
            pool=claimed["pool"],
            min_size=self.min_size,
            max_size=self.max_size,
            desired=self.desired,
            region=place.region,
            zones=self.zones,
            enrolled=self.enrolled(fleet),
            serves_cluster=self.consents(fleet) and self.owner is not None,
            protected=claimed["protected"],
            suspended=self.suspended,
            instance_type=next(iter(self.types)) if len(self.types) == 1 else None,
            account=place.account,
            node_ids=tuple(sorted(self.members)),
        )


def members(place: Place) -> dict[str, Member]:
    """Every machine in a group of the place, by its id. Source: DescribeAutoScalingInstances to its last page."""
    return _members(place.reading, place.reading.listed("as", _MEMBERS, "AutoScalingInstanceSet", "InstanceId"))


def member(line: Line, node_id: str) -> Member | None:
    """A machine as a member of its group; None: it is in none. Source: DescribeAutoScalingInstances."""
    by_id = [{"Name": "instance-id", "Values": [node_id]}]  # a call by ids may refuse one that is in no group
    own = line.listed("as", _MEMBERS, "AutoScalingInstanceSet", "InstanceId", Filters=by_id)
    return _members(line, own).get(node_id)


def listed(place: Place, known: Mapping[str, Member]) -> list[Group]:
    """Every group of the place; `known` are the members of all of them.

    Sources: DescribeAutoScalingGroups and DescribeLaunchConfigurations, to their last pages.
    """
    line = place.reading
    found = line.listed("as", _DESCRIBE, "AutoScalingGroupSet", "AutoScalingGroupId")
    return _groups(line, found, known)


def known(line: Line, group_id: str) -> Group:
    """The group of that id as it is now.

    Raises:
        NotFoundError: there is no such group here.
        CloudError: no answer.

    """
    try:
        answer = line.ask("as", _DESCRIBE, AutoScalingGroupIds=[group_id])
    except NotFoundError as error:
        raise NotFoundError(f"there is no Auto Scaling group {group_id}", code=error.code) from None
    with asking(line.asked(_DESCRIBE)):
        found = list(answer["AutoScalingGroupSet"])
    if not found:
        raise NotFoundError(f"there is no Auto Scaling group {group_id}", code="GroupNotFound")
    by_group = [{"Name": "auto-scaling-group-id", "Values": [group_id]}]
    own = line.listed("as", _MEMBERS, "AutoScalingInstanceSet", "InstanceId", Filters=by_group)
    return _groups(line, found[:1], _members(line, own))[0]


def _members(line: Line, described: list[dict[str, Any]]) -> dict[str, Member]:
    with asking(line.asked(_MEMBERS)):
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
    with asking(line.asked(_DESCRIBE)):
        return [_group(each, known, types.get(each.get("LaunchConfigurationId") or "", ())) for each in described]


def _types(line: Line, configurations: list[str]) -> dict[str, tuple[str, ...]]:
    """The machine types of launch configurations. Source: DescribeLaunchConfigurations."""
    found: dict[str, tuple[str, ...]] = {}
    call = "DescribeLaunchConfigurations"
    for begin in range(0, len(configurations), _IDS_A_CALL):
        ids = configurations[begin : begin + _IDS_A_CALL]
        shown = line.listed("as", call, "LaunchConfigurationSet", "LaunchConfigurationId", LaunchConfigurationIds=ids)
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
        tags={tag["Key"]: tag.get("Value") or "" for tag in described.get("Tags") or ()},
        members=own,
        types=frozenset(filter(None, [*types, *(member.instance_type for member in own.values())])),
    )
