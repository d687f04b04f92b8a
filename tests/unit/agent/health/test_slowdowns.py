"""What the driver's clock-event counters gain is a share of the time between two reads of them, not of a cycle."""

import pytest

from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.metric import STEADY_SECONDS
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import a_reading
from tests.support.builders.sick_gpus import Patient
from tests.support.fakes.nvml import TIMEOUT, StubDriver, cycle

HEAT = "hw_thermal_slowdown"
HEAT_FIELD, HEAT_BIT = 270, 0x40
MINUTES = 10


def judged_as_read(
    driver: StubDriver, source: NvmlSource, hand: ManualClock, share: float, *, flagged: bool
) -> Patient:
    """Ten minutes of cycles of a GPU that is too hot for this share of each second."""
    patient = Patient()
    driver.gpu(0).set(clock_events=HEAT_BIT if flagged else 0)
    for second in range(60 * MINUTES):
        driver.gpu(0).field(HEAT_FIELD, int(share * second * 1e9))
        hand.advance(1.0)
        (reading,) = cycle(source, whole=False)
        assert isinstance(reading, GpuReading)
        patient.look(reading)
    return patient


@pytest.mark.parametrize("flagged", [True, False], ids=["seen at each look", "seen at no look"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_a_slowdown_that_comes_and_goes_has_its_share_of_the_time(
    driver: StubDriver, source: NvmlSource, hand: ManualClock, share: float, flagged: bool
) -> None:
    """The counters are read every STEADY_SECONDS: the cycles between show them as they were."""
    patient = judged_as_read(driver, source, hand, share, flagged=flagged)

    settled = 1 - (1 + STEADY_SECONDS / patient.rules.throttle_window) ** (-60 * MINUTES / STEADY_SECONDS)
    assert patient.record.figures.thermal_ratio == pytest.approx(share * settled, rel=0.03)
    assert patient.codes == (["thermal_throttling"] if share > patient.rules.thermal_ratio else [])


def test_a_counter_that_stands_still_from_read_to_read_hides_no_slowdown(
    driver: StubDriver, source: NvmlSource, hand: ManualClock
) -> None:
    """The cycles between, which show it as it was, prove nothing; two reads do."""
    patient = judged_as_read(driver, source, hand, 0.0, flagged=True)

    assert patient.codes == ["thermal_throttling"]


def test_cycles_without_a_read_of_the_clock_events_change_no_share(patient: Patient) -> None:
    """A cycle that was lost with its read takes nothing either: the next read counts from the one before."""
    patient.look(a_reading(clock_event_seconds_total={HEAT: 0.0}))
    patient.look(a_reading(clock_event_seconds_total={HEAT: 4.0}, clock_events_read=False), times=9)
    between = patient.record.figures.thermal_ratio
    patient.look(a_reading(clock_event_seconds_total={HEAT: 4.0}))

    assert between == 0.0
    assert patient.record.figures.thermal_ratio == pytest.approx(0.4 * 10 / 610)


def test_a_read_that_failed_leaves_the_shares_to_the_next(patient: Patient) -> None:
    """Nothing is known of those seconds then, and no slowdown is forgotten for it."""
    patient.look(a_reading(clock_event_seconds_total={HEAT: 0.0}))
    patient.look(a_reading(clock_event_seconds_total=None, clock_events=None), times=4)
    patient.look(a_reading(clock_event_seconds_total={HEAT: 5.0}))

    assert patient.record.figures.thermal_ratio == pytest.approx(5 / 605)


def test_a_reading_says_whether_its_clock_events_are_of_this_cycle(
    driver: StubDriver, source: NvmlSource, hand: ManualClock
) -> None:
    """Twice at first, then every STEADY_SECONDS; in the next cycle again after a failure, or when asked to hurry."""

    def reads(cycles: int) -> list[bool]:
        seen = []
        for _ in range(cycles):
            hand.advance(1.0)
            (reading,) = cycle(source, whole=False)
            assert isinstance(reading, GpuReading)
            seen.append(reading.clock_events_read)
        return seen

    assert reads(8) == [True, True, False, False, False, False, True, False]
    driver.gpu(0).error("nvmlDeviceGetTemperatureV", TIMEOUT)
    assert reads(5) == [False, False, False, True, True]
    driver.gpu(0).error("nvmlDeviceGetTemperatureV", 0)
    reads(3)
    source.hurry()
    assert reads(2) == [True, False]
