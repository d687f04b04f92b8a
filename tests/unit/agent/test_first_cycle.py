"""agent/state.py and agent/exporter: what is shown before the first cycle is whole."""

import re

import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Cycle, Down, End, Reading
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import a_busy_reading, a_down, a_gpu


class Began:
    """An agent whose first cycle lists three GPUs and has read none."""

    def __init__(self) -> None:
        """Begin it."""
        self.clock = ManualClock()
        self.core = AgentCore(
            node_id="n", clock=self.clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0
        )
        self.exporter = Exporter(self.core, self.clock, node_id="n", top_processes=2, own_process=False)
        gpus = tuple(a_gpu(index) for index in range(3))
        self.core.ingest(Cycle(seq=1, monotonic_seconds=self.clock.monotonic(), gpus=gpus))

    def read(self, index: int) -> None:
        """One more of them is read."""
        self.core.ingest(Reading(seq=1, reading=a_busy_reading(index)))

    def shown(self, name: str) -> dict[str, float]:
        """The values of a metric on the page, by GPU."""
        page = self.exporter.page("text/plain").body.decode()
        found = re.findall(rf'^{name}(?:\{{.*?gpu="(\d)".*\}})? (\S+)$', page, re.MULTILINE)
        return {gpu: float(value) for gpu, value in found}


@pytest.fixture
def began() -> Began:
    """One of these."""
    return Began()


def test_each_gpu_is_on_the_page_as_soon_as_it_is_read(began: Began) -> None:
    """Also where a page was made a moment ago, and without a word on those that are not read yet."""
    pages = []
    for index in range(3):
        began.read(index)
        pages.append(began.shown("gpuwatch_gpu_up"))

    assert pages == [{"0": 1.0}, {"0": 1.0, "1": 1.0}, {"0": 1.0, "1": 1.0, "2": 1.0}]
    assert began.shown("gpuwatch_gpu_power_watts").keys() == {"0", "1", "2"}


def test_nothing_is_judged_by_a_part_of_a_cycle(began: Began) -> None:
    """The verdict stays unknown, no GPU has a state, and the probe is not up; the whole cycle changes that."""
    began.read(0)
    before = began.core.verdict(began.clock.monotonic())
    states = began.shown("gpuwatch_gpu_activity")
    began.core.ingest(Down(seq=1, down=a_down(1)))
    began.read(2)
    up = began.shown("gpuwatch_probe_up")
    began.core.ingest(End(seq=1, monotonic_seconds=began.clock.monotonic(), duration_seconds=0.0, whole=True))

    assert (before.activity.state, before.activity.doubt) == (State.UNKNOWN, "no cycle is complete yet")
    assert (before.gpus, states, up) == ((), {}, {"": 0.0})
    assert began.shown("gpuwatch_probe_up") == {"": 1.0}
    assert began.shown("gpuwatch_gpu_up") == {"0": 1.0, "1": 0.0, "2": 1.0}


def test_what_became_old_before_the_cycle_was_whole_is_not_shown(began: Began) -> None:
    """A GPU that hangs in the first cycle leaves no old values of the others on the page."""
    began.read(0)
    began.clock.advance(8.5)

    assert began.shown("gpuwatch_gpu_up") == {}


def test_a_probe_that_is_replaced_takes_its_part_along(began: Began) -> None:
    """The next one begins anew."""
    began.read(0)
    began.core.replace_probe(Interruption.RENEW)

    assert began.shown("gpuwatch_gpu_up") == {}
