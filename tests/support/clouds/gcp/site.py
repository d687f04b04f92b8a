"""A small site of real processes whose cloud is the fake of Google Cloud over HTTP, on the host's own clock."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.clouds.gcp.owners import tags_of
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.clouds.daily_story import for_programs
from tests.support.clouds.gcp.service import FakeGcp
from tests.support.clouds.gcp.tokens import a_key, token_service
from tests.support.clouds.gcp.world import PROJECT, REGION, GcpWorld
from tests.support.clouds.server import serving
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent
from tests.support.real.local_site import Site


@dataclass(slots=True, kw_only=True)
class GcpSite(Site):
    """Its machines change within a second; the controller signs in with a service account's key."""

    world: GcpWorld
    key: Path

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of Google's: the key's file is in the settings."""
        return for_programs(os.environ)

    def launch(self, name: str, utilization: float, **tags: str) -> str:
        """A machine with one GPU at that utilization, and its agent; gives its number."""
        named = {"Name": name, FLEET_TAG: "lab", **{key.replace("__", ":"): value for key, value in tags.items()}}
        node_id = self.world.launch(named)
        driver = StubDriver(self.folder / node_id, self.library)
        driver.gpu(0).utilization(utilization)
        agent = self.stack.enter_context(RunningAgent(for_programs(driver.environment), node_id=node_id, interval=0.2))
        self.drivers[node_id], self.targets[node_id] = driver, agent.url
        return node_id

    def configure(self, mode: str, notice: str = "2s", more: Mapping[str, object] | None = None) -> Path:
        """As of the site on EC2, with this cloud."""
        path = Site.configure(self, mode, notice, more)
        settings = json.loads(path.read_text(encoding="utf-8"))
        own = {"projects": [PROJECT], "credentials_file": str(self.key)}
        settings["cloud"] = {"provider": "gcp", "regions": [REGION], "endpoint_url": self.endpoint, "gcp": own}
        path.write_text(json.dumps(settings), encoding="utf-8")
        return path

    def state(self, node_id: str) -> str:
        """What the cloud holds."""
        self.world.project.tick()
        return str(self.world.told(node_id)["status"])

    def tags(self, node_id: str) -> dict[str, str]:
        """A machine's labels, as tags."""
        return dict(tags_of(self.world.told(node_id)["labels"]))


@contextmanager
def a_gcp_site(folder: Path, library: Path) -> Iterator[GcpSite]:
    """The cloud on loopback, and nothing else yet."""
    fake = FakeGcp(SystemClock(), {PROJECT: REGION})
    fake.projects[PROJECT].pace = 1 / 60
    with ExitStack() as stack:
        server = stack.enter_context(serving(fake))
        world = GcpWorld(ManualClock(wall=SystemClock().now()), fake, server)
        key = a_key(folder, stack.enter_context(token_service(world)))
        yield GcpSite(folder=folder, library=library, endpoint=server.url, stack=stack, world=world, key=key)
