"""A cloud with people, time and faults around it. The contract suite runs on each of them.

The simulated cloud and EC2 on moto are here. Every other cloud has `tests/support/clouds/PROVIDER/world.py`, whose
`a_world(clock)` is a context manager that yields its `World`; it is found by its folder.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from gpuwatch.clouds import (
    FLEET_TAG,
    POOL_TAG,
    AuthFailedError,
    Cloud,
    CloudError,
    InsufficientCapacityError,
    Leftover,
    LeftoverKind,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.clouds.several import SeveralClouds
from gpuwatch.model.fleet import CapacityType, Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.cloud import LostResponseError, SimulatedCloud
from tests.support.components import loaded
from tests.support.fakes import moto_groups
from tests.support.fakes.moto_faults import REGION, MotoFaults
from tests.support.paths import ROOT

FLEET = "lab"
MINE = {FLEET_TAG: FLEET}
# One row per way a call is refused: the typed error, and EC2's code and HTTP status for it.
REFUSALS = {
    ProtectedError: ("OperationNotPermitted", 400),
    InsufficientCapacityError: ("InsufficientInstanceCapacity", 500),
    QuotaExceededError: ("VcpuLimitExceeded", 400),
    ThrottledError: ("RequestLimitExceeded", 503),
    AuthFailedError: ("UnauthorizedOperation", 403),
}
ACTIONS = {
    "stop": "StopInstances",
    "start": "StartInstances",
    "terminate": "TerminateInstances",
    "launch": "RunInstances",
    "grow": "SetDesiredCapacity",
    "protect": "SetInstanceProtection",
    "tag": "CreateTags",
}
TEMPLATE, CPU_TEMPLATE, SPOT_TEMPLATE, RESERVED_TEMPLATE = "gpu-node", "cpu-node", "spot-node", "reserved-node"
ACCOUNT = "123456789012"
NOWHERE = "i-0123456789abcdef0"
_WORLDS_OF_PROVIDERS = ROOT / "tests/support/clouds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a world's cloud calls things, where the contract leaves it to the cloud. The defaults are EC2's."""

    provider: str = "aws"
    region: str = REGION
    zone: str = f"{REGION}a"
    account: str = ACCOUNT
    machine_type: str = "g5.xlarge"  # of every GPU machine of the world; it has one GPU
    larger_type: str = "g5.2xlarge"
    template: str = TEMPLATE  # of a machine with a GPU
    cpu_template: str = CPU_TEMPLATE
    spot_template: str = SPOT_TEMPLATE  # of a spot machine with a GPU
    reserved_template: str | None = RESERVED_TEMPLATE  # of one in a reservation; None: its templates name none
    no_template: str = "lt-0123456789abcdef0"
    nowhere: str = NOWHERE  # the id of no machine
    no_group: str = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:0:autoScalingGroupName/nobody"
    volume_type: str = "gp3"
    volume_bytes: int = 8 * 1024**3
    unknown_id: str = "InvalidInstanceID.NotFound"
    wrong_state: frozenset[str] = frozenset({"IncorrectInstanceState"})
    group_kind: str = "Auto Scaling group"
    has_processes: bool = True  # of its groups, which can be suspended one by one
    replaces_members: bool = True  # its groups replace a member that goes without its place
    protects_members: bool = True  # its groups can be told to leave a member alone
    always_named: bool = False  # its machines have names without the tag Name
    time: Callable[[datetime], str] = datetime.isoformat  # a tag's time as the cloud gives it back
    key_of_another_launch: str | None = "IdempotentParameterMismatch"  # None: it gives the first launch's machine
    refusals: Mapping[type[CloudError], str] = field(
        default_factory=lambda: {kind: code for kind, (code, _) in REFUSALS.items()}
    )


