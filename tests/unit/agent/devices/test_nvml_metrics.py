"""The rows of devices/nvml: each value in base units, absent where the hardware does not give it."""

import ctypes
import time

import pytest

from gpuwatch.agent.devices.nvml.rows import Tables
from gpuwatch.agent.devices.nvml.source import FORGET_SECONDS, NvmlSource
from gpuwatch.model.gpu import GpuReading, metrics
from gpuwatch.model.metric import GROUP_NAMES, SLOW_SECONDS
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml import INVALID_ARGUMENT, NOT_SUPPORTED, TIMEOUT, StubDriver, cycle, reading

ALL_LINKS = 0xFFFFFFFF
LIMIT = "nvmlDeviceGetEnforcedPowerLimit"


def calls(driver: StubDriver) -> int:
    """How many NVML calls this process has made so far."""
    return int(ctypes.CDLL(str(driver.library / "libnvidia-ml.so.1")).stub_calls())


# Functions that answer one thing.


@pytest.mark.parametrize(
    ("number", "value", "metric", "expected"),
    [
        ("encoder", 25, "encoder_utilization_ratio", 0.25),
        ("decoder", 50, "decoder_utilization_ratio", 0.5),
        ("jpeg", 3, "jpeg_utilization_ratio", 0.03),
        ("ofa", 100, "ofa_utilization_ratio", 1.0),
        ("encoder", 101, "encoder_utilization_ratio", None),
        ("bar1_total", 1 << 37, "bar1_total_bytes", 1 << 37),
        ("bar1_used", 1 << 20, "bar1_used_bytes", 1 << 20),
        ("temperature_margin", -3, "temperature_margin_celsius", -3.0),
        ("power", 412_500, "power_instant_watts", 412.5),
        ("graphics_clock", 1980, "graphics_clock_hertz", 1.98e9),
        ("video_clock", 1545, "video_clock_hertz", 1.545e9),
        ("clock_max", 1980, "sm_clock_max_hertz", 1.98e9),
        ("memory_clock", 2619, "memory_clock_max_hertz", 2.619e9),
        ("pstate", 8, "performance_state", 8),
        ("pstate", 0, "performance_state", 0),
        ("pstate", 32, "performance_state", None),
        ("fan", 120, "fan_speed_ratio", 1.2),
        ("fan", 0, "fan_speed_ratio", 0.0),
        ("pcie_generation", 1, "pcie_link_generation", 1),
        ("pcie_generation_max", 5, "pcie_link_generation_max", 5),
        ("pcie_width", 8, "pcie_link_width", 8),
        ("pcie_width_max", 16, "pcie_link_width_max", 16),
        ("persistence", 0, "persistence_mode", 0),
        ("compute_mode", 3, "compute_mode", 3),
        ("mig", 0, "mig_mode", 0),
    ],
)
def test_functions(
    driver: StubDriver, source: NvmlSource, number: str, value: int, metric: str, expected: object
) -> None:
    """Each answer comes out in base units; what cannot be true is absent, and zero is a value."""
    driver.gpu(0).set(**{number: value})

    assert getattr(reading(source), metric) == expected


@pytest.mark.parametrize(
    ("field", "scope", "value", "metric", "expected"),
    [
        (185, 1, 512_000, "power_module_watts", 512.0),
        (186, 1, 513_000, "power_module_instant_watts", 513.0),
        (185, 2, 61_000, "power_memory_watts", 61.0),
        (186, 2, 62_000, "power_memory_instant_watts", 62.0),
        (187, 0, 200_000, "power_limit_min_watts", 200.0),
        (188, 0, 700_000, "power_limit_max_watts", 700.0),
        (189, 0, 650_000, "power_limit_default_watts", 650.0),
        (197, 0, 5_000_000_000, "pcie_tx_bytes_total", 5_000_000_000),
        (198, 0, 7, "pcie_rx_bytes_total", 7),
        (94, 0, 2, "pcie_replays_total", 2),
        (138, ALL_LINKS, 3, "nvlink_tx_bytes_total", 3072),
        (139, ALL_LINKS, 0, "nvlink_rx_bytes_total", 0),
        (3, 0, 11, "ecc_corrected_volatile_errors_total", 11),
        (5, 0, 12, "ecc_corrected_aggregate_errors_total", 12),
        (31, 0, 1, "retired_pages_pending", 1),
        (144, 0, 1, "remapped_rows_pending", 1),
        (145, 0, 0, "remapped_rows_failure", 0),
        (230, 0, 4, "recovery_action", 4),
        (1, 0, 1, "ecc_mode", 1),
    ],
)
def test_fields(
    driver: StubDriver, source: NvmlSource, field: int, scope: int, value: int, metric: str, expected: float
) -> None:
    """Each field value comes out in base units, out of the scope that it belongs to."""
    driver.gpu(0).field(field, value, scope)

    assert getattr(reading(source), metric) == expected


