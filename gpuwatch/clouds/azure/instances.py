"""Azure's virtual machines, and the members of its Uniform scale sets, as Resource Manager describes them.

Their states come with another list than their tags: `statusOnly` gives no tags, and the list with tags gives no states.
Both are read and joined by the resource's id. A machine that only one of them shows is asked for by itself. Members of
Flexible scale sets are virtual machines like all others.
"""

import logging
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from gpuwatch.clouds.azure.errors import typed_error
from gpuwatch.clouds.azure.places import Subscription, name_for, name_of, region_name, same, scale_set_of
from gpuwatch.clouds.errors import CloudError, InsufficientCapacityError, NotFoundError, QuotaExceededError
from gpuwatch.clouds.tags import tags_in_any_case
from gpuwatch.clouds.times import read_time
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import Clock

_STATES = {
    "starting": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "stopping": NodeState.STOPPING,
    "deallocating": NodeState.STOPPING,
    "stopped": NodeState.STOPPED,
    "deallocated": NodeState.STOPPED,
}
# A power-off keeps the machine's place in Azure's racks, and its price.
_KEPT = frozenset({"stopped", "stopping"})
KEPT_PLACE = "it was powered off and not deallocated: Azure goes on billing it"
_MAKING = timedelta(hours=1)  # after which no operation on a machine is its making
_POWER, _PROVISIONING = "PowerState/", "ProvisioningState/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine: what Azure says of it (`described`), and its instance view, None where nobody has shown it."""

    path: str
    described: Mapping[str, Any]
    view: Mapping[str, Any] | None
    scale_set: Mapping[str, Any] | None = None  # of a Uniform member: its scale set, which has what all members share
    was_on: bool = False  # whether it was seen with a power state before

    @property
    def properties(self) -> Mapping[str, Any]:
        """Return the machine's properties as Azure gives them."""
        found: Mapping[str, Any] = self.described.get("properties") or {}
        return found

    @property
    def id(self) -> str:
        """The vmId, in small letters: what the machine itself reads of its metadata service. "" before it has one."""
        return str(self.properties.get("vmId") or "").lower()

    @property
    def name(self) -> str:
        """Its name in Azure."""
        return str(self.described.get("name") or name_of(self.path))

    @property
    def size(self) -> str:
        """Return the machine's type."""
        own = (self.properties.get("hardwareProfile") or {}).get("vmSize")
        return str(own or (self.described.get("sku") or {}).get("name") or "")

    @property
    def region(self) -> str:
        """Return the machine's region."""
        return region_name(str(self.described.get("location") or ""))

    @property
    def zone(self) -> str:
        """Region and number of its zone; "" outside of zones."""
        zones = self.described.get("zones") or ()
        return f"{self.region}-{zones[0]}" if zones else ""

    @property
    def tags(self) -> dict[str, str]:
        """Return the machine's tags."""
        return tags_in_any_case(self.described.get("tags"))

    @property
    def group(self) -> str | None:
        """The scale set that it is a member of, in small letters."""
        path = scale_set_of(self.path) or (self.properties.get("virtualMachineScaleSet") or {}).get("id")
        return None if not path else f"/{same(path)}"

    @property
    def uniform(self) -> bool:
        """Whether it is a member of a Uniform scale set."""
        return scale_set_of(self.path) is not None

    @property
    def shared(self) -> Mapping[str, Any]:
        """Where what it was bought as is said: its own properties, or the profile of its Uniform scale set."""
        if self.scale_set is None:
            return self.properties
        properties: Mapping[str, Any] = self.scale_set.get("properties") or {}
        return {**properties, **(properties.get("virtualMachineProfile") or {})}

    @property
    def created_at(self) -> datetime | None:
        """When it was made."""
        return read_time(self.properties.get("timeCreated"))

    @property
    def changed_at(self) -> datetime | None:
        """When the last operation on it began to hold: a start, or any other change. Azure does not say which."""
        return next((read_time(each.get("time")) for each in self.statuses if _code_behind(each, _PROVISIONING)), None)

    @property
    def statuses(self) -> tuple[Mapping[str, Any], ...]:
        """Of its instance view."""
        return tuple((self.view or {}).get("statuses") or ())

    @property
    def power(self) -> str:
        """Its power state in Azure's word; "" where Azure names no state."""
        return next((_code_behind(each, _POWER) for each in self.statuses if _code_behind(each, _POWER)), "")

    @property
    def state(self) -> NodeState:
        """Its state; without a power state it is only known to be made, or to go."""
        if str(self.properties.get("provisioningState", "")).lower() == "deleting":
            return NodeState.TERMINATING
        if any(_code_behind(each, _PROVISIONING).startswith("deleting") for each in self.statuses):
            return NodeState.TERMINATING
        if self.never_made:
            return NodeState.TERMINATED
        if not self.whole:
            return NodeState.UNKNOWN
        if not self.power and str(self.properties.get("provisioningState", "")).lower() == "creating":
            return NodeState.PENDING
        return _STATES.get(self.power, NodeState.UNKNOWN)

    @property
    def never_made(self) -> bool:
        """Whether Azure accepted it and then had no place for it: it is left there, and was never anywhere.

        Only the words for no stock and no quota say so, of what we have launched, or of a scale set's member, and only
        where nothing shows that it has ever run. All other machines are there, whatever their last operation says.
        """
        keys = [value for key, value in self.tags.items() if key.lower() == DECISION_TAG]  # Azure's have no case
        ours = self.group is not None or self.name.lower() in map(name_for, keys)
        return ours and self.left_bare and self.lacked_place is not None

    @property
    def lacked_place(self) -> str | None:
        """Why its last operation failed, in Azure's words, where that was for lack of stock or quota."""
        if self.failure is None:
            return None
        error = typed_error("", *self.failure)
        no_place = isinstance(error, InsufficientCapacityError | QuotaExceededError)
        return str(error).removeprefix(": ") if no_place else None

    @property
    def left_bare(self) -> bool:
        """Whether the operation that failed was its making: it has never shown a power state, and has no disk.

        The provisioning state is that of the last operation, for weeks: a start or a new size that failed leaves the
        same words at a machine with years of data, and Azure leaves out the power state at times.
        """
        made_at, failed_at = self.created_at, self.changed_at
        if self.power or self.was_on or made_at is None or failed_at is None or failed_at - made_at > _MAKING:
            return False
        profile = self.properties.get("storageProfile") or {}
        disks = [profile.get("osDisk"), *(profile.get("dataDisks") or ())]
        return bool(profile.get("osDisk")) and not any(_has_disk(each) for each in disks)

    @property
    def spared(self) -> bool:
        """Whether its scale set may not choose it for a scale-in."""
        return bool((self.properties.get("protectionPolicy") or {}).get("protectFromScaleIn"))

    @property
    def keeps_its_place(self) -> bool:
        """Whether it is off and billed all the same."""
        return self.power in _KEPT

    @property
    def whole(self) -> bool:
        """Whether its description has the parts that decisions rest on."""
        tags = self.described.get("tags") or {}
        return bool(self.id and self.size and self.region) and all(isinstance(value, str) for value in tags.values())

    @property
    def failure(self) -> tuple[str, str] | None:
        """Code and message of a failed operation: of a machine that could not be made, why."""
        for each in self.statuses:
            word = _code_behind(each, f"{_PROVISIONING}failed/")
            if word:
                return str(each.get("code", "")).rpartition("/")[2], str(each.get("message") or "")
        return None


