"""What the fake of Alibaba Cloud holds: machines, disks, addresses, groups, templates; time moves them by itself."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

ACCOUNT = "1234567890123456"
CHANGE_SECONDS = 60.0  # for a start, a stop, a release

# Type -> GPUs, GPUSpec, disks of its own. The values are those of Alibaba's page of GPU types.
TYPES: dict[str, tuple[int, str, int]] = {
    "ecs.gn7i-c8g1.2xlarge": (1, "NVIDIA A10", 0),
    "ecs.gn7i-c16g1.4xlarge": (1, "NVIDIA A10", 0),
    "ecs.gn7i-vws-m2.xlarge": (0, "NVIDIA A10*1/12", 0),  # a slice
    "ecs.gn5-c4g1.xlarge": (1, "NVIDIA P100", 1),  # with a local disk
    "ecs.ga1.xlarge": (1, "AMD S7150", 0),
    "ecs.g7.large": (0, "", 0),
}


@dataclass(slots=True, kw_only=True)
class Machine:
    """One instance. `next` is when its state becomes which; None there is the end."""

    id: str
    region: str
    type: str
    status: str
    name: str
    tags: dict[str, str]
    made_at: datetime
    started_at: datetime
    charge: str = "PostPaid"
    spot: str = "NoSpot"
    stopped_mode: str = "Not-applicable"
    stop_mode_asked: str = "KeepCharging"
    network: str = "vpc"
    protected: bool = False
    locks: list[str] = field(default_factory=list)
    host: str = ""
    reservation: str = ""
    group: str | None = None
    member_state: str = "InService"
    created_by: str = "AutoCreated"
    next: tuple[datetime, str | None] | None = None

    @property
    def economical(self) -> bool:
        """Whether a stop can end its bill."""
        return self.charge == "PostPaid" and TYPES[self.type][2] == 0 and self.network == "vpc"


@dataclass(slots=True, kw_only=True)
class Disk:
    """One cloud disk."""

    id: str
    region: str
    size_gib: int
    machine: str | None
    category: str = "cloud_essd"
    level: str = "PL1"
    encrypted: bool = False


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """One snapshot; `usage` says whether an image rests on it."""

    id: str
    region: str
    disk: str
    usage: str = "none"


@dataclass(slots=True, kw_only=True)
class Address:
    """One elastic address."""

    id: str
    region: str
    machine: str | None = None


@dataclass(slots=True, kw_only=True)
class Template:
    """One launch template; its versions' machine types, the first is the default."""

    id: str
    name: str
    region: str
    types: list[str]
    image: str = ""  # of the first version
    spot: str = "NoSpot"
    reservation: str = ""


@dataclass(slots=True, kw_only=True)
class Image:
    """One image of the account; `usage` says whether a machine was made from it that is still there."""

    id: str
    region: str
    made: str
    usage: str = "none"
    shared: bool = False


@dataclass(slots=True, kw_only=True)
class Activity:
    """One activity of a group; `changes` are members of its description as they come."""

    id: str
    status: str
    began: datetime
    made: list[str] = field(default_factory=list)
    error: tuple[str, str] | None = None
    changes: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ScalingGroup:
    """One group, with a scaling configuration of one type."""

    id: str
    name: str
    region: str
    type: str
    min_size: int
    max_size: int
    desired: int | None
    tags: dict[str, str]
    suspended: list[str] = field(default_factory=list)
    state: str = "Active"
    tokens: dict[str, tuple[str, int]] = field(default_factory=dict)
    stock: int = 999  # so many machines are to be had for it
    error: tuple[str, str] = ("OperationDenied.NoStock", "The resource is out of stock in the specified zone.")
    activities: list[Activity] = field(default_factory=list)  # the newest last


