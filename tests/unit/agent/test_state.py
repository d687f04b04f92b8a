"""agent/state.py: what an agent shows, message by message, and when it shows nothing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Cycle, End, Reading, Unavailable
from gpuwatch.agent.probe.main import sample
from gpuwatch.agent.published import OutOfOrderError
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuProcess, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import START, a_busy_reading, a_cycle, a_down, a_gpu, a_process, a_reading

STALE_AFTER = 8.0


class Told:
    """A core with its clock, told one cycle a second."""

    def __init__(self, service_pids: Callable[[frozenset[GpuProcess]], frozenset[int]] = lambda _: frozenset()) -> None:
        """A fresh core at monotonic zero."""
        self.clock = ManualClock()
        self.core = AgentCore(
            node_id="node-1",
            clock=self.clock,
            rules=ActivityRules(),
            interval_seconds=1.0,
            stale_after_seconds=STALE_AFTER,
            service_pids=service_pids,
        )
        self.seq = 0

    def cycle(self, *entries: GpuReading | GpuDown, times: int = 1) -> None:
        """So many whole cycles."""
        for _ in range(times):
            self.clock.advance(1.0)
            self.seq += 1
            self.core.ingest_messages(a_cycle(self.seq, self.clock.monotonic(), *entries))

    def begin(self, *read: GpuReading, listed: int) -> None:
        """A cycle that has read so much and has not ended."""
        self.clock.advance(1.0)
        self.seq += 1
        gpus = tuple(a_gpu(index) for index in range(listed))
        self.core.ingest(Cycle(seq=self.seq, monotonic_seconds=self.clock.monotonic(), gpus=gpus))
        for reading in read:
            self.core.ingest(Reading(seq=self.seq, reading=reading))

    def unavailable(self) -> None:
        """A cycle in which the driver was not there."""
        self.clock.advance(1.0)
        self.seq += 1
        self.core.ingest(
            Unavailable(
                seq=self.seq,
                monotonic_seconds=self.clock.monotonic(),
                cause="library_not_found",
                detail="NVML Shared Library Not Found",
                remedy="install the driver",
            )
        )

    @property
    def downs(self) -> dict[int | None, tuple[DownCause, str]]:
        """What is down now, and why."""
        shown = self.core.snapshot(self.clock.monotonic()).downs
        return {down.info.index: (down.cause, down.detail) for down in shown}

    @property
    def up(self) -> list[int | None]:
        """What has values now."""
        return [reading.info.index for reading in self.core.snapshot(self.clock.monotonic()).readings]


@pytest.fixture
def told() -> Told:
    """A core that knows nothing yet."""
    return Told()


def test_an_agent_begins_unknown(told: Told) -> None:
    """Before the first complete cycle the verdict is unknown, with the doubt in words."""
    verdict = told.core.verdict(told.clock.monotonic())

    assert verdict.activity.state is State.UNKNOWN
    assert verdict.activity.doubt == "no cycle is complete yet"


def test_a_verdict_tells_its_node_and_its_age(told: Told) -> None:
    """`at` is the wall time of the last cycle; the age is counted on the monotonic clock, whatever the wall does."""
    told.cycle(a_reading(), times=3)
    told.clock.advance(2.5)
    told.clock.jump(-7200.0)
    verdict = told.core.verdict(told.clock.monotonic())

    assert (verdict.node_id, verdict.schema, verdict.interval_seconds) == ("node-1", 1, 1.0)
    assert verdict.at == START + timedelta(seconds=3)
    assert verdict.age_seconds == pytest.approx(2.5)
    assert verdict.activity.held_seconds == pytest.approx(2.0)


def test_a_cycle_is_shown_only_when_it_is_whole(told: Told) -> None:
    """Readings of a cycle in progress are not mixed with those of the last one."""
    told.cycle(a_reading(0), a_reading(1))
    told.begin(a_busy_reading(0), listed=2)

    assert told.core.snapshot(told.clock.monotonic()).readings[0].utilization_ratio == 0.0
    assert told.core.awaited == a_gpu(1)


def test_a_lost_gpu_leaves_the_others_alone(told: Told) -> None:
    """One GPU down with its cause, the other's values as ever; the node is unknown."""
    told.cycle(a_down(0), a_reading(1))

    assert told.up == [1]
    assert told.downs == {0: (DownCause.LOST, "GPU is lost")}
    assert told.core.verdict(told.clock.monotonic()).activity.state is State.UNKNOWN


