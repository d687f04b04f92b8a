"""Azure with people, time and faults around it: `gpuwatch.clouds.azure` against the fake, over TLS on loopback."""

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from azure.core.credentials import AccessToken

from gpuwatch.clouds import (
    AuthFailedError,
    Cloud,
    CloudError,
    InsufficientCapacityError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.azure.cloud import AzureCloud
from gpuwatch.clouds.azure.settings import SubscriptionSettings, TemplateSettings
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure import handlers, sizes
from tests.support.clouds.azure.fake import OPERATIONS, TOKEN, FakeAzure
from tests.support.clouds.azure.state import Set, Vm
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.server import CloudServer, Request, serving
from tests.support.fakes.cloud_worlds import FLEET, Words, World
from tests.support.real.certificates import Authority

SUB = "11111111-1111-4111-8111-111111111111"
OTHER_SUB = "22222222-2222-4222-8222-222222222222"
RG, REGION, ZONE = "fleet-rg", "eastus", "1"
ROOT = f"/subscriptions/{SUB}/resourceGroups/{RG}/providers"
COMPUTE, NETWORK = f"{ROOT}/Microsoft.Compute", f"{ROOT}/Microsoft.Network"
GIB = 1024**3

REFUSALS: dict[type[CloudError], tuple[int, str, str]] = {
    ProtectedError: (409, "ScopeLocked", "The scope cannot perform the operation because it is locked."),
    InsufficientCapacityError: (409, "AllocationFailed", "Allocation failed. We do not have sufficient capacity."),
    QuotaExceededError: (409, "QuotaExceeded", "Operation could not be completed as it exceeds approved quota."),
    ThrottledError: (429, "TooManyRequests", "The request is being throttled."),
    AuthFailedError: (403, "AuthorizationFailed", "The client does not have authorization to perform the action."),
}
WORDS = Words(
    provider="azure",
    region=REGION,
    zone=f"{REGION}-{ZONE}",
    account=SUB,
    machine_type=sizes.GPU,
    larger_type=sizes.LARGER,
    template="gpu-node",
    cpu_template="cpu-node",
    no_template="nobody",
    nowhere="99999999-9999-4999-8999-999999999999",
    no_group=f"{COMPUTE}/virtualMachineScaleSets/nobody".lower(),
    volume_type="Premium_LRS",
    volume_bytes=8 * GIB,
    unknown_id="ResourceNotFound",
    wrong_state=frozenset({"IncorrectMachineState"}),
    key_of_another_launch=None,
    group_kind="scale set",
    has_processes=False,
    replaces_members=False,
    refusals={kind: code for kind, (_, code, _) in REFUSALS.items()},
)


class StaticCredential:
    """A token that is there already."""

    def __init__(self, token: str = TOKEN) -> None:
        """With this token."""
        self.token = token
        self.asked = 0

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ANN401  azure-core's protocol
        """The token, for ever."""
        del scopes, options
        self.asked += 1
        return AccessToken(self.token, 4_000_000_000)


class AzureWorld:
    """One subscription, and people in it."""

    words = WORDS

    def __init__(self, clock: ManualClock, fake: FakeAzure, server: CloudServer, folder: Path) -> None:
        """An empty subscription with three templates."""
        self.clock, self.fake, self.server, self.state = clock, fake, server, fake.state
        self.state.subscriptions[SUB] = "Research"
        self.folder = folder
        self.templates = {
            "gpu-node": self._template("gpu-node", sizes.GPU),
            "cpu-node": self._template("cpu-node", sizes.CPU),
            "spot-node": self._template("spot-node", sizes.GPU, priority="Spot", evictionPolicy="Delete"),
            "reserved-node": self._template(
                "reserved-node", sizes.GPU, capacityReservation={"capacityReservationGroup": {"id": f"/x/{RG}/held"}}
            ),
        }
        self.cloud: Cloud = self.connect()

    def connect(self, **options: Any) -> AzureCloud:  # noqa: ANN401  AzureCloud's own
        """A cloud of a new process."""
        usual: dict[str, Any] = {
            "fleet": FLEET,
            "clock": self.clock,
            "subscriptions": {"main": SubscriptionSettings(id=SUB)},
            "templates": self.templates,
            "endpoint_url": self.server.url,
            "credential": StaticCredential(),
            "options": {"connection_verify": str(self.folder / "ca.pem")},
        }
        return AzureCloud(**{**usual, **options})

    def launch(self, tags: Mapping[str, str], *, gpus: bool = True) -> str:
        """A machine that runs, with a disk, an interface and an address within the network."""
        return self.add(tags, size=sizes.GPU if gpus else sizes.CPU).vm_id

    def add(
        self,
        tags: Mapping[str, str],
        *,
        size: str = sizes.GPU,
        group: str = RG,
        sub: str = SUB,
        region: str = REGION,
        **properties: Any,  # noqa: ANN401  of the machine
    ) -> Vm:
        """The same with all that a test may want."""
        vm_id, now = self.state.new_id(), self.clock.now()
        name = tags.get("Name", vm_id)
        root = f"/subscriptions/{sub}/resourceGroups/{group}/providers"
        path = f"{root}/Microsoft.Compute/virtualMachines/{name}"
        disk = f"{root}/Microsoft.Compute/disks/{name}_OsDisk"
        made = Vm(
            path=path,
            vm_id=vm_id,
            location=region,
            properties={
                "hardwareProfile": {"vmSize": size},
                "storageProfile": {
                    "imageReference": {**UBUNTU, "exactVersion": "24.04.202601010"},
                    "osDisk": {"createOption": "FromImage", "managedDisk": {"id": disk}},
                },
                "networkProfile": {
                    "networkInterfaces": [{"id": f"{root}{_NICS}{name}-nic", "properties": {"primary": True}}]
                },
                **properties,
            },
            tags=dict(tags),
            zones=[ZONE],
            created_at=now,
            changed_at=now,
            power="running",
            provisioning="Succeeded",
        )
        self.state.vms[path.lower()] = made
        self.state.disks[disk.lower()] = a_disk(disk, region, owner=path)
        interface = f"{root}{_NICS}{name}-nic"
        self.state.interfaces[interface.lower()] = an_interface(
            interface, region, machine=path, number=self.state.count
        )
        return made

    def vm(self, node_id: str) -> Vm:
        """The machine of an id."""
        return next(vm for vm in self.state.vms.values() if vm.vm_id == node_id)

    def terminate(self, node_id: str) -> None:
        """It is on its way out."""
        found = self.vm(node_id)
        found.begins(found.power, "Deleting", handlers.GOING, self.clock.now())

    def never_made(self, node_id: str) -> None:
        """Its provisioning fails, and it is left there: without a power state, since it was never anywhere."""
        vm = self.vm(node_id)
        _, *failure = REFUSALS[InsufficientCapacityError]
        vm.provisioning, vm.power, vm.arrives_at, vm.failure = "Failed", None, None, (failure[0], failure[1])

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Somebody tags it."""
        self.vm(node_id).tags |= tags

    def settle(self, node_id: str) -> None:
        """A minute passes."""
        del node_id
        self.clock.advance(60)
        self.state.passes(self.clock.now())

    def add_group(
        self, name: str, tags: Mapping[str, str], *, size: int, suspended: Collection[str] = (), **bounds: int
    ) -> str:
        """A Uniform scale set, with an autoscale setting where it has bounds. Azure suspends no processes."""
        if suspended:
            raise AssertionError("scale sets have no processes")
        return self.add_scale_set(name, tags, size=size, bounds=bounds).lower()

    def add_scale_set(
        self, name: str, tags: Mapping[str, str], *, size: int, mode: str = "Uniform", bounds: Mapping[str, int] = {}
    ) -> str:
        """A scale set of either mode; gives its id."""
        path = f"{COMPUTE}/virtualMachineScaleSets/{name}"
        group = Set(
            described={
                "id": path,
                "name": name,
                "type": "Microsoft.Compute/virtualMachineScaleSets",
                "location": REGION,
                "zones": [ZONE],
                "tags": dict(tags),
                "sku": {"name": sizes.GPU, "tier": "Standard", "capacity": size},
                "properties": {
                    "orchestrationMode": mode,
                    "provisioningState": "Succeeded",
                    "virtualMachineProfile": a_profile(),
                },
                "etag": '"1"',
            }
        )
        self.state.sets[path.lower()] = group
        for _ in range(size):
            made = handlers.add_member(self.state, group, self._call())
            made.power, made.provisioning, made.arrives_at = "running", "Succeeded", None
            made.has_place()
        if bounds:
            setting = f"{ROOT}/Microsoft.Insights/autoscalesettings/{name}"
            self.state.autoscale[setting.lower()] = an_autoscale_setting(
                setting, path, least=bounds.get("MinSize", 0), most=bounds.get("MaxSize", 10)
            )
        return path

    def no_stock(self, group_id: str) -> None:
        """What it makes from now on fails with AllocationFailed."""
        self.state.sets[group_id.lower()].stock = 0

    def add_volume(self) -> str:
        """A disk that nothing holds."""
        path = f"{COMPUTE}/disks/left"
        self.state.disks[path.lower()] = a_disk(path, REGION)
        return path

    def refuse(self, call: str, kind: type[CloudError]) -> None:
        """Azure answers with an error."""
        for operation in OPERATIONS[call]:
            self.fake.refused[operation] = REFUSALS[kind]

    def lose_response(self, call: str) -> None:
        """The connection breaks after the effect."""
        self.server.plan.strike(Fault.RESET_AFTER, when(operation=OPERATIONS[call][0]))

    def _template(self, name: str, size: str, **properties: object) -> TemplateSettings:
        path, body = self.folder / f"{name}.json", a_body(size)
        body["properties"] |= properties
        path.write_text(json.dumps(body))
        return TemplateSettings(body=str(path), resource_group=RG)

    def _call(self) -> handlers.Call:
        request = Request(
            method="PATCH",
            host="",
            path="",
            query={},
            pairs=(),
            headers={},
            body=b"",
            at=self.clock.now(),
            target="",
        )
        return handlers.Call(request=request, parts={}, sub=SUB)


def a_body(size: str) -> dict[str, Any]:
    """A template: what a PUT of a machine takes."""
    subnet = f"{NETWORK}/virtualNetworks/net/subnets/gpu"
    interface = {
        "name": "nic",
        "properties": {
            "primary": True,
            "deleteOption": "Delete",
            "ipConfigurations": [{"name": "ip", "properties": {"subnet": {"id": subnet}}}],
        },
    }
    return {
        "location": REGION,
        "zones": [ZONE],
        "properties": {
            "hardwareProfile": {"vmSize": size},
            "storageProfile": {
                "imageReference": {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server"},
                "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"},
            },
            "networkProfile": {"networkApiVersion": "2022-11-01", "networkInterfaceConfigurations": [interface]},
        },
    }


def a_disk(path: str, region: str, *, owner: str | None = None) -> dict[str, Any]:
    """A disk of 8 GiB."""
    found: dict[str, Any] = {
        "id": path,
        "name": path.rpartition("/")[2],
        "type": "Microsoft.Compute/disks",
        "location": region,
        "sku": {"name": "Premium_LRS", "tier": "Premium"},
        "properties": {
            "creationData": {"createOption": "Empty"} if owner is None else _FROM_IMAGE,
            "timeCreated": "2026-01-01T00:00:00.0000000+00:00",
            "diskSizeGB": 8,
            "diskSizeBytes": 8 * GIB,
            "diskIOPSReadWrite": 120,
            "diskMBpsReadWrite": 25,
            "diskState": "Unattached" if owner is None else "Attached",
            "provisioningState": "Succeeded",
        },
    }
    return found if owner is None else {**found, "managedBy": owner, "zones": [ZONE], "tags": {}}


_IMAGE = "/Subscriptions/0/Providers/Microsoft.Compute/Locations/eastus/Publishers/canonical"
_FROM_IMAGE = {"createOption": "FromImage", "imageReference": {"id": f"{_IMAGE}/ArtifactTypes/VMImage"}}


def an_interface(path: str, region: str, *, machine: str | None, number: int = 1) -> dict[str, Any]:
    """A network interface."""
    address = {"primary": True, "privateIPAddress": f"10.0.{number // 250}.{number % 250 + 4}"}
    arrived = {"provisioningState": "Succeeded"}
    properties: dict[str, Any] = {
        **arrived,
        "primary": True,
        "ipConfigurations": [{"id": f"{path}/ipConfigurations/ip", "name": "ip", "properties": {**address, **arrived}}],
    }
    if machine is not None:
        properties["virtualMachine"] = {"id": machine}
    kind = "Microsoft.Network/networkInterfaces"
    found = {"id": path, "name": path.rpartition("/")[2], "type": kind, "location": region, "tags": {}}
    return {**found, "properties": properties}


UBUNTU = {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}
_NICS = "/Microsoft.Network/networkInterfaces/"


def a_profile() -> dict[str, Any]:
    """What a scale set makes its machines of."""
    address = {"name": "ip", "properties": {"primary": True}}
    interface = {"name": "nic", "properties": {"primary": True, "ipConfigurations": [address]}}
    storage = {"imageReference": dict(UBUNTU), "osDisk": {"createOption": "FromImage", "managedDisk": {}}}
    return {"storageProfile": storage, "networkProfile": {"networkInterfaceConfigurations": [interface]}}


def an_autoscale_setting(path: str, target: str, *, least: int, most: int) -> dict[str, Any]:
    """One that is switched on; Azure writes its numbers as text."""
    capacity = {"minimum": str(least), "maximum": str(most), "default": str(least)}
    return {
        "id": path,
        "name": path.rpartition("/")[2],
        "location": REGION,
        "properties": {
            "enabled": True,
            "targetResourceUri": target,
            "profiles": [{"name": "usual", "capacity": capacity, "rules": []}],
        },
    }


@contextmanager
def a_world(clock: ManualClock) -> Iterator[World]:
    """An empty subscription."""
    with an_azure(clock) as world:
        yield world


@contextmanager
def an_azure(clock: ManualClock) -> Iterator[AzureWorld]:
    """The same, for tests that know that it is Azure."""
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeAzure()
        with serving(fake, authority=Authority(Path(folder)), clock=clock) as server:
            yield AzureWorld(clock, fake, server, Path(folder))
