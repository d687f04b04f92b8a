"""EC2's instances in our words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuwatch.clouds import FLEET_TAG, NotFoundError
from gpuwatch.clouds.aws.client import ClientPool, DescribedInstance
from gpuwatch.clouds.aws.disk_keys import DiskKeys, failed_start
from gpuwatch.clouds.aws.groups import Group
from gpuwatch.clouds.aws.notices import Notices, Requests, cannot_stop, cannot_terminate, requests_of
from gpuwatch.clouds.aws.owners import GROUP_TAG, managed_by
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.machine_types import MachineTypes
from gpuwatch.clouds.tags import claims, tags_among
from gpuwatch.clouds.times import read_time
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.stops import LastStop
from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeInfoTypeDef, ReservationTypeDef

_TYPES_A_CALL = 100  # a filter takes up to 200 values
_NVIDIA = "NVIDIA"

_STATES = {
    "pending": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "stopping": NodeState.STOPPING,
    "stopped": NodeState.STOPPED,
    "shutting-down": NodeState.TERMINATING,
    "terminated": NodeState.TERMINATED,
}
# InstanceLifecycle of DescribeInstances; absent for on demand.
_LIFECYCLES = {
    "spot": CapacityType.SPOT,
    "capacity-block": CapacityType.CAPACITY_BLOCK,
    "scheduled": CapacityType.RESERVED,
    "interruptible-capacity-reservation": CapacityType.RESERVED,
}
_DOWN = frozenset({NodeState.STOPPING, NodeState.STOPPED})
_ENDED = _DOWN | {NodeState.TERMINATING, NodeState.TERMINATED}
# StateTransitionReason of a stop: `User initiated (2026-11-28 23:04:56 GMT)`, by EC2's clock.
_STOP_TIME, _STOP_FORM = (
    re.compile(r"\((\d{4}-[01]\d-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d) (?:GMT|UTC)\)"),
    "%Y-%m-%d %H:%M:%S",
)
# StateReason's code after StopInstances, and how StateTransitionReason begins then.
_BY_CALL, _BY_USER = "Client.UserInitiatedShutdown", "User initiated"
_SERVING = ("InService", "Pending", "Terminating")  # a member in another state (Standby, Detaching) is somebody's


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """What a machine type brings. Source: DescribeInstanceTypes, GpuInfo, InstanceStorageSupported and VCpuInfo."""

    gpu_count: int
    nvidia: bool
    instance_store: bool
    vcpus: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance as EC2 describes it, and the account that owns it."""

    described: DescribedInstance
    id: str
    type: str
    account: str

    @property
    def tags(self) -> dict[str, str]:
        """Return the instance's tags."""
        return tags_among(tag for tag in self.described.get("Tags") or () if "Key" in tag)

    @property
    def whole(self) -> bool:
        """Whether its description has the parts that decisions rest on; a tag that is cut off could be anything."""
        described = self.described
        tagged = all("Key" in tag and "Value" in tag for tag in described.get("Tags") or ())
        return (
            tagged
            and bool(self.type and described.get("LaunchTime"))
            and bool(described.get("Placement", {}).get("AvailabilityZone"))
        )

    @property
    def group_name(self) -> str | None:
        """The name of the Auto Scaling group that it says it belongs to."""
        return self.tags.get(GROUP_TAG)


def list_instances(place: Region, filters: "list[FilterTypeDef]", *, page_size: int) -> list[Instance]:
    """Every instance that matches; the order is undefined. Source: DescribeInstances to its last page.

    Raises:
        CloudError: a page could not be had; with a zone in trouble EC2 refuses the whole list.

    """
    pages = place.reading.ec2.get_paginator("describe_instances")
    with place.asking("DescribeInstances"):
        return [
            _instance(instance, reservation)
            for page in pages.paginate(Filters=filters, PaginationConfig={"PageSize": page_size})
            for reservation in page["Reservations"]
            for instance in reservation.get("Instances", ())
        ]