class World(Protocol):
    """A cloud with people, time and faults."""

    cloud: Cloud
    clock: ManualClock
    words: Words

    def launch(self, tags: Mapping[str, str], *, gpus: bool = True) -> str:
        """Somebody launches a machine; it is running."""
        ...

    def terminate(self, node_id: str) -> None:
        """Somebody terminates it; it is on its way out."""
        ...

    def never_made(self, node_id: str) -> None:
        """The cloud has no place for what it has accepted; it is seen once time has passed (`settle`)."""
        ...

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Somebody tags it."""
        ...

    def settle(self, node_id: str) -> None:
        """Time passes until the machine has arrived in its next state."""
        ...

    def add_group(
        self, name: str, tags: Mapping[str, str], *, size: int, suspended: Collection[str] = (), **bounds: int
    ) -> str:
        """Somebody makes a group of that size, whose tags go to its members; gives its id. Bounds: MinSize, MaxSize."""
        ...

    def no_stock(self, group_id: str) -> None:
        """The cloud has no more machines for a group than it has now."""
        ...

    def add_volume(self) -> str:
        """Somebody leaves a volume behind."""
        ...

    def refuse(self, call: str, kind: type[CloudError]) -> None:
        """The next such call is refused."""
        ...

    def lose_response(self, call: str) -> None:
        """The next such call happens and its answer is lost."""
        ...


class SimulatedWorld:
    """simulate/cloud.py with delays of a minute."""

    def __init__(self, clock: ManualClock) -> None:
        """An empty cloud."""
        self.clock = clock
        self.words = Words()
        self.simulated = SimulatedCloud(fleet=FLEET, clock=clock)
        self.cloud: Cloud = self.simulated
        self.count = 0
        self.simulated.add_template(TEMPLATE, self._machine("", {}))
        self.simulated.add_template(CPU_TEMPLATE, self._machine("", {}, gpus=False))
        spot = replace(self._machine("", {}), capacity_type=CapacityType.SPOT)
        self.simulated.add_template(SPOT_TEMPLATE, spot)
        self.simulated.add_template(RESERVED_TEMPLATE, replace(spot, capacity_type=CapacityType.RESERVED))

    def launch(self, tags: Mapping[str, str], *, gpus: bool = True) -> str:
        """A machine that runs."""
        self.count += 1
        node_id = f"i-{self.count:017x}"
        self.simulated.add(self._machine(node_id, tags, gpus=gpus))
        return node_id

    def _machine(self, node_id: str, tags: Mapping[str, str], *, gpus: bool = True) -> Node:
        return Node(
            id=node_id,
            name=tags.get("Name", node_id),
            pool="",
            state=NodeState.RUNNING,
            instance_type="g5.xlarge" if gpus else "m5.large",
            gpu_count=1 if gpus else 0,
            region=REGION,
            zone=f"{REGION}a",
            account=ACCOUNT,
            tags=tags,
        )

    def add_group(
        self, name: str, tags: Mapping[str, str], *, size: int, suspended: Collection[str] = (), **bounds: int
    ) -> str:
        """Its members are pending for a minute, which passes."""
        group = NodeGroup(
            id=f"arn:simulated:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1:autoScalingGroupName/{name}",
            name=name,
            pool=tags.get(POOL_TAG, "default"),
            min_size=bounds.get("MinSize", 0),
            max_size=bounds.get("MaxSize", 10),
            desired=size,
            region=REGION,
            zones=(f"{REGION}a",),
            enrolled=tags.get(FLEET_TAG) == FLEET,
            suspended=frozenset(suspended),
            instance_type="g5.xlarge",
            account=ACCOUNT,
        )
        self.simulated.add_group(group, self._machine("", tags))
        self.clock.advance(60)
        return group.id

    def no_stock(self, group_id: str) -> None:
        """It fills itself up no further."""
        self.simulated.group_room[group_id] = len(self.simulated.group(group_id).node_ids)

    def add_volume(self) -> str:
        """The smallest that says everything."""
        kind = LeftoverKind.UNATTACHED_VOLUME
        left = Leftover(id="vol-1", kind=kind, region=REGION, account=ACCOUNT, type="gp3", size_bytes=8 * 1024**3)
        self.simulated.add_leftover(left)
        return left.id

    def terminate(self, node_id: str) -> None:
        """The machine goes."""
        self.simulated.take_away(node_id)

    def never_made(self, node_id: str) -> None:
        """It ends where it was to begin."""
        self.simulated.take_away(node_id)

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """The machine is tagged."""
        self.simulated.set_tags(node_id, tags)

    def settle(self, node_id: str) -> None:
        """A minute passes."""
        del node_id
        self.clock.advance(60)

    def refuse(self, call: str, kind: type[CloudError]) -> None:
        """Raise instead of the effect."""
        self._once(call, kind("injected", code=REFUSALS[kind][0]))

    def lose_response(self, call: str) -> None:
        """Raise after the effect."""
        self._once(call, LostResponseError("injected"))

    def _once(self, call: str, error: Exception) -> None:
        def strike(name: str, node_id: str) -> Exception | None:
            del node_id
            if name != call:
                return None
            self.simulated.faults = None
            return error

        self.simulated.faults = strike


class AwsWorld:
    """clouds/aws/cloud.py on moto; passing states are seen twice."""

    def __init__(self, clock: ManualClock, ec2: MotoFaults) -> None:
        """An empty account."""
        self.clock = clock
        self.words = Words()
        self.ec2 = ec2
        self.cloud: Cloud = AwsCloud(fleet=FLEET, clock=clock, regions=[REGION], session=ec2.session)
        ec2.add_template(TEMPLATE)
        ec2.add_template(CPU_TEMPLATE, instance_type="m5.large")
        ec2.add_template(SPOT_TEMPLATE, lifecycle="spot")
        ec2.add_template(RESERVED_TEMPLATE, lifecycle="interruptible-capacity-reservation")

    def launch(self, tags: Mapping[str, str], *, gpus: bool = True) -> str:
        """A machine that runs."""
        node_id = self.ec2.launch(tags, instance_type="g5.xlarge" if gpus else "m5.large")
        self.settle(node_id)
        return node_id

    def add_group(
        self, name: str, tags: Mapping[str, str], *, size: int, suspended: Collection[str] = (), **bounds: int
    ) -> str:
        """As on EC2."""
        options: dict[str, Any] = dict(bounds)
        group_id = self.ec2.add_group(name, tags, size=size, **options)
        if suspended:
            self.ec2.scaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=list(suspended))
        return group_id

    def no_stock(self, group_id: str) -> None:
        """InsufficientInstanceCapacity, again and again."""
        moto_groups.out_of_stock(group_id)

    def add_volume(self) -> str:
        """Attached to nothing."""
        kind: Any = "gp3"
        return self.ec2.client.create_volume(AvailabilityZone=f"{REGION}a", Size=8, VolumeType=kind)["VolumeId"]

    def terminate(self, node_id: str) -> None:
        """The machine goes."""
        self.ec2.client.terminate_instances(InstanceIds=[node_id])

    def never_made(self, node_id: str) -> None:
        """EC2 ends what it cannot start: Server.InsufficientInstanceCapacity."""
        self.ec2.client.terminate_instances(InstanceIds=[node_id])

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """The machine is tagged."""
        self.ec2.set_tags(node_id, tags)

    def settle(self, node_id: str) -> None:
        """Describe it until the lag is over."""
        self.clock.advance(60)
        for _ in range(self.ec2.lag_describes + 1):
            self.ec2.client.describe_instances(InstanceIds=[node_id])

    def refuse(self, call: str, kind: type[CloudError]) -> None:
        """EC2 answers with an error."""
        code, status = REFUSALS[kind]
        self.ec2.refuse(ACTIONS[call], code, status=status)

    def lose_response(self, call: str) -> None:
        """The connection breaks after the effect."""
        self.ec2.lose_response(ACTIONS[call])


class Both(SeveralClouds):
    """Two simulated clouds as one; what names no cloud is launched in the first."""

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """In the first."""
        return super().launch({"cloud": "a", **arguments}, key)


class SeveralWorld(SimulatedWorld):
    """clouds/several.py: a simulated cloud where everything happens, beside one where nothing does."""

    def __init__(self, clock: ManualClock) -> None:
        """Two empty clouds."""
        super().__init__(clock)
        self.cloud = Both({"a": self.simulated, "b": SimulatedCloud(fleet=FLEET, clock=clock)})


@contextmanager
def a_world(name: str) -> Iterator[World]:
    """An empty cloud of that name."""
    clock = ManualClock()
    if name in {"simulated", "several"}:
        yield SimulatedWorld(clock) if name == "simulated" else SeveralWorld(clock)
        return
    if name == "aws":
        with MotoFaults(clock, lag_describes=2) as ec2:
            yield AwsWorld(clock, ec2)
        return
    made: AbstractContextManager[World] = loaded(f"tests.support.clouds.{name}.world").a_world(clock)
    with made as world:
        yield world


_HERE = ("simulated", "several", "aws")
_OF_PROVIDERS = {path.parent.name for path in _WORLDS_OF_PROVIDERS.glob("*/world.py")}
WORLDS = (*_HERE, *sorted(_OF_PROVIDERS - set(_HERE)))


def seen(world: World, node_id: str) -> Node:
    """The machine as its cloud tells it; these clouds never say None."""
    node = world.cloud.node(node_id)
    assert node is not None
    return node