# Values by label.


@pytest.mark.parametrize(
    ("values", "metric", "expected"),
    [
        (
            {74: 1_500_000_000, 270: 250_000_000},
            "clock_event_seconds_total",
            {"sw_power_cap": 1.5, "hw_thermal_slowdown": 0.25},
        ),
        ({193: -8, 196: 0}, "temperature_limit_margin_celsius", {"shutdown": -8.0, "gpu_max": 0.0}),
        ({173: 9, 180: 1}, "pcie_errors_total", {"correctable": 9, "fatal": 1}),
        ({29: 1, 30: 2}, "retired_pages_total", {"single_bit": 1, "double_bit": 2}),
        ({142: 3, 143: 4}, "remapped_rows_total", {"correctable": 3, "uncorrectable": 4}),
    ],
)
def test_labels(
    driver: StubDriver, source: NvmlSource, values: dict[int, int], metric: str, expected: dict[str, float]
) -> None:
    """A metric with a label has each of the label's values, those below zero too."""
    for field, value in values.items():
        driver.gpu(0).field(field, value)
    seen = getattr(reading(source), metric)

    assert {label: seen[label] for label in expected} == expected


def test_a_label_that_is_not_known(driver: StubDriver, source: NvmlSource) -> None:
    """A label whose value is not supported or fails is left out; without any the metric is absent."""
    driver.gpu(0).error("field.194", TIMEOUT).error("field.195", NOT_SUPPORTED)
    for field in (142, 143):
        driver.gpu(0).error(f"field.{field}", NOT_SUPPORTED)
    seen = reading(source)

    assert set(seen.temperature_limit_margin_celsius or ()) == {"shutdown", "gpu_max"}
    assert seen.remapped_rows_total is None


def test_links(driver: StubDriver, source: NvmlSource) -> None:
    """Bytes and errors are told for each NVLink by itself."""
    driver.gpu(0).field(138, 1, scope=0).field(138, 2, scope=17).field(163, 5, scope=17)
    seen = reading(source)
    sent, errors = seen.nvlink_link_tx_bytes_total or {}, seen.nvlink_crc_errors_total or {}

    assert (len(sent), sent["0"], sent["17"]) == (18, 1024, 2048)
    assert (errors["16"], errors["17"]) == (0, 5)
    assert seen.nvlink_receive_errors_total is None


def test_links_of_the_fifth_generation(driver: StubDriver, source: NvmlSource) -> None:
    """Where the older counters are not supported, those of NVLink 5 stand in."""
    for field in (138, 139, 162):
        driver.gpu(0).error(f"field.{field}", NOT_SUPPORTED)
    driver.gpu(0).field(202, 77, scope=3).field(215, 4, scope=3).field(208, 1, scope=3)
    seen = reading(source)

    assert (seen.nvlink_tx_bytes_total, seen.nvlink_link_tx_bytes_total) == (None, {"3": 77})
    assert (seen.nvlink_recovery_errors_total, seen.nvlink_receive_errors_total) == ({"3": 4}, {"3": 1})


