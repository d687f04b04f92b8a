"""GPM through devices/nvml: the activity between two cycles, on hardware that has it."""

import ctypes

import pytest

from gpuwatch.agent.devices.nvml.source import FORGET_SECONDS, NvmlSource
from gpuwatch.model.gpu import GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml import (
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    StubDriver,
    cycle,
    reading,
)

GPM_FIELDS = {
    1: ("graphics_activity_ratio", 0.5),
    2: ("sm_activity_ratio", 0.5),
    3: ("sm_occupancy_ratio", 0.5),
    5: ("tensor_activity_ratio", 0.5),
    10: ("dram_activity_ratio", 0.5),
    11: ("fp64_activity_ratio", 0.5),
    12: ("fp32_activity_ratio", 0.5),
    13: ("fp16_activity_ratio", 0.5),
    20: ("pcie_tx_bytes_per_second", 50 * 1024**2),
    21: ("pcie_rx_bytes_per_second", 50 * 1024**2),
    60: ("nvlink_rx_bytes_per_second", 50 * 1024**2),
    61: ("nvlink_tx_bytes_per_second", 50 * 1024**2),
    100: ("c2c_tx_bytes_per_second", 50 * 1024**2),
    101: ("c2c_rx_bytes_per_second", 50 * 1024**2),
}


def live_samples(driver: StubDriver) -> int:
    """How many samples the driver has lent."""
    return int(ctypes.CDLL(str(driver.library / "libnvidia-ml.so.1")).stub_live_samples())


def later(source: NvmlSource, hand: ManualClock, seconds: float = 1.0) -> GpuReading:
    """The reading of the only GPU, so much later."""
    hand.advance(seconds)
    return reading(source)


@pytest.mark.parametrize("metric", GPM_FIELDS)
def test_each_metric(driver: StubDriver, source: NvmlSource, hand: ManualClock, metric: int) -> None:
    """Percent become ratios, MiB/s bytes per second, and no metric is taken for another."""
    driver.gpu(0).gpm(dict.fromkeys(GPM_FIELDS, 0)).gpm({metric: 50})
    reading(source)
    seen = later(source, hand)

    assert {field: getattr(seen, field) for field, _ in GPM_FIELDS.values()} == {
        field: value if metric == number else 0.0 for number, (field, value) in GPM_FIELDS.items()
    }


def test_first_cycle(source: NvmlSource) -> None:
    """One sample tells nothing: the first cycle has no activity, without waiting for a second sample."""
    assert reading(source).sm_activity_ratio is None


def test_cycles_in_haste(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """Samples less than a tenth of a second apart are not compared; the difference comes with the next cycle."""
    driver.gpu(0).gpm({2: 40})
    reading(source)
    soon = later(source, hand, 0.05)

    assert soon.sm_activity_ratio is None
    assert later(source, hand, 0.06).sm_activity_ratio == 0.4


def test_overshoot(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """A quotient of counters slightly over 100 % is 1; one below zero is no measurement."""
    driver.gpu(0).gpm({2: 101, 3: -1})
    reading(source)
    seen = later(source, hand)

    assert (seen.sm_activity_ratio, seen.sm_occupancy_ratio) == (1.0, None)


@pytest.mark.parametrize("code", [NOT_SUPPORTED, INVALID_ARGUMENT, TIMEOUT])
def test_one_metric_fails(driver: StubDriver, source: NvmlSource, hand: ManualClock, code: int) -> None:
    """Each metric has its own answer: one that fails is absent, the others stand."""
    driver.gpu(0).gpm({2: 40}).error("gpm.3", code)
    reading(source)
    seen = later(source, hand)

    assert (seen.sm_occupancy_ratio, seen.sm_activity_ratio) == (None, 0.4)


def test_older_hardware(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """A GPU without GPM is asked once, lends no sample, and shows all else."""
    driver.gpu(0).set(gpm=0)
    reading(source)
    seen = later(source, hand)

    assert (seen.sm_activity_ratio, seen.pcie_tx_bytes_per_second, seen.utilization_ratio) == (None, None, 0.0)
    assert live_samples(driver) == 0


@pytest.mark.parametrize("code", [TIMEOUT, NO_PERMISSION, UNKNOWN])
def test_a_sample_that_fails(driver: StubDriver, source: NvmlSource, hand: ManualClock, code: int) -> None:
    """After a failed sample there is nothing to compare with: activity is back two cycles later."""
    driver.gpu(0).gpm({2: 40})
    reading(source)
    driver.gpu(0).error("nvmlGpmSampleGet", code)
    failed = later(source, hand)
    driver.gpu(0).error("nvmlGpmSampleGet", 0)

    seen = [failed, later(source, hand), later(source, hand)]

    assert [each.sm_activity_ratio for each in seen] == [None, None, 0.4]
    assert failed.power_watts == 70.0


@pytest.mark.parametrize("code", [INVALID_ARGUMENT, TIMEOUT, NO_PERMISSION, UNKNOWN])
@pytest.mark.parametrize("call", ["nvmlGpmMetricsGet", "gpm.100", "gpm.2"])
def test_one_failed_answer_hides_nothing_for_long(
    driver: StubDriver, source: NvmlSource, hand: ManualClock, call: str, code: int
) -> None:
    """Only what is not supported is remembered: what failed once is back in the next cycle."""
    driver.gpu(0).gpm({2: 40, 100: 1})
    reading(source)
    later(source, hand)
    driver.gpu(0).error(call, code)
    later(source, hand)
    driver.gpu(0).error(call, 0)
    seen = later(source, hand)

    assert (seen.sm_activity_ratio, seen.c2c_tx_bytes_per_second) == (0.4, 1024**2)


def test_a_driver_of_the_first_hour(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """One that refuses newer metrics tells those it knows in every cycle; after two refusals it is not asked again."""
    driver.gpu(0).gpm({2: 40, 100: 1}).set(gpm_newest=97)
    reading(source)
    seen = [later(source, hand) for _ in range(2)]
    driver.gpu(0).set(gpm_newest=0)
    remembered = later(source, hand)
    asked_anew = later(source, hand, FORGET_SECONDS)

    assert [each.sm_activity_ratio for each in (*seen, remembered)] == [0.4] * 3
    assert [each.c2c_tx_bytes_per_second for each in (*seen, remembered)] == [None] * 3
    assert asked_anew.c2c_tx_bytes_per_second == 1024**2


def test_a_refusal_and_an_answer(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """Refusals that are not in a row are accidents."""
    driver.gpu(0).gpm({2: 40, 100: 1})
    reading(source)
    for newest in (97, 0, 97):
        driver.gpu(0).set(gpm_newest=newest)
        later(source, hand)
    driver.gpu(0).set(gpm_newest=0)

    assert later(source, hand).c2c_tx_bytes_per_second == 1024**2


def test_samples_are_given_back(driver: StubDriver, source: NvmlSource) -> None:
    """Two samples a GPU are lent, kept over cycles, and given back when the GPU or the driver is let go of."""
    driver.gpus(3)
    before = live_samples(driver)
    cycle(source)
    cycle(source)
    during = live_samples(driver)
    driver.lose(2)
    cycle(source)
    without = live_samples(driver)
    source.close()

    assert [count - before for count in (during, without, live_samples(driver))] == [6, 4, 0]