def describe_instance(place: Region, line: ClientPool, node_id: str) -> Instance:
    """One instance by its id. Source: DescribeInstances.

    Raises:
        NotFoundError: EC2 does not know it here.
        CloudError: no answer.

    """
    with place.asking("DescribeInstances"):
        for reservation in line.ec2.describe_instances(InstanceIds=[node_id])["Reservations"]:
            for instance in reservation.get("Instances", ()):
                return _instance(instance, reservation)
    raise NotFoundError(f"EC2 answered nothing about {node_id}", code="InvalidInstanceID.NotFound")


def state_of(instance: Instance) -> NodeState:
    """Its state; a word that we have never heard, or a description with holes, is a doubt about this machine alone."""
    state = _STATES.get(instance.described.get("State", {}).get("Name", ""), NodeState.UNKNOWN)
    return state if state is NodeState.TERMINATED or instance.whole else NodeState.UNKNOWN


def alive(instances: Iterable[Instance]) -> list[Instance]:
    """Those that are not terminated, which EC2 lists for about an hour after their end."""
    return [each for each in instances if state_of(each) is not NodeState.TERMINATED]


class Translator:
    """Makes nodes of instances."""

    def __init__(self, *, fleet: str, clock: Clock, keys: DiskKeys | None = None) -> None:
        """Begin without any type. `keys` is asked whether machines may start again; None: nobody stops them."""
        self.fleet, self._keys = fleet, keys
        self._clock = clock
        self.types = MachineTypes(clock, "EC2", _described_types, a_call=_TYPES_A_CALL)

    def nodes(
        self,
        place: Region,
        instances: Iterable[Instance],
        groups: Mapping[str, Group],
        notices: Notices | None = None,
    ) -> Iterator[Node]:
        """The GPU machines among the instances; `groups` are those of the place, by name.

        `notices` says what EC2 will end; None: nobody asks for that.
        """
        instances = list(instances)
        self.types.learn(place, (instance.type for instance in instances))
        self._learn_keys(place, instances)
        requests = requests_of(place, (instance.described for instance in instances))
        described = [instance.described for instance in instances]
        announced = {} if notices is None else notices.notices_of(place, described, requests)
        for instance in instances:
            node = self._node(place, instance, groups.get(instance.group_name or ""), requests)
            node = replace(node, announced=announced.get(instance.id, ()))
            if node.known_gpus > 0 or (node.gpu_count is None and node.enrolled):
                yield node

    def node(self, place: Region, instance: Instance, group: Group | None) -> Node:
        """EC2's words in ours; `group` is the Auto Scaling group that it says it belongs to, where there is one."""
        self.types.learn(place, [instance.type])
        self._learn_keys(place, [instance])
        return self._node(place, instance, group, requests_of(place, [instance.described]))

    def _learn_keys(self, place: Region, instances: Iterable[Instance]) -> None:
        """Of the fleet's machines alone: no other one is stopped."""
        if self._keys is not None:
            ours = (each for each in instances if each.tags.get(FLEET_TAG) == self.fleet)
            self._keys.learn(place, ((each.id, state_of(each).value, each.described) for each in ours))

    def _node(self, place: Region, instance: Instance, group: Group | None, requests: Requests) -> Node:
        """Return one machine as a node."""
        described, state = instance.described, state_of(instance)
        asked = self._keys if instance.tags.get(FLEET_TAG) == self.fleet and state is NodeState.RUNNING else None
        facts = self.types.known_kind(instance.type)
        member = group.members.get(instance.id) if group is not None else None
        tags = instance.tags
        return Node(
            id=instance.id,
            name=tags.get("Name") or instance.id,
            state=state,
            instance_type=instance.type,
            gpu_count=None if facts is None else facts.gpu_count,
            region=place.region,
            zone=described.get("Placement", {}).get("AvailabilityZone", ""),
            capacity_type=_capacity_type(described),
            launched_at=read_time(described.get("LaunchTime")),
            address=described.get("PrivateIpAddress"),
            managed_by=self._managed_by(instance, group),
            instance_store=True if facts is None else facts.instance_store,
            account=instance.account,
            group=group.id if group is not None and member is not None else None,
            scale_in_protected=member is not None and member.protected,
            cannot_stop=cannot_stop(described, requests),
            cannot_terminate=cannot_terminate(described, requests),
            last_stop=_last_stop(described, state),
            failed_start=failed_start(described) if state in _ENDED else None,
            may_not_start=None if asked is None else asked.against_start(place, described),
            image=described.get("ImageId"),
            tags=tags,
            **claims(tags, fleet=self.fleet, now=self._clock.now()),
        )

    def _managed_by(self, instance: Instance, group: Group | None) -> str | None:
        """Which other system owns it: not its group, where the group's owner consents and it serves there."""
        operator = instance.described.get("Operator", {})
        if operator.get("Managed"):
            return operator.get("Principal", "an AWS service")
        member = group.members.get(instance.id) if group is not None else None
        profile = instance.described.get("IamInstanceProfile", {}).get("Arn", "")
        if group is None or member is None or not group.is_enrolled(self.fleet):
            return managed_by(instance.tags, profile=profile)
        if not member.state.startswith(_SERVING):
            return f"Auto Scaling group {group.name} ({member.state})"
        return managed_by(instance.tags, group=group.tags, profile=profile)


