"""Compute Engine's instances in our words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.gcp.groups import Group, MachineTypes, attached_to, gpus_among, region_of
from gpuwatch.clouds.gcp.owners import managed_by, tags_of
from gpuwatch.clouds.tags import claims, tags_in
from gpuwatch.clouds.times import read_time
from gpuwatch.model.cloud_notice import CloudNotice, NoticeKind
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.stops import LastStop
from gpuwatch.runtime.clock import Clock

# What the description of an instance says of its end.
#
# Source: `resourceStatus` of instances.get. `scheduling.terminationTimestamp` is the end of a limited run time
# (`maxRunDuration`, `terminationTime`, flex-start); `upcomingMaintenance` is a maintenance window. A machine that
# Google moves to another host goes on, so that its window is no end.

_TERMINATES = "TERMINATE"  # onHostMaintenance of all machines with GPUs
_AHEAD = frozenset({"PENDING", "ONGOING"})


def announced_notices(described: Json, now: datetime) -> tuple[CloudNotice, ...]:
    """Return the notices that the cloud has given for a machine."""
    return tuple(_find_notices(described, now))


def _find_notices(described: Json, now: datetime) -> Iterator[CloudNotice]:
    told, wanted = described.get("resourceStatus") or {}, described.get("scheduling") or {}
    end = read_time((told.get("scheduling") or {}).get("terminationTimestamp") or wanted.get("terminationTime"))
    if end is not None:
        action = f"{str(wanted.get('instanceTerminationAction') or 'STOP').lower()}_at_end_of_run_time"
        yield CloudNotice(kind=NoticeKind.TERMINATION.value, action=action, deadline=end, seen_at=now)
    window = told.get("upcomingMaintenance") or {}
    begins = read_time(window.get("windowStartTime"))
    if (
        begins is not None
        and window.get("maintenanceStatus") in _AHEAD
        and wanted.get("onHostMaintenance") == _TERMINATES
    ):
        action = "terminate_on_host_maintenance"
        yield CloudNotice(kind=NoticeKind.MAINTENANCE.value, action=action, deadline=begins, seen_at=now)


# `status` of an instance. TERMINATED is Google's word for stopped: a machine that is gone is not listed at all.
_STATES = {
    "PENDING": NodeState.PENDING,
    "PROVISIONING": NodeState.PENDING,
    "STAGING": NodeState.PENDING,
    "RUNNING": NodeState.RUNNING,
    "PENDING_STOP": NodeState.STOPPING,
    "STOPPING": NodeState.STOPPING,
    "SUSPENDING": NodeState.STOPPING,
    "DEPROVISIONING": NodeState.STOPPING,
    "TERMINATED": NodeState.STOPPED,
    "STOPPED": NodeState.STOPPED,
    "SUSPENDED": NodeState.STOPPED,
}
_GRACEFUL = "PENDING_STOP"
_SUSPENDED = frozenset({"SUSPENDED", "SUSPENDING"})
_CREATED_BY = "created-by"  # of the metadata of a group's members
_PAID_ANYWAY = {
    CapacityType.RESERVED: "its reservation is billed whether it runs or not",
    CapacityType.DEDICATED_HOST: "its sole-tenant node is billed whether it runs or not",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance as Compute Engine describes it, and its project.

    `found_in` is the group that lists it, where its own metadata does not say so: its path, and its name.
    """

    described: Json
    project: str
    found_in: tuple[str, str] | None = None

    @property
    def id(self) -> str:
        """Its number, which no other instance ever has; a name may come again."""
        return str(self.described.get("id", ""))

    @property
    def name(self) -> str:
        """Its name in its zone."""
        return str(self.described.get("name", ""))

    @property
    def zone(self) -> str:
        """Return the instance's zone."""
        return _last(self.described.get("zone"))

    @property
    def type(self) -> str:
        """Return the instance's machine type."""
        return _last(self.described.get("machineType"))

    @property
    def labels(self) -> dict[str, str]:
        """Its labels, as they are in the cloud; one without a value is there all the same."""
        return tags_in(self.described.get("labels"))

    @property
    def metadata(self) -> dict[str, str]:
        """Its metadata, which may hold secrets: only keys that are known are looked at."""
        items = (self.described.get("metadata") or {}).get("items") or ()
        return {each.get("key", ""): str(each.get("value") or "") for each in items}

    @property
    def deletion_protected(self) -> bool:
        """Whether Compute Engine refuses its deletion."""
        return bool(self.described.get("deletionProtection"))

    @property
    def local_ssds(self) -> bool:
        """Whether it has disks that lose their data at a stop."""
        return any(disk.get("type") == "SCRATCH" for disk in self.described.get("disks") or ())

    @property
    def suspended(self) -> bool:
        """Whether it is suspended, or about to be."""
        return self.described.get("status") in _SUSPENDED

    @property
    def group(self) -> tuple[str, str] | None:
        """The group that made it: its path without the project (metadata names that by its number), and its name."""
        made = self.metadata.get(_CREATED_BY, "")
        if "/instanceGroupManagers/" not in made:
            return self.found_in
        path = made.partition("projects/")[2].partition("/")[2]
        return path, _last(path)

    @property
    def state(self) -> NodeState:
        """Its state; a word that we have never heard, or a description with holes, is a doubt about it alone."""
        whole = self.id and self.name and self.zone and self.type and self.described.get("creationTimestamp")
        return _STATES.get(str(self.described.get("status")), NodeState.UNKNOWN) if whole else NodeState.UNKNOWN


