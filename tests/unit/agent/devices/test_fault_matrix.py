"""Fault by metric family by recovery, on the real NVML source: what fails is absent, the rest goes on, all comes back.

A GPU shows what its source gave, through the probe's own messages, the core and the exporter. Which families hang on
which function is read from the catalogue's own words, so these tests hold METRICS.md to what happens. Calls that hang
need a process that can be killed: test_supervisor.py.
"""

import re
from collections.abc import Callable

import pytest

from gpuwatch.agent.devices.nvml.source import FORGET_SECONDS, NvmlSource
from gpuwatch.agent.exporter.catalogue import gpu_metric
from gpuwatch.agent.state import Interruption
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import Kind, metrics
from gpuwatch.model.metric import SLOW_SECONDS
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import GIB
from tests.support.fakes.faulty_hosts import STEP, Host, steady
from tests.support.fakes.nvml import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    VERSION_MISMATCH,
    StubDriver,
    StubGpu,
)

SLOW_CYCLES = int(SLOW_SECONDS / STEP) + 1
LIBRARY_NOT_FOUND = 12

UP = "gpuwatch_gpu_up"
PROCESSES = {
    "gpuwatch_gpu_processes",
    "gpuwatch_process_memory_bytes",
    "gpuwatch_process_memory_other_bytes",
}
CLOCK_EVENTS = {"gpuwatch_gpu_clock_event_active", "gpuwatch_gpu_hardware_slowdown"}
UTILIZATION = {gpu_metric("utilization_ratio"), gpu_metric("utilization_max_ratio")}
# Told of a GPU that is down; nothing that was measured.
OF_A_DOWN_GPU = re.compile(r"gpuwatch_gpu_(up|info|down_info|activity|health.*|active_seconds_total)")


