"""The supervisor with real probes on the stand-in driver: what an agent shows of a host with a sick GPU."""

import os
from collections.abc import Callable

import pytest

from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.probe.supervisor import ProbeSupervisor
from gpuwatch.agent.published import Snapshot
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.nvml import StubDriver
from tests.support.paths import ROOT
from tests.support.real.agents import eventually

# A cycle on this driver takes a hundredth of a second; a probe starts within a second, or a few on a busy machine.
QUICK = AgentSettings(
    interval=0.1, late=0.4, deadline=2.0, start_deadline=20.0, restart_min=0.05, restart_max=0.2, hung_retry=60.0
)


class SickHost:
    """A supervisor that reads the stand-in driver."""

    def __init__(self, driver: StubDriver, patch: pytest.MonkeyPatch, settings: AgentSettings = QUICK) -> None:
        """Start at once."""
        shown = driver.environment
        for name in ("LD_LIBRARY_PATH", "NVML_STUB_STATE"):
            patch.setenv(name, shown[name])
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self.driver = driver
        self.clock = SystemClock()
        self.core = AgentCore(
            node_id="node-1",
            clock=self.clock,
            rules=settings.activity,
            interval_seconds=settings.interval,
            stale_after_seconds=settings.stale_after_seconds,
        )
        self.exporter = Exporter(self.core, self.clock, node_id="node-1", top_processes=1, own_process=False)
        self.supervisor = ProbeSupervisor(self.core, settings, self.clock)
        self.supervisor.start()

    @property
    def shown(self) -> Snapshot:
        """What the agent shows now."""
        return self.core.snapshot(self.clock.monotonic())

    @property
    def up(self) -> list[int]:
        """GPUs with values."""
        return sorted(reading.info.index or 0 for reading in self.shown.readings)

    @property
    def down(self) -> dict[int | None, str]:
        """The others with their cause."""
        return {down.info.index: down.cause.value for down in self.shown.downs}

    @property
    def state(self) -> State:
        """The verdict on the node."""
        return self.shown.verdict.activity.state

    @property
    def page(self) -> str:
        """What a scrape shows."""
        return self.exporter.page("").body.decode()

    @property
    def stuck(self) -> int:
        """How many probes are abandoned."""
        return len(self.supervisor._ending.stuck)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for it."""
        eventually(condition, lambda: (self.up, self.down, self.shown.trouble, self.shown.statistics))

    def until_served(self, *gpus: int) -> None:
        """Wait until these GPUs are up, all others down, and some cycles have gone by with that."""
        self.until(lambda: self.up == list(gpus))
        cycles = self.shown.statistics.cycles
        self.until(lambda: self.shown.statistics.cycles > cycles + 3)

        assert self.up == list(gpus)

    def record(self, end: Callable[[], object]) -> list[Snapshot]:
        """What is shown until then, each state once."""
        seen: list[Snapshot] = []

        def over() -> object:
            shown = self.shown
            if not seen or shown.version != seen[-1].version:
                seen.append(shown)
            return end()

        self.until(over)
        return seen

    def end(self) -> None:
        """Stop it; whatever probe could not be killed is killed now."""
        self.supervisor.stop()
        for child in self.supervisor._ending.alive:
            child.process.kill()
            child.process.wait()

        assert not self.supervisor.alive, "the loop did not end"
