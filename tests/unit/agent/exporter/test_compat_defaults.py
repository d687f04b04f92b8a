"""agent/compat against what the originals show: each of their names is served, or left out with its reason."""

from fnmatch import fnmatchcase

import pytest

from gpuwatch.agent.exporter.compat import load
from tests.support.each import for_each

# etc/default-counters.csv and etc/dcp-metrics-included.csv of dcgm-exporter 4.8.
DCGM = """
    DCGM_FI_DEV_SM_CLOCK DCGM_FI_DEV_MEM_CLOCK DCGM_FI_DEV_MEMORY_TEMP DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_POWER_USAGE
    DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION DCGM_FI_DEV_PCIE_REPLAY_COUNTER DCGM_FI_DEV_GPU_UTIL
    DCGM_FI_DEV_MEM_COPY_UTIL DCGM_FI_DEV_ENC_UTIL DCGM_FI_DEV_DEC_UTIL DCGM_FI_DEV_XID_ERRORS DCGM_FI_DEV_FB_FREE
    DCGM_FI_DEV_FB_USED DCGM_FI_DEV_FB_RESERVED DCGM_FI_DEV_RETIRED_SBE DCGM_FI_DEV_RETIRED_DBE
    DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL DCGM_FI_DEV_VGPU_LICENSE_STATUS DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS
    DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS DCGM_FI_DEV_ROW_REMAP_FAILURE DCGM_FI_PROF_GR_ENGINE_ACTIVE
    DCGM_FI_PROF_PIPE_TENSOR_ACTIVE DCGM_FI_PROF_DRAM_ACTIVE DCGM_FI_PROF_PCIE_TX_BYTES DCGM_FI_PROF_PCIE_RX_BYTES
"""
# What those files have, and do not enable; and two that earlier ones enabled.
DCGM_OFF = """
    DCGM_FI_DEV_POWER_VIOLATION DCGM_FI_DEV_THERMAL_VIOLATION DCGM_FI_DEV_SYNC_BOOST_VIOLATION
    DCGM_FI_DEV_BOARD_LIMIT_VIOLATION DCGM_FI_DEV_LOW_UTIL_VIOLATION DCGM_FI_DEV_RELIABILITY_VIOLATION
    DCGM_FI_DEV_ECC_SBE_VOL_TOTAL DCGM_FI_DEV_ECC_DBE_VOL_TOTAL DCGM_FI_DEV_ECC_SBE_AGG_TOTAL
    DCGM_FI_DEV_ECC_DBE_AGG_TOTAL DCGM_FI_DEV_RETIRED_PENDING DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
    DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_BANDWIDTH_L0 DCGM_FI_PROF_SM_ACTIVE
    DCGM_FI_PROF_SM_OCCUPANCY DCGM_FI_PROF_PIPE_FP64_ACTIVE DCGM_FI_PROF_PIPE_FP32_ACTIVE
    DCGM_FI_PROF_PIPE_FP16_ACTIVE DCGM_EXP_CLOCK_EVENTS_COUNT DCGM_EXP_XID_ERRORS_COUNT DCGM_EXP_GPU_HEALTH_STATUS
    DCGM_EXP_P2P_STATUS DCGM_FI_DEV_PCIE_TX_THROUGHPUT DCGM_FI_DEV_PCIE_RX_THROUGHPUT
"""
# What nvidia_gpu_exporter shows of an H200 under driver 590, and in its NVML mode; without the nvidia_smi_ of each.
NVIDIA_SMI = """
    accounting_buffer_size accounting_mode c2c_mode clocks_current_graphics_clock_hz clocks_current_memory_clock_hz
    clocks_current_sm_clock_hz clocks_current_video_clock_hz clocks_event_reasons_active
    clocks_event_reasons_applications_clocks_setting clocks_event_reasons_counters_hw_power_brake_slowdown_seconds
    clocks_event_reasons_counters_hw_thermal_slowdown_seconds clocks_event_reasons_counters_sw_power_cap_seconds
    clocks_event_reasons_counters_sw_thermal_slowdown_seconds clocks_event_reasons_counters_sync_boost_seconds
    clocks_event_reasons_gpu_idle clocks_event_reasons_hw_power_brake_slowdown clocks_event_reasons_hw_slowdown
    clocks_event_reasons_hw_thermal_slowdown clocks_event_reasons_supported clocks_event_reasons_sw_power_cap
    clocks_event_reasons_sw_thermal_slowdown clocks_event_reasons_sync_boost clocks_max_graphics_clock_hz
    clocks_max_memory_clock_hz clocks_max_sm_clock_hz command_exit_code compute_app_info compute_app_used_memory_bytes
    compute_apps compute_apps_last_collect_success compute_cap compute_mode count display_active display_attached
    ecc_errors_corrected_aggregate_device_memory ecc_errors_corrected_aggregate_dram
    ecc_errors_corrected_aggregate_sram ecc_errors_corrected_aggregate_total ecc_errors_corrected_volatile_total
    ecc_errors_uncorrected_aggregate_sram_l2 ecc_errors_uncorrected_aggregate_sram_threshold_exceeded
    ecc_errors_uncorrected_aggregate_total ecc_errors_uncorrected_volatile_total ecc_mode_current ecc_mode_pending
    edpp_multiplier_ratio encoder_stats_average_fps encoder_stats_average_latency encoder_stats_session_count
    enforced_power_limit_watts fabric_clique_id fabric_state failed_scrapes_total gpu_info gpu_recovery_action
    gsp_mode_current gsp_mode_default index inforom_ecc inforom_oem last_collect_duration_seconds last_collect_success
    last_collect_success_timestamp_seconds memory_free_bytes memory_reserved_bytes memory_total_bytes memory_used_bytes
    mig_mode_current mig_mode_pending name pci_base_class pci_bus pci_device pci_device_id pci_domain pci_sub_class
    pci_sub_device_id pcie_link_gen_current pcie_link_gen_gpucurrent pcie_link_gen_gpumax pcie_link_gen_max
    pcie_link_width_current pcie_link_width_max persistence_mode platform_gpu_fabric_guid platform_host_id
    platform_module_id platform_slot_number platform_tray_index power_default_limit_watts power_draw_average_watts
    power_draw_instant_watts power_draw_watts power_limit_watts power_max_limit_watts power_min_limit_watts
    protected_memory_free_bytes protected_memory_total_bytes protected_memory_used_bytes pstate
    remapped_rows_correctable remapped_rows_failure remapped_rows_histogram_high remapped_rows_histogram_low
    remapped_rows_histogram_max remapped_rows_histogram_none remapped_rows_histogram_partial remapped_rows_pending
    remapped_rows_uncorrectable serial temperature_gpu temperature_gpu_tlimit temperature_memory
    utilization_decoder_ratio utilization_encoder_ratio utilization_gpu_ratio utilization_jpeg_ratio
    utilization_memory_ratio utilization_ofa_ratio
    energy_joules_total pcie_throughput_tx_bytes_per_second pcie_throughput_rx_bytes_per_second mig_info
    mig_memory_total_bytes mig_memory_used_bytes mig_memory_free_bytes mig_memory_reserved_bytes
    mig_graphics_activity_ratio mig_sm_activity_ratio mig_sm_occupancy_ratio mig_tensor_activity_ratio
    mig_pcie_throughput_tx_bytes_per_second mig_pcie_throughput_rx_bytes_per_second xid_errors_total
    xid_last_timestamp_seconds nvml_return_code
"""
NVITOP = """
    nvitop_info host_uptime_Second host_cpu_percent_Percentage host_virtual_memory_total_MiB
    host_virtual_memory_used_MiB host_virtual_memory_free_MiB host_virtual_memory_percent_Percentage
    host_swap_memory_total_MiB host_swap_memory_used_MiB host_swap_memory_free_MiB host_swap_memory_percent_Percentage
    host_load_average_1m_Percentage host_load_average_5m_Percentage host_load_average_15m_Percentage
    host_net_io_tx_data_MiB host_net_io_rx_data_MiB host_net_io_tx_packets_Packet host_net_io_rx_packets_Packet
    host_disk_io_read_data_MiB host_disk_io_write_data_MiB host_disk_usage_total_MiB host_disk_usage_used_MiB
    host_disk_usage_free_MiB host_disk_usage_percent_Percentage gpu_utilization_Percentage
    gpu_memory_utilization_Percentage gpu_encoder_utilization_Percentage gpu_decoder_utilization_Percentage
    gpu_memory_total_MiB gpu_memory_used_MiB gpu_memory_free_MiB gpu_memory_percent_Percentage gpu_clock_sm_MHz
    gpu_clock_memory_MHz gpu_clock_graphics_MHz gpu_clock_video_MHz gpu_power_usage_W gpu_power_limit_W
    gpu_temperature_C gpu_fan_speed_Percentage gpu_pcie_tx_throughput_MiBps gpu_pcie_rx_throughput_MiBps
    gpu_nvlink_total_tx_throughput_MiBps gpu_nvlink_total_rx_throughput_MiBps gpu_nvlink_mean_tx_throughput_MiBps
    gpu_nvlink_mean_rx_throughput_MiBps gpu_nvlink_tx_throughput_MiBps gpu_nvlink_rx_throughput_MiBps
    process_info_info process_running_time_Second process_cpu_percent_Percentage process_rss_memory_MiB
    process_memory_percent_Percentage process_gpu_memory_MiB process_gpu_sm_utilization_Percentage
    process_gpu_memory_utilization_Percentage process_gpu_encoder_utilization_Percentage
    process_gpu_decoder_utilization_Percentage
"""

