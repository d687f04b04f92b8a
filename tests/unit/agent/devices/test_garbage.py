"""Figures that cannot be true: absent and counted, and where they tell of use, never idle. On the real NVML source."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.agent.devices.plausible import bounds, impossible_sizes, plausible
from gpuwatch.agent.exporter.catalogue import gpu_metric
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.faulty_hosts import Host, steady
from tests.support.fakes.nvml import GARBAGE, StubDriver, reading

COUNTED = "gpuwatch_gpu_implausible_values_total"
ABSENT = {
    "temperature": {"temperature_celsius"},
    "memory temperature": {"memory_temperature_celsius"},
    "utilization": {
        "utilization_ratio",
        "utilization_max_ratio",
        "graphics_activity_ratio",  # the stand-in driver makes them of it
        "sm_activity_ratio",
    },
    "power": {"power_watts", "power_instant_watts"},
    "clock": {"sm_clock_hertz"},
    "memory": {"memory_used_bytes", "memory_free_bytes", "memory_total_bytes"},
    "fan": {"fan_speed_ratio"},
    "energy": {"energy_joules_total"},
}
HARMLESS = {"temperature", "memory temperature", "clock", "fan"}


@pytest.fixture
def host(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> Host:
    """A host on which all is well."""
    return Host(driver, source, hand)


def test_a_memory_without_a_sensor_has_no_temperature(driver: StubDriver, source: NvmlSource) -> None:
    """Drivers of such a GPU answer 0 degrees, which is neither a figure nor garbage."""
    driver.gpu(0).set(memory_temperature=0)
    seen = reading(source)

    assert (seen.memory_temperature_celsius, seen.implausible) == (None, ())


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_in_one_figure(host: Host, what: str) -> None:
    """It is absent and counted, all else is as it was; where it tells of use, the GPU is unknown and never idle."""
    before, other = steady(host.of(1)), steady(host.of(0))
    host.driver.gpu(1).garbage(what)
    if what == "utilization":
        host.utilization[1] = 250
    activity = host.cycle(8)
    during = steady(host.of(1))
    counted = {labels[0] for labels in during.pop(COUNTED)}

    assert set(before) - set(during) == {gpu_metric(field) for field in ABSENT[what]}
    assert counted >= ABSENT[what]
    assert during["gpuwatch_gpu_up"] == {(): 1}
    assert steady(host.of(0)) == other
    assert activity.state is (State.IDLE if what in HARMLESS else State.UNKNOWN)

    host.driver.gpu(1).sound(what)
    host.utilization[1] = 0
    activity = host.cycle(8)
    after = steady(host.of(1))
    after.pop(COUNTED)

    assert set(after) == set(before)
    assert activity.state is State.IDLE


def test_garbage_in_place_of_a_uuid(host: Host) -> None:
    """From the first listing on: the GPU is down under a stand-in, and its true name replaces that."""
    host.driver.gpu(1).garbage("uuid")
    host.driver.gpus(3)
    host.driver.gpu(2).processes({})
    host.cycle()
    down = host.of(1)

    assert (down["gpuwatch_gpu_up"], down["gpuwatch_gpu_down_info"]) == ({(): 0}, {("error",): 1})
    assert host.of(0)["gpuwatch_gpu_up"] == {(): 1}

    host.driver.gpu(1).sound("uuid")
    host.cycle()

    assert host.of(1)["gpuwatch_gpu_up"] == {(): 1}


def test_a_uuid_that_another_gpu_has(host: Host) -> None:
    """Two GPUs never share their series: the second to give a name is down."""
    host.driver.write({"gpu.1.uuid": "GPU-00000000-0000-4000-8000-000000000000"})
    host.driver.gpus(3)
    host.cycle()

    assert host.of(0)["gpuwatch_gpu_up"] == {(): 1}
    assert host.of(1)["gpuwatch_gpu_down_info"] == {("error",): 1}


FIELDS = ["power_watts", "sm_clock_hertz", "utilization_ratio", "temperature_celsius", "energy_joules_total"]


@given(st.sampled_from(FIELDS), st.integers() | st.floats(allow_nan=True))
def test_only_what_is_within_its_bounds_is_true(field: str, value: float) -> None:
    """And all of that: no bound changes a value."""
    low, high = bounds(field)
    shown = plausible(value, (low, high))

    assert shown is None or (shown == value and low <= shown <= high)
    assert (shown is None) == (not low <= value <= high or value in {2**32 - 1, 2**64 - 1} or math.isnan(value))


def test_labels_are_judged_one_by_one() -> None:
    """A good one stays; without a good one there is nothing."""
    limits = bounds("clock_event_seconds_total")

    assert plausible({"a": 1.0, "b": 2.0**64}, limits) == {"a": 1.0}
    assert plausible({"b": 2.0**64}, limits) is None


def test_a_memory_that_holds_more_than_there_is() -> None:
    """One of the three figures is wrong, and nobody knows which."""
    good = {"memory_total_bytes": 10, "memory_used_bytes": 4, "memory_free_bytes": 5}

    assert impossible_sizes(good) == set()
    assert impossible_sizes(good | {"memory_used_bytes": 11}) == set(good)
    assert impossible_sizes(good | {"memory_total_bytes": None}) == set()
