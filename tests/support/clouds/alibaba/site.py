"""A small site of real processes whose cloud is the fake of Alibaba Cloud over HTTP, on the host's own clock."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.runtime.clock import SystemClock
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET, FakeAlibaba
from tests.support.clouds.alibaba.world import GPU_TYPE, REGION
from tests.support.clouds.server import CloudServer, serving
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent
from tests.support.real.local_site import Site


@dataclass(slots=True)
class AlibabaSite(Site):
    """Its machines change within a second."""

    fake: FakeAlibaba = field(default_factory=FakeAlibaba)
    server: CloudServer | None = None

    @property
    def environment(self) -> dict[str, str]:
        """With the access key as the official chain reads it."""
        keys = {"ALIBABA_CLOUD_ACCESS_KEY_ID": KEY_ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": SECRET}
        return {**os.environ, **keys, "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true"}

    def launch(self, name: str, utilization: float, **tags: str) -> str:
        """A machine with one GPU at that utilization, and its agent; gives the instance id."""
        named = {"Name": name, FLEET_TAG: "lab", **{key.replace("__", ":"): value for key, value in tags.items()}}
        machine = self.fake.state.add_machine(REGION, GPU_TYPE, named, SystemClock().now(), name=name)
        machine.status, machine.next = "Running", None
        driver = StubDriver(self.folder / machine.id, self.library)
        driver.gpu(0).utilization(utilization)
        agent = self.stack.enter_context(RunningAgent(driver.environment, node_id=machine.id, interval=0.2))
        self.drivers[machine.id], self.targets[machine.id] = driver, agent.url
        return machine.id

    def configure(self, mode: str, notice: str = "2s", more: Mapping[str, object] | None = None) -> Path:
        """As of the site on EC2, with this cloud."""
        path = Site.configure(self, mode, notice, more)
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["cloud"] = {"provider": "alibaba", "regions": [REGION], "endpoint_url": self.endpoint}
        path.write_text(json.dumps(settings), encoding="utf-8")
        return path

    def state(self, node_id: str) -> str:
        """What the cloud holds."""
        return self.fake.state.machines[node_id].status

    def tags(self, node_id: str) -> dict[str, str]:
        """A machine's tags."""
        return self.fake.state.machines[node_id].tags


@contextmanager
def an_alibaba_site(folder: Path, library: Path) -> Iterator[AlibabaSite]:
    """The cloud on loopback, and nothing else yet."""
    fake = FakeAlibaba()
    fake.state.change_seconds = 1.0
    with ExitStack() as stack:
        server = stack.enter_context(serving(fake))
        yield AlibabaSite(folder=folder, library=library, endpoint=server.url, stack=stack, fake=fake, server=server)