def test_a_gpu_no_longer_listed_is_missing(told: Told) -> None:
    """A GPU once seen stays expected."""
    told.cycle(a_reading(0), a_reading(1))
    told.cycle(a_reading(0))

    assert told.downs == {1: (DownCause.MISSING, "the driver no longer lists it")}


def moved(reading: GpuReading, index: int) -> GpuReading:
    """The same GPU under another index."""
    return replace(reading, info=replace(reading.info, index=index))


def test_an_index_belongs_to_the_gpu_that_is_listed_with_it(told: Told) -> None:
    """A GPU that is gone keeps its index until another one has it, and gets one again when it is back."""
    told.cycle(a_reading(0), a_reading(1), a_reading(2))
    told.cycle(moved(a_reading(1), 0), moved(a_reading(2), 1))
    shown = told.core.snapshot(told.clock.monotonic())
    gone = told.downs
    told.cycle(moved(a_reading(1), 0), moved(a_reading(2), 1), moved(a_reading(0), 2))

    assert gone == {None: (DownCause.MISSING, "the driver no longer lists it")}
    assert [(gpu.uuid, gpu.index) for gpu in shown.verdict.gpus] == [("GPU-1", 0), ("GPU-2", 1), ("GPU-0", None)]
    assert shown.verdict.activity.doubt == "GPU-0: missing: the driver no longer lists it"
    assert (told.up, told.downs) == ([0, 1, 2], {})


def test_a_gpu_that_comes_back_is_up(told: Told) -> None:
    """Down is a fact of the last cycle, not a mark for life."""
    told.cycle(a_down(0))
    told.cycle(a_reading(0))

    assert (told.up, told.downs) == ([0], {})


def test_a_hang_keeps_what_was_read_and_downs_the_rest(told: Told) -> None:
    """The GPU it hung at has the words; those behind it were not reached; those before it are up."""
    told.cycle(a_reading(0), a_reading(1), a_reading(2))
    told.begin(a_reading(0), listed=3)
    told.clock.advance(5.0)
    told.core.interrupt(Interruption.HANG, "GPU 1 was not read within 5s")

    assert told.up == [0]
    assert told.downs == {
        1: (DownCause.HANG, "GPU 1 was not read within 5s"),
        2: (DownCause.HANG, "not reached: GPU 1 was not read within 5s"),
    }


def test_what_was_read_before_a_hang_is_as_old_as_its_cycle(told: Told) -> None:
    """The deadline that passed does not make it any fresher."""
    told.cycle(a_reading(0), a_reading(1))
    told.begin(a_reading(0), listed=2)
    told.clock.advance(5.0)
    told.core.interrupt(Interruption.HANG, "GPU 1 was not read within 5s")

    assert told.core.verdict(told.clock.monotonic()).age_seconds == pytest.approx(5.0)


def test_busy_shows_through_a_hang(told: Told) -> None:
    """A GPU that was read busy keeps its node busy, though another hangs."""
    told.begin(a_busy_reading(0), listed=2)
    told.core.interrupt(Interruption.HANG, "GPU 1 was not read within 5s")

    assert told.core.verdict(told.clock.monotonic()).activity.state is State.BUSY


def test_a_probe_that_ends_takes_its_values_along(told: Told) -> None:
    """Between cycles nothing is being read: all GPUs are down, the verdict unknown, the cause counted."""
    told.cycle(a_reading(0), times=30)
    told.clock.advance(0.5)
    told.core.interrupt(Interruption.EXIT, "it was killed by SIGSEGV")
    shown = told.core.snapshot(told.clock.monotonic())

    assert told.downs == {0: (DownCause.ERROR, "it was killed by SIGSEGV")}
    assert shown.verdict.activity.state is State.UNKNOWN
    assert shown.verdict.activity.doubt == "GPU 0: error: it was killed by SIGSEGV"
    assert shown.statistics.interruptions == {"exit": 1}


def test_a_planned_replacement_shows_nothing_odd(told: Told) -> None:
    """Replacing a probe on purpose is counted and downs nothing."""
    told.cycle(a_reading(0))
    told.core.interrupt(Interruption.RENEW, "a GPU that hung is tried again")

    assert told.up == [0]
    assert told.core.snapshot(told.clock.monotonic()).trouble is None


