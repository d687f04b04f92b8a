"""Tencent Cloud with people, time and faults: the provider on its fake, for the contract suite."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpuwatch.clouds import (
    AuthFailedError,
    Cloud,
    CloudError,
    InsufficientCapacityError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.model.fleet import Node
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.server import CloudServer, serving
from tests.support.clouds.tencent.fake import SECRET_ID, SECRET_KEY, FakeTencent
from tests.support.clouds.tencent.others import ACCOUNT
from tests.support.clouds.tencent.state import Address, Disk, LaunchTemplate, Machine, ScalingGroup
from tests.support.fakes.cloud_worlds import CPU_TEMPLATE, FLEET, SPOT_TEMPLATE, TEMPLATE, Words

REGION = "ap-guangzhou"
GPU_TYPE, CPU_TYPE = "GN10X.2XLARGE40", "S5.LARGE8"
ACTIONS = {
    "stop": "StopInstances",
    "start": "StartInstances",
    "terminate": "TerminateInstances",
    "launch": "RunInstances",
    "grow": "ModifyDesiredCapacity",
    "protect": "SetInstancesProtection",
    "tag": "TagResources",
}
REFUSALS: Mapping[type[CloudError], str] = {
    ProtectedError: "UnsupportedOperation.InstancesProtected",
    InsufficientCapacityError: "ResourcesSoldOut.SpecifiedInstanceType",
    QuotaExceededError: "LimitExceeded.CvmInstanceQuota",
    ThrottledError: "RequestLimitExceeded",
    AuthFailedError: "UnauthorizedOperation.PermissionDenied",
}
WORDS = Words(
    provider="tencent",
    region=REGION,
    zone=f"{REGION}-3",
    account=ACCOUNT,
    machine_type=GPU_TYPE,
    larger_type="GN10Xp.20XLARGE320",
    no_template="lt-notthere",
    reserved_template=None,
    nowhere="ins-notthere",
    no_group="asg-notthere",
    volume_type="CLOUD_PREMIUM",
    volume_bytes=50 * 1024**3,
    unknown_id="InvalidInstanceId.NotFound",
    wrong_state=frozenset(
        f"UnsupportedOperation.InstanceState{word}" for word in ("Pending", "Starting", "Stopping", "Terminating")
    ),
    key_of_another_launch=None,
    refusals=REFUSALS,
)


class TencentWorld:
    """The provider, and the people around it."""

    def __init__(self, clock: ManualClock, server: CloudServer, fake: FakeTencent, cloud: TencentCloud) -> None:
        """An empty account with three templates."""
        self.folder = Path()  # an empty one, where `a_world` gives one
        self.clock, self.server, self.fake, self.words = clock, server, fake, WORDS
        self.cloud: Cloud = cloud
        for number, (name, kind) in enumerate(((TEMPLATE, GPU_TYPE), (CPU_TEMPLATE, CPU_TYPE)), 1):
            self.add_template(f"lt-{number:08x}", name, InstanceType=kind)
        self.add_template("lt-0000spot", SPOT_TEMPLATE, InstanceType=GPU_TYPE, InstanceChargeType="SPOTPAID")

    def add_template(self, template_id: str, name: str, **data: object) -> None:
        """Somebody makes a launch template."""
        version = {
            "Placement": {"Zone": self.words.zone, "ProjectId": 0},
            "ImageId": "img-8toqc6s3",
            "InstanceChargeType": "POSTPAID_BY_HOUR",
            "VirtualPrivateCloud": {"VpcId": "vpc-1", "SubnetId": "subnet-zone3"},
            **data,
        }
        template = LaunchTemplate(id=template_id, name=name, region=REGION, versions=[version])
        self.fake.state.templates[template_id] = template

    def launch(self, tags: Mapping[str, str], *, gpus: bool = True, **more: Any) -> str:  # noqa: ANN401  fields of Machine
        """A machine that runs; its name is no tag here."""
        own = {key: value for key, value in tags.items() if key != "Name"}
        named = {"name": tags["Name"]} if "Name" in tags else {}
        kind = GPU_TYPE if gpus else CPU_TYPE
        return self.fake.state.add_machine(REGION, kind, tags=own, **{**named, **more}).id

    def machine(self, node_id: str) -> Machine:
        """The machine itself."""
        return self.fake.state.machines[node_id]

    def shown(self, node_id: str) -> Node:
        """The machine as it is told, alone and in the list alike."""
        node = self.cloud.node(node_id)
        assert node is not None
        assert [each for each in self.cloud.nodes() if each.id == node_id] == [node]
        return node

    def sent(self, action: str) -> list[Mapping[str, Any]]:
        """The parameters of every request of an action."""
        return [parameters for name, parameters in self.fake.sent if name == action]

    def terminate(self, node_id: str) -> None:
        """Somebody terminates it."""
        self.fake.state.become(self.fake.state.machines[node_id], "TERMINATING", "TerminateInstances")

    def never_made(self, node_id: str) -> None:
        """It is shown as such."""
        self.fake.state.become(self.fake.state.machines[node_id], "LAUNCH_FAILED", "RunInstances")

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Somebody tags it."""
        self.fake.state.machines[node_id].tags |= tags

    def settle(self, node_id: str) -> None:
        """A minute passes."""
        del node_id
        self.clock.advance(60)
        self.fake.state.pass_time()

    def add_group(
        self, name: str, tags: Mapping[str, str], *, size: int, suspended: Collection[str] = (), **bounds: int
    ) -> str:
        """A group whose members run; one switch is all that it has to be suspended by."""
        group = ScalingGroup(
            id=f"asg-{self.fake.state.number():08x}",
            name=name,
            region=REGION,
            zone=self.words.zone,
            min_size=bounds.get("MinSize", 0),
            max_size=bounds.get("MaxSize", 10),
            desired=size,
            type=GPU_TYPE,
            tags=dict(tags),
        )
        self.fake.state.groups[group.id] = group
        self.fake.state.pass_time()
        self.settle(group.id)
        group.enabled = not suspended
        return group.id

    def no_stock(self, group_id: str) -> None:
        """It tries again and again, and makes no machine."""
        group = self.fake.state.groups[group_id]
        group.stock = len(group.members)

    def add_volume(self) -> str:
        """A disk that nothing uses."""
        disk = Disk(id="disk-left", region=REGION)
        self.fake.state.disks[disk.id] = disk
        return disk.id

    def add_address(self, machine: str | None = None) -> str:
        """An elastic address."""
        address = Address(id=f"eip-{self.fake.state.number():08x}", region=REGION, machine=machine)
        self.fake.state.addresses[address.id] = address
        return address.id

    def refuse(self, call: str, kind: type[CloudError]) -> None:
        """The next such call has an error for an answer."""
        self.fake.refusals.setdefault(ACTIONS[call], []).append(REFUSALS[kind])

    def lose_response(self, call: str) -> None:
        """The connection breaks after the effect."""
        self.server.plan.strike(Fault.RESET_AFTER, when(operation=ACTIONS[call]))


@contextmanager
def a_world(clock: ManualClock, *, regions: tuple[str, ...] = (REGION,)) -> Iterator[TencentWorld]:
    """An empty account behind HTTP."""
    fake = FakeTencent(clock)
    with TemporaryDirectory() as folder, serving(fake) as server:
        key_file = Path(folder) / "key"
        key_file.write_text(f"{SECRET_ID}:{SECRET_KEY}\n", encoding="utf-8")
        cloud = TencentCloud(
            fleet=FLEET,
            clock=clock,
            regions=regions,
            key_file=str(key_file),
            endpoint_url=server.url,
        )
        world = TencentWorld(clock, server, fake, cloud)
        world.folder = Path(folder)
        yield world