def _last_stop(described: DescribedInstance, state: NodeState) -> LastStop | None:
    """When it was stopped, and whether by a call. Sources: DescribeInstances, StateTransitionReason and StateReason."""
    if state not in _DOWN:
        return None
    words = described.get("StateTransitionReason", "")
    found = _STOP_TIME.search(words)
    code = described.get("StateReason", {}).get("Code", "")
    if code not in {"", _BY_CALL}:
        other: str | None = f"EC2 names another cause than a call, {code}"
    else:
        other = None if not words or words.startswith(_BY_USER) else f"EC2 names no call of a user: {words}"
    return LastStop(
        at=None if found is None else datetime.strptime(found[1], _STOP_FORM).replace(tzinfo=UTC), other=other
    )


def _described_types(place: Region, names: list[str]) -> dict[str, MachineType]:
    """Those of the types that EC2 describes.

    Source: DescribeInstanceTypes, by filter and not by name, because one name that EC2 does not describe (a retired
    type) fails a whole batch.
    """
    pages = place.reading.ec2.get_paginator("describe_instance_types")
    with place.asking("DescribeInstanceTypes"):
        return {
            facts["InstanceType"]: _type_of(facts)
            for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": names}])
            for facts in page["InstanceTypes"]
        }


def _instance(described: DescribedInstance, reservation: "ReservationTypeDef") -> Instance:
    return Instance(
        described=described,
        id=described["InstanceId"],
        type=described.get("InstanceType", ""),
        account=reservation["OwnerId"],
    )


def _capacity_type(described: DescribedInstance) -> CapacityType:
    """How it was bought. What is in a reservation or on a Dedicated Host is paid for whether it runs or not."""
    if described.get("Placement", {}).get("Tenancy") == "host":
        return CapacityType.DEDICATED_HOST
    target = described.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
    reserved = described.get("CapacityReservationId") or target
    return _LIFECYCLES.get(
        described.get("InstanceLifecycle", ""), CapacityType.RESERVED if reserved else CapacityType.ON_DEMAND
    )


def _type_of(facts: "InstanceTypeInfoTypeDef") -> MachineType:
    """A type's GPUs; a slice of one (g6f) counts as one."""
    gpus = facts.get("GpuInfo", {}).get("Gpus", ())
    return MachineType(
        gpu_count=sum(max(1, gpu.get("Count", 0), gpu.get("LogicalGpuCount", 0)) for gpu in gpus),
        nvidia=any(gpu.get("Manufacturer", _NVIDIA).upper() == _NVIDIA for gpu in gpus),
        instance_store=facts.get("InstanceStorageSupported", False),
        vcpus=facts.get("VCpuInfo", {}).get("DefaultVCpus"),
    )
