"""agent/devices/amd/rows.py: what AMD SMI answers, in base units, and what it cannot tell."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.agent.devices.amd.rows import ROWS, number
from gpuwatch.model.gpu import GpuReading, metrics
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.amd import FILE_ERROR, MIB, NA, UNEXPECTED_DATA, AmdHost, amd_source
from tests.support.fakes.nvml import reading
from tests.support.nightly import examples

ACTIVITY = "amdsmi_get_gpu_activity"
POWER = "amdsmi_get_power_info"
CAP = "amdsmi_get_power_cap_info"
METRICS = "amdsmi_get_gpu_metrics_info"


@pytest.fixture
def host(tmp_path: Path) -> AmdHost:
    """One MI300X at rest."""
    return AmdHost(tmp_path)


@pytest.fixture
def now(host: AmdHost, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> "Now":
    """Reads that GPU anew, as a probe's first cycle does."""
    return Now(host, hand, monkeypatch)


class Now:
    """The reading at this moment."""

    def __init__(self, host: AmdHost, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self._source = amd_source(host, clock, monkeypatch)

    def __call__(self) -> GpuReading:
        """Of a library that has just been opened."""
        self._source.close()
        return reading(self._source)


def test_rows_are_metrics() -> None:
    """Each row fills a field of the catalogue that is exported under the same name for every maker."""
    assert set(ROWS) <= dict(metrics()).keys()


def test_an_mi300x_at_rest(now: Now) -> None:
    """Base units, and nothing that the library does not tell."""
    seen = now()

    assert (seen.info.vendor, seen.info.name, seen.info.driver_version) == ("amd", "AMD Instinct MI300X", "6.14.14")
    assert (seen.info.pci_bus_id, seen.info.serial) == ("00000000:05:00.0", "692423000000")
    assert (seen.utilization_ratio, seen.utilization_max_ratio) == (0.0, 0.0)
    assert (seen.memory_used_bytes, seen.memory_total_bytes) == (283 * MIB, 196_592 * MIB)
    assert (seen.temperature_celsius, seen.memory_temperature_celsius, seen.temperature_margin_celsius) == (41, 36, 59)
    assert (seen.power_watts, seen.power_instant_watts, seen.power_limit_watts) == (141.0, 141.0, 750.0)
    assert seen.energy_joules_total == pytest.approx(15_250.0)
    assert (seen.sm_clock_hertz, seen.memory_clock_hertz, seen.sm_clock_max_hertz) == (132e6, 900e6, 2.1e9)
    assert (seen.pcie_link_generation, seen.pcie_link_width, seen.pcie_replays_total) == (5, 16, 0)
    assert (seen.ecc_mode, seen.ecc_uncorrected_volatile_errors_total) == (1, 0)
    assert (seen.processes, seen.processes_partial, seen.implausible) == ((), False, ())
    assert (seen.sm_activity_ratio, seen.mig_instances, seen.clock_events, seen.fan_speed_ratio) == (None,) * 4
    assert (seen.power_limit_min_watts, seen.video_clock_max_hertz, seen.nvlink_tx_bytes_total) == (None,) * 3


@pytest.mark.parametrize(
    ("function", "answer", "field", "expected"),
    [
        (ACTIVITY, {"gfx_activity": 37}, "utilization_ratio", 0.37),
        (ACTIVITY, {"gfx_activity": 37}, "utilization_max_ratio", 0.37),
        (ACTIVITY, {"umc_activity": 23}, "memory_bandwidth_utilization_ratio", 0.23),
        (ACTIVITY, {"mm_activity": 50}, "decoder_utilization_ratio", 0.5),
        (METRICS, {"xcp_stats.gfx_busy_inst": [[0, 0, 8, NA], [NA, 3]]}, "utilization_max_ratio", 0.08),
        (METRICS, {"vcn_activity": [0, NA, 61]}, "decoder_utilization_ratio", 0.61),
        (METRICS, {"vcn_activity": [NA], "xcp_stats.vcn_busy": [[4]]}, "decoder_utilization_ratio", 0.04),
        (METRICS, {"jpeg_activity": [NA, 5, 0]}, "jpeg_utilization_ratio", 0.05),
        (POWER, {"average_socket_power": 90, "current_socket_power": NA}, "power_watts", 90.0),
        (POWER, {"average_socket_power": 90, "current_socket_power": NA}, "power_instant_watts", None),
        (CAP, {"power_cap": 560}, "power_limit_watts", 560.0),
        (CAP, {"power_cap": 560_000_000}, "power_limit_watts", 560.0),
        ("amdsmi_get_energy_count", {"energy_accumulator": NA, "power": 7}, "energy_joules_total", None),
        ("amdsmi_get_clock_info", {"0": {"cur_clk": 1700}}, "sm_clock_hertz", 1.7e9),
        ("amdsmi_get_gpu_total_ecc_count", {"correctable_count": 4}, "ecc_corrected_volatile_errors_total", 4),
    ],
)
def test_answers(
    host: AmdHost, now: Now, function: str, answer: dict[str, object], field: str, expected: object
) -> None:
    """Each answer comes out in base units, by whichever release's key and unit it has."""
    host.gpu().answer(function, **answer)

    assert getattr(now(), field) == (None if expected is None else pytest.approx(expected))


def test_an_older_binding(host: AmdHost, now: Now) -> None:
    """Energy was called power before ROCm 6.2; memory in bytes stands in where the library has no libdrm."""
    host.gpu().answer("amdsmi_get_energy_count", {"power": 2_000_000, "counter_resolution": 15.25, "timestamp": 1})
    host.gpu().lacks("amdsmi_get_gpu_vram_usage").answer("amdsmi_get_gpu_memory_total", 64 * 1024 * MIB)
    host.gpu().answer("amdsmi_get_gpu_memory_usage", 10 * MIB)
    seen = now()

    assert seen.energy_joules_total == pytest.approx(30.5)
    assert (seen.memory_total_bytes, seen.memory_used_bytes) == (64 * 1024 * MIB, 10 * MIB)


def test_not_told_is_absent_and_never_zero(host: AmdHost, now: Now) -> None:
    """A power of nothing, errors that nothing counts, an energy counter that stands at nothing: all are unknown."""
    host.gpu().answer(POWER, socket_power=0, current_socket_power=0, average_socket_power=0xFFFF)
    host.gpu().answer("amdsmi_get_gpu_ecc_enabled", 0)
    host.gpu().answer("amdsmi_get_energy_count", energy_accumulator=0)
    host.gpu().answer(CAP, power_cap=0).answer(POWER, power_limit=0)
    seen = now()

    assert (seen.power_watts, seen.power_instant_watts, seen.power_limit_watts) == (None, None, None)
    assert (seen.ecc_mode, seen.ecc_corrected_volatile_errors_total, seen.energy_joules_total) == (0, None, None)


@pytest.mark.parametrize("function", [ACTIVITY, METRICS])
@pytest.mark.parametrize("how", ["unsupported", "error", "other keys", "no table"])
def test_a_call_that_fails_takes_its_values_alone(host: AmdHost, now: Now, function: str, how: str) -> None:
    """Whatever the way in which it fails; the other values are still read."""
    gpu = host.gpu()
    match how:
        case "unsupported":
            gpu.lacks(function)
        case "error":
            gpu.error(UNEXPECTED_DATA, function)
        case "other keys":
            gpu.answer(function, {"gfx": 3})
        case _:
            gpu.answer(function, "N/A")
    seen = now()

    lost = seen.utilization_ratio if function == ACTIVITY else seen.jpeg_utilization_ratio
    assert (lost, seen.power_watts) == (None, 141.0)


@pytest.mark.parametrize(
    ("function", "answer", "fields"),
    [
        (ACTIVITY, {"gfx_activity": 250}, ("utilization_max_ratio", "utilization_ratio")),
        ("amdsmi_get_gpu_vram_usage", {"vram_used": 300_000}, ("memory_total_bytes", "memory_used_bytes")),
        ("amdsmi_get_temp_metric", {"HOTSPOT.CURRENT": 4_294_967}, ("temperature_celsius",)),
    ],
)
def test_what_cannot_be_true(
    host: AmdHost, now: Now, function: str, answer: dict[str, object], fields: tuple[str, ...]
) -> None:
    """Such a figure is left out, and its name is noted."""
    host.gpu().answer(function, **answer)
    seen = now()

    assert set(fields) <= set(seen.implausible)
    assert [getattr(seen, field) for field in fields] == [None] * len(fields)


_ANYTHING = (
    st.none() | st.just(NA) | st.booleans() | st.integers(-5, 2**64) | st.floats(allow_nan=False) | st.text(max_size=3)
)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(["gfx_activity", "umc_activity", "mm_activity"]), _ANYTHING), _ANYTHING, _ANYTHING
)
def test_whatever_the_library_says_is_read(
    host: AmdHost, now: Now, activity: dict[str, object], power: object, energy: object
) -> None:
    """No answer ends the probe, and a share that comes out is one."""
    host.gpu().answer(ACTIVITY, activity).answer(POWER, {"average_socket_power": power})
    host.gpu().answer("amdsmi_get_energy_count", {"energy_accumulator": energy, "counter_resolution": 15.25})
    seen = now()

    assert seen.utilization_ratio is None or 0.0 <= seen.utilization_ratio <= 1.0
    assert seen.power_watts is None or 0.0 < seen.power_watts <= 20_000


@pytest.mark.parametrize("value", [NA, "", None, True, 0xFFFF, 2**32 - 1, 2**64 - 1, [], {}])
def test_no_number(value: object) -> None:
    """What the library writes where it has no value."""
    assert number(value) is None


def test_one_hundred_percent_is_a_value(host: AmdHost, now: Now) -> None:
    """As is zero."""
    host.gpu().answer(ACTIVITY, gfx_activity=100, umc_activity=0).error(FILE_ERROR, "amdsmi_get_pcie_info")
    seen = now()

    assert (seen.utilization_ratio, seen.memory_bandwidth_utilization_ratio, seen.pcie_link_width) == (1.0, 0.0, None)
