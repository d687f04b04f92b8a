"""What there is in a pretended Azure, and how it changes with time.

What is known of the real one and is the same here: a PUT, a start, a deallocation and a deletion take a minute, in
which the state says so; a power-off ends in `PowerState/stopped`; a deleted machine is shown no more, and its disks
stay unless they were made to go with it; answers change the case of resource groups.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

_DISKS = "/providers/Microsoft.Compute/disks/"
MINUTE = timedelta(minutes=1)
_SPACE = UUID("7d8bde3e-5c2f-4a3e-9f3c-0d6c0a9a51aa")


def moment(at: datetime) -> str:
    """As Azure writes times: seven digits of a second."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond:06d}0+00:00"


@dataclass(slots=True, kw_only=True)
class Vm:
    """One machine, or one member of a Uniform scale set (`member`)."""

    path: str
    vm_id: str
    location: str
    properties: dict[str, Any]
    tags: dict[str, str]
    created_at: datetime
    zones: list[str] = field(default_factory=list)
    power: str | None = None  # None: not told yet
    provisioning: str = "Creating"
    changed_at: datetime
    arrives_at: datetime | None = None
    then: tuple[str | None, str] = ("running", "Succeeded")  # power and provisioning after it; power "gone": it goes
    member: str | None = None  # its number
    sku: dict[str, Any] | None = None
    etag: int = 1
    failure: tuple[str, str] | None = None
    takes: timedelta = MINUTE  # what begins; tests in real time want less

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def begins(self, power: str | None, provisioning: str, then: tuple[str | None, str], now: datetime) -> None:
        """Something begins that takes a minute."""
        self.power, self.provisioning, self.then = power, provisioning, then
        self.changed_at, self.arrives_at = now, now + self.takes
        self.etag += 1

    def has_place(self) -> None:
        """It is somewhere, and so it has its disk."""
        disk = self.properties.setdefault("storageProfile", {}).setdefault("osDisk", {"createOption": "FromImage"})
        disk.setdefault("managedDisk", {}).setdefault(
            "id", f"{self.path.partition('/providers/')[0]}{_DISKS}{self.name}"
        )

    def view(self) -> dict[str, Any]:
        """Its instance view."""
        provisioning = self.provisioning.lower()
        code = f"ProvisioningState/{provisioning}" + (f"/{self.failure[0]}" if self.failure else "")
        statuses: list[dict[str, Any]] = [
            {
                "code": code,
                "level": "Error" if self.failure else "Info",
                "displayStatus": f"Provisioning {provisioning}",
                "time": moment(self.changed_at),
            }
        ]
        if self.failure:
            statuses[0]["message"] = self.failure[1]
        if self.power is not None:
            statuses.append({"code": f"PowerState/{self.power}", "level": "Info", "displayStatus": f"VM {self.power}"})
        disk = (self.properties.get("storageProfile") or {}).get("osDisk") or {}
        shown: dict[str, Any] = {"statuses": statuses}
        if self.power is not None and "managedDisk" in disk:
            there = {"code": "ProvisioningState/succeeded", "level": "Info", "time": moment(self.changed_at)}
            shown["disks"] = [{"name": f"{self.name}_OsDisk", "statuses": [there]}]
        return shown

    def described(self, *, view: bool) -> dict[str, Any]:
        """As a Get or a list shows it."""
        properties = {
            **json.loads(json.dumps(self.properties)),
            "vmId": self.vm_id,
            "provisioningState": self.provisioning,
            "timeCreated": moment(self.created_at),
        }
        if view:
            properties["instanceView"] = self.view()
        found: dict[str, Any] = {
            "id": self.path,
            "name": self.name,
            "type": "Microsoft.Compute/virtualMachines",
            "location": self.location,
            "tags": dict(self.tags),
            "properties": properties,
            "etag": f'"{self.etag}"',
        }
        if self.zones:
            found["zones"] = list(self.zones)
        if self.member is not None:
            found |= {"instanceId": self.member, "sku": self.sku}
            found["type"] = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
        return found


@dataclass(slots=True, kw_only=True)
class Set:
    """One scale set."""

    described: dict[str, Any]
    made: int = 0
    stock: int = 999  # so many more machines are to be had for it

    @property
    def path(self) -> str:
        """Its id."""
        return str(self.described["id"])

    @property
    def uniform(self) -> bool:
        """Whether its members are made by its profile."""
        return bool(self.described["properties"]["orchestrationMode"] == "Uniform")


@dataclass(slots=True, kw_only=True)
class Operation:
    """One long-running operation: it is over at a time, or has failed."""

    over_at: datetime
    error: Mapping[str, Any] | None = None


class State:
    """All subscriptions; the keys of every table are ids in small letters."""

    def __init__(self) -> None:
        """Nothing is there."""
        self.vms: dict[str, Vm] = {}
        self.sets: dict[str, Set] = {}
        self.disks: dict[str, dict[str, Any]] = {}
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.made: dict[str, str] = {}  # when each image was made
        self.addresses: dict[str, dict[str, Any]] = {}
        self.interfaces: dict[str, dict[str, Any]] = {}
        self.locks: dict[str, dict[str, Any]] = {}
        self.managers: dict[str, str] = {}  # what manages a resource group, by the name of that in small letters
        self.autoscale: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, Operation] = {}
        self.allowed: list[str] = ["*"]  # actions of our roles
        self.hours: dict[str, dict[str, list[dict[str, Any]]]] = {}  # of metrics, by machine and name
        self.subscriptions: dict[str, str] = {}  # names by ids
        self.drops_tags_of_members = False  # of Uniform scale sets: answered 200, and unchanged
        self.token_seconds = 3600
        self.applications: dict[str, dict[str, Any]] = {}  # of Microsoft Graph, by appId
        self.may_read_applications = True
        self.count = 0

    def new_id(self) -> str:
        """A vmId, the same ones in each run."""
        self.count += 1
        return str(uuid5(_SPACE, str(self.count)))

    def passes(self, now: datetime) -> None:
        """What has arrived by now is there."""
        for key, vm in list(self.vms.items()):
            if vm.arrives_at is None or vm.arrives_at > now:
                continue
            if vm.then[0] == "gone":
                self._goes(key)
                continue
            vm.power, vm.provisioning = vm.then
            vm.has_place()
            vm.changed_at, vm.arrives_at = vm.arrives_at, None
            vm.etag += 1
            for disk in self.disks_of(vm):
                disk["properties"]["diskState"] = "Reserved" if vm.power == "deallocated" else "Attached"

    def disks_of(self, vm: Vm) -> list[dict[str, Any]]:
        """Those that it holds."""
        return [disk for disk in self.disks.values() if str(disk.get("managedBy", "")).lower() == vm.path.lower()]

    def _goes(self, key: str) -> None:
        vm = self.vms.pop(key)
        os_disk = (vm.properties.get("storageProfile") or {}).get("osDisk") or {}
        for disk in self.disks_of(vm):
            if os_disk.get("deleteOption") == "Delete":
                del self.disks[disk["id"].lower()]
            else:
                disk.pop("managedBy")
                disk["properties"]["diskState"] = "Unattached"
        for path, interface in list(self.interfaces.items()):
            if (interface["properties"].get("virtualMachine") or {}).get("id", "").lower() == key:
                del self.interfaces[path]
