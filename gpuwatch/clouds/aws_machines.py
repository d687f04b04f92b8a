"""EC2's instances in our words."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from gpuwatch.clock import Clock
from gpuwatch.clouds import NotFoundError
from gpuwatch.clouds.aws_groups import Group
from gpuwatch.clouds.aws_owners import GROUP_TAG, managed_by
from gpuwatch.clouds.aws_places import Line, Place
from gpuwatch.clouds.claims import claims
from gpuwatch.model.fleet import CapacityType, Node, NodeState

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef, InstanceTypeInfoTypeDef, ReservationTypeDef

log = logging.getLogger(__name__)

_TYPES_A_CALL = 100  # a filter takes up to 200 values

_STATES = {
    "pending": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "stopping": NodeState.STOPPING,
    "stopped": NodeState.STOPPED,
    "shutting-down": NodeState.TERMINATING,
    "terminated": NodeState.TERMINATED,
}
ALIVE: "FilterTypeDef" = {
    "Name": "instance-state-name",
    "Values": [name for name, state in _STATES.items() if state is not NodeState.TERMINATED],
}

# InstanceLifecycle of DescribeInstances; absent for on demand.
_LIFECYCLES = {
    "spot": CapacityType.SPOT,
    "capacity-block": CapacityType.CAPACITY_BLOCK,
    "scheduled": CapacityType.RESERVED,
    "interruptible-capacity-reservation": CapacityType.RESERVED,
}
_SERVING = ("InService", "Pending", "Terminating")  # a member in another state (Standby, Detaching) is somebody's


@dataclass(frozen=True, slots=True, kw_only=True)
class _Type:
    """What a machine type brings. Source: DescribeInstanceTypes, GpuInfo and InstanceStorageSupported."""

    gpu_count: int = 0
    instance_store: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance as EC2 told it, and the account that owns it."""

    told: "InstanceTypeDef"
    id: str
    type: str
    account: str

    @property
    def tags(self) -> dict[str, str]:
        """Its tags."""
        return {tag["Key"]: tag["Value"] for tag in self.told.get("Tags", ())}

    @property
    def group_name(self) -> str | None:
        """The name of the Auto Scaling group that it says it belongs to."""
        return self.tags.get(GROUP_TAG)


def listed(place: Place, filters: "list[FilterTypeDef]", *, page_size: int) -> list[Instance]:
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


def described(place: Place, line: Line, node_id: str) -> Instance:
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


def state_of(place: Place, instance: Instance) -> NodeState:
    """Its state; a word that we have never heard is no usable answer, rather than a guess."""
    with place.asking("DescribeInstances"):
        return _STATES[instance.told["State"]["Name"]]


class Translator:
    """Makes nodes of instances. Machine types are looked up once in a process."""

    def __init__(self, *, fleet: str, clock: Clock) -> None:
        """Begin without any type."""
        self.fleet = fleet
        self._clock = clock
        self._types: dict[str, _Type] = {}

    def has_gpus(self, place: Place, types: Iterable[str]) -> bool:
        """Whether any of these types has GPUs."""
        types = list(types)
        self.learn(place, types)
        return any(self._types[name].gpu_count > 0 for name in types)

    def learn(self, place: Place, names: Iterable[str]) -> None:
        """Look up machine types that are new, in batches. Source: DescribeInstanceTypes.

        By filter and not by name, because one name that EC2 does not describe (a retired type) fails a whole batch.
        """
        unknown = sorted(set(names) - self._types.keys())
        for begin in range(0, len(unknown), _TYPES_A_CALL):
            batch = unknown[begin : begin + _TYPES_A_CALL]
            pages = place.reading.ec2.get_paginator("describe_instance_types")
            with place.asking("DescribeInstanceTypes"):
                found: dict[str, _Type] = {
                    facts["InstanceType"]: _type_of(facts)
                    for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": batch}])
                    for facts in page["InstanceTypes"]
                }
            for name in batch:
                if name not in found:
                    log.warning("EC2 does not describe the instance type %s: its machines are left out", name)
                self._types[name] = found.get(name, _Type())

    def nodes(self, place: Place, instances: Iterable[Instance], groups: Mapping[str, Group]) -> Iterator[Node]:
        """The GPU machines among the instances; `groups` are those of the place, by name."""
        instances = list(instances)
        self.learn(place, (instance.type for instance in instances))
        nodes = (self.node(place, instance, groups.get(instance.group_name or "")) for instance in instances)
        return (node for node in nodes if node.gpu_count > 0)

    def node(self, place: Place, instance: Instance, group: Group | None) -> Node:
        """EC2's words in ours; `group` is the Auto Scaling group that it says it belongs to, where there is one."""
        told = instance.told
        self.learn(place, [instance.type])
        facts = self._types[instance.type]
        member = group.members.get(instance.id) if group is not None else None
        with place.asking("DescribeInstances"):
            tags = instance.tags
            return Node(
                id=instance.id,
                name=tags.get("Name") or instance.id,
                state=_STATES[told["State"]["Name"]],
                instance_type=instance.type,
                gpu_count=facts.gpu_count,
                region=place.region,
                zone=told["Placement"]["AvailabilityZone"],
                capacity_type=_capacity_type(told),
                launched_at=told["LaunchTime"].astimezone(UTC),
                address=told.get("PrivateIpAddress"),
                managed_by=self._managed_by(instance, group),
                instance_store=facts.instance_store,
                account=instance.account,
                group=group.id if group is not None and member is not None else None,
                scale_in_protected=member is not None and member.protected,
                tags=tags,
                **claims(tags, fleet=self.fleet, now=self._clock.now()),
            )

    def _managed_by(self, instance: Instance, group: Group | None) -> str | None:
        """Whose it is besides ours: not its group's, where the group's owner consents and it serves there."""
        operator = instance.told.get("Operator", {})
        if operator.get("Managed"):
            return operator.get("Principal", "an AWS service")
        member = group.members.get(instance.id) if group is not None else None
        if group is None or member is None or not group.enrolled(self.fleet):
            return managed_by(instance.tags)
        if not member.state.startswith(_SERVING):
            return f"Auto Scaling group {group.name} ({member.state})"
        return managed_by(instance.tags, group=group.tags)


def _instance(told: "InstanceTypeDef", reservation: "ReservationTypeDef") -> Instance:
    return Instance(told=told, id=told["InstanceId"], type=told["InstanceType"], account=reservation["OwnerId"])


def _capacity_type(told: "InstanceTypeDef") -> CapacityType:
    """How it was bought. What runs in a reservation, or is to, is paid for whether it runs or not."""
    target = told.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
    reserved = told.get("CapacityReservationId") or target
    return _LIFECYCLES.get(
        told.get("InstanceLifecycle", ""), CapacityType.RESERVED if reserved else CapacityType.ON_DEMAND
    )


def _type_of(facts: "InstanceTypeInfoTypeDef") -> _Type:
    """A type's GPUs; a slice of one (g6f) counts as one."""
    gpus = facts.get("GpuInfo", {}).get("Gpus", ())
    return _Type(
        gpu_count=sum(max(1, gpu.get("Count", 0), gpu.get("LogicalGpuCount", 0)) for gpu in gpus),
        instance_store=facts.get("InstanceStorageSupported", False),
    )
