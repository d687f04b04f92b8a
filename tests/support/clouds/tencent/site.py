"""A small site of real processes whose cloud is the fake of Tencent Cloud over HTTP, on the host's own clock."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.runtime.clock import SystemClock
from tests.support.clouds.server import CloudServer, serving
from tests.support.clouds.tencent.fake import SECRET_ID, SECRET_KEY, FakeTencent
from tests.support.clouds.tencent.world import GPU_TYPE, REGION
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent
from tests.support.real.local_site import Site


@dataclass(slots=True)
class TencentSite(Site):
    """Its machines change within a second."""

    fake: FakeTencent = field(default_factory=lambda: FakeTencent(SystemClock()))
    server: CloudServer | None = None

    @property
    def environment(self) -> dict[str, str]:
        """With the key where the SDK's own chain looks first."""
        return {**os.environ, "TENCENTCLOUD_SECRET_ID": SECRET_ID, "TENCENTCLOUD_SECRET_KEY": SECRET_KEY}

    def launch(self, name: str, utilization: float, **tags: str) -> str:
        """A machine with one GPU at that utilization, and its agent; gives the instance id."""
        own = {FLEET_TAG: "lab", **{key.replace("__", ":"): value for key, value in tags.items()}}
        node_id = self.fake.state.add_machine(REGION, GPU_TYPE, tags=own, name=name).id
        driver = StubDriver(self.folder / node_id, self.library)
        driver.gpu(0).utilization(utilization)
        agent = self.stack.enter_context(RunningAgent(driver.environment, node_id=node_id, interval=0.2))
        self.drivers[node_id], self.targets[node_id] = driver, agent.url
        return node_id

    def configure(self, mode: str, notice: str = "2s", more: Mapping[str, object] | None = None) -> Path:
        """As of the site on EC2, with this cloud."""
        path = Site.configure(self, mode, notice, more)
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["cloud"] = {"provider": "tencent", "regions": [REGION], "endpoint_url": self.endpoint}
        path.write_text(json.dumps(settings), encoding="utf-8")
        return path

    def state(self, node_id: str) -> str:
        """What the cloud holds."""
        return self.fake.state.machines[node_id].state

    def tags(self, node_id: str) -> dict[str, str]:
        """A machine's tags."""
        return self.fake.state.machines[node_id].tags


@contextmanager
def a_tencent_site(folder: Path, library: Path) -> Iterator[TencentSite]:
    """The cloud on loopback, and nothing else yet."""
    fake = FakeTencent(SystemClock())
    fake.state.lag = timedelta(seconds=1)
    with ExitStack() as stack:
        server = stack.enter_context(serving(fake))
        yield TencentSite(folder=folder, library=library, endpoint=server.url, stack=stack, fake=fake, server=server)
