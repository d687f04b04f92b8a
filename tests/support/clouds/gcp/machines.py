"""What is in a project of the fake: machines with their lives, groups with their members, operations."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.runtime.clock import Clock

Resource = dict[str, Any]

HOST = "https://www.googleapis.com/compute/v1"
ZONES = ("europe-west4-a", "europe-west4-b", "us-central1-a", "us-central1-b", "us-east1-b")
SECONDS = timedelta(seconds=60)  # that a start, a stop and an end take
# Name: (accelerator, how many, local SSDs that come with it), as in Google's list of machine types.
TYPES: Mapping[str, tuple[str, int, int]] = {
    "g2-standard-4": ("nvidia-l4", 1, 0),
    "g2-standard-24": ("nvidia-l4", 2, 0),
    "a2-ultragpu-1g": ("nvidia-a100-80gb", 1, 1),
    "ct5lp-hightpu-1t": ("ct5lp", 1, 0),
    "n1-standard-8": ("", 0, 0),
    "e2-standard-2": ("", 0, 0),
}
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
# Of an instance as of its template.
_AS_WRITTEN = ("guestAccelerators", "description", "metadata", "reservationAffinity")


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        """As Google writes it."""
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


@dataclass(slots=True)
class Machine:
    """One instance: as it is told, and what becomes of it when. A status of None: it is gone."""

    told: Resource
    due: list[tuple[datetime, str | None]] = field(default_factory=list)
    operation: Resource | None = None
    action: str = "NONE"  # of its group
    brings_ssds: bool = False  # local SSDs that are not among its disks


@dataclass(slots=True)
class Group:
    """One managed instance group and its autoscaler, where it has one."""

    told: Resource
    members: list[str] = field(default_factory=list)
    count: int = 0
    autoscaler: Resource | None = None
    stock: int = 999  # so many machines are to be had for it
    unlisted: bool = False  # nobody gets the list of its members


def check_labels(labels: Mapping[str, str]) -> None:
    """Google's rules for labels."""
    for key, value in labels.items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise RefusedError(400, "invalid", f"Invalid value for field 'labels': '{key}={value}'.")


def fingerprint(labels: Mapping[str, str]) -> str:
    """Of labels."""
    return hashlib.sha256(json.dumps(sorted(labels.items())).encode()).hexdigest()[:11] + "="


EMPTY = "waiting-"  # how the names of places without a machine begin


