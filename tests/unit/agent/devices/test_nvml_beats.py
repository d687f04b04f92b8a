"""What the NVML source reads every few seconds only, and when it must read it at once."""

import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.agent.probe.main import sample
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.metric import COSTLY_SECONDS, STEADY_SECONDS
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml import TIMEOUT, StubDriver, cycle

PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"
ALL = 0xFFFFFFFF  # links


def next_cycle(source: NvmlSource, hand: ManualClock, seconds: float = 1.0) -> GpuReading:
    """The reading of the only GPU in the regular cycle after so many seconds."""
    hand.advance(seconds)
    (only,) = cycle(source, whole=False)

    assert isinstance(only, GpuReading)
    return only


@pytest.fixture
def settled(source: NvmlSource, hand: ManualClock) -> NvmlSource:
    """A source that has just read everything, for the second time."""
    for _ in range(2):
        next_cycle(source, hand)
    return source


def test_steady_values_stand_for_some_seconds(driver: StubDriver, settled: NvmlSource, hand: ManualClock) -> None:
    """What a driver answers in milliseconds is read every STEADY_SECONDS; memory, power and NVLinks in every cycle."""
    driver.gpu(0).set(temperature=61, encoder=50, power=99_000, memory_used=1 << 30).utilization(0.4).field(138, 7, ALL)
    between = next_cycle(settled, hand, STEADY_SECONDS - 1)
    after = next_cycle(settled, hand)

    assert (between.power_watts, between.nvlink_tx_bytes_total, between.memory_used_bytes) == (99.0, 7 * 1024, 1 << 30)
    assert between.temperature_celsius != 61.0
    assert between.utilization_ratio != 0.4
    assert (after.temperature_celsius, after.encoder_utilization_ratio) == (61.0, 0.5)
    assert after.utilization_ratio == 0.4


def test_the_energy_counter_stands_longest(driver: StubDriver, settled: NvmlSource, hand: ManualClock) -> None:
    """No call takes the driver longer, and power is read in every cycle: so it is read every COSTLY_SECONDS."""
    driver.gpu(0).set(energy=5_000_000)
    between = next_cycle(settled, hand, COSTLY_SECONDS - 2)  # it was read in the first of the two cycles so far
    after = next_cycle(settled, hand)

    assert between.energy_joules_total != 5000.0
    assert after.energy_joules_total == 5000.0


def test_bytes_over_pcie_are_counted_every_few_seconds_where_their_rate_is_known(
    driver: StubDriver, source: NvmlSource, hand: ManualClock
) -> None:
    """GPM's rate is of all the time between two reads, and the verdict rests on it."""
    driver.gpu(0).gpm({20: 5, 21: 6})
    for _ in range(2):
        next_cycle(source, hand)
    driver.gpu(0).field(197, 7).field(198, 8)
    between = next_cycle(source, hand, STEADY_SECONDS - 1)
    after = next_cycle(source, hand)

    assert between.pcie_tx_bytes_per_second == 5 * 1024 * 1024
    assert between.pcie_tx_bytes_total != 7
    assert (after.pcie_tx_bytes_total, after.pcie_rx_bytes_total) == (7, 8)


def test_bytes_over_pcie_are_counted_in_each_cycle_where_nothing_else_tells_their_rate(
    driver: StubDriver, source: NvmlSource, hand: ManualClock
) -> None:
    """The verdict then rests on what the counters grew by; one that cannot be read is not shown as it was."""
    driver.gpu(0).set(gpm=0)
    for _ in range(2):
        next_cycle(source, hand)
    driver.gpu(0).field(197, 7).field(198, 8)
    seen = next_cycle(source, hand)
    driver.gpu(0).error("field.197", TIMEOUT)
    failed = next_cycle(source, hand)

    assert (seen.pcie_tx_bytes_total, seen.pcie_rx_bytes_total) == (7, 8)
    assert (failed.pcie_tx_bytes_total, failed.pcie_rx_bytes_total) == (None, 8)


def test_a_burst_between_two_reads_is_in_the_next_one(
    driver: StubDriver, settled: NvmlSource, hand: ManualClock
) -> None:
    """The driver keeps its samples for longer than STEADY_SECONDS: the highest of all of them is told."""
    begin = 4_000_000_000_000_000  # microseconds, after those of the cycles before
    driver.gpu(0).samples({begin + second * 1_000_000: 90 if second == 2 else 0 for second in range(STEADY_SECONDS)})
    after = next_cycle(settled, hand, STEADY_SECONDS)

    assert after.utilization_max_ratio == 0.9


