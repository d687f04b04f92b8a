"""agent/compat: each of the other exporters' names, with its value, unit and labels."""

import pytest

from gpuwatch.agent.exporter.catalogue import FAMILIES
from gpuwatch.agent.exporter.compat import DIALECTS, load
from gpuwatch.agent.exporter.compat.table import UNITS
from gpuwatch.model.gpu import GpuReading
from tests.support.builders.compat_pages import FULL, INFO, LABELS, MIB, MIG_VALUES, SMI_UUID, Page
from tests.support.builders.gpu import GIB, a_down

DCGM = {
    "DCGM_FI_DEV_SM_CLOCK": 1980.0,
    "DCGM_FI_DEV_MEM_CLOCK": 2619.0,
    "DCGM_FI_DEV_MEMORY_TEMP": 70.0,
    "DCGM_FI_DEV_GPU_TEMP": 61.0,
    "DCGM_FI_DEV_POWER_USAGE": 433.78,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 123456789.0,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 6.0,
    "DCGM_FI_DEV_GPU_UTIL": 7.0,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 29.0,
    "DCGM_FI_DEV_ENC_UTIL": 11.0,
    "DCGM_FI_DEV_DEC_UTIL": 12.0,
    "DCGM_FI_DEV_FB_FREE": 59 * 1024.0,
    "DCGM_FI_DEV_FB_USED": 20 * 1024.0,
    "DCGM_FI_DEV_FB_RESERVED": 1024.0,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 52.0,
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 51.0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.21,
    "DCGM_FI_PROF_SM_ACTIVE": 0.22,
    "DCGM_FI_PROF_SM_OCCUPANCY": 0.23,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.24,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.25,
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0.26,
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 0.27,
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.28,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 3.0 * MIB,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 4.5 * MIB,
    "DCGM_FI_PROF_NVLINK_TX_BYTES": 7.0 * MIB,
    "DCGM_FI_PROF_NVLINK_RX_BYTES": 8.0 * MIB,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 31.0,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0.0,
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": 32.0,
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": 34.0,
    "DCGM_FI_DEV_RETIRED_SBE": 41.0,
    "DCGM_FI_DEV_RETIRED_DBE": 42.0,
    "DCGM_FI_DEV_RETIRED_PENDING": 1.0,
    "DCGM_FI_DEV_POWER_VIOLATION": 1.5e9,
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": 0.25e9,
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 7.0,
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 1.0,
}

