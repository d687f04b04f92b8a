"""A machine of one cloud, whose metadata service is on loopback and whose clock the test moves."""

from contextlib import ExitStack
from pathlib import Path

from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.metadata.watcher import InstanceStatus, InstanceWatcher
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.metadata_services import MetadataService, serving

SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
GCE = "/computeMetadata/v1/instance"


class Watched:
    """A machine of one cloud; `look` looks as the agent's thread does, and lets an interval pass."""

    def __init__(self, service: MetadataService, folder: Path, **changes: object) -> None:
        """Its cloud is the one whose service it is, its clock stands at 2026-01-05 00:00:00 UTC."""
        self.clock = ManualClock()
        self.service = service
        settings: dict[str, object] = {"provider": type(service).__name__.lower().replace("ec2", "aws")}
        settings |= {"endpoint": service.url, "state": str(folder / "notices.json"), "timeout": 5.0, **changes}
        self.watcher = InstanceWatcher(MetadataSettings(**settings), self.clock)  # type: ignore[arg-type]

    def look(self, times: int = 1) -> InstanceStatus:
        """What is known after so many looks."""
        for _ in range(times):
            self.clock.advance(self.watcher.step())
        status = self.watcher.status()
        assert status is not None
        return status

    def asked(self, path: str) -> int:
        """How often the service was asked for it."""
        return [asked for _, asked in self.service.asked].count(path)


class Watch:
    """Makes watched machines whose services end with the test."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder

    def __call__(self, service: MetadataService, **settings: object) -> Watched:
        """One machine."""
        return Watched(self.stack.enter_context(serving(service)), self.folder, **settings)
