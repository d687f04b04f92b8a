"""NVML as it really answers: every test goes through pynvml into a stand-in driver."""

from dataclasses import fields

import pytest

from gpuwatch.agent.devices.nvml.rows import ROWS
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.model.gpu import GpuProcess, GpuReading, ProcessKind
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

SAMPLES = "nvmlDeviceGetSamples"
RATES = "nvmlDeviceGetUtilizationRates"
COMPUTE = "nvmlDeviceGetComputeRunningProcesses"


# What is read.


def test_each_metric_has_one_row() -> None:
    """Every field of GpuReading beyond who and when has a row, and every row a field."""
    known = {entry.name for entry in fields(GpuReading)} - {"info", "at", "clock_events_read", "implausible"}
    assert set(ROWS) | {"mig_instances"} == known


@pytest.mark.parametrize(
    ("number", "value", "metric", "expected"),
    [
        ("utilization", 37, "utilization_ratio", 0.37),
        ("utilization", 37, "utilization_max_ratio", 0.37),
        ("memory_utilization", 23, "memory_bandwidth_utilization_ratio", 0.23),
        ("memory_total", 80 << 30, "memory_total_bytes", 80 << 30),
        ("memory_used", 5 << 30, "memory_used_bytes", 5 << 30),
        ("memory_reserved", 1 << 30, "memory_reserved_bytes", 1 << 30),
        ("temperature", 61, "temperature_celsius", 61.0),
        ("memory_temperature", 82, "memory_temperature_celsius", 82.0),
        ("power", 412_500, "power_watts", 412.5),
        ("power_limit", 700_000, "power_limit_watts", 700.0),
        ("energy", 12_345_678_900, "energy_joules_total", 12_345_678.9),
        ("sm_clock", 1980, "sm_clock_hertz", 1.98e9),
        ("memory_clock", 2619, "memory_clock_hertz", 2.619e9),
        ("ecc_volatile", 3, "ecc_uncorrected_volatile_errors_total", 3),
        ("ecc_aggregate", 5_000_000_000, "ecc_uncorrected_aggregate_errors_total", 5_000_000_000),
        ("clock_events", 0x24, "clock_events", ("sw_power_cap", "sw_thermal_slowdown")),
        ("clock_events", 0, "clock_events", ()),
    ],
)
def test_base_units(
    driver: StubDriver, source: NvmlSource, number: str, value: int, metric: str, expected: object
) -> None:
    """Each driver value comes out in base units."""
    driver.gpu(0).set(**{number: value})

    assert getattr(reading(source), metric) == expected


def test_measured_zero(driver: StubDriver, source: NvmlSource) -> None:
    """An idle GPU shows zeros, not gaps."""
    driver.gpu(0).set(utilization=0, memory_used=0, energy=0, ecc_volatile=0)
    seen = reading(source)

    assert (seen.utilization_ratio, seen.memory_used_bytes, seen.energy_joules_total) == (0.0, 0, 0.0)
    assert seen.ecc_uncorrected_volatile_errors_total == 0


def test_memory_adds_up(driver: StubDriver, source: NvmlSource) -> None:
    """Used memory leaves out what the driver reserves, so used, free and reserved make the total."""
    driver.gpu(0).set(memory_total=1000, memory_used=300, memory_reserved=100)
    seen = reading(source)

    assert (seen.memory_used_bytes, seen.memory_free_bytes, seen.memory_reserved_bytes) == (300, 600, 100)


def test_identity(source: NvmlSource) -> None:
    """A GPU is told by its uuid, with the facts that never change beside it."""
    info = reading(source).info

    assert info.uuid == "GPU-00000000-0000-4000-8000-000000000000"
    assert (info.index, info.name, info.pci_bus_id) == (0, "NVIDIA Stub 80GB", "00000000:01:00.0")
    assert (info.driver_version, info.cuda_version, info.vbios_version) == ("580.65.06", "13.0", "96.00.5E.00.01")


def test_sixteen_gpus(driver: StubDriver, source: NvmlSource) -> None:
    """Hosts may have more than eight GPUs."""
    driver.gpus(16)

    assert [result.info.index for result in cycle(source) if isinstance(result, GpuReading)] == list(range(16))


# Utilization: the driver's own samples.


def test_mean_and_maximum_of_samples(driver: StubDriver, source: NvmlSource) -> None:
    """Mean and maximum are over all samples since the last cycle, so that a burst between cycles shows."""
    driver.gpu(0).samples({1000: 0}).utilization(0.0)
    reading(source)
    driver.gpu(0).samples({1000: 0, 2000: 0, 3000: 100, 4000: 20})
    seen = reading(source)

    assert (seen.utilization_ratio, seen.utilization_max_ratio) == (0.4, 1.0)


