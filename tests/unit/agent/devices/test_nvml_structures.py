"""The errors of on-chip memory, and the NVLink fabric: what the driver says, and what it does not say."""

import pytest

from gpuwatch.agent.devices.nvml.source import FORGET_SECONDS, NvmlSource
from gpuwatch.model.metric import SLOW_SECONDS
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml import (
    NO_PERMISSION,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    StubDriver,
    reading,
)

SRAM = "nvmlDeviceGetSramEccErrorStatus"
FABRIC = "nvmlDeviceGetGpuFabricInfoV"
WELL = 0b0001_10_10_10_10  # configured rightly; no to each of the four flags
ARGUMENT_VERSION_MISMATCH = 25
ALL_ONES = 2**32 - 1


@pytest.mark.parametrize(("flag", "expected"), [(0, 0), (1, 1), (ALL_ONES, None), (7, None)])
def test_the_threshold_of_sram_errors(driver: StubDriver, source: NvmlSource, flag: int, expected: int | None) -> None:
    """Exceeded or not; a flag that is neither is garbage, never a board to be exchanged."""
    driver.gpu(0).set(sram_exceeded=flag)

    assert reading(source).sram_threshold_exceeded == expected


@pytest.mark.parametrize(
    ("mask", "faults"),
    [
        (WELL, ()),
        (WELL ^ 0b11, ("degraded_bandwidth",)),
        (WELL ^ 0b11_00, ("route_recovery",)),
        (WELL ^ 0b11_00_00, ("route_unhealthy",)),
        (WELL ^ 0b01_00_00, ("route_unhealthy",)),  # of the kernel module: only a reset mends it
        (WELL ^ 0b11_00_00_00, ("access_timeout",)),
        *((WELL & 0xFF | number << 8, ("incorrect_configuration",)) for number in range(2, 16)),
        (WELL & ~0b11_11 ^ 0b11_00_00, ("route_unhealthy",)),
        (0b01, ("degraded_bandwidth",)),
        (WELL | 0b10_10 << 12, ()),  # bits of newer drivers: no partition, its manager not connected
        (0, None),
        (ALL_ONES, None),
    ],
)
def test_the_health_of_the_fabric(
    driver: StubDriver, source: NvmlSource, mask: int, faults: tuple[str, ...] | None
) -> None:
    """Each flag by itself is one fault; without any answer nothing is known, and nothing is well."""
    driver.gpu(0).set(fabric_mask=mask)

    assert reading(source).fabric_faults == faults


@pytest.mark.parametrize(("state", "shown"), [(0, None), (1, 1), (2, 2), (4, None), (ALL_ONES, None)])
def test_a_fabric_that_is_not_joined_tells_nothing_more(
    driver: StubDriver, source: NvmlSource, state: int, shown: int | None
) -> None:
    """Its status and its mask are valid only once it has joined; without a fabric there is no state either."""
    driver.gpu(0).set(fabric_state=state, fabric_status=UNKNOWN, fabric_mask=WELL ^ 0b11)
    seen = reading(source)

    assert (seen.fabric_state, seen.fabric_faults) == (shown, None)


def test_a_join_that_ended_with_an_error(driver: StubDriver, source: NvmlSource) -> None:
    """The driver calls it completed, with the error as its status."""
    driver.gpu(0).set(fabric_status=UNKNOWN)

    assert reading(source).fabric_faults == ("join_failed",)


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, ARGUMENT_VERSION_MISMATCH, TIMEOUT])
def test_what_a_driver_does_not_give_is_absent(
    driver: StubDriver, source: NvmlSource, hand: ManualClock, code: int
) -> None:
    """An older driver, a GPU without a fabric, a call for root alone, an error: the rest is read, now and later."""
    well = reading(source)
    driver.gpu(0).error(SRAM, code).error(FABRIC, code)
    for passed in (SLOW_SECONDS, FORGET_SECONDS):
        hand.advance(passed)
        seen = reading(source)
        assert (seen.sram_threshold_exceeded, seen.fabric_state, seen.fabric_faults) == (None, None, None)
        assert seen.temperature_celsius == well.temperature_celsius