def test_no_driver_is_told_with_its_remedy(told: Told) -> None:
    """Without a driver the verdict is unknown and fresh; cause, words and remedy are kept for people."""
    told.unavailable()
    shown = told.core.snapshot(told.clock.monotonic())

    assert shown.trouble is not None
    assert (shown.trouble.cause, shown.trouble.remedy) == ("library_not_found", "install the driver")
    assert (shown.stale, shown.statistics.cycles) == (False, 0)
    assert shown.verdict.activity.doubt == "NVML Shared Library Not Found"


def test_a_driver_that_goes_takes_its_gpus_down_and_brings_them_back(told: Told) -> None:
    """GPUs known before are down with the cause `driver` while it is away."""
    told.cycle(a_reading(0))
    told.unavailable()
    away = told.downs
    told.cycle(a_reading(0))

    assert away == {0: (DownCause.DRIVER, "NVML Shared Library Not Found")}
    assert told.core.snapshot(told.clock.monotonic()).trouble is None


def test_old_values_are_not_shown(told: Told) -> None:
    """Up to the limit values stay; past it every GPU is down, the verdict unknown, and its held time gone."""
    told.cycle(a_reading(0), a_down(1), times=5)
    told.clock.advance(STALE_AFTER)
    assert told.up == [0]

    told.clock.advance(0.1)
    verdict = told.core.verdict(told.clock.monotonic())

    assert told.up == []
    assert told.downs[0] == (DownCause.ERROR, "no reading for 8.1s")
    assert told.downs[1] == (DownCause.LOST, "GPU is lost")
    assert {gpu.activity.state for gpu in verdict.gpus} == {verdict.activity.state} == {State.UNKNOWN}
    assert (verdict.activity.held_seconds, verdict.activity.doubt) == (0.0, "no reading for 8.1s")


def test_a_cycle_cannot_end_in_the_future(told: Told) -> None:
    """A probe whose clock is wrong must not make its values look fresh for longer."""
    told.core.ingest_messages(a_cycle(1, told.clock.monotonic() + 1e6, a_reading()))
    told.clock.advance(STALE_AFTER + 1)

    assert told.up == []


def test_a_repeated_cycle_changes_nothing(told: Told) -> None:
    """A cycle with the time of the last one is not shown and not counted."""
    told.cycle(a_reading())
    told.core.ingest_messages(a_cycle(9, told.clock.monotonic(), a_busy_reading()))
    shown = told.core.snapshot(told.clock.monotonic())

    assert (shown.version, shown.statistics.cycles) == (1, 1)
    assert shown.verdict.activity.state is State.IDLE


def test_active_seconds_are_utilization_times_time(told: Told) -> None:
    """Half a GPU for ten seconds is five active seconds; a gap and a reading without utilization add nothing."""
    told.cycle(a_reading(utilization_ratio=0.5), times=11)
    told.clock.advance(100.0)
    told.cycle(a_reading(utilization_ratio=1.0))
    told.cycle(a_reading(utilization_ratio=None))
    told.cycle(a_reading(utilization_ratio=1.0), times=2)

    assert told.core.snapshot(told.clock.monotonic()).active_seconds == {"GPU-0": pytest.approx(6.0)}


def test_messages_out_of_order_are_refused(told: Told) -> None:
    """A message that cannot follow the ones before it is as much garbage as a broken line."""
    reading = Reading(seq=1, reading=a_reading())
    end = End(seq=1, monotonic_seconds=0.0, duration_seconds=0.0)
    with pytest.raises(OutOfOrderError, match="outside of a cycle"):
        told.core.ingest(reading)
    with pytest.raises(OutOfOrderError, match="ended before it began"):
        told.core.ingest(end)

    told.begin(listed=1)
    with pytest.raises(OutOfOrderError, match="before cycle 1 ended"):
        told.begin(listed=1)
    with pytest.raises(OutOfOrderError, match="GPU-7 came outside"):
        told.core.ingest(Reading(seq=1, reading=a_reading(7)))


def test_a_gpu_left_out_of_a_whole_cycle_is_missing(told: Told) -> None:
    """A cycle that ends without a word on a GPU it listed does not pass for a good one."""
    told.begin(a_reading(0), listed=2)
    told.core.ingest(End(seq=1, monotonic_seconds=told.clock.monotonic(), duration_seconds=0.1))

    assert told.downs == {1: (DownCause.MISSING, "the probe did not report it")}