class Translator:
    """Makes nodes of instances. What a machine type brings is asked for where an instance does not say it by itself."""

    def __init__(self, *, fleet: str, clock: Clock) -> None:
        """Begin without any type."""
        self.fleet = fleet
        self.types = MachineTypes(clock)
        self._clock = clock

    def node(
        self, client: Client, instance: Instance, groups: Mapping[str, Group], *, leaving: bool, member: bool = True
    ) -> Node:
        """One machine. `groups` are the project's by their paths; `leaving`: it is being deleted.

        `member`: whether its group still counts it among its own, where that was asked for.
        """
        described, tags = instance.described, tags_of(instance.labels)
        gpus = gpus_among(described.get("guestAccelerators") or ())
        facts = self.types.get(client, instance.zone, instance.type) if instance.type and instance.zone else None
        group = groups.get(instance.group[0]) if instance.group is not None and member else None
        state = NodeState.TERMINATING if leaving else instance.state
        capacity = _capacity_type(described)
        return Node(
            id=instance.id,
            name=instance.name,
            state=state,
            instance_type=instance.type,
            gpu_count=gpus or (None if facts is None else facts.gpu_count),
            region=region_of(instance.zone),
            zone=instance.zone,
            capacity_type=capacity,
            launched_at=_last_start(described),
            address=next((each.get("networkIP") for each in described.get("networkInterfaces") or ()), None),
            managed_by=self._managed_by(instance, group, member=member),
            instance_store=instance.local_ssds or (facts is not None and facts.local_disks),
            account=instance.project,
            group=None if group is None else group.id,
            cannot_terminate="its deletion protection is on" if instance.deletion_protected else None,
            still_billed=_still_billed(instance, capacity),
            announced=announced_notices(described, self._clock.now()),
            last_stop=_last_stop(described, state),
            accelerators=attached_to(facts, described.get("guestAccelerators") or ()),
            tags=tags,
            **claims(tags, fleet=self.fleet, now=self._clock.now()),
        )

    def _managed_by(self, instance: Instance, group: Group | None, *, member: bool) -> str | None:
        """Which other system owns it: not its group, where the group's owner consents."""
        other = managed_by(instance.labels, instance.metadata)
        if other is not None or instance.group is None or not member:
            return other
        if group is not None and group.is_enrolled(self.fleet):
            return None
        return (group and group.owner) or f"managed instance group {instance.group[1]}"


def _still_billed(instance: Instance, capacity: CapacityType) -> str | None:
    """Why a stop would not end what it costs per hour, or did not. Committed use is not seen here."""
    if instance.described.get("status") == _GRACEFUL:
        return "it shuts down gracefully (PENDING_STOP), and is billed until that is over"
    if instance.suspended:
        return "it is suspended, and a suspended machine goes on costing for its memory and local SSDs"
    return _PAID_ANYWAY.get(capacity)


def _capacity_type(described: Json) -> CapacityType:
    """How it was bought, as far as an instance shows it."""
    scheduling = described.get("scheduling") or {}
    if scheduling.get("nodeAffinities"):
        return CapacityType.DEDICATED_HOST
    if scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible"):
        return CapacityType.SPOT
    wanted = (described.get("reservationAffinity") or {}).get("consumeReservationType")
    consumed = ((described.get("resourceStatus") or {}).get("reservationConsumptionInfo") or {}).get(
        "consumedReservation"
    )
    if scheduling.get("provisioningModel") == "RESERVATION_BOUND" or wanted == "SPECIFIC_RESERVATION" or consumed:
        return CapacityType.RESERVED
    return CapacityType.ON_DEMAND


def _last_start(described: Json) -> datetime | None:
    """Return when the instance was last started."""
    return read_time(described.get("lastStartTimestamp") or described.get("creationTimestamp"))


def _last_stop(described: Json, state: NodeState) -> LastStop | None:
    """When its last stop was over; None: it runs, or was never stopped. While it stops this is the stop before."""
    told = read_time(described.get("lastStopTimestamp"))
    return LastStop(at=told) if state is NodeState.STOPPED and told is not None else None


def _last(link: object) -> str:
    """The name at the end of a link."""
    return str(link or "").rpartition("/")[2]