def test_activity_is_over_all_of_the_time_between_two_reads(
    driver: StubDriver, source: NvmlSource, hand: ManualClock
) -> None:
    """It is there from the second cycle on, as every figure over time."""
    driver.gpu(0).gpm({2: 40})

    assert next_cycle(source, hand).sm_activity_ratio is None
    assert next_cycle(source, hand).sm_activity_ratio == 0.4


def test_what_failed_is_read_again_in_the_next_cycle(
    driver: StubDriver, settled: NvmlSource, hand: ManualClock
) -> None:
    """A failure hides a value for as short as before; it is never an old value."""
    driver.gpu(0).error("nvmlDeviceGetTemperatureV", TIMEOUT).error(PROCESSES, TIMEOUT)
    failed = next_cycle(settled, hand, STEADY_SECONDS)
    driver.gpu(0).error("nvmlDeviceGetTemperatureV", 0).error(PROCESSES, 0)
    after = next_cycle(settled, hand)

    assert (failed.temperature_celsius, failed.processes) == (None, None)
    assert after.temperature_celsius is not None
    assert after.processes == ()


def test_processes_are_listed_when_the_memory_in_use_changes(
    driver: StubDriver, settled: NvmlSource, hand: ManualClock
) -> None:
    """Whoever comes takes memory, and whoever goes gives it back."""
    driver.gpu(0).processes({4711: 1 << 30}).set(memory_used=1 << 30)
    came = next_cycle(settled, hand)
    driver.gpu(0).processes({}).set(memory_used=0)
    left = next_cycle(settled, hand)

    assert [process.pid for process in came.processes or ()] == [4711]
    assert left.processes == ()


def test_processes_are_listed_now_and_then_in_any_case(
    driver: StubDriver, settled: NvmlSource, hand: ManualClock
) -> None:
    """One could take another's place to the byte. They were listed in the first of the two cycles so far."""
    driver.gpu(0).processes({4711: 1 << 30})

    assert next_cycle(settled, hand, STEADY_SECONDS - 2).processes == ()
    assert next_cycle(settled, hand).processes != ()


def test_a_confirmation_reads_everything(driver: StubDriver, settled: NvmlSource, hand: ManualClock) -> None:
    """The cycle that was asked for has no value of an earlier one; the cycles say which of them are so."""
    driver.gpu(0).set(temperature=61, decoder=9, energy=5_000_000).processes({4711: 1 << 30})
    usual = next_cycle(settled, hand)
    assert not settled.whole
    settled.hurry()
    asked = next_cycle(settled, hand)

    assert settled.whole
    assert (usual.decoder_utilization_ratio, usual.processes) == (0.0, ())
    assert (asked.temperature_celsius, asked.decoder_utilization_ratio) == (61.0, 0.09)
    assert asked.energy_joules_total == 5000.0
    assert asked.processes != ()


def test_a_verdict_is_as_old_as_its_oldest_value(settled: NvmlSource, hand: ManualClock) -> None:
    """A confirmation takes no cycle that shows values from before it was asked for."""
    core = AgentCore(node_id="n", clock=hand, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0)
    settled.hurry()
    for seq in range(3):
        hand.advance(1.0)
        asked_at = hand.monotonic()
        for message in sample(settled, seq, hand):
            core.ingest(message)
        found = core.verdict_of(began_after=asked_at, judged_after=asked_at)
        assert (found is not None) == (seq == 0), "the two cycles after a whole one hold its values"

    settled.hurry()
    hand.advance(1.0)
    asked_at = hand.monotonic()
    for message in sample(settled, 3, hand):
        core.ingest(message)
    assert core.verdict_of(began_after=asked_at, judged_after=asked_at) is not None


def test_a_gpu_that_is_found_again_is_read_whole(driver: StubDriver, settled: NvmlSource, hand: ManualClock) -> None:
    """Nothing from before it was lost."""
    driver.lose(0)
    hand.advance(1.0)
    cycle(settled, whole=False)
    driver.find(0)
    driver.gpu(0).set(temperature=77).processes({4711: 1 << 30})
    seen = next_cycle(settled, hand)

    assert seen.temperature_celsius == 77.0
    assert seen.processes != ()