class TwoGpus:
    """A device source in process: one GPU rests, the other is lost."""

    def gpus(self) -> tuple[GpuInfo, ...]:
        """Both."""
        return (a_gpu(0), a_gpu(1))

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """A reading, or why there is none."""
        return a_reading(0) if gpu.index == 0 else a_down(1)

    def close(self) -> None:
        """Nothing to let go of."""


def test_a_source_can_be_read_in_process(told: Told) -> None:
    """Simulations feed a core without a process and without JSON, through the probe's own `sample`."""
    source = TwoGpus()
    for seq in range(3):
        told.clock.advance(1.0)
        told.core.ingest_messages(sample(source, seq, told.clock))

    assert (told.up, told.downs) == ([0], {1: (DownCause.LOST, "GPU is lost")})


def test_work_of_the_machines_own_processes_leaves_a_node_idle() -> None:
    """The core asks whose the processes on all its GPUs are; what it is told counts in the verdict."""
    asked: list[frozenset[int]] = []

    def services(holders: frozenset[GpuProcess]) -> frozenset[int]:
        pids = frozenset(each.pid for each in holders)
        asked.append(pids)
        return pids & {41, 42}

    told = Told(service_pids=services)
    told.cycle(a_reading(0), a_reading(1))
    told.cycle(a_busy_reading(0, processes=(a_process(41),)), a_reading(1, processes=(a_process(42),)))
    health_check = told.core.verdict(told.clock.monotonic()).activity.state
    told.cycle(a_busy_reading(0, processes=(a_process(41),)), a_busy_reading(1, processes=(a_process(43),)))

    assert asked == [{41, 42}, {41, 43}]
    assert (health_check, told.core.verdict(told.clock.monotonic()).activity.state) == (State.IDLE, State.BUSY)


def test_what_is_busy_now_was_busy_last_now(told: Told) -> None:
    """While the node is busy the age is 0, between cycles too; afterwards it counts on the monotonic clock."""
    told.cycle(a_busy_reading())
    told.clock.advance(0.7)
    busy = told.core.verdict(told.clock.monotonic()).last_busy
    told.cycle(a_reading(), times=5)
    told.clock.jump(3600.0)
    idle = told.core.verdict(told.clock.monotonic()).last_busy

    assert [entry.ago_seconds for entry in busy] == [0.0, 0.0]
    assert [entry.evidence.name for entry in busy] == ["gpu0.power", "gpu0.utilization_max"]
    assert [entry.evidence.setting for entry in busy] == [
        "agent.activity.busy_power_ratio",
        "agent.activity.busy_utilization_ratio",
    ]
    assert [entry.ago_seconds for entry in idle] == [pytest.approx(5.7)] * 2
    assert [entry.at for entry in idle] == [entry.at for entry in busy]


def test_what_was_busy_last_is_known_also_while_the_use_is_not(told: Told) -> None:
    """In every verdict: of a lost GPU, of a silent probe; a new agent knows nothing."""
    told.cycle(a_busy_reading())
    told.cycle(a_down())
    lost = told.core.verdict(told.clock.monotonic())
    told.clock.advance(STALE_AFTER + 1)
    stale = told.core.verdict(told.clock.monotonic())

    assert (lost.activity.state, stale.activity.state) == (State.UNKNOWN, State.UNKNOWN)
    assert [entry.ago_seconds for entry in lost.last_busy] == [1.0, 1.0]
    assert [entry.ago_seconds for entry in stale.last_busy] == [STALE_AFTER + 2] * 2
    assert Told().core.verdict(0.0).last_busy == ()


def test_busy_evidence_in_a_verdict_names_its_setting(told: Told) -> None:
    """Of the node and of each GPU; idle evidence names none."""
    told.cycle(a_busy_reading(0), a_reading(1))
    verdict = told.core.verdict(told.clock.monotonic())

    assert {entry.setting for entry in verdict.activity.evidence} == {
        "agent.activity.busy_power_ratio",
        "agent.activity.busy_utilization_ratio",
    }
    assert {entry.setting for entry in verdict.gpus[1].activity.evidence} == {None}
