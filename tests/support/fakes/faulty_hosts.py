"""A host with two GPUs on the stand-in driver and the agent on it, in one process: tests of faults."""

import math

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import decode, encode
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.probe.main import sample
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import Activity, State
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml import StubDriver

STEP = 5.0  # seconds a cycle: well within max_gap, and seven of them cover a slow row
_GROWING = {"gpuwatch_gpu_idle_seconds", "gpuwatch_gpu_active_seconds_total"}

Shown = dict[str, dict[tuple[str, ...], float]]  # of one GPU: family, labels but who it is, value


class Host:
    """A host with two idle GPUs, each drawn on by a window manager, and the agent on it."""

    def __init__(self, driver: StubDriver, source: NvmlSource, clock: ManualClock) -> None:
        """Read for a while, so that whatever takes two cycles is there."""
        self.driver, self.source, self.clock = driver, source, clock
        driver.gpus(2)
        driver.every_gpu().processes({4242: 1 << 20}, kind="graphics")
        self.core = AgentCore(
            node_id="node-1", clock=clock, rules=ActivityRules(), interval_seconds=STEP, stale_after_seconds=8.0
        )
        self.exporter = Exporter(self.core, clock, node_id="node-1", top_processes=4, own_process=False)
        self.seq = 0
        self.utilization = dict.fromkeys(range(2), 0)
        self.held = 0.0  # what the idle time may be at most: seconds since any doubt, or before it
        self.cycle(times=3)

    def cycle(self, times: int = 1) -> Activity:
        """So many cycles through the probe's messages, each checked; the last verdict on the node."""
        for _ in range(times):
            self.clock.advance(STEP)
            self.held += STEP
            self.seq += 1
            lines = {f"gpu.{slot}.samples": f"{self.seq}:{percent}" for slot, percent in self.utilization.items()}
            self.driver.write(lines | {f"gpu.{slot}.utilization": str(x) for slot, x in self.utilization.items()})
            for message in sample(self.source, self.seq, self.clock):
                self.core.ingest(decode(encode(message)))
            activity = self.core.verdict(self.clock.monotonic()).activity

            assert activity.held_seconds <= self.held, "idle for longer than it was seen to be"
            if activity.state is State.UNKNOWN:
                self.held -= STEP
        return activity

    def shown(self) -> dict[str, Shown]:
        """What a scrape shows of each GPU by its uuid."""
        found: dict[str, Shown] = {}
        for family in self.exporter.collect():
            for each in family.samples:
                assert math.isfinite(each.value), f"{each.name} is {each.value}"
                if "uuid" in each.labels:
                    labels = tuple(value for key, value in sorted(each.labels.items()) if key not in {"uuid", "gpu"})
                    found.setdefault(each.labels["uuid"], {}).setdefault(each.name, {})[labels] = each.value
        return found

    def of(self, slot: int) -> Shown:
        """What a scrape shows of the GPU in this slot."""
        return self.shown()[f"GPU-00000000-0000-4000-8000-{slot:012}"]


def steady(shown: Shown) -> Shown:
    """All but what grows by itself, and health, which remembers a fault after its end."""
    return {family: values for family, values in shown.items() if family not in _GROWING and "_health" not in family}
