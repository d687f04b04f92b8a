"""agent/compat: other exporters' names, units and labels. Each name stands here with its value, and with its labels."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.attribution.joiner import View
from gpuwatch.agent.attribution.pods import Workload
from gpuwatch.agent.attribution.process import Owner
from gpuwatch.agent.catalogue import FAMILIES
from gpuwatch.agent.compat import DIALECTS, Compatibility, load
from gpuwatch.agent.compat.host import HostFigures
from gpuwatch.agent.compat.manual import render
from gpuwatch.agent.compat.table import UNITS, Sample
from gpuwatch.agent.core import AgentCore, Interruption
from gpuwatch.agent.exporter import Exporter
from gpuwatch.clock import ManualClock
from gpuwatch.configuration import load_agent
from gpuwatch.devices.protocol import Event
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.model.mig import MigDevice, MigInstance
from tests.agents import ROOT, RunningAgent
from tests.builders import GIB, a_cycle, a_down, a_process, a_reading
from tests.nvml import StubDriver
from tests.test_prometheus import RunningPrometheus

parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PLAIN = "text/plain; version=0.0.4"
MIB = 1 << 20

LINKS = {"0": 3.0, "1": 4.0}
FULL = a_reading(
    utilization_ratio=0.07,
    memory_bandwidth_utilization_ratio=0.29,
    encoder_utilization_ratio=0.11,
    decoder_utilization_ratio=0.12,
    jpeg_utilization_ratio=0.13,
    ofa_utilization_ratio=0.14,
    graphics_activity_ratio=0.21,
    sm_activity_ratio=0.22,
    sm_occupancy_ratio=0.23,
    tensor_activity_ratio=0.24,
    dram_activity_ratio=0.25,
    fp64_activity_ratio=0.26,
    fp32_activity_ratio=0.27,
    fp16_activity_ratio=0.28,
    memory_total_bytes=80 * GIB,
    memory_used_bytes=20 * GIB,
    memory_free_bytes=59 * GIB,
    memory_reserved_bytes=GIB,
    temperature_celsius=61.0,
    memory_temperature_celsius=70.0,
    temperature_margin_celsius=26.0,
    power_watts=433.78,
    power_instant_watts=447.35,
    power_limit_watts=650.0,
    power_limit_default_watts=700.0,
    power_limit_min_watts=200.0,
    power_limit_max_watts=710.0,
    energy_joules_total=123456.789,
    sm_clock_hertz=1.98e9,
    memory_clock_hertz=2.619e9,
    graphics_clock_hertz=1.965e9,
    video_clock_hertz=1.545e9,
    sm_clock_max_hertz=1.981e9,
    memory_clock_max_hertz=2.62e9,
    graphics_clock_max_hertz=1.982e9,
    clock_events=("sw_power_cap", "hw_thermal_slowdown"),
    clock_event_seconds_total={
        "sw_power_cap": 1.5,
        "sync_boost": 0.25,
        "sw_thermal_slowdown": 2.5,
        "hw_thermal_slowdown": 3.5,
        "hw_power_brake_slowdown": 4.5,
    },
    performance_state=2,
    fan_speed_ratio=0.57,
    pcie_link_generation=4,
    pcie_link_generation_max=5,
    pcie_link_width=8,
    pcie_link_width_max=16,
    pcie_tx_bytes_per_second=3.0 * MIB,
    pcie_rx_bytes_per_second=4.5 * MIB,
    pcie_replays_total=6,
    nvlink_tx_bytes_per_second=7.0 * MIB,
    nvlink_rx_bytes_per_second=8.0 * MIB,
    nvlink_replay_errors_total=LINKS,
    nvlink_recovery_errors_total={"0": 1.0, "1": 0.0},
    ecc_corrected_volatile_errors_total=31,
    ecc_corrected_aggregate_errors_total=32,
    ecc_uncorrected_volatile_errors_total=0,
    ecc_uncorrected_aggregate_errors_total=34,
    retired_pages_total={"single_bit": 41.0, "double_bit": 42.0},
    retired_pages_pending=1,
    remapped_rows_total={"correctable": 51.0, "uncorrectable": 52.0},
    remapped_rows_pending=0,
    remapped_rows_failure=1,
    recovery_action=2,
    ecc_mode=1,
    persistence_mode=1,
    mig_mode=0,
    compute_mode=3,
    processes=(a_process(4711, 12 * GIB), a_process(815, 6 * GIB), a_process(42, GIB), a_process(43, GIB)),
)
INFO = replace(
    FULL.info,
    uuid="GPU-DF6E7A7C-7314-46f8-abc4-b88b36dcf3aa",
    name='NVIDIA "Test" 80GB',
    cuda_version="13.0",
    vbios_version="96.00.A5.00.03",
    serial="1652",
)
FULL = replace(FULL, info=INFO)

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
}

VALUES = {"dcgm": DCGM, "nvidia_smi": NVIDIA_SMI, "nvitop": NVITOP}

SMI_UUID = "df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"
LABELS = {
    "dcgm": {
        "gpu": "0",
        "UUID": INFO.uuid,
        "pci_bus_id": "00000000:01:00.0",
        "device": "nvidia0",
        "modelName": 'NVIDIA "Test" 80GB',
        "Hostname": "node-7",
        "hostname": "node-7",
        "DCGM_FI_DRIVER_VERSION": "580.65.06",
    },
    "nvidia_smi": {"uuid": SMI_UUID},
    "nvitop": {"hostname": "node-7", "index": "0", "devicename": 'NVIDIA "Test" 80GB', "uuid": INFO.uuid},
}

# What is not one value of one GPU has a test of its own below.
TOLD_BELOW = {
    "nvidia_smi_gpu_info",
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
}


class Page:
    """A node's page in some dialects, on a clock of its own."""

    def __init__(
        self,
        *names: str,
        users: View | None = None,
        host: Callable[[], Iterable[Sample]] = tuple,
        top_processes: int = 2,
    ) -> None:
        """An agent that has just begun."""
        self.clock = ManualClock()
        self.core = AgentCore(
            node_id="i-0123456789abcdef0",
            clock=self.clock,
            rules=ActivityRules(),
            interval_seconds=1.0,
            stale_after_seconds=8.0,
        )
        foreign = Compatibility(
            names, hostname="node-7", top_processes=top_processes, users=lambda: users, host=host
        ).extend
        self.exporter = Exporter(
            self.core, self.clock, node_id="n", top_processes=top_processes, own_process=False, foreign=foreign
        )
        self.seq = 0

    def cycle(self, *entries: GpuReading | GpuDown, xid: int | None = None) -> "Page":
        """One cycle, in which the driver may tell of an error of the first GPU."""
        self.clock.advance(1.0)
        self.seq += 1
        begin, *rest = a_cycle(self.seq, self.clock.monotonic(), *entries)
        told = [] if xid is None else [Event(seq=self.seq, uuid=entries[0].info.uuid, xid=xid)]
        self.core.ingest_messages([begin, *told, *rest])
        return self

    def text(self, accept: str = PLAIN) -> str:
        """As a scraper gets it."""
        return self.exporter.page(accept).body.decode()

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample of that name."""
        found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", self.text(), re.MULTILINE)
        return [(_unescaped(labels), float(value)) for labels, value in found]


def _unescaped(text: str) -> dict[str, str]:
    """Labels as a page has them. prometheus-client's parser would rename counters that do not end in _total."""
    pairs: list[tuple[str, str]] = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', text)
    return {name: value.replace('\\"', '"').replace("\\\\", "\\") for name, value in pairs}


