"""A small site of real processes whose cloud is the pretended Azure over HTTPS, on the host's own clock."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.clouds.azure.fake import FakeAzure
from tests.support.clouds.azure.tokens import CLIENT, SECRET, TENANT
from tests.support.clouds.azure.world import REGION, SUB, AzureWorld
from tests.support.clouds.daily_story import for_programs
from tests.support.clouds.server import serving
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent
from tests.support.real.certificates import Authority
from tests.support.real.local_site import Site

_SECOND = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class AzureSite(Site):
    """Its machines change within a second."""

    world: AzureWorld

    @property
    def environment(self) -> dict[str, str]:
        """An application's secret as azure-identity reads it, and whose certificates are believed."""
        return {
            **for_programs(os.environ),
            "AZURE_AUTHORITY_HOST": self.endpoint,
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_CLIENT_SECRET": SECRET,
            "AZURE_SUBSCRIPTION_ID": SUB,
            "REQUESTS_CA_BUNDLE": str(self.world.folder / "ca.pem"),
        }

    def launch(self, name: str, utilization: float, **tags: str) -> str:
        """A machine with one GPU at that utilization, and its agent; gives its vmId."""
        named = {"Name": name, FLEET_TAG: "lab", **{key.replace("__", ":"): value for key, value in tags.items()}}
        machine = self.world.add(named)
        machine.takes = _SECOND
        driver = StubDriver(self.folder / machine.vm_id, self.library)
        driver.gpu(0).utilization(utilization)
        agent = self.stack.enter_context(
            RunningAgent(for_programs(driver.environment), node_id=machine.vm_id, interval=0.2)
        )
        self.drivers[machine.vm_id], self.targets[machine.vm_id] = driver, agent.url
        return machine.vm_id

    def configure(self, mode: str, notice: str = "2s", more: Mapping[str, object] | None = None) -> Path:
        """As of the site on EC2, with this cloud."""
        path = Site.configure(self, mode, notice, more)
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["cloud"] = {"provider": "azure", "regions": [REGION], "endpoint_url": self.endpoint}
        path.write_text(json.dumps(settings), encoding="utf-8")
        return path

    def state(self, node_id: str) -> str:
        """What the cloud holds."""
        return str(self.world.vm(node_id).power)

    def tags(self, node_id: str) -> dict[str, str]:
        """A machine's tags."""
        return self.world.vm(node_id).tags


@contextmanager
def an_azure_site(folder: Path, library: Path) -> Iterator[AzureSite]:
    """The cloud on loopback, and nothing else yet."""
    fake, own = FakeAzure(), folder / "azure"
    own.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(serving(fake, authority=Authority(own)))
        world = AzureWorld(ManualClock(wall=SystemClock().now()), fake, server, own)
        yield AzureSite(folder=folder, library=library, endpoint=server.url, stack=stack, world=world)
