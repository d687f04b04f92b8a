"""agent/state.py and a GPU that is left out: it keeps its name, a stand-in has none, and a takeover loses nothing."""

from dataclasses import replace

import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Message, Step
from gpuwatch.agent.published import Trouble
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import START, a_cycle, a_down, a_gpu, a_reading


class Told:
    """A core that is told a cycle a second."""

    def __init__(self) -> None:
        """At monotonic zero."""
        self.clock = ManualClock()
        self.core = AgentCore(
            node_id="n", clock=self.clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0
        )
        self.seq = 0

    def messages(self, *entries: GpuReading | GpuDown) -> tuple[Message, ...]:
        """Those of the next cycle."""
        self.clock.advance(1.0)
        self.seq += 1
        return tuple(a_cycle(self.seq, self.clock.monotonic(), *entries))

    def cycle(self, *entries: GpuReading | GpuDown) -> None:
        """A whole one."""
        self.core.ingest_messages(self.messages(*entries))

    @property
    def downs(self) -> dict[str, tuple[GpuInfo, DownCause]]:
        """What is down now."""
        return {down.info.uuid: (down.info, down.cause) for down in self.core.snapshot(self.clock.monotonic()).downs}


@pytest.fixture
def told() -> Told:
    """A core that knows nothing yet."""
    return Told()


def left_out(info: GpuInfo) -> GpuDown:
    """What a probe says of a GPU that it must not touch."""
    return GpuDown(info=info, at=START, cause=DownCause.HANG, detail="not read: it hung an earlier probe")


def test_a_gpu_that_is_left_out_keeps_its_name(told: Told) -> None:
    """A probe that never asked it knows only its place; what was known before stays on it."""
    told.cycle(a_reading(0), a_reading(1))
    told.cycle(a_reading(0), left_out(GpuInfo(uuid="GPU-1", index=1, pci_bus_id="00000000:02:00.0")))

    assert told.downs == {"GPU-1": (a_gpu(1), DownCause.HANG)}
    assert told.core.expected["GPU-1"] == a_gpu(1)


def test_a_changed_driver_version_is_the_new_one(told: Told) -> None:
    """What is told now counts; only what is not told comes from before."""
    told.cycle(a_reading(0))
    told.cycle(replace(a_reading(0), info=replace(a_gpu(0), driver_version="590.1", name=None)))

    assert told.core.expected["GPU-0"] == replace(a_gpu(0), driver_version="590.1")


def test_a_stand_in_is_nobody_once_it_is_gone(told: Told) -> None:
    """A GPU whose name becomes known does not leave a second one behind, which would be missing for ever."""
    told.cycle(a_reading(0), left_out(GpuInfo(uuid="unidentified-1", index=1)))

    assert set(told.downs) == {"unidentified-1"}

    told.cycle(a_reading(0), a_reading(1))

    assert told.downs == {}
    assert [gpu.uuid for gpu in told.core.verdict(told.clock.monotonic()).gpus] == ["GPU-0", "GPU-1"]
    assert told.core.verdict(told.clock.monotonic()).activity.state is not State.UNKNOWN


def test_a_stand_in_that_nobody_replaces_is_missing(told: Told) -> None:
    """A GPU that never said its name and is gone is not forgotten: the machine is not whole."""
    told.cycle(a_reading(0), left_out(GpuInfo(uuid="unidentified-1", index=1)))
    told.cycle(a_reading(0))

    assert [cause for _, cause in told.downs.values()] == [DownCause.MISSING]
    assert told.core.verdict(told.clock.monotonic()).activity.state is State.UNKNOWN


def test_a_takeover_shows_no_broken_cycle(told: Told) -> None:
    """The cycle that hung counts for nothing, because a whole one follows at once; the replacement is counted."""
    told.cycle(a_reading(0), a_reading(1))
    version = told.core.snapshot(told.clock.monotonic()).version
    for message in told.messages(a_reading(0), a_reading(1))[:2]:
        told.core.ingest(message)
    told.core.replace_probe(Interruption.HANG)
    shown = told.core.snapshot(told.clock.monotonic())

    assert (shown.version, len(shown.readings), shown.trouble) == (version, 2, None)
    assert shown.statistics.interruptions == {"hang": 1}

    told.cycle(a_reading(0), a_down(1, DownCause.HANG))

    assert set(told.downs) == {"GPU-1"}


def test_a_driver_that_cannot_be_opened(told: Told) -> None:
    """All are down with the driver, the verdict is unknown and says why."""
    told.cycle(a_reading(0), a_reading(1))
    told.clock.advance(1.0)
    told.core.cannot_open(Trouble(cause="init_hang", detail="nvmlInit has not returned for 5s"))
    shown = told.core.snapshot(told.clock.monotonic())

    assert {cause for _, cause in told.downs.values()} == {DownCause.DRIVER}
    assert shown.trouble is not None
    assert shown.trouble.cause == "init_hang"
    assert shown.verdict.activity.state is State.UNKNOWN
    assert "nvmlInit" in (shown.verdict.activity.doubt or "")


def test_a_step_changes_nothing(told: Told) -> None:
    """What a probe is about to do is its supervisor's affair."""
    told.cycle(a_reading(0))
    before = told.core.snapshot(told.clock.monotonic())
    told.core.ingest(Step(what="gpu", index=0))

    after = told.core.snapshot(told.clock.monotonic())
    assert (after, after.verdict) == (before, before.verdict)


def test_figures_that_cannot_be_true_are_counted_by_cycle(told: Told) -> None:
    """Of each GPU and field by itself."""
    told.cycle(a_reading(0, implausible=("power_watts",)), a_reading(1))
    told.cycle(a_reading(0, implausible=("fan_speed_ratio", "power_watts")), a_reading(1))
    told.cycle(a_reading(0), a_reading(1))
    shown = told.core.snapshot(told.clock.monotonic())

    assert shown.statistics.implausible == {("GPU-0", "power_watts"): 2, ("GPU-0", "fan_speed_ratio"): 1}


@pytest.mark.parametrize(
    ("field", "state"),
    [("power_watts", State.UNKNOWN), ("nvlink_tx_bytes_total", State.UNKNOWN), ("fan_speed_ratio", State.IDLE)],
)
def test_doubtful_figures_of_use_are_never_idle(told: Told, field: str, state: State) -> None:
    """A fan says nothing about use."""
    for _ in range(3):
        told.cycle(a_reading(0, implausible=(field,)))

    assert told.core.verdict(told.clock.monotonic()).activity.state is state