@pytest.fixture
def host(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> Host:
    """A host on which all is well."""
    return Host(driver, source, hand)


def functions_of(source: str) -> list[str]:
    """The functions behind a row of the catalogue in order, out of its own words."""
    batches = {"field": "nvmlDeviceGetFieldValues", "fields": "nvmlDeviceGetFieldValues", "GPM": "nvmlGpm"}
    words = [match[0] for part in source.split(", else ") if (match := re.match(r"\w+", part))]
    names = [batches.get(word, f"nvmlDeviceGet{word}") for word in words]
    return [names[0]] * len(names) if words[0] in batches and words[-1].isdigit() else names


WAYS = {gpu_metric(field): functions_of(metric.source) for field, metric in metrics()}
LISTS = {f"nvmlDeviceGet{name}RunningProcesses" for name in ("Compute", "MPSCompute", "Graphics")}
REASONS = "nvmlDeviceGetCurrentClocksEventReasons"  # with its older name to fall back on
FUNCTIONS = sorted(
    {name for ways in WAYS.values() for name in ways} - {"nvmlGpm"}
    | {f"{name}_v3" for name in LISTS}
    | {"nvmlGpmSampleGet", "nvmlGpmMetricsGet", REASONS}
)


def hanging_on(function: str, baseline: set[str], *, unsupported: bool) -> set[str]:
    """The families that are gone while a function fails, or that have no other way where it is not supported."""
    name = "nvmlGpm" if function.startswith("nvmlGpm") else function
    missed = all if unsupported else lambda ways: next(iter(ways))
    gone = {family for family, ways in WAYS.items() if missed(way == name for way in ways)}
    if not unsupported:
        gone |= PROCESSES if function.removesuffix("_v3") in LISTS else set()
        gone |= CLOCK_EVENTS if function == REASONS else set()
    return gone & baseline


def as_stubbed(function: str) -> str:
    """The symbol that the binding calls."""
    return {"nvmlDeviceGetMemoryInfo": "nvmlDeviceGetMemoryInfo_v2"}.get(function, function)


@pytest.mark.parametrize("code", [NOT_SUPPORTED, TIMEOUT, UNKNOWN])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_function(host: Host, function: str, code: int) -> None:
    """Exactly the families that hang on it are absent; without utilization or processes nobody calls it idle."""
    before, other = steady(host.of(1)), steady(host.of(0))
    gone = hanging_on(function, set(before), unsupported=code == NOT_SUPPORTED)
    host.driver.gpu(1).error(as_stubbed(function), code)
    activity = host.cycle(SLOW_CYCLES)
    during = steady(host.of(1))

    assert set(before) - set(during) == gone, f"{function} answers {code}: these are absent"
    assert not set(during) - set(before)
    assert during[UP] == {(): 1}
    assert steady(host.of(0)) == other, "the other GPU does not feel it"
    assert activity.state is (State.UNKNOWN if gone & (UTILIZATION | PROCESSES) else State.IDLE)

    host.driver.gpu(1).error(as_stubbed(function), 0)
    if code == NOT_SUPPORTED:
        host.clock.advance(FORGET_SECONDS)
        host.held = 0.0
    activity = host.cycle(SLOW_CYCLES)

    assert steady(host.of(1)) == before, f"{function} answers again: all is back"
    assert activity.state is State.IDLE


def test_each_measured_family_is_in_the_matrix(host: Host) -> None:
    """The healthy host of these tests shows nearly the whole catalogue, so that little can be missed by accident."""
    absent = {gpu_metric(field) for field, _ in metrics()} - set(host.of(0))

    assert absent == {gpu_metric(f"nvlink_{kind}_errors_total") for kind in ("receive", "integrity", "effective")} | {
        gpu_metric("retired_pages_total"),
        gpu_metric("retired_pages_pending"),
    }


GPU_FAULTS: dict[str, tuple[Callable[[StubGpu], object], Callable[[StubGpu], object], str]] = {
    "lost": (lambda gpu: gpu.set(lost=1), lambda gpu: gpu.set(lost=0), "lost"),
    "unplugged": (lambda gpu: gpu.set(absent=1), lambda gpu: gpu.set(absent=0), "missing"),
    "each call times out": (lambda gpu: gpu.error("*", TIMEOUT), lambda gpu: gpu.error("*", 0), "error"),
    "each call fails": (lambda gpu: gpu.error("*", UNKNOWN), lambda gpu: gpu.error("*", 0), "error"),
    "one call says lost": (
        lambda gpu: gpu.error("nvmlDeviceGetMemoryInfo_v2", GPU_IS_LOST),
        lambda gpu: gpu.error("nvmlDeviceGetMemoryInfo_v2", 0),
        "lost",
    ),
}


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("fault", GPU_FAULTS)
def test_a_whole_gpu(host: Host, fault: str, slot: int) -> None:
    """It is down with its cause and shows no measurement, the other shows what it did; busy shows through."""
    strike, mend, cause = GPU_FAULTS[fault]
    before, other = steady(host.of(slot)), steady(host.of(1 - slot))
    strike(host.driver.gpu(slot))
    activity = host.cycle(3)
    during = host.of(slot)

    assert [family for family in during if not OF_A_DOWN_GPU.fullmatch(family)] == []
    assert (during[UP], during["gpuwatch_gpu_down_info"]) == ({(): 0}, {(cause,): 1})
    assert steady(host.of(1 - slot)) == other
    assert (activity.state, activity.held_seconds) == (State.UNKNOWN, 0.0)

    host.utilization[1 - slot] = 80
    assert host.cycle().state is State.BUSY
    host.utilization[1 - slot] = 0
    assert host.cycle().state is State.UNKNOWN

    mend(host.driver.gpu(slot))
    host.held = 0.0  # it was busy: idle time starts again
    activity = host.cycle(3)

    assert set(steady(host.of(slot))) == set(before)
    assert host.of(slot)[UP] == {(): 1}
    assert activity.state is State.IDLE


@pytest.mark.parametrize("code", [DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH])
def test_the_whole_driver(host: Host, code: int) -> None:
    """Both GPUs are down while it is away; then all is back, after a version mismatch in a fresh probe."""
    before = [steady(host.of(slot)) for slot in range(2)]
    host.driver.remove(code)
    activity = host.cycle(3)

    for slot in range(2):
        during = host.of(slot)
        assert [family for family in during if not OF_A_DOWN_GPU.fullmatch(family)] == []
        assert (during[UP], during["gpuwatch_gpu_down_info"]) == ({(): 0}, {("driver",): 1})
    assert (activity.state, activity.held_seconds) == (State.UNKNOWN, 0.0)

    host.driver.load()
    if code == VERSION_MISMATCH:
        host.source = NvmlSource(host.clock)
        host.core.interrupt(Interruption.RENEW, "only a fresh process can reach the driver")
    activity = host.cycle(3)
    after = [steady(host.of(slot)) for slot in range(2)]
    host.source.close()

    assert [set(shown) for shown in after] == [set(shown) for shown in before]
    assert activity.state is State.IDLE


def test_a_reload_between_two_cycles(host: Host) -> None:
    """The driver must be opened anew: one cycle is unknown, the next one has everything but what takes two."""
    before = host.of(0)
    host.driver.load()

    assert host.cycle().state is State.UNKNOWN
    assert host.cycle(2).state is State.IDLE
    assert set(host.of(0)) == set(before)


def test_counters_that_start_again(host: Host) -> None:
    """The driver's counters are shown as they are, our own never goes back, and nothing is made of the difference."""
    for slot in range(2):
        host.driver.gpu(slot).set(energy=10**12).field(197, 10**9).field(3, 50).field(270, 10**12)
        host.utilization[slot] = 50
    host.cycle(SLOW_CYCLES)
    host.utilization = dict.fromkeys(host.utilization, 0)
    host.held = 0.0
    host.cycle(3)
    before, other = host.of(1), steady(host.of(0))
    host.driver.gpu(1).set(energy=0).field(197, 0).field(3, 0).field(270, 0)
    activity = host.cycle(SLOW_CYCLES)
    during = host.of(1)

    assert set(during) == set(before)
    assert during[gpu_metric("energy_joules_total")] == during[gpu_metric("pcie_tx_bytes_total")] == {(): 0}
    assert during["gpuwatch_gpu_active_seconds_total"] == before["gpuwatch_gpu_active_seconds_total"]
    assert all(
        value >= 0
        for field, metric in metrics()
        if metric.kind is Kind.COUNTER
        for value in during.get(gpu_metric(field), {}).values()
    )
    assert (activity.state, steady(host.of(0))) == (State.IDLE, other)


def test_mig_comes_and_goes(host: Host) -> None:
    """A split GPU has its parts' families and no utilization of its own; whole again it has everything back."""
    before, other = steady(host.of(1)), steady(host.of(0))
    host.driver.gpu(1).mig((1, "3g.40gb", 40 * GIB, GIB, 0), (2, "3g.40gb", 40 * GIB, 0, 0))

    assert host.cycle().state is State.UNKNOWN, "nobody knows yet that it is split"

    host.cycle(SLOW_CYCLES)
    split = steady(host.of(1))

    assert not UTILIZATION & set(split)
    assert len(split["gpuwatch_mig_sm_activity_ratio"]) == len(split["gpuwatch_mig_info"]) == 2
    assert split[UP] == {(): 1}
    assert steady(host.of(0)) == other

    host.driver.gpu(1).error("nvmlDeviceGetMigDeviceHandleByIndex", UNKNOWN)
    assert host.cycle().state is State.UNKNOWN
    assert not [family for family in host.of(1) if family.startswith("gpuwatch_mig_")]

    host.driver.gpu(1).error("nvmlDeviceGetMigDeviceHandleByIndex", 0).whole()
    activity = host.cycle(2 * SLOW_CYCLES)

    assert steady(host.of(1)) == before
    assert activity.state is State.IDLE


def test_garbage_pids(host: Host) -> None:
    """Impossible pids get no series, and a list of nothing else does not pass for an empty one."""
    before, other = steady(host.of(1)), steady(host.of(0))
    host.driver.gpu(1).processes({0: GIB, 4294967295: GIB})
    activity = host.cycle()

    assert not {("0",), ("4294967295",)} & set(host.of(1).get("gpuwatch_process_memory_bytes", {}))
    assert steady(host.of(0)) == other
    assert activity.state is not State.IDLE, "somebody holds it, and nobody knows who"

    host.driver.gpu(1).processes({})
    activity = host.cycle()

    assert (steady(host.of(1)), activity.state) == (before, State.IDLE)


def test_slow_calls(host: Host) -> None:
    """A driver that takes its time with each call changes nothing but the time it takes."""
    before = [steady(host.of(slot)) for slot in range(2)]
    host.driver.latency(200)
    activity = host.cycle(2)

    assert [steady(host.of(slot)) for slot in range(2)] == before
    assert activity.state is State.IDLE