def test_backlog_is_skipped(driver: StubDriver, source: NvmlSource) -> None:
    """The first cycle shows the present, not what the driver buffered before anybody asked."""
    driver.gpu(0).samples({1000: 100, 2000: 100}).utilization(0.05)
    seen = reading(source)

    assert (seen.utilization_ratio, seen.utilization_max_ratio) == (0.05, 0.05)


def test_first_samples_of_an_empty_buffer(driver: StubDriver, source: NvmlSource) -> None:
    """A buffer that was empty in the first cycle has only new samples in the second."""
    driver.gpu(0).samples({})
    reading(source)
    driver.gpu(0).samples({1000: 80, 2000: 60})

    assert reading(source).utilization_ratio == 0.7


def test_nothing_new(driver: StubDriver, source: NvmlSource) -> None:
    """Without a new sample the instant value stands in, and the old samples are not shown again."""
    driver.gpu(0).samples({1000: 100})
    reading(source)
    driver.gpu(0).utilization(0.02)

    assert reading(source).utilization_ratio == 0.02


def test_samples_given_again(driver: StubDriver, source: NvmlSource) -> None:
    """Samples that the driver gives a second time are not new."""
    driver.gpu(0).samples({1000: 100}).set(samples_again=1)
    reading(source)
    driver.gpu(0).samples({1000: 100, 2000: 30})
    seen = reading(source)

    assert seen.utilization_max_ratio == 0.3


def test_double_samples(driver: StubDriver, source: NvmlSource) -> None:
    """A sample's value is read by the type that the driver names."""
    driver.gpu(0).samples({}).set(sample_type=0)
    reading(source)
    driver.gpu(0).samples({1000: 25})

    assert reading(source).utilization_ratio == 0.25


@pytest.mark.parametrize("sample_type", [1, 99], ids=["above 100 %", "of unknown type"])
def test_impossible_samples(driver: StubDriver, source: NvmlSource, sample_type: int) -> None:
    """A sample that cannot be a percentage is no measurement."""
    driver.gpu(0).samples({}).utilization(0.11).set(sample_type=sample_type)
    reading(source)
    driver.gpu(0).samples({1000: 4000})

    assert reading(source).utilization_ratio == 0.11


def test_no_sample_buffer(driver: StubDriver, source: NvmlSource) -> None:
    """Where the driver keeps no samples, the instant value is shown."""
    driver.gpu(0).unsupported(SAMPLES).utilization(0.5)

    assert (reading(source).utilization_ratio, reading(source).utilization_max_ratio) == (0.5, 0.5)


def test_failing_samples_leave_doubt(driver: StubDriver, source: NvmlSource) -> None:
    """Samples that fail make utilization unknown; nothing else is taken in their place."""
    driver.gpu(0).error(SAMPLES, TIMEOUT)
    seen = reading(source)

    assert (seen.utilization_ratio, seen.utilization_max_ratio) == (None, None)
    assert seen.memory_bandwidth_utilization_ratio == 0.0


