"""Alibaba Cloud's instances in our words."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.alibaba.client import Client
from gpuwatch.clouds.alibaba.errors import NO_INSTANCE
from gpuwatch.clouds.alibaba.groups import Group, Member
from gpuwatch.clouds.alibaba.owners import managed_by
from gpuwatch.clouds.alibaba.pages import List, by_token, first, member_at
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.alibaba.seen import End
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.silence import as_last_seen
from gpuwatch.clouds.tags import claims, tags_among
from gpuwatch.clouds.times import read_time
from gpuwatch.model.cloud_notice import CloudNotice, NoticeKind
from gpuwatch.model.fleet import CapacityType, Node, NodeState

# How an instance of Alibaba Cloud is paid for, and whether a stop ends that.
#
# The economical mode (StopCharging) is for pay-as-you-go and spot instances in a VPC without local disks. Where it does
# not apply, ECS refuses nothing: it stops the machine and goes on billing it.

STOP_CHARGING = "StopCharging"
_SPOT = ("SpotWithPriceLimit", "SpotAsPriceGo")


def capacity_type(described: Mapping[str, Any]) -> CapacityType:
    """How it was bought. What is on a dedicated host or in a reservation is paid for whether it runs or not."""
    if _member(described, "DedicatedHostAttribute", "DedicatedHostId"):
        return CapacityType.DEDICATED_HOST
    if described.get("InstanceChargeType") == "PrePaid":
        return CapacityType.PREPAID
    if described.get("SpotStrategy") in _SPOT:
        return CapacityType.SPOT
    if _member(described, "EcsCapacityReservationAttr", "CapacityReservationId"):
        return CapacityType.RESERVED
    return CapacityType.ON_DEMAND


def still_billed(described: Mapping[str, Any]) -> str | None:
    """Why a stop would not end what it costs per hour, or, of a stopped machine, did not; None: it does."""
    kind = capacity_type(described)
    if kind is CapacityType.PREPAID:
        return f"it is prepaid until {described.get('ExpiredTime') or 'the end of its term'}"
    if kind is CapacityType.DEDICATED_HOST:
        return f"it is on the dedicated host {_member(described, 'DedicatedHostAttribute', 'DedicatedHostId')}"
    if kind is CapacityType.RESERVED:
        name = _member(described, "EcsCapacityReservationAttr", "CapacityReservationId")
        return f"it is in the capacity reservation {name}"
    mode = described.get("StoppedMode")
    if described.get("Status") == "Stopped":
        return None if mode == STOP_CHARGING else f"it is stopped in the mode {mode or 'unknown'}, not {STOP_CHARGING}"
    if described.get("LocalStorageAmount"):
        return "it has local disks, and Alibaba Cloud goes on billing such a machine when it is stopped"
    if described.get("InstanceNetworkType") == "classic":
        return "it is in a classic network, where Alibaba Cloud goes on billing a stopped machine"
    return None


def _member(described: Mapping[str, Any], attribute: str, name: str) -> str:
    found = described.get(attribute)
    return str(found.get(name) or "") if isinstance(found, Mapping) else ""


# What machine types bring, where no machine of the type shows it: for launches and groups. Each is asked for once.

_NVIDIA = "NVIDIA"


class MachineTypes:
    """The GPUs of each type, by its name."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._gpus: dict[str, tuple[int, bool]] = {}
        self._lock = threading.Lock()

    def has_gpus(self, place: Region, names: Iterable[str]) -> bool:
        """Whether any of these types has GPUs that the agent can read.

        Raises:
            CloudError: no answer.

        """
        return any((self.gpus(place, name) or (0, False))[0] > 0 for name in names)

    def gpus(self, place: Region, name: str) -> tuple[int, bool] | None:
        """How many GPUs a type has, and whether they are NVIDIA's; None: the region does not describe the type.

        Source: DescribeInstanceTypes, one type a call, because one unknown name fails a whole call.
        """
        with self._lock:
            if name in self._gpus:
                return self._gpus[name]
        call = "ecs:DescribeInstanceTypes"
        try:
            answer = place.reading.ask(call, {"InstanceTypes": [name]})
        except CloudError as error:
            if error.code.startswith("InvalidInstanceType"):
                return None
            raise
        with reading(place.reading.name_call(call)):
            described = {each["InstanceTypeId"]: each for each in answer["InstanceTypes"]["InstanceType"]}
            if name not in described:
                return None
            found = gpus_of(described[name])
        with self._lock:
            self._gpus[name] = found
        return found


def gpus_of(described: dict[str, object]) -> tuple[int, bool]:
    """The GPUs that a type or a machine is described with; a slice of one counts as one.

    Alibaba writes a slice as GPUAmount 0 or 1 with the GPUSpec "NVIDIA A10*1/12".
    """
    spec = str(described.get("GPUSpec") or "")
    amount = int(float(str(described["GPUAmount"] or 0)))
    return max(amount, 1 if spec else 0), not spec or _NVIDIA in spec.upper()


