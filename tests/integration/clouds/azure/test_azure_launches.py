"""Launches on Azure: a PUT under a name that is made of the key, and what becomes of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.clouds import CloudError, InsufficientCapacityError, QuotaExceededError
from gpuwatch.clouds.azure.instances import _size
from gpuwatch.clouds.azure.places import name_for
from gpuwatch.clouds.azure.settings import TemplateSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure import sizes
from tests.support.clouds.azure.state import Operation
from tests.support.clouds.azure.world import NETWORK, RG, AzureWorld, an_azure
from tests.support.fakes.cloud_worlds import MINE

ARGUMENTS = {"template": "gpu-node", "pool": "train", "region": "eastus"}


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def test_a_launch_is_the_template_with_tags_and_the_launchs_own_arguments(world: AzureWorld) -> None:
    """Size, region and subnet replace the template's; the rest is as in the file."""
    subnet = f"{NETWORK}/virtualNetworks/net/subnets/other"
    own = {"region": "westeurope", "instance_type": sizes.LARGER, "subnet": subnet}

    world.cloud.launch({**ARGUMENTS, **own}, "key")

    sent = world.server.changes()[0].request
    assert (sent.method, sent.path.rpartition("/")[2], sent.headers["if-none-match"]) == ("PUT", name_for("key"), "*")
    body = sent.json
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    (address,) = interface["properties"]["ipConfigurations"]
    assert (body["location"], body["zones"], address["properties"]["subnet"]) == ("westeurope", ["1"], {"id": subnet})
    assert body["properties"]["hardwareProfile"] == {"vmSize": sizes.LARGER}
    assert body["properties"]["storageProfile"]["osDisk"]["deleteOption"] == "Delete"
    assert body["tags"] == {"gpuwatch:fleet": "lab", "gpuwatch:pool": "train", "gpuwatch:decision-id": "key"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AllocationFailed", InsufficientCapacityError),
        ("ZonalAllocationFailed", InsufficientCapacityError),
        ("OverconstrainedAllocationRequest", InsufficientCapacityError),
        ("OperationNotAllowed", QuotaExceededError),
    ],
)
def test_a_launch_that_azure_accepts_and_cannot_carry_out_says_why(
    world: AzureWorld, code: str, kind: type[CloudError]
) -> None:
    """Azure finds out after it has accepted: the operation tells, and later the machine; nothing is made twice."""
    message = "Operation results in exceeding approved quota." if kind is QuotaExceededError else "No capacity."
    error = {"code": code, "message": message}
    world.state.operations = _Failing(error)

    with pytest.raises(kind) as caught:
        world.cloud.launch(ARGUMENTS, "key")

    assert caught.value.code == code
    (vm,) = world.state.vms.values()
    vm.provisioning, vm.arrives_at, vm.failure = "Failed", None, (code, message)
    with pytest.raises(kind):
        world.cloud.launch(ARGUMENTS, "key")
    assert [entry.request.method for entry in world.server.changes()] == ["PUT"]


@pytest.mark.parametrize(
    ("failure", "power", "state"),
    [
        (("AllocationFailed", "No capacity."), None, None),
        (("OperationNotAllowed", "It exceeds the approved quota."), None, None),
        (("OSProvisioningTimedOut", "It did not finish."), None, NodeState.UNKNOWN),
        (("AllocationFailed", "No capacity."), "running", NodeState.RUNNING),
        (("AllocationFailed", "No capacity."), "deallocated", NodeState.STOPPED),
    ],
)
def test_what_azure_had_no_place_for_is_left_there_and_is_no_node(
    world: AzureWorld, failure: tuple[str, str], power: str | None, state: NodeState | None
) -> None:
    """Only of our own launch, by the words for no stock and no quota, and never where a power state says otherwise."""
    vm = world.vm(world.cloud.launch(ARGUMENTS, "key"))
    world.cloud.nodes()
    vm.provisioning, vm.power, vm.failure = "Failed", power, failure

    assert [node.state for node in world.cloud.nodes()] == ([] if state is None else [state])
    node = world.cloud.node(vm.vm_id)
    assert node is not None
    assert node.state is (state or NodeState.TERMINATED)


def test_a_launch_that_is_left_there_deallocated_says_why(world: AzureWorld) -> None:
    """Azure says yes, finds no place minutes later, and leaves machine, disk and interface: it has never run."""
    vm = world.vm(world.cloud.launch(ARGUMENTS, "key"))
    world.settle(vm.vm_id)
    vm.provisioning, vm.power, vm.failure = "Failed", "deallocated", ("ZonalAllocationFailed", "No capacity.")

    found = world.cloud.find("key")

    assert found is not None
    assert (found.state, found.failed_start) == (NodeState.STOPPED, "No capacity. (ZonalAllocationFailed)")
    vm.failure = ("VMExtensionProvisioningError", "It did not finish.")
    found = world.cloud.find("key")
    assert found is not None
    assert found.failed_start is None, "that is not about a place"


def test_a_start_that_azure_accepts_and_cannot_carry_out_says_why(world: AzureWorld) -> None:
    """A deallocated machine has lost its place: whether there is another one, Azure finds out after it has accepted."""
    vm = world.add(MINE)
    vm.power = "deallocated"
    world.state.operations = _Failing({"code": "AllocationFailed", "message": "No capacity."})

    with pytest.raises(InsufficientCapacityError):
        world.cloud.start(vm.vm_id, "key")

    assert [entry.asked.operation for entry in world.server.changes()] == ["VirtualMachines_Start"]


def test_a_launch_is_watched_for_some_seconds_only(world: AzureWorld) -> None:
    """A machine takes minutes; a round does not wait for it."""
    before = world.clock.monotonic()

    world.cloud.launch(ARGUMENTS, "key")

    assert world.clock.monotonic() - before == 20.0


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "cannot be read"), ("{", "cannot be read"), ('{"location": "eastus"}', "has no properties")],
)
def test_a_template_that_is_none_is_refused_by_name(world: AzureWorld, content: str | None, why: str) -> None:
    """Nothing is asked of Azure; doctor says the same before."""
    path = Path(world.folder) / "broken.json"
    if content is not None:
        path.write_text(content)
    cloud = world.connect(templates={"gpu-node": TemplateSettings(body=str(path), resource_group=RG)})

    with pytest.raises(CloudError, match=why):
        cloud.launch(ARGUMENTS, "key")

    assert world.server.changes() == []
    (said,) = cloud.unfit([ARGUMENTS])
    assert "the template gpu-node" in said


def test_a_slice_of_a_graphics_card_is_no_gpu_that_the_agent_can_read(world: AzureWorld) -> None:
    """The SKUs count it all the same; its size's name shows it."""
    with pytest.raises(CloudError, match="no GPU that the agent can read"):
        world.cloud.launch({**ARGUMENTS, "instance_type": sizes.AMD}, "key")


@pytest.mark.parametrize(
    ("name", "readable"),
    [("Standard_ND96isr_MI300X_v5", True), ("Standard_ND96asr_v4", True), ("Standard_NG32ads_V620_v1", False)],
)
def test_which_sizes_the_agent_can_read(name: str, readable: bool) -> None:
    """AMD's accelerators are read through ROCm; its graphics cards in slices are not."""
    assert _size({"name": name, "capabilities": [{"name": "GPUs", "value": "8"}]}).readable is readable


class _Failing(dict[str, Operation]):
    """Every operation fails."""

    def __init__(self, error: dict[str, str]) -> None:
        super().__init__()
        self._error = error

    def __setitem__(self, name: str, operation: Operation) -> None:
        operation.error = self._error
        super().__setitem__(name, operation)
