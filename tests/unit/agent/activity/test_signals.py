"""agent/activity/signals.py: work of a GPU that its utilization does not show, and work that looks like a deadlock."""

from typing import Any

import pytest

from gpuwatch.agent.activity import ActivityRules, Memory, fold
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.mig import MigInstance
from tests.support.builders.gpu import a_reading, a_sample

RULES = ActivityRules()
DEADLOCK: dict[str, Any] = {"utilization_ratio": 1.0, "utilization_max_ratio": 1.0}

SIGNS: dict[str, tuple[GpuReading, State]] = {
    "a video encoder at work": (a_reading(encoder_utilization_ratio=0.01), State.BUSY),
    "a video decoder at work": (a_reading(encoder_utilization_ratio=0.0, decoder_utilization_ratio=0.3), State.BUSY),
    "a JPEG engine at work": (a_reading(jpeg_utilization_ratio=0.3), State.BUSY),
    "an optical flow engine at work": (a_reading(ofa_utilization_ratio=0.3), State.BUSY),
    "engines at rest": (a_reading(encoder_utilization_ratio=0.0, ofa_utilization_ratio=0.0), State.IDLE),
    "kernels on a sliver of the GPU": (a_reading(sm_activity_ratio=0.005, graphics_activity_ratio=0.9), State.BUSY),
    "device memory read by no kernel": (a_reading(dram_activity_ratio=0.02), State.BUSY),
    "device memory at rest": (a_reading(dram_activity_ratio=0.0002), State.IDLE),
    "a copy to the host": (a_reading(pcie_tx_bytes_per_second=2e9, pcie_rx_bytes_per_second=0.0), State.BUSY),
    "a copy from the host": (a_reading(pcie_tx_bytes_per_second=0.0, pcie_rx_bytes_per_second=6e7), State.BUSY),
    "what monitoring moves": (a_reading(pcie_tx_bytes_per_second=7e5, pcie_rx_bytes_per_second=4e5), State.IDLE),
    "a transfer to another GPU": (a_reading(nvlink_tx_bytes_per_second=3e8), State.BUSY),
    "a transfer from another GPU": (a_reading(nvlink_rx_bytes_per_second=3e8), State.BUSY),
    "links at rest": (a_reading(nvlink_tx_bytes_per_second=0.0, nvlink_rx_bytes_per_second=0.0), State.IDLE),
    "a context alone": (a_reading(sm_activity_ratio=0.0, graphics_activity_ratio=0.00006), State.IDLE),
    "a warp for a microsecond in five seconds": (a_reading(sm_activity_ratio=2.6e-10), State.BUSY),
    "kernels on a sliver of a MIG instance": (
        a_reading(mig_mode=1, mig_instances=(MigInstance(id=1, sm_activity_ratio=0.005, graphics_activity_ratio=0.5),)),
        State.BUSY,
    ),
    "the memory of a MIG instance": (
        a_reading(mig_mode=1, mig_instances=(MigInstance(id=1, sm_activity_ratio=0.0, dram_activity_ratio=0.5),)),
        State.BUSY,
    ),
}


def lasting(reading: GpuReading, seconds: int) -> Activity:
    """What a machine with this GPU alone does after so long."""
    memory = Memory()
    for second in range(0, seconds + 10, 10):
        memory = fold(memory, a_sample(second, reading), RULES)
    return memory.activity


@pytest.mark.parametrize(("reading", "state"), SIGNS.values(), ids=SIGNS.keys())
def test_what_no_kernel_shows_is_work_all_the_same(reading: GpuReading, state: State) -> None:
    """Transcoding runs no kernel, and a small kernel fills few multiprocessors for no time: neither is rest."""
    assert lasting(reading, 0).state is state


@pytest.mark.parametrize(
    "name",
    [
        "tensor_activity_ratio",
        "fp64_activity_ratio",
        "fp32_activity_ratio",
        "fp16_activity_ratio",
        "encoder_utilization_ratio",
        "decoder_utilization_ratio",
    ],
)
def test_what_calculates_is_no_deadlock(name: str) -> None:
    """A kernel that only waits for another GPU does no arithmetic; one that does, works, at whatever power."""
    waits, works = (lasting(a_reading(**(DEADLOCK | {name: ratio})), 1000).state for ratio in (0.0, 0.01))

    assert (waits, works) == (State.STALLED, State.BUSY)


def test_bursts_of_power_between_looks_are_no_deadlock() -> None:
    """The energy counter shows work that the momentary power just missed."""
    memory = Memory()
    for second in range(0, 1000, 10):
        burst = a_reading(**DEADLOCK, energy_joules_total=300.0 * second)
        memory = fold(memory, a_sample(second, burst), RULES)

    assert memory.activity.state is State.BUSY


@pytest.mark.parametrize("name", ["pcie_tx_bytes_per_second", "nvlink_rx_bytes_per_second"])
def test_what_moves_data_is_no_deadlock(name: str) -> None:
    """Full utilization at idle power that feeds a link is a transfer."""
    waits, moves = (lasting(a_reading(**(DEADLOCK | {name: rate})), 1000).state for rate in (0.0, 1e9))

    assert (waits, moves) == (State.STALLED, State.BUSY)