DESCRIBE = List(call="ecs:DescribeInstances", path=("Instances", "Instance"), identity="InstanceId", dry=True)
PAGE_SIZE = 100  # the largest that DescribeInstances takes
_IDS_A_CALL = 100
_NO_SUCH = "InvalidInstanceId"  # and not, for example, a region that is not found

_STATES = {
    "Pending": NodeState.PENDING,
    "Starting": NodeState.PENDING,
    "Running": NodeState.RUNNING,
    "Stopping": NodeState.STOPPING,
    "Stopped": NodeState.STOPPED,
}
_UNANSWERED = "its end was asked for without an answer, and ECS shows an end as a stop"
_RECYCLING = "recycling"  # the lock of a spot instance that is about to be released
_SERVING = ("InService", "Pending", "Protected", "Removing")  # a member in another state is somebody's


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance as ECS describes it, and whether we know of an end that has been asked for."""

    described: Mapping[str, Any]
    ending: End | None = None  # we have asked for its end: ECS shows that as a stop

    @property
    def id(self) -> str:
        """Return the instance's id."""
        name: str = self.described["InstanceId"]
        return name

    @property
    def tags(self) -> dict[str, str]:
        """Its tags; one that has lost its value is there all the same, and may be a protection."""
        found = [each for each in _entries(self.described, "Tags", "Tag") if _has(each, "TagKey")]
        return tags_among(found, key="TagKey", value="TagValue")

    @property
    def locks(self) -> tuple[str, ...]:
        """Why Alibaba has locked it, in its words."""
        reasons = _entries(self.described, "OperationLocks", "LockReason")
        return tuple(str(each.get("LockReason", "")).lower() for each in reasons)

    @property
    def whole(self) -> bool:
        """Whether its description has the parts that decisions rest on; a tag that is cut off could be anything."""
        parts = ("InstanceType", "ZoneId", "InstanceChargeType", "CreationTime")
        tags = _entries(self.described, "Tags", "Tag")
        return (
            all(self.described.get(part) for part in parts)
            and all(_has(tag, "TagKey", "TagValue") for tag in tags)
            and self.launched_at is not None
        )

    @property
    def launched_at(self) -> datetime | None:
        """Its last start, to the minute, as Alibaba writes it; None: the description does not say."""
        return read_time(self.described.get("StartTime") or self.described.get("CreationTime"))

    @property
    def state(self) -> NodeState:
        """Its state; a word that we have never heard, or a description with holes, is a doubt about this machine."""
        state = _STATES.get(str(self.described.get("Status")), NodeState.UNKNOWN)
        if not self.whole or state is NodeState.UNKNOWN:
            return NodeState.UNKNOWN
        return NodeState.TERMINATING if self.ending is End.ACCEPTED or _RECYCLING in self.locks else state


def list_instances(
    place: Region, parameters: Mapping[str, object], *, size: int = PAGE_SIZE
) -> list[Mapping[str, Any]]:
    """Every instance of the place that matches. Source: DescribeInstances to its last page.

    Raises:
        CloudError: the list could not be had whole.

    """
    return list(by_token(place.reading, DESCRIBE, {"RegionId": place.region, **parameters}, size=size))


