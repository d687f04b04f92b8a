"""CVM's instances in our words."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds import FLEET_TAG, NotFoundError, machine_types
from gpuwatch.clouds.tags import claims, tags_among
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.groups import Group, Member
from gpuwatch.clouds.tencent.owners import Clusters, managed_by
from gpuwatch.clouds.tencent.places import Region
from gpuwatch.clouds.times import read_time
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.stops import LastStop
from gpuwatch.runtime.clock import Clock

# How many GPUs a machine type has.

_TYPES = "DescribeInstanceTypeConfigs"
_OTHER_MAKERS = ("AMD", "ASCEND", "ENFLAME", "ZIXIAO", "INTEL", "XPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """What a machine type brings. Source: DescribeInstanceTypeConfigs, GpuCount and GpuType."""

    gpu_count: int
    nvidia: bool


MachineTypes = machine_types.MachineTypes[Region, MachineType]


def described_types(place: Region, names: list[str]) -> Mapping[str, MachineType]:
    """Those of the types that are described_types, in whatever zone. The call's filter takes one value."""
    found = ((name, _described_type(place, name)) for name in names)
    return {name: kind for name, kind in found if kind is not None}


def _described_type(place: Region, name: str) -> MachineType | None:
    """One type, in whatever zone. Source: DescribeInstanceTypeConfigs; its filter takes one value."""
    answer = place.reading.ask("cvm", _TYPES, Filters=[{"Name": "instance-type", "Values": [name]}])
    with asking(place.reading.name_call(_TYPES)):
        for each in answer["InstanceTypeConfigSet"]:
            if each["InstanceType"] == name:
                count = max(float(each.get("GpuCount") or 0), float(each.get("GPU") or 0))
                maker = (each.get("GpuType") or "").upper()
                return MachineType(gpu_count=math.ceil(count), nvidia=not any(word in maker for word in _OTHER_MAKERS))
    return None


_DESCRIBE = "DescribeInstances"
_VALUES_A_FILTER = 5  # the limit of DescribeInstances
UNKNOWN_ID = "InvalidInstanceId.NotFound"