# Names, units and labels.


@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for dialect, values in VALUES.items() for name in values]
)
def test_a_name_has_its_value_in_the_foreign_unit_and_the_foreign_labels(dialect: str, name: str) -> None:
    """One sample, exactly so."""
    assert Page(dialect).cycle(FULL).samples(name) == [(LABELS[dialect], VALUES[dialect][name])]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_name_is_tested(dialect: str) -> None:
    """A new row of a table is a new line here; the host's and MIG's names have their own tests."""
    names = {family.name for family in load(dialect).families}

    assert {name for name in names if not name.startswith(("host_", "nvidia_smi_mig_m", "nvidia_smi_mig_s"))} <= (
        VALUES[dialect].keys()
        | TOLD_BELOW
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


def test_collection_alerts_fire_on_a_failure() -> None:
    """last_collect_success is 1 after a whole cycle of all GPUs, 0 before the first, with one lost, without a probe."""

    def success(page: Page) -> float:
        return page.samples("nvidia_smi_last_collect_success")[0][1]

    page = Page("nvidia_smi")
    assert success(page) == 0.0
    assert success(page.cycle(FULL)) == 1.0
    [(labels, ended)] = page.samples("nvidia_smi_last_collect_success_timestamp_seconds")
    assert (labels, ended) == ({}, page.clock.now().timestamp())
    assert page.samples("nvidia_smi_last_collect_duration_seconds") == [({}, 0.01)]
    assert success(page.cycle(FULL, a_down(1))) == 0.0
    page.cycle(FULL, a_reading(1)).core.interrupt(Interruption.EXIT, "it ended")
    page.clock.advance(1.0)
    assert success(page) == 0.0


# XIDs.


def test_xids_are_shown_also_of_a_lost_gpu() -> None:
    """The last one is a code with its words for dcgm, nvidia_smi counts each; without one there is no series."""
    page = Page("dcgm", "nvidia_smi").cycle(FULL)
    assert page.samples("DCGM_FI_DEV_XID_ERRORS") == page.samples("nvidia_smi_xid_errors_total") == []

    for xid in (79, 31, 250):
        page.clock.advance(60.0)
        page.cycle(FULL, xid=xid)
        told = page.clock.now().timestamp()
    page.cycle(replace(a_down(0), info=INFO))

    unknown = {"err_code": "250", "err_msg": "Unknown Error"}
    assert page.samples("DCGM_FI_DEV_XID_ERRORS") == [({**LABELS["dcgm"], **unknown}, 250.0)]
    assert page.samples("nvidia_smi_xid_errors_total") == [
        ({"uuid": SMI_UUID, "xid": str(xid)}, 1.0) for xid in (79, 31, 250)
    ]
    assert page.samples("nvidia_smi_xid_last_timestamp_seconds")[-1] == ({"uuid": SMI_UUID, "xid": "250"}, told)


# Who holds it.


def test_process_series_are_the_largest_and_no_more() -> None:
    """As many per GPU as top_processes allows, with their user where that is known; never a command line."""
    users = View(monotonic_seconds=0.0, owners={4711: Owner(user="ada")})
    page = Page("nvitop", "nvidia_smi", users=users, top_processes=2).cycle(FULL)
    of_gpu = LABELS["nvitop"]

    assert page.samples("process_gpu_memory_MiB") == [
        ({**of_gpu, "pid": "4711", "username": "ada"}, 12 * 1024.0),
        ({**of_gpu, "pid": "815"}, 6 * 1024.0),
    ]
    assert page.samples("process_info_info") == [
        ({**of_gpu, "pid": "4711", "username": "ada"}, 1.0),
        ({**of_gpu, "pid": "815"}, 1.0),
    ]
    assert page.samples("nvidia_smi_compute_app_used_memory_bytes") == [
        ({"uuid": SMI_UUID, "pid": "4711"}, 12.0 * GIB),
        ({"uuid": SMI_UUID, "pid": "815"}, 6.0 * GIB),
    ]


def test_dcgm_names_the_pod_that_holds_the_gpu() -> None:
    """namespace, pod and container, if it is one; a GPU that several share is nobody's."""
    one = Workload(namespace="ml", pod="train-0", container="main")
    two = Workload(namespace="ml", pod="train-1", container="main")
    held = View(monotonic_seconds=0.0, held={INFO.uuid: (one,), "GPU-1": (one, two)})
    page = Page("dcgm", users=held).cycle(FULL, a_reading(1))
    found = {labels["gpu"]: labels for labels, _ in page.samples("DCGM_FI_DEV_GPU_UTIL")}

    assert found["0"] == {**LABELS["dcgm"], "namespace": "ml", "pod": "train-0", "container": "main"}
    assert found["1"].keys() & {"namespace", "pod", "container"} == set()


# MIG.


MIG_VALUES = {
    "memory_total_bytes": 10.0 * GIB,
    "memory_used_bytes": 4.0 * GIB,
    "memory_free_bytes": 6.0 * GIB,
    "graphics_activity_ratio": 0.5,
    "sm_activity_ratio": 0.4,
    "sm_occupancy_ratio": 0.3,
    "tensor_activity_ratio": 0.2,
}
INSTANCE = MigInstance(
    id=7,
    devices=(
        MigDevice(uuid="MIG-a", compute_instance=0, profile="1c.2g.20gb"),
        MigDevice(uuid="MIG-b", compute_instance=1, profile="1c.2g.20gb"),
    ),
    memory_total_bytes=10 * GIB,
    memory_used_bytes=4 * GIB,
    memory_free_bytes=6 * GIB,
    graphics_activity_ratio=0.5,
    sm_activity_ratio=0.4,
    sm_occupancy_ratio=0.3,
    tensor_activity_ratio=0.2,
    dram_activity_ratio=0.1,
)


@pytest.mark.parametrize(("what", "value"), MIG_VALUES.items())
def test_nvidia_smi_shows_a_mig_instance_once(what: str, value: float) -> None:
    """However many devices share it."""
    page = Page("nvidia_smi").cycle(replace(FULL, mig_instances=(INSTANCE,)))

    assert page.samples(f"nvidia_smi_mig_{what}") == [({"uuid": SMI_UUID, "gpu_instance_id": "7"}, value)]


def test_nvidia_smi_lists_mig_devices() -> None:
    """Each with its own uuid, so that mig_info joins on uuid and gpu_instance_id."""
    page = Page("nvidia_smi").cycle(replace(FULL, mig_instances=(INSTANCE,)))
    shared = {"uuid": SMI_UUID, "gpu_instance_id": "7", "profile": "1c.2g.20gb"}

    assert page.samples("nvidia_smi_mig_info") == [
        ({**shared, "mig_uuid": "MIG-a", "compute_instance_id": "0"}, 1.0),
        ({**shared, "mig_uuid": "MIG-b", "compute_instance_id": "1"}, 1.0),
    ]


def test_dcgm_shows_an_instances_values_in_place_of_the_gpus() -> None:
    """So a sum over the page counts no byte twice; what instances do not have the GPU shows itself."""
    page = Page("dcgm").cycle(replace(FULL, mig_instances=(INSTANCE,)))
    of_instance = {**LABELS["dcgm"], "GPU_I_ID": "7", "GPU_I_PROFILE": "1c.2g.20gb"}

    assert page.samples("DCGM_FI_DEV_FB_USED") == [(of_instance, 4 * 1024.0)]
    assert page.samples("DCGM_FI_PROF_DRAM_ACTIVE") == [(of_instance, 0.1)]
    assert page.samples("DCGM_FI_DEV_POWER_USAGE") == [(LABELS["dcgm"], 433.78)]


# The host.


def _a_host(root: Path, *, busy: int, idle: int) -> HostFigures:
    """/proc and /sys of a small machine whose CPU spent so many ticks."""
    files = {
        "proc/uptime": "86400.25 170000.00\n",
        "proc/stat": f"cpu  {busy} 0 0 {idle} 0 0 0 0 999 0\ncpu0 1 2 3\n",
        "proc/meminfo": "MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 3072 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/loadavg": "0.50 1.25 2.00 1/100 4711\n",
        "proc/net/dev": "head\nhead\n"
        " ens5: 1048576 10 0 0 0 0 0 0 2097152 20 0 0 0 0 0 0\n  lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n",
        "proc/diskstats": "259 0 nvme0n1 1 0 2048 0 1 0 4096 0 0 0 0\n259 1 nvme0n1p1 1 0 2048 0 1 0 4096 0 0 0 0\n",
        "sys/class/net/ens5/device": "",
        "sys/class/net/lo/flags": "",
        "sys/block/nvme0n1/device": "",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return HostFigures(root / "proc", root / "sys")


HOST = {
    "host_uptime_Second": ({}, 86400.25),
    "host_cpu_percent_Percentage": ({}, 75.0),
    "host_virtual_memory_total_MiB": ({}, 4.0),
    "host_virtual_memory_used_MiB": ({}, 1.0),
    "host_virtual_memory_free_MiB": ({}, 1.0),
    "host_virtual_memory_percent_Percentage": ({}, 25.0),
    "host_swap_memory_total_MiB": ({}, 0.0),
    "host_swap_memory_used_MiB": ({}, 0.0),
    "host_swap_memory_free_MiB": ({}, 0.0),
    "host_swap_memory_percent_Percentage": ({}, 0.0),
    "host_load_average_1m_Percentage": ({}, 0.5),
    "host_load_average_5m_Percentage": ({}, 1.25),
    "host_load_average_15m_Percentage": ({}, 2.0),
    "host_net_io_rx_data_MiB": ({"interface": "ens5"}, 1.0),
    "host_net_io_tx_data_MiB": ({"interface": "ens5"}, 2.0),
    "host_net_io_rx_packets_Packet": ({"interface": "ens5"}, 10.0),
    "host_net_io_tx_packets_Packet": ({"interface": "ens5"}, 20.0),
    "host_disk_io_read_data_MiB": ({"partition": "nvme0n1"}, 1.0),
    "host_disk_io_write_data_MiB": ({"partition": "nvme0n1"}, 2.0),
}


@pytest.mark.parametrize("name", HOST)
def test_nvitop_shows_the_host(name: str, tmp_path: Path) -> None:
    """Each figure with the host's name; CPU use between two pages; real cards and whole disks only."""
    figures = _a_host(tmp_path, busy=100, idle=100)
    page = Page("nvitop", host=figures).cycle(FULL)
    assert page.samples("host_cpu_percent_Percentage") == []

    _a_host(tmp_path, busy=400, idle=200)

    labels, value = HOST[name]
    assert page.cycle(FULL).samples(name) == [({"hostname": "node-7", **labels}, value)]


def test_every_host_figure_is_tested() -> None:
    """A new one is a new line above."""
    assert {family.name for family in load("nvitop").families if family.name.startswith("host_")} == HOST.keys()


def test_a_host_that_cannot_be_read_costs_its_figures_only(tmp_path: Path) -> None:
    """A missing file and a broken one leave out what they would say; the rest is there."""
    figures = _a_host(tmp_path, busy=1, idle=1)
    (tmp_path / "proc/meminfo").unlink()
    (tmp_path / "proc/net/dev").write_text("head\nhead\n ens5: broken\n", encoding="ascii")
    page = Page("nvitop", host=figures).cycle(FULL)

    assert page.samples("host_virtual_memory_total_MiB") == []
    assert page.samples("host_net_io_rx_data_MiB") == []
    assert len(page.samples("host_uptime_Second")) == 1
    assert len(page.samples("gpu_temperature_C")) == 1


def test_this_host_can_be_read() -> None:
    """The real /proc has what the figures need."""
    figures = HostFigures()
    names = {name for name, _, _ in [*figures(), *figures()]}

    assert {"host_uptime_Second", "host_virtual_memory_total_MiB", "host_load_average_1m_Percentage"} <= names


# The page.


def test_without_a_dialect_nothing_is_added() -> None:
    """The page is what it is for an agent that knows of none."""
    page = Page().cycle(FULL).text()

    assert set(re.findall(r"^([a-zA-Z_]+?)_", page, re.MULTILINE)) == {"gpuwatch"}


def test_both_formats_say_the_same_in_all_dialects_at_once() -> None:
    """Parsers take both, with the same samples; in the plain one types are those of the originals."""
    page = Page(*DIALECTS).cycle(replace(FULL, mig_instances=(INSTANCE,)), a_reading(1))
    plain, open_ = page.text(), page.text(OPENMETRICS)
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", plain, re.MULTILINE))

    assert _samples_of(plain) == _samples_of(open_)
    assert len(list(parse_openmetrics(open_))) == len(list(parse_prometheus(plain)))
    assert types["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == "counter"
    assert types["DCGM_FI_DEV_GPU_UTIL"] == "gauge"
    assert types["nvidia_smi_energy_joules_total"] == "counter"
    assert types["nvidia_smi_ecc_errors_corrected_volatile_total"] == "gauge"


def _samples_of(page: str) -> set[str]:
    return {line for line in page.splitlines() if not line.startswith("#")}


def test_the_documentation_is_the_tables() -> None:
    """docs/compatibility.md is what the generator writes: `python -m gpuwatch.agent.compat.manual`."""
    written = ROOT / "docs" / "compatibility.md"

    assert written.read_text(encoding="utf-8") == render()


# The setting.


def test_dialects_are_a_setting() -> None:
    """Any combination, by file or environment; every dialect can be chosen."""
    assert load_agent(None, {"GPUWATCH_AGENT__COMPAT": "dcgm,nvitop"}).compat == ("dcgm", "nvitop")
    assert load_agent(None, {"GPUWATCH_AGENT__COMPAT": ",".join(DIALECTS)}).compat == DIALECTS


def test_flags_add_up_and_a_wrong_one_is_named() -> None:
    """--compat may be given several times or with commas."""
    command = [sys.executable, "-m", "gpuwatch", "agent", "--compat", "dcgm,nvitop", "--compat", "dcgn"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert 'agent.compat.2: "dcgn" is none of the choices' in ended.stderr


# A real agent, scraped by a real Prometheus, under the queries of the dashboards.


@pytest.fixture
def prometheus(driver: StubDriver, tmp_path: Path) -> Iterator[RunningPrometheus]:
    """One that scrapes an agent in all dialects, on two GPUs: the first works, the second rests."""
    driver.gpus(2)
    driver.gpu(0).utilization(0.5).set(power=400_000, memory_total=1000 * MIB, memory_used=600 * MIB, memory_reserved=0)
    driver.gpu(0).processes({4711: 600 * MIB})
    with RunningAgent(driver.environment, compat=",".join(DIALECTS)) as agent:
        running = RunningPrometheus(tmp_path / "prometheus", agent.url.removeprefix("http://"))
        yield running
        running.close()


@pytest.mark.component("prometheus")
def test_dashboards_find_their_values_on_a_real_prometheus(prometheus: RunningPrometheus) -> None:
    """What 12239, 25547 and 22589 ask, joins and template variables included."""
    both = {"0": 400.0, "1": 70.0}
    prometheus.sees('max(DCGM_FI_DEV_POWER_USAGE{Hostname=~".+", gpu=~"0|1"}) by (Hostname, gpu, uuid)', both)
    prometheus.sees("max(DCGM_FI_DEV_GPU_UTIL) by (gpu)", {"0": 50.0, "1": 0.0})
    fill = "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)"
    prometheus.sees(
        f"max({fill} * on (gpu, UUID, Hostname) (DCGM_FI_DEV_GPU_UTIL > bool 0)) by (gpu)", {"0": 0.6, "1": 0.0}
    )
    prometheus.sees("count(rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[2s]) > bool 0)", {"": 2.0})
    of_gpu = "on (uuid, instance, job) group_left (index) nvidia_smi_gpu_info"
    gpu = '"gpu", "$1", "index", "(.*)"'
    prometheus.sees(f"label_replace(nvidia_smi_power_draw_watts * {of_gpu}, {gpu})", both)
    prometheus.sees(f"label_replace(nvidia_smi_utilization_gpu_ratio * {of_gpu}, {gpu})", {"0": 0.5, "1": 0.0})
    prometheus.sees(
        "sum(nvidia_smi_clocks_event_reasons_sw_power_cap or nvidia_smi_clocks_throttle_reasons_sw_power_cap)",
        {"": 0.0},
    )
    prometheus.sees("nvidia_smi_last_collect_success == 0", {})
    prometheus.sees(f"label_replace(gpu_power_usage_W, {gpu})", both)
    prometheus.sees('count(group by (uuid) (process_gpu_memory_MiB{hostname=~".+"}))', {"": 1.0})
    for metric, label in (
        ("DCGM_FI_DEV_FB_FREE", "Hostname"),
        ("DCGM_FI_DEV_FB_FREE", "gpu"),
        ("nvidia_smi_index", "job"),
        ("nvidia_smi_index", "instance"),
        ("nvidia_smi_gpu_info", "uuid"),
        ("gpu_utilization_Percentage", "hostname"),
    ):
        values = prometheus.query(f'count(count by ({label}) ({metric}{{{label}!=""}}))')

        assert values, f"label_values({metric}, {label}) is empty"