def test_mig_parent(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU split by MIG has no utilization of its own: absent, not idle."""
    driver.gpu(0).unsupported(SAMPLES, RATES)
    seen = reading(source)

    assert (seen.utilization_ratio, seen.utilization_max_ratio, seen.memory_bandwidth_utilization_ratio) == (None,) * 3


# What cannot be read is absent.


@pytest.mark.parametrize("code", [TIMEOUT, NO_PERMISSION, UNKNOWN])
def test_failed_call(driver: StubDriver, source: NvmlSource, code: int) -> None:
    """A call that fails leaves its own field empty for this cycle only, and no other."""
    driver.gpu(0).set(temperature=61)
    before = reading(source)
    driver.gpu(0).error("nvmlDeviceGetTemperatureV", code)
    failed = reading(source)
    driver.gpu(0).error("nvmlDeviceGetTemperatureV", 0)
    after = reading(source)

    assert [seen.temperature_celsius for seen in (before, failed, after)] == [61.0, None, 61.0]
    assert failed.power_watts == 70.0


def test_unsupported_is_asked_once(driver: StubDriver, source: NvmlSource) -> None:
    """What a GPU does not support stays absent until the GPU is found anew."""
    driver.gpu(0).unsupported("nvmlDeviceGetEnforcedPowerLimit")
    first = reading(source).power_limit_watts
    driver.gpu(0).error("nvmlDeviceGetEnforcedPowerLimit", 0)
    second = reading(source).power_limit_watts
    driver.lose(0)
    cycle(source)
    driver.find(0)

    assert (first, second, reading(source).power_limit_watts) == (None, None, 700.0)


def test_unsupported_is_by_gpu(driver: StubDriver, source: NvmlSource) -> None:
    """One GPU's lack says nothing of another."""
    driver.gpus(2)
    driver.gpu(0).unsupported("field.82")
    seen = [result.memory_temperature_celsius for result in cycle(source) if isinstance(result, GpuReading)]

    assert seen == [None, 40.0]


@pytest.mark.parametrize("code", [NOT_SUPPORTED, INVALID_ARGUMENT, TIMEOUT])
def test_field_entry_has_its_own_answer(driver: StubDriver, source: NvmlSource, code: int) -> None:
    """One failed entry of the field batch is absent, and its rubbish value is never shown; the others stand."""
    driver.gpu(0).error("field.83", code).set(ecc_volatile=2)
    seen = reading(source)

    assert seen.energy_joules_total is None
    assert (seen.power_watts, seen.memory_temperature_celsius) == (70.0, 40.0)
    assert seen.ecc_uncorrected_volatile_errors_total == 2


def test_failed_batch(driver: StubDriver, source: NvmlSource) -> None:
    """When the whole batch fails, so do its fields, power included: another way would hide the failure."""
    driver.gpu(0).error("nvmlDeviceGetFieldValues", UNKNOWN)
    seen = reading(source)

    assert (seen.power_watts, seen.energy_joules_total, seen.memory_temperature_celsius) == (None, None, None)
    assert seen.temperature_celsius == 35.0


def test_signed_field(driver: StubDriver, source: NvmlSource) -> None:
    """A field's value is read by the type that its entry names, so that below zero is not four billion."""
    driver.gpu(0).set(memory_temperature=-5)

    assert reading(source).memory_temperature_celsius == -5.0


@pytest.mark.parametrize("code", [NOT_SUPPORTED, INVALID_ARGUMENT])
def test_power_without_average(driver: StubDriver, source: NvmlSource, code: int) -> None:
    """A driver without the averaged power field still tells power."""
    driver.gpu(0).error("field.185", code).set(power=250_000)

    assert reading(source).power_watts == 250.0


def test_unknown_clock_event(driver: StubDriver, source: NvmlSource) -> None:
    """Bits of drivers to come are left out."""
    driver.gpu(0).set(clock_events=1 << 40 | 1)

    assert reading(source).clock_events == ("gpu_idle",)


# Who holds the GPU.


def test_processes_are_merged(driver: StubDriver, source: NvmlSource) -> None:
    """Compute, MPS and graphics lists are one list by pid; each process counts once, with the larger figure."""
    driver.gpu(0).processes({30: 1000, 10: 500}).processes({30: 2000, 40: 7}, kind="graphics")
    driver.gpu(0).processes({20: 9}, kind="mps")

    assert reading(source).processes == (
        GpuProcess(pid=10, kind=ProcessKind.COMPUTE, memory_bytes=500),
        GpuProcess(pid=20, kind=ProcessKind.COMPUTE, memory_bytes=9),
        GpuProcess(pid=30, kind=ProcessKind.COMPUTE, memory_bytes=2000),
        GpuProcess(pid=40, kind=ProcessKind.GRAPHICS, memory_bytes=7),
    )


def test_nobody(source: NvmlSource) -> None:
    """An empty list is a measured "nobody"."""
    assert reading(source).processes == ()


def test_process_memory_unknown(driver: StubDriver, source: NvmlSource) -> None:
    """A process whose memory the driver does not tell is listed without a figure."""
    driver.gpu(0).processes({10: None})

    assert reading(source).processes == (GpuProcess(pid=10, kind=ProcessKind.COMPUTE),)


def test_garbage_pids(driver: StubDriver, source: NvmlSource) -> None:
    """Where the newest list shows impossible pids, the older one is believed (driver 535.98)."""
    driver.gpu(0).processes({10: 1, 0: 7, 4294967295: 9}).processes({10: 1, 11: 2}, kind="compute_v2")

    assert [process.pid for process in reading(source).processes or ()] == [10, 11]


def test_garbage_without_older_list(driver: StubDriver, source: NvmlSource) -> None:
    """Impossible pids are dropped even if there is no older list to ask."""
    driver.gpu(0).processes({10: 1, 0: 7, 4294967295: 9}).unsupported(f"{COMPUTE}_v2")

    assert [process.pid for process in reading(source).processes or ()] == [10]


@pytest.mark.parametrize("name", ["Compute", "MPSCompute", "Graphics"])
def test_failed_list(driver: StubDriver, source: NvmlSource, name: str) -> None:
    """If one list fails nobody knows who holds the GPU; that is not "nobody"."""
    driver.gpu(0).error(f"nvmlDeviceGet{name}RunningProcesses_v3", UNKNOWN)

    assert reading(source).processes is None


def test_unsupported_lists(driver: StubDriver, source: NvmlSource) -> None:
    """Without graphics lists the compute list is enough; without compute lists nothing is known."""
    driver.gpu(0).unsupported(*(f"nvmlDeviceGetGraphicsRunningProcesses_v{version}" for version in (2, 3)))
    without_graphics = reading(source).processes
    driver.gpu(0).unsupported(f"{COMPUTE}_v2", f"{COMPUTE}_v3")

    assert (without_graphics, reading(source).processes) == ((), None)
