"""What an agent counts for accounting: seconds by state and joules, exact at any distance between two questions."""

from datetime import timedelta

import msgspec
import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import Tally
from gpuwatch.model.fleet import NodeVerdict
from gpuwatch.model.gpu import DownCause, GpuDown, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import a_busy_reading, a_cycle, a_down, a_reading


class Host:
    """An agent's core with its clock."""

    def __init__(self) -> None:
        """A fresh one."""
        self.clock = ManualClock()
        self.core = AgentCore(
            node_id="node-1", clock=self.clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=60.0
        )
        self.seq = 0

    def cycle(self, *entries: GpuReading | GpuDown, after: float = 1.0) -> None:
        """One whole cycle."""
        self.clock.advance(after)
        self.seq += 1
        self.core.ingest_messages(a_cycle(self.seq, self.clock.monotonic(), *entries))

    @property
    def tally(self) -> Tally:
        """As it stands."""
        found = self.core.verdict(self.clock.monotonic()).tally
        assert found is not None
        return found


def test_seconds_are_counted_by_what_the_node_and_its_gpus_do() -> None:
    """Two GPUs: both idle for 3 s, then one works for 2 s."""
    host = Host()
    for number in range(6):
        host.cycle(a_busy_reading(0) if number >= 4 else a_reading(0), a_reading(1))

    assert host.tally.node_seconds == {"idle": 3.0, "busy": 2.0}
    assert host.tally.gpu_seconds == {"idle": 8.0, "busy": 2.0}
    assert host.tally.since == host.clock.now() - timedelta(seconds=6)


def test_a_gap_is_counted_as_nothing() -> None:
    """A minute in which nobody looked is no time of any state: whoever asks sees that it is missing."""
    host = Host()
    host.cycle(a_reading(0))
    host.cycle(a_reading(0), after=61.0)
    host.cycle(a_reading(0))

    assert host.tally.node_seconds == {"idle": 1.0}


def test_a_lost_gpu_is_down() -> None:
    """It is billed all the same, and it is none that merely nobody knows of."""
    host = Host()
    host.cycle(a_reading(0), a_reading(1))
    for _ in range(3):
        host.cycle(a_reading(0), a_down(1, DownCause.LOST))

    assert host.tally.gpu_seconds == {"idle": 3.0, "down": 3.0}


def test_joules_are_the_differences_of_the_drivers_counter() -> None:
    """Also over a gap; where the counter began anew, those seconds are not measured."""
    host = Host()
    for joules, after in ((1000.0, 1.0), (1100.0, 1.0), (7100.0, 60.0), (5.0, 1.0), (105.0, 1.0)):
        host.cycle(a_reading(0, energy_joules_total=joules), after=after)
    host.cycle(a_reading(0, energy_joules_total=None))

    assert host.tally.joules == pytest.approx(100 + 6000 + 100)
    assert host.tally.joules_gpu_seconds == pytest.approx(1 + 60 + 1)


def test_joules_and_their_seconds_are_counted_together() -> None:
    """The driver's counter is read every ten seconds: whoever asks in between divides no energy by more time."""
    host = Host()
    watts = []
    for second in range(40):
        host.cycle(a_reading(0, energy_joules_total=1000.0 + 70.0 * (second - second % 10)))
        tally = host.tally
        watts += [tally.joules / tally.joules_gpu_seconds] if tally.joules_gpu_seconds else []

    assert watts
    assert set(watts) == {70.0}


def test_a_verdict_with_and_without_a_tally_is_read() -> None:
    """An older agent gives none; a later controller takes both."""
    host = Host()
    host.cycle(a_reading(0))
    host.cycle(a_reading(0))
    verdict = host.core.verdict(host.clock.monotonic())
    result = msgspec.json.decode(msgspec.json.encode(verdict))
    with_it = msgspec.json.decode(msgspec.json.encode(result), type=NodeVerdict)
    del result["tally"]

    assert with_it.tally == verdict.tally
    assert msgspec.json.decode(msgspec.json.encode(result), type=NodeVerdict).tally is None