def of_ids(place: Region, line: Client, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """Those of the instances that are there. Source: DescribeInstances by ids, which are then no list with pages."""
    found: list[Mapping[str, Any]] = []
    for begin in range(0, len(ids), _IDS_A_CALL):
        batch = ids[begin : begin + _IDS_A_CALL]
        quoted = ",".join(f'"{each}"' for each in batch)
        asked = {"RegionId": place.region, "InstanceIds": f"[{quoted}]", "MaxResults": _IDS_A_CALL}
        answer = line.ask(DESCRIBE.call, asked)
        with reading(line.name_call(DESCRIBE.call)):
            found += [each for each in answer["Instances"]["Instance"] if each["InstanceId"] in batch]
    return found


def describe_instance(place: Region, line: Client, node_id: str) -> Mapping[str, Any]:
    """One instance by its id.

    Raises:
        NotFoundError: ECS does not know it here.
        CloudError: no answer.

    """
    found = of_ids(place, line, [node_id])
    if not found:
        raise NotFoundError(f"ECS knows no instance {node_id} in {place.name}", code=NO_INSTANCE)
    return found[0]


def is_denied(line: Client, node_id: str) -> bool:
    """Whether ECS says of a machine that it does not exist. Source: DescribeInstanceAttribute."""
    try:
        line.ask("ecs:DescribeInstanceAttribute", {"InstanceId": node_id})
    except CloudError as error:
        return error.code.startswith(_NO_SUCH)
    return False


def gpu_count(described: Mapping[str, Any]) -> int | None:
    """How many GPUs it has; None where its description does not tell."""
    if described.get("GPUAmount") is None:
        return None
    try:
        return gpus_of(dict(described))[0]
    except (ValueError, OverflowError):  # "many", or an infinity
        return None


class Translator:
    """Makes nodes of instances."""

    def __init__(self, *, fleet: str) -> None:
        """For one fleet's tags."""
        self.fleet = fleet

    def nodes(
        self, place: Region, instances: Sequence[Instance], groups: Mapping[str, Group], now: datetime
    ) -> list[Node]:
        """The GPU machines among the instances, and those of the fleet that may be some.

        `groups` are the groups of the place, by the ids of their members.
        """
        with reading(place.reading.name_call(DESCRIBE.call)):
            found = [self.node(place, each, groups.get(each.id), now) for each in instances]
        return [node for node in found if node.known_gpus > 0 or (node.gpu_count is None and node.enrolled)]

    def node(self, place: Region, instance: Instance, group: Group | None, now: datetime) -> Node:
        """Alibaba's words in ours; `group` is the scaling group that it is a member of.

        Raises:
            CloudError: the account's number could not be had.

        """
        described, tags = instance.described, instance.tags
        member = None if group is None else group.members.get(instance.id)
        local = described.get("LocalStorageAmount")
        node = Node(
            id=instance.id,
            name=described.get("InstanceName") or instance.id,
            state=_leaving(member, instance.state),
            instance_type=described.get("InstanceType", ""),
            gpu_count=gpu_count(described),
            region=place.region,
            zone=described.get("ZoneId", ""),
            capacity_type=capacity_type(described),
            launched_at=instance.launched_at,
            address=first(member_at(described, "VpcAttributes", "PrivateIpAddress", "IpAddress")),
            managed_by=self._managed_by(instance, group),
            instance_store=bool(local),
            account=place.account,
            group=group.id if group is not None and member is not None else None,
            scale_in_protected=member is not None and member.protected,
            cannot_stop=_cannot_stop(instance),
            cannot_terminate=_cannot_terminate(instance, group),
            still_billed=still_billed(described),
            image=described.get("ImageId") or None,
            announced=_release_notice(described, now),
            tags=tags,
            **claims(tags, fleet=self.fleet, now=now),
        )
        return node if instance.ending in {None, End.ACCEPTED} else as_last_seen(node, _UNANSWERED)

    def _managed_by(self, instance: Instance, group: Group | None) -> str | None:
        """Which other system owns it: not its group, where the group's owner consents and it serves there."""
        member = None if group is None else group.members.get(instance.id)
        name = str(instance.described.get("InstanceName") or "")
        if group is None or member is None:
            return managed_by(instance.tags, name=name)
        if not group.is_enrolled(self.fleet):
            other = managed_by({key: value for key, value in group.tags.items() if key != "acs:ros:stackId"})
            return other or managed_by({}, name=name) or f"Auto Scaling group {group.name}"
        if not member.state.startswith(_SERVING):
            return f"Auto Scaling group {group.name} ({member.state})"
        return managed_by(instance.tags, name=name, group=group.tags)


def _release_notice(described: Mapping[str, Any], now: datetime) -> tuple[CloudNotice, ...]:
    """Its automatic release (AutoReleaseTime), which somebody has set. A term that ends may be renewed until then."""
    end = read_time(described.get("AutoReleaseTime"))
    if end is None:
        return ()
    return (CloudNotice(kind=NoticeKind.TERMINATION.value, action="auto_release", deadline=end, seen_at=now),)


def _leaving(member: Member | None, state: NodeState) -> NodeState:
    """A member that its group is releasing is on its way out, whatever ECS shows meanwhile."""
    known = state is not NodeState.UNKNOWN
    return NodeState.TERMINATING if known and member is not None and member.leaving and not member.attached else state


def _cannot_stop(instance: Instance) -> str | None:
    """Why Alibaba refuses a stop."""
    locks = [each for each in instance.locks if each != _RECYCLING]
    return f"Alibaba Cloud has locked it ({', '.join(locks)})" if locks else None


def _cannot_terminate(instance: Instance, group: Group | None) -> str | None:
    """Why Alibaba refuses its end, or why that would not be its end."""
    if instance.described.get("InstanceChargeType") == "PrePaid":
        return "it is prepaid, and such a machine can only be refunded"
    if instance.described.get("DeletionProtection"):
        return "its deletion protection is on"
    member = None if group is None else group.members.get(instance.id)
    if member is not None and member.attached:
        return "it was put into its scaling group by hand: the group would not release it, and it would go on running"
    return _cannot_stop(instance)


def _entries(described: Mapping[str, Any], *path: str) -> list[Mapping[str, Any]]:
    """A list of objects within a description, without what is no object."""
    return [each for each in member_at(described, *path) or () if isinstance(each, Mapping)]


def _has(entry: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(entry.get(name), str) for name in names)
