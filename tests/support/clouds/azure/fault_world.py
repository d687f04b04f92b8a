"""Azure for the fault matrix. What is down there by itself is a subscription: lists are of all its regions together."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.azure.settings import SubscriptionSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure.fake import PAGE, FakeAzure
from tests.support.clouds.azure.world import OTHER_SUB, REGION, SUB, AzureWorld
from tests.support.clouds.fault_worlds import CANNOT
from tests.support.clouds.server import serving
from tests.support.real.certificates import Authority

_STATES = {
    "running": NodeState.RUNNING,
    "starting": NodeState.PENDING,
    "deallocating": NodeState.STOPPING,
    "deallocated": NodeState.STOPPED,
}


class AzureFaultWorld(AzureWorld):
    """`AzureCloud` in two subscriptions."""

    regions: tuple[str, str] = (SUB, OTHER_SUB)
    calls: ClassVar[Mapping[str, str]] = {
        "stop": "VirtualMachines_Deallocate",
        "start": "VirtualMachines_Start",
        "terminate": "VirtualMachines_Delete",
        "tag": "Tags_UpdateAtScope",
        "launch": "VirtualMachines_CreateOrUpdate",
        "nodes": "VirtualMachines_ListAll",
        "grow": "Scale_Update",
        "protect": "ScaleVMs_Update",
        "end_member": "Scale_DeleteInstances",
    }
    arguments: ClassVar[Mapping[str, str]] = {"template": "gpu-node", "pool": "train", "region": REGION}
    page = PAGE
    totals = False
    cannot: ClassVar[Mapping[str, str]] = CANNOT["azure"]

    def connect(self, **options: Any) -> Any:  # noqa: ANN401  as above
        """In both."""
        both = {"main": SubscriptionSettings(id=SUB), "other": SubscriptionSettings(id=OTHER_SUB)}
        return super().connect(**{"subscriptions": both, **options})

    def anew(self) -> Cloud:
        """A process that has just begun."""
        cloud: Cloud = self.connect()
        return cloud

    def launch(self, tags: Mapping[str, str], *, region: str = SUB, gpus: bool = True) -> str:
        """A machine that runs, in that subscription."""
        del gpus
        return self.add(tags, sub=region).vm_id

    def state_of(self, node_id: str) -> NodeState | None:
        """What there is."""
        self.fake.state.passes(self.clock.now())
        for vm in self.fake.state.vms.values():
            if vm.vm_id == node_id:
                if vm.provisioning == "Deleting":
                    return NodeState.TERMINATING
                return _STATES.get(vm.power or "", NodeState.PENDING)
        return None

    def tags(self, node_id: str) -> Mapping[str, str]:
        """What there is."""
        return self.vm(node_id).tags

    def ids(self) -> Collection[str]:
        """What there is."""
        return frozenset(vm.vm_id for vm in self.fake.state.vms.values())


class _Matrix:
    """The names of the matrix: there `state` is a question, here it is what there is."""

    def __init__(self, world: AzureFaultWorld) -> None:
        self._world = world
        self.cloud: Cloud = world.cloud

    def state(self, node_id: str) -> NodeState | None:
        """What Azure holds."""
        return self._world.state_of(node_id)

    def add_group(self, name: str, tags: Mapping[str, str], *, size: int) -> str:
        """Somebody makes one in the first subscription."""
        return self._world.add_group(name, tags, size=size)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  of the world
        return getattr(self._world, name)


@contextmanager
def fault_world(folder: Path) -> Iterator[Any]:
    """Two empty subscriptions over HTTPS."""
    clock, fake = ManualClock(), FakeAzure()
    with serving(fake, authority=Authority(folder), clock=clock) as server:
        yield _Matrix(AzureFaultWorld(clock, fake, server, folder))
