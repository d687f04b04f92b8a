"""The provider of Alibaba Cloud on its fake over HTTP, with people and time around it."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
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
from gpuwatch.clouds.alibaba.client import of_pair
from gpuwatch.clouds.alibaba.cloud import AlibabaCloud
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET, FakeAlibaba
from tests.support.clouds.alibaba.state import ACCOUNT, CHANGE_SECONDS, Disk, Machine, ScalingGroup, Template
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.server import CloudServer, serving
from tests.support.fakes.cloud_worlds import CPU_TEMPLATE, FLEET, RESERVED_TEMPLATE, SPOT_TEMPLATE, TEMPLATE, Words

REGION, OTHER_REGION = "cn-shanghai", "cn-beijing"
GPU_TYPE, CPU_TYPE = "ecs.gn7i-c8g1.2xlarge", "ecs.g7.large"
REFUSALS: Mapping[type[CloudError], tuple[str, int]] = {
    ProtectedError: ("InvalidOperation.DeletionProtection", 403),
    InsufficientCapacityError: ("OperationDenied.NoStock", 403),
    QuotaExceededError: ("QuotaExceed.ElasticQuota", 400),
    ThrottledError: ("Throttling.User", 400),
    AuthFailedError: ("Forbidden.RAM", 403),
}
CALLS = {
    "stop": "StopInstance",
    "start": "StartInstance",
    "terminate": "DeleteInstance",
    "launch": "RunInstances",
    "grow": "ScaleWithAdjustment",
    "protect": "SetInstancesProtection",
    "tag": "TagResources",
    "nodes": "DescribeInstances",
    "end_member": "RemoveInstances",
}
WORDS = Words(
    provider="alibaba",
    region=REGION,
    zone=f"{REGION}-b",
    account=ACCOUNT,
    machine_type=GPU_TYPE,
    larger_type="ecs.gn7i-c16g1.4xlarge",
    no_template="lt-bp1nobody",
    nowhere="i-bp1nobody",
    no_group="asg-bp1nobody",
    volume_type="cloud_essd PL1",
    unknown_id="InvalidInstanceId.NotFound",
    wrong_state=frozenset({"IncorrectInstanceStatus"}),
    refusals={kind: code for kind, (code, _) in REFUSALS.items()},
)
_PROCESSES = {"Terminate": "ScaleIn", "Launch": "ScaleOut"}
_STATES = {
    "Pending": NodeState.PENDING,
    "Starting": NodeState.PENDING,
    "Running": NodeState.RUNNING,
    "Stopping": NodeState.STOPPING,
    "Stopped": NodeState.STOPPED,
}


class AlibabaWorld:
    """Two regions; the provider looks at one, or at both."""

    regions = (REGION, OTHER_REGION)
    calls = CALLS
    arguments: Mapping[str, str] = {"template": TEMPLATE, "version": "$Default", "pool": "train", "region": REGION}
    page = 2
    totals = True  # where the last page is full, the list is counted
    cannot: Mapping[str, str] = {}

    def __init__(
        self, clock: ManualClock, server: CloudServer, fake: FakeAlibaba, regions: Collection[str] = (REGION,)
    ) -> None:
        """An empty account with three templates."""
        self.clock, self.server, self.fake, self.words = clock, server, fake, WORDS
        self._regions = regions
        self.cloud: Cloud = self.another(regions)
        for name, kind, paid in (
            (TEMPLATE, GPU_TYPE, {}),
            (CPU_TEMPLATE, CPU_TYPE, {}),
            (SPOT_TEMPLATE, GPU_TYPE, {"spot": "SpotWithPriceLimit"}),
            (RESERVED_TEMPLATE, GPU_TYPE, {"reservation": "crp-1"}),
        ):
            for region in self.regions:
                own = f"lt-{region}-{name}"
                self.fake.state.templates[own] = Template(id=own, name=name, region=region, types=[kind], **paid)

    def anew(self) -> AlibabaCloud:
        """The same regions, in a process that has just begun."""
        return self.another(self._regions)

    def another(self, regions: Collection[str] = (REGION,), **options: Any) -> AlibabaCloud:  # noqa: ANN401  of the cloud
        """The provider in a process that has just begun."""
        given: dict[str, Any] = {"page_size": self.page, "provider": of_pair(KEY_ID, SECRET), **options}
        return AlibabaCloud(
            fleet=FLEET,
            clock=self.clock,
            regions=list(regions),
            endpoint_url=self.server.url,
            **given,
        )

    def machine(self, node_id: str) -> Machine:
        """What the cloud itself holds."""
        return self.fake.state.machines[node_id]

    def launch(
        self, tags: Mapping[str, str], *, gpus: bool = True, region: str = REGION, kind: str | None = None
    ) -> str:
        """A machine that runs; its name in the console is its tag Name here, since people write both."""
        chosen = kind or (GPU_TYPE if gpus else CPU_TYPE)
        own = self.fake.state.add_machine(region, chosen, dict(tags), self.clock.now())
        own.name = tags.get("Name", own.id)
        own.status, own.next = "Running", None
        return own.id

    def add_group(
        self, name: str, tags: Mapping[str, str], *, size: int, suspended: Collection[str] = (), **bounds: int
    ) -> str:
        """Its members are pending for a minute, which passes."""
        group = ScalingGroup(
            id=self.fake.state.name("asg"),
            name=name,
            region=REGION,
            type=GPU_TYPE,
            min_size=bounds.get("MinSize", 0),
            max_size=bounds.get("MaxSize", 10),
            desired=size,
            tags=dict(tags),
        )
        self.fake.state.groups[group.id] = group
        self._pass(0)
        self._pass(CHANGE_SECONDS)
        group.suspended = [_PROCESSES[each] for each in suspended]
        return group.id

    def no_stock(self, group_id: str) -> None:
        """Its activities fail, and it tries again and again."""
        group = self.fake.state.groups[group_id]
        group.stock = len(self.fake.state.members(group))

    def add_volume(self) -> str:
        """Attached to nothing."""
        disk = Disk(id=self.fake.state.name("d"), region=REGION, size_gib=8, machine=None)
        self.fake.state.disks[disk.id] = disk
        return disk.id

    def terminate(self, node_id: str) -> None:
        """The cloud takes it back, as it does with a spot machine: it is locked, and released some minutes later."""
        machine = self.machine(node_id)
        machine.locks = ["Recycling"]
        machine.next = (self.clock.now() + timedelta(seconds=CHANGE_SECONDS), None)

    def never_made(self, node_id: str) -> None:
        """It is gone some minutes later."""
        self.terminate(node_id)

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """The machine is tagged."""
        self.machine(node_id).tags |= tags

    def settle(self, node_id: str) -> None:
        """A minute passes."""
        del node_id
        self._pass(CHANGE_SECONDS)

    def refuse(self, call: str, kind: type[CloudError]) -> None:
        """The cloud answers with an error."""
        code, status = REFUSALS[kind]
        self.fake.refuse(CALLS[call], status, code)

    def lose_response(self, call: str) -> None:
        """The connection breaks after the effect."""
        self.server.plan.strike(Fault.RESET_AFTER, when(operation=CALLS[call]))

    def state(self, node_id: str) -> NodeState | None:
        """What the cloud itself holds."""
        self._pass(0)
        machine = self.fake.state.machines.get(node_id)
        if machine is None:
            return None
        going = machine.next is not None and machine.next[1] is None
        return NodeState.TERMINATING if going else _STATES[machine.status]

    def tags(self, node_id: str) -> Mapping[str, str]:
        """Its tags."""
        return self.machine(node_id).tags

    def ids(self) -> Collection[str]:
        """All machines."""
        return set(self.fake.state.machines)

    def _pass(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.fake.state.tick(self.clock.now())


@contextmanager
def a_world(clock: ManualClock, regions: Collection[str] = (REGION,)) -> Iterator[AlibabaWorld]:
    """An empty account over HTTP."""
    fake = FakeAlibaba()
    with serving(fake, clock=clock) as server:
        yield AlibabaWorld(clock, server, fake, regions)


@contextmanager
def fault_world(folder: Path) -> Iterator[AlibabaWorld]:
    """The same, and the provider looks at both regions."""
    del folder
    with a_world(ManualClock(), (REGION, OTHER_REGION)) as world:
        yield world
