"""Machines of Azure in our words, with the locks that hold for them."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuwatch.clouds.azure.groups import ScaleSet
from gpuwatch.clouds.azure.instances import KEPT_PLACE, Machine, Size, Sizes
from gpuwatch.clouds.azure.owners import managed_by
from gpuwatch.clouds.azure.places import Subscription, group_of, same
from gpuwatch.clouds.errors import AuthFailedError
from gpuwatch.clouds.sightings import Sightings
from gpuwatch.clouds.tags import claims
from gpuwatch.model.fleet import CapacityType, Node, NodeGroup, NodeState
from gpuwatch.model.stops import LastStop
from gpuwatch.runtime.clock import Clock

# Resource locks. Azure itself refuses what they forbid; here they are shown in good time.
#
# A lock holds for all that is below it. CanNotDelete refuses deletions; ReadOnly also refuses every POST, so a machine
# under it can neither be deallocated nor started (page "Lock your resources").

log = logging.getLogger(__name__)

_END = "/providers/microsoft.authorization/locks/"
_READ_ONLY, _DELETE = "readonly", "cannotdelete"


class Locks:
    """The locks of a subscription at one moment."""

    def __init__(self, listed: list[dict[str, Any]]) -> None:
        """As Azure lists them: each has the id of what it locks in its own."""
        self._locks = [
            (same(str(each.get("id", "")).lower().partition(_END)[0]), _level(each), str(each.get("name", "")))
            for each in listed
        ]

    def against_stop(self, path: str) -> str | None:
        """The lock that refuses a stop and a start."""
        return self._lock_of(path, {_READ_ONLY})

    def against_end(self, path: str) -> str | None:
        """The lock that refuses an end."""
        return self._lock_of(path, {_READ_ONLY, _DELETE})

    def _lock_of(self, path: str, levels: set[str]) -> str | None:
        inner = same(path)
        for scope, level, name in self._locks:
            if level in levels and (inner == scope or inner.startswith(f"{scope}/")):
                return f"the lock {name} ({'ReadOnly' if level == _READ_ONLY else 'CanNotDelete'}) forbids it"
        return None


def locks_of(place: Subscription) -> Locks:
    """All locks; none where we may not see them: Azure then refuses by itself."""
    try:
        return Locks(place.everything("locks", provider="Microsoft.Authorization", version="locks"))
    except AuthFailedError as error:
        log.info("%s: locks are not seen before Azure refuses", error)
        return Locks([])


def _level(lock: Mapping[str, Any]) -> str:
    return str(lock.get("properties", {}).get("level", "")).lower()


_ON = frozenset({NodeState.PENDING, NodeState.RUNNING})
_OFF = frozenset({NodeState.STOPPED, NodeState.TERMINATED})
_MANY = 1000  # starts of machines that are gone, before they are forgotten
_EPHEMERAL = "its system disk is ephemeral, and Azure deallocates no such machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What of a subscription goes into its nodes, besides the machines themselves."""

    groups: Mapping[str, ScaleSet] = field(default_factory=dict)  # by id
    locks: Locks = field(default_factory=lambda: Locks([]))
    addresses: Mapping[str, str] = field(default_factory=dict)  # by `same` of the machine's path