THEIRS = {
    "dcgm": (DCGM + DCGM_OFF).split(),
    "nvidia_smi": [f"nvidia_smi_{name}" for name in NVIDIA_SMI.split()],
    "nvitop": NVITOP.split(),
}


def _patterns(dialect: str) -> list[str]:
    """What is left out, name by name: `nvidia_smi_a, _b_*` is two."""
    names = [name.strip() for key in load(dialect).left_out for name in key.split(",")]
    return [f"*{name}" if name.startswith("_") else name for name in names]


@for_each((dialect, name) for dialect, names in THEIRS.items() for name in names)
def test_a_name_of_the_original_is_served_or_left_out_with_a_reason(original: tuple[str, str]) -> None:
    """So that docs/compatibility.md leaves nobody to find out by an empty panel."""
    dialect, name = original
    served = name in {family.name for family in load(dialect).families}
    named = any(fnmatchcase(name, pattern) for pattern in _patterns(dialect))

    assert served or named, f"{name} is neither served nor in left_out of {dialect}.py"
    assert not (served and name in load(dialect).left_out)


@pytest.mark.parametrize("dialect", THEIRS)
def test_nothing_is_served_that_the_original_does_not_have(dialect: str) -> None:
    """A dialect has no words of its own; what DCGM has besides its files is in its field catalogue."""
    others = {"DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES"}
    served = {family.name for family in load(dialect).families}
    older = {name for name in served if name.startswith("nvidia_smi_retired_pages_")}  # of GPUs before Ampere

    assert served - set(THEIRS[dialect]) - others - older <= {"nvidia_smi_fan_speed_ratio"}  # of GPUs with a fan