# InstanceState (cloud.tencent.com/document/api/213/15753#InstanceStatus). All others (REBOOTING, RESCUE_MODE, a word
# that we have never heard) are a doubt.
_STATES = {
    "PENDING": NodeState.PENDING,
    "RUNNING": NodeState.RUNNING,
    "STARTING": NodeState.PENDING,
    "STOPPING": NodeState.STOPPING,
    "STOPPED": NodeState.STOPPED,
    "SHUTDOWN": NodeState.TERMINATING,  # in the recycle bin, and not billed
    "TERMINATING": NodeState.TERMINATING,
}
# What never became a machine, where the launch was ours: of another's machine that word may be about something else.
_NEVER_MADE = "LAUNCH_FAILED"
# RestrictState of what Tencent Cloud has shut off, for its account's debts say, and will take away.
_ISOLATED, _STANDS = "PROTECTIVELY_ISOLATED", frozenset({NodeState.RUNNING, NodeState.STOPPED, NodeState.PENDING})
# LatestOperation that is OPERATING: InstanceState may still be that from before it.
_UNDER_WAY = {
    "StopInstances": NodeState.STOPPING,
    "StartInstances": NodeState.PENDING,
    "TerminateInstances": NodeState.TERMINATING,
}
# InstanceChargeType. An unknown word is a way of paying that we do not know: it is left alone.
_CHARGES = {
    "POSTPAID_BY_HOUR": CapacityType.ON_DEMAND,
    "SPOTPAID": CapacityType.SPOT,
    "PREPAID": CapacityType.PREPAID,
    "CDHPAID": CapacityType.DEDICATED_HOST,
    "CDCPAID": CapacityType.DEDICATED_HOST,
}
_PAID_ANYWAY = {
    CapacityType.PREPAID: "it is paid by the month or the year (PREPAID)",
    CapacityType.DEDICATED_HOST: "its dedicated host or cluster is paid whether it runs or not",
    CapacityType.SPOT: "it is a spot instance, and Tencent Cloud goes on billing these when they are stopped",
}
_STOP, _DOWN = "StopInstances", frozenset({NodeState.STOPPING, NodeState.STOPPED})
_LOCAL = "LOCAL_"  # disk types
_STOPS_CHARGING, _KEEPS_CHARGING = "STOP_CHARGING", "KEEP_CHARGING"
_NO_NAME = ("", "未命名")  # InstanceName of a machine that nobody named
# A member in another state is being attached, detached, or worked on by the group's hooks.
_SERVING = ("IN_SERVICE", "CREATING", "TERMINATING", "IN_LAUNCHING_HOOK", "IN_TERMINATING_HOOK", "STARTING")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance as CVM describes it."""

    described: Mapping[str, Any]
    id: str

    @property
    def type(self) -> str:
        """Return the instance's machine type."""
        return self.described.get("InstanceType") or ""

    @property
    def charge(self) -> str:
        """How it is paid, in Tencent Cloud's word."""
        return self.described.get("InstanceChargeType") or ""

    @property
    def zone(self) -> str:
        """Return the instance's zone."""
        return (self.described.get("Placement") or {}).get("Zone") or ""

    @property
    def tags(self) -> dict[str, str]:
        """Return the instance's tags."""
        return tags_among(tag for tag in self.described.get("Tags") or () if "Key" in tag)

    @property
    def made_at(self) -> datetime | None:
        """When it was made: ISO 8601 in UTC. A time without a zone cannot be read."""
        return read_time(self.described.get("CreatedTime"))

    @property
    def disks(self) -> list[str]:
        """The types of its disks."""
        disks = [self.described.get("SystemDisk") or {}, *(self.described.get("DataDisks") or ())]
        return [disk.get("DiskType") or "" for disk in disks]

    @property
    def whole(self) -> bool:
        """Whether its description has the parts that decisions rest on; a tag that is cut off could be anything."""
        tagged = all("Key" in tag and "Value" in tag for tag in self.described.get("Tags") or ())
        return tagged and "Tags" in self.described and bool(self.type and self.charge and self.zone and self.made_at)

    @property
    def is_launch_of_ours(self) -> bool:
        """Whether it has the name and the tag of a launch of gpuwatch; the tag of a later decision is another one."""
        key = self.tags.get(DECISION_TAG)
        return bool(key) and self.described.get("InstanceName") == key

    @property
    def state(self) -> NodeState:
        """Its state. A description with holes, or a word that we have never heard, is a doubt about this machine."""
        word = self.described.get("InstanceState") or ""
        if word == _NEVER_MADE and self.is_launch_of_ours:
            return NodeState.TERMINATED
        state = _STATES.get(word, NodeState.UNKNOWN)
        if self.described.get("RestrictState") == _ISOLATED and state in _STANDS:
            return NodeState.TERMINATING if self.whole else NodeState.UNKNOWN
        if (
            state in {NodeState.RUNNING, NodeState.STOPPED}
            and self.described.get("LatestOperationState") == "OPERATING"
        ):
            state = _UNDER_WAY.get(self.described.get("LatestOperation") or "", state)
        return state if state is NodeState.TERMINATED or self.whole else NodeState.UNKNOWN

    @property
    def capacity_type(self) -> CapacityType:
        """How it was bought."""
        return _CHARGES.get(self.charge, CapacityType.RESERVED)

    @property
    def still_billed(self) -> str | None:
        """Why a stop would not end what it costs per hour, or has not.

        Source: "No Charges When Shut Down for Pay-as-You-Go Instances" (cloud.tencent.com/document/product/213/19918):
        pay-as-you-go machines with cloud disks alone stop charging, and StopChargingMode says so after the stop.
        """
        if self.capacity_type in _PAID_ANYWAY:
            return _PAID_ANYWAY[self.capacity_type]
        if self.capacity_type is not CapacityType.ON_DEMAND:
            return f"nobody knows what a stop does to the way in which it is paid, {self.charge!r}"
        local = next((disk for disk in self.disks if disk.startswith(_LOCAL)), None)
        if local is not None:
            return (
                f"it has a local disk ({local}), and Tencent Cloud goes on billing such machines when they are stopped"
            )
        mode = self.described.get("StopChargingMode")
        if self.state is not NodeState.STOPPED or mode == _STOPS_CHARGING:
            return None
        if mode == _KEEPS_CHARGING:
            return "it was stopped without STOP_CHARGING, and goes on charging (KEEP_CHARGING)"
        return f"Tencent Cloud does not say that it has stopped charging (StopChargingMode {mode})"

    @property
    def gpus(self) -> int | None:
        """How many GPUs it has; a part of one (vGPU) counts as one. None: its description does not say."""
        info = self.described.get("GPUInfo") or {}
        count = info.get("GPUCount")
        return None if not isinstance(count, (int, float)) or count <= 0 else max(1, math.ceil(count))


def list_instances(line: Line, **parameters: object) -> list[Instance]:
    """Every instance that matches. Source: DescribeInstances to its last page.

    Raises:
        CloudError: the list could not be had whole.

    """
    return [_instance(each) for each in line.list_all("cvm", _DESCRIBE, "InstanceSet", "InstanceId", **parameters)]


def by_ids(line: Line, ids: list[str]) -> list[Instance]:
    """Those of these instances that are there. By filter: one unknown id may fail a call by ids."""
    return [
        each
        for begin in range(0, len(ids), _VALUES_A_FILTER)
        for each in list_instances(
            line, Filters=[{"Name": "instance-id", "Values": ids[begin : begin + _VALUES_A_FILTER]}]
        )
    ]


def describe_instance(line: Line, node_id: str) -> Instance:
    """One instance by its id. Source: DescribeInstances.

    Raises:
        NotFoundError: CVM does not list it here.
        CloudError: no answer.

    """
    answer = line.ask("cvm", _DESCRIBE, InstanceIds=[node_id])
    with asking(line.name_call(_DESCRIBE)):
        for each in answer["InstanceSet"]:
            return _instance(each)
    raise NotFoundError(f"Tencent Cloud lists no instance {node_id}", code=UNKNOWN_ID)