class State:
    """The whole cloud of one account."""

    def __init__(self, regions: tuple[str, ...]) -> None:
        """An empty account."""
        self.regions = regions
        self.change_seconds = CHANGE_SECONDS
        self.machines: dict[str, Machine] = {}
        self.disks: dict[str, Disk] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.images: dict[str, Image] = {}
        self.addresses: dict[str, Address] = {}
        self.templates: dict[str, Template] = {}
        self.groups: dict[str, ScalingGroup] = {}
        self.launched: dict[str, tuple[str, str]] = {}  # ClientToken -> request, id
        self.removed: dict[str, str] = {}  # ClientToken -> id
        self.vcpus = {"max-postpaid-instance-vcpu-count": "1000", "used-postpaid-instance-vcpu-count": "96"}
        self.use = {"CPUUtilization": (50.0, 100.0), "instance_gpu_gpu_usedutilization": (25.0, 75.0)}
        self.points_a_page = 1440
        self.access_keys: dict[str, tuple[str, str]] = {}  # of the user that asks: status, and when it was made
        self._count: Iterator[int] = itertools.count(1)

    def soon(self, now: datetime) -> datetime:
        """When a change that begins now is over."""
        return now + timedelta(seconds=self.change_seconds)

    def name(self, prefix: str) -> str:
        """A new id."""
        return f"{prefix}-bp1{next(self._count):017d}"

    def add_machine(self, region: str, kind: str, tags: dict[str, str], now: datetime, **more: object) -> Machine:
        """A machine that begins, with its system disk."""
        node_id = self.name("i")
        given: dict[str, object] = {"name": tags.get("Name", f"iZ{node_id[-12:]}"), "status": "Pending", **more}
        minute = now.replace(second=0, microsecond=0)
        machine = Machine(
            id=node_id,
            region=region,
            type=kind,
            tags=dict(tags),
            made_at=minute,
            started_at=minute,
            **given,  # type: ignore[arg-type]
        )
        machine.next = (self.soon(now), "Running")
        self.machines[node_id] = machine
        disk = self.name("d")
        self.disks[disk] = Disk(id=disk, region=region, size_gib=40, machine=node_id)
        return machine

    def tick(self, now: datetime) -> None:
        """Let everything arrive that is due; groups fill up to their desired size."""
        for machine in list(self.machines.values()):
            if machine.next is None or machine.next[0] > now:
                continue
            (_, status), machine.next = machine.next, None
            if status is None:
                self._release(machine)
                continue
            machine.status = status
            if status == "Stopped":
                asked = machine.stop_mode_asked if machine.economical else "Not-applicable"
                machine.stopped_mode = asked
        for group in self.groups.values():
            self._fill(group, now)

    def members(self, group: ScalingGroup) -> list[Machine]:
        """The machines of a group."""
        return [machine for machine in self.machines.values() if machine.group == group.id]

    def _release(self, machine: Machine) -> None:
        """Its disk goes with it; its address stays."""
        del self.machines[machine.id]
        self.disks = {name: disk for name, disk in self.disks.items() if disk.machine != machine.id}
        for address in self.addresses.values():
            address.machine = None if address.machine == machine.id else address.machine

    def _fill(self, group: ScalingGroup, now: datetime) -> None:
        """What is missing is made; what cannot be had is tried once a minute, and is in the group's record."""
        if group.desired is None or "ScaleOut" in group.suspended:
            return
        staying = len([each for each in self.members(group) if not _leaves(each)])
        made = [self.add_member(group, now).id for _ in range(min(group.desired, group.stock) - staying)]
        lacking = group.desired > staying + len(made)
        last = group.activities[-1].began if group.activities else None
        if made or (lacking and (last is None or now - last >= timedelta(seconds=CHANGE_SECONDS))):
            status = "Successful" if not lacking else "Warning" if made else "Failed"
            error = group.error if lacking else None
            own = Activity(id=self.name("asa"), status=status, began=now, made=made, error=error)
            group.activities.append(own)

    def add_member(self, group: ScalingGroup, now: datetime) -> Machine:
        """A machine that the group makes."""
        tags = {**group.tags, "acs:autoscaling:scalingGroupId": group.id}
        machine = self.add_machine(group.region, group.type, tags, now, name=f"ESS-asg-{group.name}")
        machine.group = group.id
        return machine


def _leaves(machine: Machine) -> bool:
    """On its way out of its group: the group sees a machine that does not run as unhealthy."""
    going = machine.next is not None and machine.next[1] is None
    return going or machine.member_state.startswith("Removing")
