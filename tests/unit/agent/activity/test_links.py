"""agent/activity/links.py: transfers over PCIe and NVLink, also where only counters show them."""

from typing import Any

import pytest

from gpuwatch.agent.activity import ActivityRules, Memory, fold
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import GpuReading
from tests.support.builders.gpu import a_reading, a_sample

RULES = ActivityRules()
COUNTERS = ("pcie_tx_bytes_total", "pcie_rx_bytes_total", "nvlink_tx_bytes_total", "nvlink_rx_bytes_total")
WRAP = 1 << 32


def state_after(*readings: GpuReading, step: float = 1.0) -> State:
    """What a machine with this GPU alone does in the last of these readings."""
    memory = Memory()
    for number, reading in enumerate(readings):
        memory = fold(memory, a_sample(number * step, reading), RULES)
    return memory.activity.state


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_that_grows_fast_is_a_transfer(name: str) -> None:
    """Before Hopper no other signal shows a copy without a kernel, or a collective over NVLink."""
    before, copied, monitored = (a_reading(**{name: WRAP + moved}) for moved in (0, 200_000_000, 1_000_000))

    assert state_after(before, copied) is State.BUSY
    assert state_after(before, copied, step=10.0) is State.IDLE
    assert state_after(before, monitored) is State.IDLE


@pytest.mark.parametrize("name", COUNTERS)
def test_the_first_look_and_a_counter_that_fell_say_nothing(name: str) -> None:
    """It has wrapped, or the driver was loaded again."""
    high, low = a_reading(**{name: WRAP}), a_reading(**{name: 5})

    assert state_after(high) is State.IDLE
    assert state_after(high, low) is State.IDLE
    assert state_after(high, a_reading(), low) is State.IDLE


def test_what_the_driver_measures_goes_before_its_counters() -> None:
    """Where it gives rates (Hopper and newer), they count alone."""
    measured: dict[str, Any] = {"pcie_tx_bytes_per_second": 1e6, "pcie_rx_bytes_per_second": 1e6}
    readings = [a_reading(**measured, pcie_tx_bytes_total=moved) for moved in (0, 10**9)]

    assert state_after(*readings) is State.IDLE


@pytest.mark.parametrize("looks", [5, 500])
@pytest.mark.parametrize(("moved", "state"), [(200_000_000, State.IDLE), (1_000_000_000, State.BUSY)])
def test_bytes_counted_since_an_older_read_are_no_burst_of_one_cycle(moved: int, state: State, looks: int) -> None:
    """Where GPM gives rates the counters are read every few seconds: when it fails, they have grown for as long."""
    measured: dict[str, Any] = {"pcie_tx_bytes_per_second": 1e6, "pcie_rx_bytes_per_second": 1e6}
    held = [a_reading(**measured, pcie_tx_bytes_total=WRAP)] * looks

    assert state_after(*held, a_reading(pcie_tx_bytes_total=WRAP + moved)) is state


def test_a_transfer_is_no_deadlock() -> None:
    """A rank that exchanges data over NVLink at full utilization works, however little power that takes."""
    stuck: dict[str, Any] = {"utilization_ratio": 1.0, "utilization_max_ratio": 1.0}
    waits = [a_reading(**stuck, nvlink_tx_bytes_total=7) for _ in range(100)]
    works = [a_reading(**stuck, nvlink_tx_bytes_total=number * 10**9) for number in range(100)]

    assert (state_after(*waits, step=9.0), state_after(*works, step=9.0)) == (State.STALLED, State.BUSY)
