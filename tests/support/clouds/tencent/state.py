"""What the fake's clouds are made of: machines that take time to change, groups, templates, disks, addresses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuwatch.runtime.clock import Clock

LAG = timedelta(seconds=30)  # for which a passing state is shown
# A passing state, and what comes after it; None: the machine is listed no more.
AFTER = {"PENDING": "RUNNING", "STARTING": "RUNNING", "STOPPING": "STOPPED", "TERMINATING": None}

# Machine types: vCPUs, GiB, GPUs, kind of GPU.
TYPES: Mapping[str, tuple[int, int, float, str]] = {
    "GN10X.2XLARGE40": (8, 40, 1.0, "NVIDIA V100"),
    "GN10Xp.20XLARGE320": (80, 320, 8.0, "NVIDIA V100"),
    "GN7vw.LARGE16": (4, 16, 0.25, "NVIDIA T4"),
    "GA2.LARGE8": (4, 8, 1.0, "AMD S7150"),
    "S5.LARGE8": (4, 8, 0.0, ""),
}


class Refusal(Exception):  # noqa: N818  it is the cloud's no, not a mistake
    """A code and a sentence, as the cloud answers them."""

    def __init__(self, code: str, message: str = "why") -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True, kw_only=True)
class Machine:
    """One instance."""

    id: str
    region: str
    type: str
    state: str
    since: datetime
    made_at: datetime
    name: str = "未命名"
    zone: str = ""
    charge: str = "POSTPAID_BY_HOUR"
    tags: dict[str, str] = field(default_factory=dict)
    disk_types: tuple[str, ...] = ("CLOUD_PREMIUM",)
    stopped_mode: str = "NOT_APPLICABLE"
    protected: bool = False  # DisableApiTermination
    operation: str = "RunInstances"
    request: str = ""  # of that operation
    token: str | None = None
    cluster: str = ""  # of TKE
    overrides: dict[str, Any] = field(default_factory=dict)  # members of its description as they come, None: absent


@dataclass(slots=True, kw_only=True)
class Activity:
    """One activity of a group; `changes` are members of its description as they come."""

    id: str
    status: str
    began: datetime
    made: list[str] = field(default_factory=list)
    error: str = ""
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ScalingGroup:
    """One Auto Scaling group. `members` are ids; `attached` those that somebody attached by hand."""

    id: str
    name: str
    region: str
    zone: str
    min_size: int
    max_size: int
    desired: int
    type: str
    tags: dict[str, str]
    enabled: bool = True
    members: dict[str, str] = field(default_factory=dict)  # id to LifeCycleState
    attached: set[str] = field(default_factory=set)
    protected: set[str] = field(default_factory=set)
    stock: int = 999  # so many machines are to be had for it
    error: str = "ResourceInsufficient.SpecifiedInstanceType"  # CVM's code where one cannot be had
    activities: list[Activity] = field(default_factory=list)  # the newest last


@dataclass(slots=True, kw_only=True)
class Disk:
    """One cloud disk; each machine has one for its system, made with it."""

    id: str
    region: str
    type: str = "CLOUD_PREMIUM"
    size: int = 50
    machine: str | None = None
    encrypted: bool = False


@dataclass(slots=True, kw_only=True)
class Address:
    """One elastic address."""

    id: str
    region: str
    machine: str | None = None
    type: str = "EIP"


@dataclass(slots=True, kw_only=True)
class LaunchTemplate:
    """One launch template; its first version is the default, the last is the latest."""

    id: str
    name: str
    region: str
    versions: list[dict[str, Any]]


@dataclass(slots=True)
class State:
    """Everything that exists."""

    clock: Clock
    machines: dict[str, Machine] = field(default_factory=dict)
    groups: dict[str, ScalingGroup] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    addresses: dict[str, Address] = field(default_factory=dict)
    snapshots: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)  # region, and what is not as usual
    access_keys: dict[str, tuple[str, str]] = field(default_factory=dict)  # of who asks: status, and when it was made
    templates: dict[str, LaunchTemplate] = field(default_factory=dict)
    images: dict[str, tuple[str, str]] = field(default_factory=dict)  # of the account: region, and when it was made
    count: int = 0
    request: str = ""  # the one that is being answered
    lag: timedelta = LAG

    def number(self) -> int:
        """A new one."""
        self.count += 1
        return self.count

    def add_machine(self, region: str, kind: str, *, state: str = "RUNNING", **more: Any) -> Machine:  # noqa: ANN401  fields of Machine
        """A new machine, with its disk."""
        now = self.clock.now()
        number = self.number()
        machine = Machine(
            id=f"ins-{number:08x}",
            region=region,
            type=kind,
            state=state,
            since=now,
            made_at=now,
            **{"zone": f"{region}-3", **more},
        )
        self.machines[machine.id] = machine
        if machine.disk_types[0].startswith("CLOUD_"):
            self.disks[f"disk-{number:08x}"] = Disk(
                id=f"disk-{number:08x}", region=region, type=machine.disk_types[0], machine=machine.id
            )
        return machine

    def become(self, machine: Machine, state: str, operation: str) -> None:
        """A machine begins to change."""
        machine.state, machine.since, machine.operation = state, self.clock.now(), operation
        machine.request = self.request

    def pass_time(self) -> None:
        """Let every passing state end that is over, and groups fill up."""
        now = self.clock.now()
        for machine in list(self.machines.values()):
            if machine.state in AFTER and now - machine.since >= self.lag:
                after = AFTER[machine.state]
                if after is None:
                    self._gone(machine)
                else:
                    machine.state, machine.since = after, now
        for group in self.groups.values():
            self._fill(group)

    def _gone(self, machine: Machine) -> None:
        del self.machines[machine.id]
        self.disks = {key: disk for key, disk in self.disks.items() if disk.machine != machine.id}
        for group in self.groups.values():
            group.members.pop(machine.id, None)

    def _fill(self, group: ScalingGroup) -> None:
        """What is missing is made; what is ending is not there any more."""
        for node_id in list(group.members):
            machine = self.machines[node_id]
            if machine.state == "TERMINATING":
                group.members[node_id] = "TERMINATING"
            elif machine.state in {"PENDING", "RUNNING"}:
                group.members[node_id] = "IN_SERVICE" if machine.state == "RUNNING" else "CREATING"
        if group.enabled:
            self._scale_out(group)

    def _scale_out(self, group: ScalingGroup) -> None:
        """What cannot be had is tried once in a while, and is in the group's record."""
        there = sum(state != "TERMINATING" for state in group.members.values())
        made = []
        for _ in range(min(group.desired, group.stock) - there):
            own = self.add_machine(group.region, group.type, state="PENDING", tags=dict(group.tags), zone=group.zone)
            group.members[own.id] = "CREATING"
            made.append(own.id)
        lacking, now = group.desired > there + len(made), self.clock.now()
        last = group.activities[-1].began if group.activities else None
        if made or (lacking and (last is None or now - last >= self.lag)):
            status = "SUCCESSFUL" if not lacking else "PARTIALLY_SUCCESSFUL" if made else "FAILED"
            name, error = f"asa-{self.number():08x}", group.error if lacking else ""
            group.activities.append(Activity(id=name, status=status, began=now, made=made, error=error))


def written(moment: datetime) -> str:
    """A time as these APIs write it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