NVIDIA_SMI = {
    "nvidia_smi_utilization_gpu_ratio": 0.07,
    "nvidia_smi_utilization_memory_ratio": 0.29,
    "nvidia_smi_utilization_encoder_ratio": 0.11,
    "nvidia_smi_utilization_decoder_ratio": 0.12,
    "nvidia_smi_utilization_jpeg_ratio": 0.13,
    "nvidia_smi_utilization_ofa_ratio": 0.14,
    "nvidia_smi_memory_total_bytes": 80.0 * GIB,
    "nvidia_smi_memory_used_bytes": 20.0 * GIB,
    "nvidia_smi_memory_free_bytes": 59.0 * GIB,
    "nvidia_smi_memory_reserved_bytes": 1.0 * GIB,
    "nvidia_smi_temperature_gpu": 61.0,
    "nvidia_smi_temperature_memory": 70.0,
    "nvidia_smi_temperature_gpu_tlimit": 26.0,
    "nvidia_smi_power_draw_watts": 433.78,
    "nvidia_smi_power_draw_instant_watts": 447.35,
    "nvidia_smi_enforced_power_limit_watts": 650.0,
    "nvidia_smi_power_default_limit_watts": 700.0,
    "nvidia_smi_power_min_limit_watts": 200.0,
    "nvidia_smi_power_max_limit_watts": 710.0,
    "nvidia_smi_energy_joules_total": 123456.789,
    "nvidia_smi_clocks_current_graphics_clock_hz": 1.965e9,
    "nvidia_smi_clocks_current_sm_clock_hz": 1.98e9,
    "nvidia_smi_clocks_current_memory_clock_hz": 2.619e9,
    "nvidia_smi_clocks_current_video_clock_hz": 1.545e9,
    "nvidia_smi_clocks_max_graphics_clock_hz": 1.982e9,
    "nvidia_smi_clocks_max_sm_clock_hz": 1.981e9,
    "nvidia_smi_clocks_max_memory_clock_hz": 2.62e9,
    "nvidia_smi_clocks_event_reasons_active": float(0x04 | 0x40),
    "nvidia_smi_clocks_event_reasons_gpu_idle": 0.0,
    "nvidia_smi_clocks_event_reasons_applications_clocks_setting": 0.0,
    "nvidia_smi_clocks_event_reasons_sw_power_cap": 1.0,
    "nvidia_smi_clocks_event_reasons_hw_slowdown": 0.0,
    "nvidia_smi_clocks_event_reasons_hw_thermal_slowdown": 1.0,
    "nvidia_smi_clocks_event_reasons_hw_power_brake_slowdown": 0.0,
    "nvidia_smi_clocks_event_reasons_sw_thermal_slowdown": 0.0,
    "nvidia_smi_clocks_event_reasons_sync_boost": 0.0,
    "nvidia_smi_clocks_event_reasons_counters_sw_power_cap_seconds": 1.5,
    "nvidia_smi_clocks_event_reasons_counters_sw_thermal_slowdown_seconds": 2.5,
    "nvidia_smi_clocks_event_reasons_counters_hw_thermal_slowdown_seconds": 3.5,
    "nvidia_smi_clocks_event_reasons_counters_hw_power_brake_slowdown_seconds": 4.5,
    "nvidia_smi_clocks_event_reasons_counters_sync_boost_seconds": 0.25,
    "nvidia_smi_pstate": 2.0,
    "nvidia_smi_fan_speed_ratio": 0.57,
    "nvidia_smi_pcie_link_gen_current": 4.0,
    "nvidia_smi_pcie_link_gen_max": 5.0,
    "nvidia_smi_pcie_link_width_current": 8.0,
    "nvidia_smi_pcie_link_width_max": 16.0,
    "nvidia_smi_pcie_throughput_tx_bytes_per_second": 3.0 * MIB,
    "nvidia_smi_pcie_throughput_rx_bytes_per_second": 4.5 * MIB,
    "nvidia_smi_ecc_mode_current": 1.0,
    "nvidia_smi_ecc_errors_corrected_volatile_total": 31.0,
    "nvidia_smi_ecc_errors_corrected_aggregate_total": 32.0,
    "nvidia_smi_ecc_errors_uncorrected_volatile_total": 0.0,
    "nvidia_smi_ecc_errors_uncorrected_aggregate_total": 34.0,
    "nvidia_smi_retired_pages_single_bit_ecc_count": 41.0,
    "nvidia_smi_retired_pages_double_bit_count": 42.0,
    "nvidia_smi_retired_pages_pending": 1.0,
    "nvidia_smi_remapped_rows_correctable": 51.0,
    "nvidia_smi_remapped_rows_uncorrectable": 52.0,
    "nvidia_smi_remapped_rows_pending": 0.0,
    "nvidia_smi_remapped_rows_failure": 1.0,
    "nvidia_smi_gpu_recovery_action": 2.0,
    "nvidia_smi_persistence_mode": 1.0,
    "nvidia_smi_mig_mode_current": 0.0,
    "nvidia_smi_compute_mode": 3.0,
    "nvidia_smi_index": 0.0,
    "nvidia_smi_count": 1.0,
    "nvidia_smi_compute_apps": 4.0,
}

NVITOP = {
    "gpu_utilization_Percentage": 7.0,
    "gpu_memory_utilization_Percentage": 29.0,
    "gpu_encoder_utilization_Percentage": 11.0,
    "gpu_decoder_utilization_Percentage": 12.0,
    "gpu_memory_total_MiB": 80 * 1024.0,
    "gpu_memory_used_MiB": 20 * 1024.0,
    "gpu_memory_free_MiB": 59 * 1024.0,
    "gpu_memory_percent_Percentage": 25.0,
    "gpu_clock_sm_MHz": 1980.0,
    "gpu_clock_memory_MHz": 2619.0,
    "gpu_clock_graphics_MHz": 1965.0,
    "gpu_clock_video_MHz": 1545.0,
    "gpu_power_usage_W": 433.78,
    "gpu_power_limit_W": 650.0,
    "gpu_temperature_C": 61.0,
    "gpu_fan_speed_Percentage": 57.0,
    "gpu_pcie_tx_throughput_MiBps": 3.0,
    "gpu_pcie_rx_throughput_MiBps": 4.5,
    "gpu_nvlink_total_tx_throughput_MiBps": 7.0,
    "gpu_nvlink_total_rx_throughput_MiBps": 8.0,
    "gpu_nvlink_mean_tx_throughput_MiBps": 3.5,
    "gpu_nvlink_mean_rx_throughput_MiBps": 4.0,
}

VALUES = {"dcgm": DCGM, "nvidia_smi": NVIDIA_SMI, "nvitop": NVITOP}