class Translator:
    """Makes nodes of machines, and remembers when each was started, which Azure does not report."""

    def __init__(self, *, fleet: str, clock: Clock, sizes: Sizes) -> None:
        """Begin without any machine."""
        self.fleet = fleet
        self._clock = clock
        self._sizes = sizes
        self._starts: dict[str, tuple[datetime | None, bool]] = {}  # by the id: the last start, and whether it is on
        self._sightings = Sightings(clock)

    def nodes(self, place: Subscription, machines: Iterable[Machine], around: Surroundings) -> Iterator[Node]:
        """The GPU machines among these, in the regions that are looked at."""
        for machine in machines:
            if not place.covers(machine.region) or not machine.id:
                continue
            node = self.node(place, machine, around)
            if node.known_gpus > 0 or (node.gpu_count is None and node.enrolled):
                yield node

    def node(self, place: Subscription, machine: Machine, around: Surroundings) -> Node:
        """Return one machine as a node."""
        size = self._sizes.size(place, machine.region, machine.size) if machine.size and machine.region else None
        group = around.groups.get(machine.group or "")
        cannot_stop = _EPHEMERAL if _ephemeral(machine) else around.locks.against_stop(machine.path)
        node = Node(
            id=machine.id,
            name=machine.name,
            state=machine.state,
            instance_type=machine.size,
            gpu_count=None if size is None else size.gpu_count,
            region=machine.region,
            zone=machine.zone,
            capacity_type=_capacity_type(machine),
            launched_at=self._start_time(machine),
            address=around.addresses.get(same(machine.path)),
            managed_by=self._managed_by(place, machine, group),
            instance_store=_local_disks(machine, size),
            account=place.id,
            group=machine.group,
            scale_in_protected=machine.spared,
            cannot_stop=cannot_stop,
            cannot_terminate=around.locks.against_end(machine.path),
            still_billed=_still_billed(machine),
            last_stop=_last_stop(machine),
            failed_start=machine.lacked_place if machine.state in _OFF else None,
            image=_image(machine),
            announced=None,  # no list of Azure has what it will end: a machine's own agent alone knows
            tags=machine.tags,
            **claims(machine.tags, fleet=self.fleet, now=self._clock.now()),
        )
        return self._sightings.with_sight(node)

    def scale_set(self, place: Subscription, group: ScaleSet, members: Sequence[Machine]) -> NodeGroup:
        """A scale set in our words: with its GPU machines, and what is known of those that Azure had no place for."""
        lost = [each for each in members if each.never_made]
        there = [each for each in members if not each.never_made and each.state is not NodeState.TERMINATING]
        ids = tuple(sorted(node.id for node in self.nodes(place, there, Surroundings())))
        return group.as_node_group(ids, lost, fleet=self.fleet, now=self._clock.now())

    def has_gpus(self, place: Subscription, region: str, size: str | None) -> bool:
        """Whether a size is known to have GPUs."""
        found = self._sizes.size(place, region, size) if size else None
        return found is not None and found.gpu_count > 0

    def _start_time(self, machine: Machine) -> datetime | None:
        """The time of its last start.

        Azure reports the time of the last change alone. As long as this process has seen the machine on, a later change
        is no start, such as a new tag. Where nobody has seen it before, the last change is the latest possible start.
        """
        on = machine.state in _ON
        before, was_on = self._starts.get(machine.id, (None, False))
        if on and not (was_on and before is not None):
            before = machine.changed_at or before or machine.created_at
        if machine.state is not NodeState.UNKNOWN:
            self._starts[machine.id] = (before, on)
        if len(self._starts) > 2 * len(self._sightings) + _MANY:
            self._starts = {each: start for each, start in self._starts.items() if each in self._sightings}
        return before or machine.created_at

    def _managed_by(self, place: Subscription, machine: Machine, group: ScaleSet | None) -> str | None:
        """Which other system owns it: not its scale set, if that one's owner consents."""
        manager = machine.described.get("managedBy")
        if machine.group is not None:
            if group is None or not group.is_enrolled(self.fleet):
                name = machine.group.rpartition("/")[2] if group is None else group.name
                return (group.owner if group is not None else None) or f"scale set {name}"
            manager = None  # of a Flexible member it is the scale set
        return managed_by(machine.tags, group_of(machine.path), manager, of_group=place.manager_of(machine.path))


def _image(machine: Machine) -> str | None:
    """Return the image of its system disk: its id, or the version of one that Azure offers."""
    profile = machine.properties.get("storageProfile") or machine.shared.get("storageProfile") or {}
    found = profile.get("imageReference") or {}
    words = [found.get(each) for each in ("publisher", "offer", "sku", "exactVersion")]
    return str(found.get("id") or ":".join(str(each) for each in words if each)) or None


def _last_stop(machine: Machine) -> LastStop | None:
    """The latest time at which it can have been stopped: that of its last change."""
    changed_at = machine.changed_at
    return LastStop(at=changed_at) if machine.state is NodeState.STOPPED and changed_at is not None else None


def _capacity_type(machine: Machine) -> CapacityType:
    """How it was bought. A host and a reservation are paid for whether it runs or not."""
    shared = machine.shared
    if shared.get("host") or shared.get("hostGroup"):
        return CapacityType.DEDICATED_HOST
    if _reservation(machine):
        return CapacityType.RESERVED
    spot = str(shared.get("priority") or "").lower() in {"spot", "low"}
    return CapacityType.SPOT if spot else CapacityType.ON_DEMAND


def _reservation(machine: Machine) -> bool:
    found = machine.properties.get("capacityReservation") or machine.shared.get("capacityReservation") or {}
    return bool(found.get("capacityReservationGroup"))


def _still_billed(machine: Machine) -> str | None:
    """Why a deallocation would not end what it costs per hour, or did not."""
    if _capacity_type(machine) is CapacityType.DEDICATED_HOST:
        return "its dedicated host is billed whether it runs or not"
    if _reservation(machine):
        return "its capacity reservation is billed whether it runs or not"
    return KEPT_PLACE if machine.keeps_its_place else None


def _ephemeral(machine: Machine) -> bool:
    """Whether its system disk is on the host. Source: osDisk.diffDiskSettings."""
    disk = (machine.properties.get("storageProfile") or machine.shared.get("storageProfile") or {}).get("osDisk") or {}
    return bool(disk.get("diffDiskSettings"))


def _local_disks(machine: Machine, size: Size | None) -> bool:
    """Whether a deallocation empties disks: the size's temporary disk, its NVMe disks, or an ephemeral system disk."""
    return True if size is None else size.local_disks or _ephemeral(machine)