def test_no_nvlink(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU without NVLink has no NVLink metric at all."""
    for field in (138, 139, 161, 162, 163):
        driver.gpu(0).error(f"field.{field}", INVALID_ARGUMENT)
    seen = reading(source)

    assert [name for name, _ in metrics() if name.startswith("nvlink") and getattr(seen, name) is not None] == []


def test_counters_reset(driver: StubDriver, source: NvmlSource) -> None:
    """A counter that the driver starts again, or that wraps, is shown as it is: rate() knows what to do."""
    driver.gpu(0).field(197, 4_000_000_000).set(energy=9_000_000)
    before = reading(source)
    driver.gpu(0).field(197, 10).set(energy=1000)
    after = reading(source)

    assert (before.pcie_tx_bytes_total, after.pcie_tx_bytes_total) == (4_000_000_000, 10)
    assert (before.energy_joules_total, after.energy_joules_total) == (9000.0, 1.0)


def test_power_limits_of_an_older_driver(driver: StubDriver, source: NvmlSource) -> None:
    """A driver without the fields tells the limits by functions."""
    for field in (187, 188, 189):
        driver.gpu(0).error(f"field.{field}", INVALID_ARGUMENT)
    driver.gpu(0).set(power_min=100_000, power_max=400_000, power_default=350_000)
    seen = reading(source)

    assert (seen.power_limit_min_watts, seen.power_limit_max_watts) == (100.0, 400.0)
    assert seen.power_limit_default_watts == 350.0


def test_nothing_is_supported(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU that supports nothing has no value, not zeros, and is not down for it."""
    driver.gpu(0).error("*", NOT_SUPPORTED)

    seen = reading(source)

    assert [name for name, _ in metrics() if getattr(seen, name) is not None] == []


def test_who_it_is(source: NvmlSource) -> None:
    """The serial number is among what describes a GPU."""
    assert reading(source).info.serial == "1650000000000"


# What is read now and then.


def test_slow_rows_are_those_of_the_catalogue() -> None:
    """What METRICS.md calls slow is read slowly, and nothing else."""
    tables = Tables.for_groups(GROUP_NAMES)

    assert set(tables.slow.rows) == {name for name, metric in metrics() if metric.slow} | {"fabric_faults"}
    assert set(tables.steady.rows) == {name for name, metric in metrics() if metric.steady} | {"clock_events"}
    assert set(tables.costly.rows) == {name for name, metric in metrics() if metric.costly}
    assert not tables.slow.rows.keys() & tables.fast.rows.keys()
    assert not set(tables.slow.fields) & set(tables.fast.fields)


def test_slow_values_are_shown_between_reads(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """A slow value stands until it is read again, SLOW_SECONDS later."""
    reading(source)
    driver.gpu(0).set(power_limit=300_000, temperature=61)
    hand.advance(SLOW_SECONDS - 1)
    between = reading(source)
    hand.advance(1)
    after = reading(source)

    assert (between.power_limit_watts, between.temperature_celsius) == (700.0, 61.0)
    assert after.power_limit_watts == 300.0


def test_a_failed_slow_read_clears_the_value(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """A slow value that cannot be read again is absent at once and until a read succeeds."""
    reading(source)
    driver.gpu(0).error(LIMIT, TIMEOUT)
    hand.advance(SLOW_SECONDS)
    failed = reading(source)
    driver.gpu(0).error(LIMIT, 0)
    hand.advance(SLOW_SECONDS)

    assert failed.power_limit_watts is None
    assert reading(source).power_limit_watts == 700.0


def test_slow_values_do_not_outlive_a_loss(driver: StubDriver, source: NvmlSource) -> None:
    """A GPU that is found again is read anew, slow rows included."""
    reading(source)
    driver.lose(0)
    cycle(source)
    driver.find(0)
    driver.gpu(0).set(power_limit=300_000)

    assert reading(source).power_limit_watts == 300.0


def test_slow_values_hide_no_failure(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """A GPU that answers each question of this cycle with an error is down, whatever it said before."""
    reading(source)
    driver.gpu(0).error("*", TIMEOUT)
    hand.advance(1)

    assert not isinstance(cycle(source)[0], GpuReading)


def test_support_is_asked_again(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """What was not supported is asked again after FORGET_SECONDS: NVLinks may be trained by then."""
    driver.gpu(0).error("field.138", NOT_SUPPORTED)
    before = reading(source)
    driver.gpu(0).error("field.138", 0)
    hand.advance(FORGET_SECONDS - 1)
    soon = reading(source)
    hand.advance(1)

    assert (before.nvlink_tx_bytes_total, soon.nvlink_tx_bytes_total) == (None, None)
    assert reading(source).nvlink_tx_bytes_total == 0


# What it costs.


def test_calls_of_a_cycle(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """Eight GPUs with a process each take fewer calls a second than half of the 160 of the usual exporter."""
    driver.gpus(8)
    driver.every_gpu().processes({10: 1})
    cycle(source)
    begin = calls(driver)
    for _ in range(SLOW_SECONDS):
        hand.advance(1)
        cycle(source, whole=False)

    assert (calls(driver) - begin) / SLOW_SECONDS < 80


def test_unsupported_costs_nothing(driver: StubDriver, source: NvmlSource, hand: ManualClock) -> None:
    """A GPU that supports nothing takes no more than the count of GPUs from the second cycle on."""
    driver.gpu(0).error("*", NOT_SUPPORTED)
    cycle(source)
    hand.advance(1)
    begin = calls(driver)
    cycle(source)

    assert calls(driver) - begin == 1


def test_a_slow_call(driver: StubDriver, source: NvmlSource) -> None:
    """A call that takes long costs its own GPU's reading that time, and no other's."""
    driver.gpus(2)
    slow, quick = source.gpus()
    driver.gpu(0).delay("nvmlDeviceGetTemperatureV", 0.2)
    took = []
    for gpu in (slow, quick):
        begin = time.perf_counter()
        source.read(gpu)
        took.append(time.perf_counter() - begin)

    assert took[0] >= 0.2 > took[1]