class Project:
    """One project: all that is in it, and its clock."""

    def __init__(self, name: str, clock: Clock, first_id: int = 1) -> None:
        """Nothing is in it."""
        self.name, self.clock = name, clock
        self.machines: dict[str, Machine] = {}
        self.groups: dict[str, Group] = {}
        self.templates: dict[str, Resource] = {}
        self.images: list[Resource] = []
        self.operations: list[Resource] = []
        self.disks: dict[str, Resource] = {}
        self.addresses: dict[str, Resource] = {}
        self.snapshots: list[Resource] = []
        self.requests: dict[str, Resource] = {}
        self.failing: dict[str, tuple[str, str]] = {}  # operationType: code and message of its failure after a second
        self.pace = 1.0  # of what takes time; tests in real time want less
        self._last_id = first_id * 10**15

    def link(self, path: str) -> str:
        """A resource's address."""
        return f"{HOST}/projects/{self.name}/{path}"

    def new_id(self) -> str:
        """A number that nothing else has."""
        self._last_id += 7
        return str(self._last_id)

    def stamp(self) -> str:
        """Now, as Google writes it: local time of its own head office."""
        return self.clock.now().isoformat(timespec="milliseconds")

    # Machines.

    def add(self, zone: str, name: str, properties: Mapping[str, Any], *, status: str) -> Machine:
        """A new machine; a template's properties name types without their links."""
        kind = str(properties["machineType"]).rpartition("/")[2]
        if not _NAME.fullmatch(name) or zone not in ZONES or kind not in TYPES:
            raise RefusedError(400, "invalid", f"Invalid value for a field of '{name}', '{kind}' in '{zone}'.")
        if any(each.told["name"] == name and _zone(each) == zone for each in self.machines.values()):
            raise RefusedError(409, "alreadyExists", f"The resource '{name}' already exists")
        labels = dict(properties.get("labels", {}))
        check_labels(labels)
        number, path = self.new_id(), f"zones/{zone}/instances/{name}"
        disk = self._boot_disk(zone, name, self.link(path))
        scratch = [{"type": "SCRATCH", "interface": "NVME", "index": 1}] * TYPES[kind][2]
        told: Resource = {
            "kind": "compute#instance",
            "id": number,
            "name": name,
            "zone": self.link(f"zones/{zone}"),
            "machineType": self.link(f"zones/{zone}/machineTypes/{kind}"),
            "status": status,
            "creationTimestamp": self.stamp(),
            "lastStartTimestamp": self.stamp(),
            "labels": labels,
            "labelFingerprint": fingerprint(labels),
            "deletionProtection": False,
            "selfLink": self.link(path),
            "scheduling": {"provisioningModel": "STANDARD", "preemptible": False, "onHostMaintenance": "TERMINATE"},
            "disks": [{"type": "PERSISTENT", "boot": True, "index": 0, "source": disk}, *scratch],
            "networkInterfaces": [{"name": "nic0", "networkIP": f"10.128.0.{len(self.machines) % 250 + 2}"}],
            "metadata": {"kind": "compute#metadata", "items": []},
            "resourceStatus": {"scheduling": {}},
            **{key: properties[key] for key in _AS_WRITTEN if key in properties},
        }
        if properties.get("scheduling"):
            told["scheduling"] = {**told["scheduling"], **properties["scheduling"]}
        self.machines[number] = Machine(told)
        return self.machines[number]

    def machine(self, zone: str, name: str) -> Machine:
        """By its name, or its number."""
        for each in self.machines.values():
            if _zone(each) == zone and name in {each.told["name"], each.told["id"]}:
                return each
        raise RefusedError(
            404, "notFound", f"The resource 'projects/{self.name}/zones/{zone}/instances/{name}' was not found"
        )

    def tick(self) -> None:
        """Everything that is due by now has happened."""
        now = self.clock.now()
        for number, machine in list(self.machines.items()):
            while machine.due and machine.due[0][0] <= now:
                _, status = machine.due.pop(0)
                self._become(number, machine, status)
        for operation in self.operations:
            at = operation.get("_fails_at")
            if at is not None and at <= now and operation["status"] != "DONE":
                self._fail(operation)
        for group in self.groups.values():
            self._fill(group)

    def later(self, machine: Machine, *due: tuple[timedelta, str | None]) -> None:
        """What becomes of it from now on."""
        machine.due = [(self.clock.now() + after * self.pace, status) for after, status in due]

    def delete(self, machine: Machine) -> Resource:
        """It stops, and then it is not there any more."""
        machine.told["status"] = "STOPPING"
        self.later(machine, (SECONDS, None))
        return self.operation("delete", machine)

    def _become(self, number: str, machine: Machine, status: str | None) -> None:
        if status is None:
            del self.machines[number]
            self.disks = {
                key: disk for key, disk in self.disks.items() if machine.told["selfLink"] not in disk.get("users", ())
            }
            for group in self.groups.values():
                group.members = [each for each in group.members if each != number]
        else:
            machine.told["status"] = status
            if status == "TERMINATED":
                machine.told["lastStopTimestamp"] = self.stamp()
            if status == "RUNNING":
                machine.action = "NONE"
        if machine.operation is not None and not machine.due:
            machine.operation.update(status="DONE", progress=100, endTime=self.stamp())
            machine.operation = None

    def _boot_disk(self, zone: str, name: str, user: str) -> str:
        path = f"zones/{zone}/disks/{name}"
        self.disks[path] = {
            "kind": "compute#disk",
            "id": self.new_id(),
            "name": name,
            "creationTimestamp": self.stamp(),
            "zone": self.link(f"zones/{zone}"),
            "type": self.link(f"zones/{zone}/diskTypes/pd-balanced"),
            "sizeGb": "50",
            "status": "READY",
            "labels": {"goog-terraform-provisioned": "true"},
            "labelFingerprint": fingerprint({"goog-terraform-provisioned": "true"}),
            "selfLink": self.link(path),
            "users": [user],
        }
        return self.link(path)

    # Operations.

    def operation(self, kind: str, machine: Machine, *, done: bool = False) -> Resource:
        """What is answered to a change that is accepted; it goes on until the machine has arrived."""
        zone = _zone(machine)
        operation = self._operation(kind, f"zones/{zone}", machine.told["selfLink"], machine.told["id"], done=done)
        operation["zone"] = self.link(f"zones/{zone}")
        if not done:
            machine.operation = operation
        if kind in self.failing:
            operation.update(status="RUNNING", _fails_at=self.clock.now() + timedelta(seconds=1))
            operation["_failure"], operation["_machine"] = self.failing.pop(kind), machine.told["id"]
        return operation

    def group_operation(self, kind: str, group: Group) -> Resource:
        """The same of a group, which is done at once."""
        path = group.told["selfLink"].partition(f"/projects/{self.name}/")[2]
        scope = path.partition("/instanceGroupManagers/")[0]
        operation = self._operation(kind, scope, group.told["selfLink"], group.told["id"], done=True)
        operation["zone" if scope.startswith("zones/") else "region"] = self.link(scope)
        return operation

    def _operation(self, kind: str, scope: str, target: str, number: str, *, done: bool) -> Resource:
        own = self.new_id()
        operation: Resource = {
            "kind": "compute#operation",
            "id": own,
            "name": f"operation-{own}",
            "operationType": kind,
            "targetLink": target,
            "targetId": number,
            "status": "DONE" if done else "RUNNING",
            "progress": 100 if done else 0,
            "user": "gpuwatch@lab.iam.gserviceaccount.com",
            "insertTime": self.stamp(),
            "startTime": self.stamp(),
            "selfLink": self.link(f"{scope}/operations/operation-{own}"),
        }
        self.operations.append(operation)
        return operation

    def fail_insert(self, number: str, code: str, message: str) -> None:
        """A launch that was accepted fails."""
        operation = next(
            each for each in self.operations if (each["operationType"], each["targetId"]) == ("insert", number)
        )
        operation["_failure"], operation["_machine"] = (code, message), number
        self._fail(operation)

    def _fail(self, operation: Resource) -> None:
        """What was accepted fails: a launch leaves nothing, a start a machine that is stopped."""
        code, message = operation["_failure"]
        machine = self.machines.get(operation["_machine"])
        operation.update(
            status="DONE",
            progress=100,
            endTime=self.stamp(),
            httpErrorStatusCode=503,
            httpErrorMessage="SERVICE UNAVAILABLE",
            error={"errors": [{"code": code, "message": message}]},
        )
        if machine is None:
            return
        machine.operation, machine.due = None, []
        if operation["operationType"] == "insert":
            self._become(operation["_machine"], machine, None)
        elif operation["operationType"] == "start":
            machine.told["status"] = "TERMINATED"

    # Groups.

    def empty_places(self, group: Group) -> list[Resource]:
        """The places of a group that no machine can be made for: it tries again and again."""
        zone = (group.told.get("zone") or group.told["distributionPolicy"]["zones"][0]["zone"]).rpartition("/")[2]
        message = "The zone does not have enough resources available."
        errors = [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": message}]
        return [
            {
                "instance": self.link(f"zones/{zone}/instances/{EMPTY}{number:04d}"),
                "currentAction": "CREATING",
                "lastAttempt": {"errors": {"errors": errors}},
            }
            for number in range(group.told["targetSize"] - len(group.members))
        ]

    def _fill(self, group: Group) -> None:
        """As many machines as it wants, made of its template."""
        wanted = min(group.told["targetSize"], group.stock)
        if len(group.members) >= wanted:
            return
        place = group.told.get("zone") or group.told["distributionPolicy"]["zones"][0]["zone"]
        zone = place.rpartition("/")[2]
        template = self.templates[group.told["instanceTemplate"].rpartition("/projects/")[2].partition("/")[2]]
        own = group.told.get("allInstancesConfig", {}).get("properties", {}).get("labels", {})
        made_by = f"projects/4242/{group.told['selfLink'].partition(f'/projects/{self.name}/')[2]}"
        while len(group.members) < wanted:
            group.count += 1
            properties = {
                **template["properties"],
                "labels": {**template["properties"].get("labels", {}), **own},
                "metadata": {"kind": "compute#metadata", "items": [{"key": "created-by", "value": made_by}]},
            }
            name = f"{group.told['baseInstanceName']}-{group.count:04d}"
            machine = self.add(zone, name, properties, status="PROVISIONING")
            machine.action = "CREATING"
            self.later(machine, (SECONDS, "RUNNING"))
            group.members.append(machine.told["id"])


def _zone(machine: Machine) -> str:
    zone: str = machine.told["zone"].rpartition("/")[2]
    return zone


def told(resource: Mapping[str, Any]) -> Resource:
    """A resource without what only the fake knows."""
    return {key: value for key, value in resource.items() if not key.startswith("_")}