def _instance(described: Mapping[str, Any]) -> Instance:
    return Instance(described=described, id=described["InstanceId"])


class Translator:
    """Makes nodes of instances."""

    def __init__(self, *, fleet: str, clock: Clock, asks_tke: bool = True) -> None:
        """Begin without any machine type. `asks_tke`: somebody may act on the machines."""
        self.fleet, self._clock, self._asks_tke = fleet, clock, asks_tke
        self.types = MachineTypes(clock, "Tencent Cloud", described_types)
        self._clusters = Clusters(clock)

    def nodes(
        self, place: Region, instances: Iterable[Instance], members: Mapping[str, Member], groups: Mapping[str, Group]
    ) -> Iterator[Node]:
        """The GPU machines among the instances; `members` and `groups` are those of the place, by their ids.

        Where the number of GPUs is not known, a machine with the fleet's tag is a node, and another one is left out.
        """
        instances = list(instances)
        self.types.learn(place, (each.type for each in instances if each.gpus is None))
        own = [each.id for each in instances if self._may_be_touched(each)]
        clusters = self._clusters.of_list(place.name, place.reading, own)
        for instance in instances:
            member = members.get(instance.id)
            group = None if member is None else groups.get(member.group_id)
            node = self._node(place, instance, member, group, clusters)
            if node.known_gpus > 0 or (node.gpu_count is None and node.enrolled):
                yield node

    def node(self, place: Region, instance: Instance, member: Member | None, group: Group | None) -> Node:
        """CVM's words in ours; `group` is the Auto Scaling group that it is a member of."""
        if instance.gpus is None:
            self.types.learn(place, [instance.type])
        own = self._may_be_touched(instance)
        clusters = self._clusters.of_machine(place.name, place.reading, instance.id) if own else {}
        return self._node(place, instance, member, group, clusters)

    def _may_be_touched(self, instance: Instance) -> bool:
        """Whether TKE is asked about it: no other machine than the fleet's is touched."""
        return self._asks_tke and instance.tags.get(FLEET_TAG) == self.fleet

    def _node(
        self,
        place: Region,
        instance: Instance,
        member: Member | None,
        group: Group | None,
        clusters: Mapping[str, str],
    ) -> Node:
        described, tags = instance.described, instance.tags
        kind = self.types.known_kind(instance.type)
        gpus = (None if kind is None else kind.gpu_count) if instance.gpus is None else instance.gpus
        name = described.get("InstanceName") or ""
        addresses = described.get("PrivateIpAddresses") or ()
        return Node(
            id=instance.id,
            name=instance.id if name in _NO_NAME else name,
            state=instance.state,
            instance_type=instance.type,
            gpu_count=gpus,
            region=place.region,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            launched_at=instance.made_at,
            address=next(iter(addresses), None),
            managed_by=self._managed_by(instance, clusters.get(instance.id), member, group),
            instance_store=any(disk.startswith(_LOCAL) for disk in instance.disks),
            account=place.account,
            group=None if member is None else member.group_id,
            scale_in_protected=member is not None and member.protected,
            cannot_terminate=_cannot_terminate(described, member),
            still_billed=instance.still_billed,
            last_stop=_last_stop(described, instance.state),
            image=described.get("ImageId") or None,
            announced=None,  # no list of Tencent Cloud has what it will end: a machine's own agent alone knows
            tags=tags,
            **claims(tags, fleet=self.fleet, now=self._clock.now()),
        )

    def _managed_by(
        self, instance: Instance, cluster: str | None, member: Member | None, group: Group | None
    ) -> str | None:
        """Which other system owns it: not its group, where the group's owner consents and it serves there."""
        name = instance.described.get("InstanceName") or ""
        own = managed_by(instance.tags, name=name, cluster=cluster)
        if member is None:
            return own
        if group is None:
            return own or f"Auto Scaling group {member.group_id}"
        if not group.is_enrolled(self.fleet):
            return own or f"Auto Scaling group {group.name}"
        if member.state not in _SERVING:
            return f"Auto Scaling group {group.name} ({member.state})"
        return managed_by(instance.tags, name=name, cluster=cluster, in_own_group=True)


def _last_stop(described: Mapping[str, Any], state: NodeState) -> LastStop | None:
    """By which request it is down. Source: DescribeInstances, LatestOperation and LatestOperationRequestId.

    Any other operation in the place of the stop is somebody's: it hides who stopped the machine.
    """
    if state not in _DOWN:
        return None
    operation, request = described.get("LatestOperation") or "", described.get("LatestOperationRequestId")
    if operation == _STOP:
        return LastStop(request=str(request)) if request else None
    return LastStop(other=f"Tencent Cloud shows another operation of late, {operation or 'none of a call'}")


def _cannot_terminate(described: Mapping[str, Any], member: Member | None) -> str | None:
    """Why Tencent Cloud refuses an end, or does something else."""
    if described.get("DisableApiTermination"):
        return "it is protected against termination in the cloud (DisableApiTermination)"
    if member is not None and not member.made:
        return "it was attached to its Auto Scaling group by hand: the group would only detach it"
    return None