def _has_disk(described: Mapping[str, Any] | None) -> bool:
    """Whether there is a disk, and not the wish for one alone."""
    told = described or {}
    return bool((told.get("managedDisk") or {}).get("id") or (told.get("vhd") or {}).get("uri"))


def list_machines(place: Subscription) -> list[Machine]:
    """Every virtual machine of a subscription. Sources: VirtualMachines ListAll, twice.

    Raises:
        CloudError: a part of it could not be had.

    """
    described = {same(str(each.get("id", ""))): each for each in place.everything("virtualMachines")}
    states = {same(str(each.get("id", ""))): each for each in place.everything("virtualMachines", statusOnly="true")}
    found = [
        _join_state(described[path], states[path])
        for path in described.keys() & states.keys()
        if _agree(described[path], states[path])
    ]
    known = {same(each.path) for each in found}
    for path in sorted((described.keys() | states.keys()) - known):
        try:
            found.append(one(place, str((described.get(path) or states[path])["id"])))
        except NotFoundError:
            continue  # it went between the two lists
    return found


def one(place: Subscription, path: str, *, urgent: bool = False) -> Machine:
    """A machine by its path, whatever machine is there now. Source: VirtualMachines Get with its instance view.

    Raises:
        NotFoundError: the path leads to no machine.
        CloudError: no answer.

    """
    described = place.get(path, urgent=urgent, expand="instanceView").body
    scale_set = scale_set_of(path)
    shared = None if scale_set is None else place.get(scale_set, urgent=urgent).body
    return _machine(described, path=path, scale_set=shared)


def members(place: Subscription, scale_set: Mapping[str, Any]) -> list[Machine]:
    """The members of a Uniform scale set. Source: VirtualMachineScaleSetVMs List with the instance views."""
    path = str(scale_set["id"])
    listed = place.list_all(f"{path}/virtualMachines", expand="instanceView")
    return [_machine(each, path=str(each["id"]), scale_set=scale_set) for each in listed]


def addresses(place: Subscription, scale_sets: Iterable[str]) -> dict[str, str]:
    """The private address of each machine, by `same` of its path. Source: NetworkInterfaces ListAll.

    `scale_sets` are the Uniform ones; the interfaces of their members are in lists of their own.
    """
    kind = "networkInterfaces"
    interfaces = place.everything(kind, provider="Microsoft.Network", version="network")
    for path in scale_sets:
        interfaces += place.list_all(f"{path}/{kind}", version="member_network")
    found: dict[str, str] = {}
    for each in interfaces:
        properties = each.get("properties") or {}
        machine = (properties.get("virtualMachine") or {}).get("id")
        address = _address(properties)
        if machine and address and (properties.get("primary") is not False or same(machine) not in found):
            found[same(machine)] = address
    return found