# What is not one value of one GPU has a test of its own, here or in the files beside this one.
TOLD_APART = {
    "nvidia_smi_gpu_info",
    "nvidia_smi_compute_app_info",
    "nvidia_smi_compute_apps_last_collect_success",
    "nvidia_smi_compute_app_used_memory_bytes",
    "DCGM_FI_DEV_XID_ERRORS",
    "nvidia_smi_xid_errors_total",
    "nvidia_smi_xid_last_timestamp_seconds",
    "nvidia_smi_last_collect_success",
    "nvidia_smi_last_collect_success_timestamp_seconds",
    "nvidia_smi_last_collect_duration_seconds",
    "nvitop_info",
    "process_info_info",
    "process_gpu_memory_MiB",
    "process_running_time_Second",
    "process_cpu_percent_Percentage",
    "process_rss_memory_MiB",
    "process_memory_percent_Percentage",
}


# Names, units and labels.


@pytest.mark.parametrize("dialect", VALUES)
def test_a_name_has_its_value_in_the_foreign_unit_and_the_foreign_labels(dialect: str) -> None:
    """One sample each, exactly so."""
    page = Page(dialect).cycle(FULL)

    assert {name: page.samples(name) for name in VALUES[dialect]} == {
        name: [(LABELS[dialect], value)] for name, value in VALUES[dialect].items()
    }


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_name_is_tested(dialect: str) -> None:
    """A new row of a table is a new line here; the host's and MIG's names have their own tests."""
    names = {family.name for family in load(dialect).families}

    assert {name for name in names if not name.startswith(("host_", "nvidia_smi_mig_m", "nvidia_smi_mig_s"))} <= (
        VALUES[dialect].keys()
        | TOLD_APART
        | {f"nvidia_smi_mig_{what}" for what in MIG_VALUES}
        | {"nvidia_smi_mig_info"}
    )
    assert VALUES[dialect].keys() <= names


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_row_waits_for_a_field(dialect: str) -> None:
    """Each row's field is one of GpuReading; a row for a field still to come would be listed here."""
    assert [row.name for row in load(dialect).dormant] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_table_is_sound(dialect: str) -> None:
    """Units are known, sentences end, and nothing is both served and left out."""
    table = load(dialect)
    names = [family.name for family in table.families]

    assert len(names) == len(set(names))
    assert set(names) & table.left_out.keys() == set()
    assert {family.unit for family in table.families} <= UNITS.keys()


def test_no_name_is_used_twice() -> None:
    """Neither by two dialects nor by us."""
    names = [family.name for dialect in DIALECTS for family in load(dialect).families]

    assert len(names) == len(set(names))
    assert set(names) & set(FAMILIES) == set()


def test_nvidia_smis_info_joins_all() -> None:
    """gpu_info has the labels of the original but for those that are not read."""
    assert Page("nvidia_smi").cycle(FULL).samples("nvidia_smi_gpu_info") == [
        (
            {
                "uuid": SMI_UUID,
                "name": 'NVIDIA "Test" 80GB',
                "driver_model_current": "[N/A]",
                "driver_model_pending": "[N/A]",
                "vbios_version": "96.00.A5.00.03",
                "driver_version": "580.65.06",
                "pci_bus_id": "00000000:01:00.0",
                "serial": "1652",
                "index": "0",
                "cuda_version": "13.0",
            },
            1.0,
        )
    ]


def test_nvitops_info_tells_the_driver() -> None:
    """Once a host; lost GPUs count as devices."""
    page = Page("nvitop").cycle(FULL, a_down(1))

    assert page.samples("nvitop_info") == [
        (
            {
                "hostname": "node-7",
                "device_count": "2",
                "driver_version": "580.65.06",
                "cuda_driver_version": "13.0",
            },
            1.0,
        )
    ]


# Absent, never stale.


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_not_read_has_no_sample(dialect: str) -> None:
    """None is absent, a measured zero is there, and no value is NaN."""
    bare = GpuReading(info=INFO, at=FULL.at, utilization_ratio=0.0)
    names = {
        line.partition("{")[0]
        for line in Page(dialect).cycle(bare).text().splitlines()
        if not line.startswith(("#", "gpuwatch_"))
    }

    assert {name for name in names if name in VALUES[dialect]} == {
        "dcgm": {"DCGM_FI_DEV_GPU_UTIL"},
        "nvidia_smi": {"nvidia_smi_utilization_gpu_ratio", "nvidia_smi_index", "nvidia_smi_count"},
        "nvitop": {"gpu_utilization_Percentage"},
    }[dialect]
    assert "nan" not in Page(dialect).cycle(FULL).text().lower()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_lost_gpu_has_no_values_and_old_ones_vanish(dialect: str) -> None:
    """Of two GPUs one is lost; then the agent hears nothing for too long."""
    page = Page(dialect).cycle(FULL, a_down(1))
    name = next(iter(VALUES[dialect]))
    assert len(page.samples(name)) == 1

    page.clock.advance(9.0)

    assert page.samples(name) == []