def _address(interface: Mapping[str, Any]) -> str | None:
    parts = [each.get("properties") or {} for each in interface.get("ipConfigurations") or ()]
    parts.sort(key=lambda each: not each.get("primary"))
    return next((str(each["privateIPAddress"]) for each in parts if each.get("privateIPAddress")), None)


def _agree(described: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Whether two lists show the same machine: under one name another one may have been made in between."""
    ids = {str((each.get("properties") or {}).get("vmId") or "").lower() for each in (described, state)}
    return len(ids - {""}) <= 1 and "instanceView" in (state.get("properties") or {})


def _join_state(described: Mapping[str, Any], state: Mapping[str, Any]) -> Machine:
    view = (state.get("properties") or {}).get("instanceView")
    return Machine(path=str(described["id"]), described=described, view=view)


def _machine(described: Mapping[str, Any], *, path: str, scale_set: Mapping[str, Any] | None) -> Machine:
    view = (described.get("properties") or {}).get("instanceView")
    return Machine(path=str(described.get("id") or path), described=described, view=view, scale_set=scale_set)


def _code_behind(status: Mapping[str, Any], prefix: str) -> str:
    """The word behind the prefix of a status' code; "" if it is another one's."""
    code = str(status.get("code") or "")
    return code[len(prefix) :].lower() if code.lower().startswith(prefix.lower()) else ""


# What machine sizes bring. Source: the resource SKUs of a region, `capabilities` of those of virtual machines.

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 3600.0  # after which a region is asked again for a size that it did not describe
_KIND = "virtualmachines"
# Sizes with slices of AMD's graphics cards, which ROCm does not support, or with FPGAs, of the page "GPU optimized
# virtual machine sizes"; the SKUs do not say whose GPUs they are.
_UNREADABLE = ("standard_nv*as_v4", "standard_ng*", "standard_np*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One machine size: its GPUs, local disks that a deallocation empties, and the family that quotas name."""

    gpu_count: int
    readable: bool  # by the agent
    local_disks: bool
    family: str


class Sizes:
    """Looked up once for each region in a process, and again at most each hour for a size that is missing."""

    def __init__(self, clock: Clock) -> None:
        """Begin without a known machine type."""
        self._clock = clock
        self._known: dict[str, dict[str, Size]] = {}  # by region
        self._asked_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def size(self, place: Subscription, region: str, name: str) -> Size | None:
        """What a size brings; None: Azure does not describe it there.

        Raises:
            CloudError: the region's sizes could not be had, and never were.

        """
        with self._lock:
            found = self._known.get(region.lower(), {}).get(name.lower())
            if found is None and self._due(region):
                self._learn(place, region)
                found = self._known[region.lower()].get(name.lower())
                if found is None:
                    log.warning("Azure does not describe the size %s in %s; it is asked again in an hour", name, region)
            return found

    def families(self, place: Subscription, region: str) -> frozenset[str]:
        """The families with GPUs, in small letters."""
        with self._lock:
            if region.lower() not in self._known:
                self._learn(place, region)
            sizes = self._known[region.lower()].values()
            return frozenset(size.family.lower() for size in sizes if size.gpu_count > 0)

    def _due(self, region: str) -> bool:
        asked_at = self._asked_at.get(region.lower())
        return asked_at is None or self._clock.monotonic() - asked_at >= _AGAIN_SECONDS

    def _learn(self, place: Subscription, region: str) -> None:
        key = region.lower()
        try:
            listed = place.everything("skus", version="skus", filter_=f"location eq '{key}'")
        except CloudError:
            if key not in self._known:
                raise
            self._asked_at[key] = self._clock.monotonic()
            return
        self._asked_at[key] = self._clock.monotonic()
        found = {str(each.get("name", "")).lower(): _size(each) for each in listed if _of_machines(each)}
        self._known[key] = {**self._known.get(key, {}), **found}


def _of_machines(sku: Mapping[str, Any]) -> bool:
    return str(sku.get("resourceType", "")).lower() == _KIND


def _size(sku: Mapping[str, Any]) -> Size:
    """A part of a GPU counts as one."""
    has = {each.get("name"): str(each.get("value", "")) for each in sku.get("capabilities") or ()}
    name = str(sku.get("name", "")).lower()
    return Size(
        gpu_count=math.ceil(_number(has.get("GPUs"))),
        readable=not any(fnmatchcase(name, pattern) for pattern in _UNREADABLE),
        local_disks=_number(has.get("MaxResourceVolumeMB")) > 0 or _number(has.get("NvmeDiskSizeInMiB")) > 0,
        family=str(sku.get("family", "")),
    )


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
