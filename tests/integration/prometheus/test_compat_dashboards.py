"""agent/compat under a real Prometheus: what the panels of the community's dashboards ask finds what is true.

Dashboards of grafana.com by number: 12239 of dcgm-exporter, 14574 and 25547 of nvidia_gpu_exporter, 22589 of
nvitop-exporter. Each row is one panel or more of the same form: its query with the dashboard's variables, the label
by which its series are told apart here, and what it must find.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.exporter.compat import DIALECTS
from tests.support.builders.compat_pages import MIB, a_proc
from tests.support.components import require
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent
from tests.support.real.prometheus import RunningPrometheus

pytestmark = pytest.mark.component("prometheus")

GIB = 1024 * MIB
UUIDS = tuple(f"00000000-0000-4000-8000-{gpu:012}" for gpu in range(3))
Row = tuple[str, str, dict[str, float]]

# Three GPUs: 0 works, 1 rests, MIG has split 2 into instance 1, and 2 with two compute instances.
EACH = {"0": 400.0, "1": 70.0, "2": 70.0}
UTILIZATION = {"0": 0.5, "1": 0.0}  # no driver tells that of a GPU that MIG has split
INSTANCES = {"1": 1.0 * GIB, "2": 2.0 * GIB}

# Dashboards of dcgm-exporter.

_OF_NODE = '{Hostname=~"$Hostname", gpu=~"$gpus"}'

DCGM: dict[str, Row] = {
    "12239 temperature": (
        f"max(DCGM_FI_DEV_GPU_TEMP{_OF_NODE}) by (Hostname, gpu, uuid)",
        "gpu",
        dict.fromkeys(EACH, 35.0),
    ),
    "12239 mean temperature": (f"avg(DCGM_FI_DEV_GPU_TEMP{_OF_NODE})", "gpu", {"": 35.0}),
    "12239 power": (f"max(DCGM_FI_DEV_POWER_USAGE{_OF_NODE}) by (Hostname, gpu, uuid)", "gpu", EACH),
    "12239 power in all": (f"sum(max(DCGM_FI_DEV_POWER_USAGE{_OF_NODE}) by (gpu))", "gpu", {"": 540.0}),
    "12239 SM clock": (
        f"max(DCGM_FI_DEV_SM_CLOCK{_OF_NODE} * 1000000) by (Hostname, UUID, gpu)",
        "gpu",
        dict.fromkeys(EACH, 345e6),
    ),
    "12239 utilization": (f"max(DCGM_FI_DEV_GPU_UTIL{_OF_NODE}) by (Hostname, gpu)", "gpu", {"0": 50.0, "1": 0.0}),
    "12239 graphics engine": (
        f"max(DCGM_FI_PROF_GR_ENGINE_ACTIVE{_OF_NODE}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",
        "GPU_I_ID",
        {"": 0.6, "1": 0.37, "2": 0.12},
    ),
    "12239 tensor cores": (
        f"max(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{_OF_NODE}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",
        "GPU_I_ID",
        {"": 0.4, "1": 0.0, "2": 0.0},
    ),
    "12239 memory of MIG instances": (
        'max(DCGM_FI_DEV_FB_USED{gpu="2"}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)',
        "GPU_I_ID",
        {"1": 1024.0, "2": 2048.0},
    ),
    "12239 memory of whole GPUs": (
        'max(DCGM_FI_DEV_FB_USED{gpu=~"0|1"}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)',
        "gpu",
        {"0": 600.0, "1": 0.0},
    ),
    "12239 hosts": ('count by (Hostname) (DCGM_FI_DEV_FB_FREE{gpu="0"})', "gpu", {"": 1.0}),
    "12239 GPUs": (f"group by (gpu) (DCGM_FI_DEV_FB_FREE{_OF_NODE})", "gpu", dict.fromkeys(EACH, 1.0)),
    "fill of those that work": (
        (
            "max(DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)"
            " * on (gpu, UUID, Hostname) (DCGM_FI_DEV_GPU_UTIL > bool 0)) by (gpu)"
        ),
        "gpu",
        {"0": 0.6, "1": 0.0},
    ),
    "energy": ("count(rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[2s]) > bool 0)", "gpu", {"": 3.0}),
    "XIDs": ('DCGM_FI_DEV_XID_ERRORS{err_code="31"} > 0', "gpu", {"0": 31.0}),
}

# Dashboards of nvidia_gpu_exporter.

_ONE = '{uuid="$gpu", instance="$node", job="$job"}'
_SOME = '{uuid=~"$gpus", instance="$node", job="$job"}'
_NAMED = f"* on(uuid) group_left(index, name) nvidia_smi_gpu_info{_SOME}"
_LIMIT = f"(nvidia_smi_enforced_power_limit_watts{_SOME} or nvidia_smi_power_limit_watts{_SOME})"
_PROFILES = (
    "on(uuid, gpu_instance_id) group_left(profile) (max by (uuid, gpu_instance_id, profile) (label_replace("
    'nvidia_smi_mig_info{instance="$node", job="$job"}, "profile", "$1", "profile", "^[0-9]+c\\\\.(.*)$")))'
)
_REASONS = ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


def _throttling(by: str, which: str) -> str:
    """The reasons in force of each GPU, under their new names or old ones, 0 for those that no driver tells."""
    none = f"(sum by({by}) (nvidia_smi_gpu_info{which}) * 0)"
    names = [
        (f"nvidia_smi_clocks_event_reasons_{each}", f"nvidia_smi_clocks_throttle_reasons_{each}") for each in _REASONS
    ]
    return " + ".join(f"(sum by({by}) ({new}{which} or {old}{which}) or {none})" for new, old in names)


def _or_not(query: str) -> str:
    """As the table of all GPUs asks: -1 of those that do not have it."""
    return f"({query}) or (sum by(uuid, instance, job) (nvidia_smi_gpu_info{_SOME}) * 0 - 1)"


def _of_all(values: dict[str, float]) -> dict[str, float]:
    """By uuid, and -1 for who is not named."""
    return {uuid: values.get(str(gpu), -1.0) for gpu, uuid in enumerate(UUIDS)}


NVIDIA_SMI: dict[str, Row] = {
    "14574 recovery action": (f"nvidia_smi_gpu_recovery_action{_ONE}", "uuid", {UUIDS[0]: 0.0}),
    "14574 throttling": (_throttling("uuid", _ONE), "uuid", {UUIDS[0]: 1.0}),
    "14574 ECC errors": (
        (
            f"sum by(uuid) (nvidia_smi_ecc_errors_uncorrected_aggregate_total{_ONE})"
            f' or sum by(uuid) ({{__name__=~"nvidia_smi_ecc_errors_uncorrected_aggregate_.+", {_ONE[1:]})'
        ),
        "uuid",
        {UUIDS[0]: 0.0},
    ),
    "14574 P-state": (f"nvidia_smi_pstate{_ONE}", "uuid", {UUIDS[0]: 0.0}),
    "14574 GPU info": (f"nvidia_smi_gpu_info{_ONE}", "driver_version", {"580.65.06": 1.0}),
    "14574 compute mode": (f"nvidia_smi_compute_mode{_ONE}", "uuid", {UUIDS[0]: 0.0}),
    "14574 utilization": (f"nvidia_smi_utilization_gpu_ratio{_ONE}", "uuid", {UUIDS[0]: 0.5}),
    "14574 power": (
        f"nvidia_smi_power_draw_watts{_ONE} / {_LIMIT.replace(_SOME, _ONE)}",
        "uuid",
        {UUIDS[0]: 400 / 700},
    ),
    "14574 fan": (
        f"sum(nvidia_smi_fan_speed_ratio{_ONE}) or sum(nvidia_smi_gpu_info{_ONE}) * 0 - 1",
        "uuid",
        {"": 0.3},
    ),
    "14574 temperature": (f"nvidia_smi_temperature_gpu{_ONE}", "uuid", {UUIDS[0]: 35.0}),
    "14574 graphics clock": (
        f"nvidia_smi_clocks_current_graphics_clock_hz{_ONE} / nvidia_smi_clocks_max_graphics_clock_hz{_ONE} > bool 0",
        "uuid",
        {UUIDS[0]: 1.0},
    ),
    "14574 video clock": (f"nvidia_smi_clocks_current_video_clock_hz{_ONE}", "uuid", {UUIDS[0]: 765e6}),
    "14574 processes": (
        (
            f"(nvidia_smi_compute_app_used_memory_bytes{_ONE} or (nvidia_smi_compute_app_info{_ONE} * 0))"
            f" / on(uuid) group_left() nvidia_smi_memory_total_bytes{_ONE}"
        ),
        "pid",
        {"4711": 0.5, "815": 0.0},
    ),
    "14574 names of processes": (
        f"nvidia_smi_compute_app_used_memory_bytes{_ONE}",
        "process_name",
        {"[train.service]": 500.0 * MIB},
    ),
    "14574 process collection": (
        'nvidia_smi_compute_apps_last_collect_success{instance="$node", job="$job"}',
        "uuid",
        {"": 1.0},
    ),
    "14574 XIDs": (
        f"sum(nvidia_smi_xid_errors_total{_ONE}) or sum(nvidia_smi_gpu_info{_ONE}) * 0",
        "uuid",
        {"": 1.0},
    ),
    "14574 last XID": (
        (
            f"(time() - max(nvidia_smi_xid_last_timestamp_seconds{_ONE}) or (sum(nvidia_smi_gpu_info{_ONE}) * 0 - 1))"
            " < bool 600 > bool 0"
        ),
        "uuid",
        {"": 1.0},
    ),
    "14574 power by the energy counter": (
        f"rate(nvidia_smi_energy_joules_total{_ONE}[$__rate_interval]) > bool 300",
        "uuid",
        {UUIDS[0]: 1.0},
    ),
    "14574 PCIe": (f"nvidia_smi_pcie_throughput_tx_bytes_per_second{_ONE}", "uuid", {UUIDS[0]: 3.0 * MIB}),
    "25547 utilization in the table": (
        _or_not(f"nvidia_smi_utilization_gpu_ratio{_SOME}"),
        "uuid",
        _of_all(UTILIZATION),
    ),
    "25547 memory in the table": (
        _or_not(f"nvidia_smi_memory_used_bytes{_SOME} / nvidia_smi_memory_total_bytes{_SOME}"),
        "uuid",
        _of_all({"0": 0.6, "1": 0.0, "2": 0.0}),
    ),
    "25547 power in the table": (
        _or_not(f"nvidia_smi_power_draw_watts{_SOME} / ({_LIMIT} > 0)"),
        "uuid",
        {uuid: watts / 700 for uuid, watts in zip(UUIDS, EACH.values(), strict=True)},
    ),
    "25547 throttling": (
        f"({_throttling('uuid, instance, job', _SOME)}) {_NAMED}",
        "index",
        {"0": 1.0, "1": 0.0, "2": 0.0},
    ),
    "25547 utilization": (f"(nvidia_smi_utilization_gpu_ratio{_SOME}) {_NAMED}", "index", UTILIZATION),
    "25547 memory activity": (
        f"(nvidia_smi_utilization_memory_ratio{_SOME}) {_NAMED}",
        "index",
        dict.fromkeys("01", 0.0),
    ),
    "25547 memory": (
        f"(nvidia_smi_memory_used_bytes{_SOME}) {_NAMED}",
        "index",
        {"0": 600.0 * MIB, "1": 0.0, "2": 0.0},
    ),
    "25547 power, by the GPUs' names": (
        f"sum by (name) (nvidia_smi_power_draw_watts{_SOME} * on (uuid) group_left(name) nvidia_smi_gpu_info)",
        "name",
        {"NVIDIA Stub 80GB": 540.0},
    ),
    "25547 memory clock": (
        f"(nvidia_smi_clocks_current_memory_clock_hz{_SOME}) {_NAMED}",
        "index",
        dict.fromkeys(EACH, 2619e6),
    ),
    "25547 XIDs": (
        (
            f"(sum by (uuid) (nvidia_smi_xid_errors_total{_SOME})) * on(uuid) group_left(index, name)"
            f" (max by (uuid, index, name) (nvidia_smi_gpu_info{_SOME}))"
            f" or ((max by (uuid, index, name) (nvidia_smi_gpu_info{_SOME})) * 0)"
        ),
        "index",
        {"0": 1.0, "1": 0.0, "2": 0.0},
    ),
    "25547 MIG instances": (
        (
            'max by (uuid, gpu_instance_id, profile) (nvidia_smi_mig_info{instance="$node", job="$job"})'
            f" * on(uuid) group_left(index, name) (max by (uuid, index, name) (nvidia_smi_gpu_info{_SOME}))"
        ),
        "gpu_instance_id",
        {"1": 1.0, "2": 1.0},
    ),
    "25547 memory of MIG instances": (
        f"((nvidia_smi_mig_memory_used_bytes{_SOME}) * {_PROFILES}) {_NAMED}",
        "gpu_instance_id",
        INSTANCES,
    ),
    "25547 profiles of MIG instances": (
        f"((nvidia_smi_mig_sm_activity_ratio{_SOME}) * {_PROFILES}) {_NAMED}",
        "profile",
        {"1g.10gb": 0.37, "2g.20gb": 0.12},
    ),
    "25547 GPUs": (
        'label_join(nvidia_smi_gpu_info{instance="$node", job="$job"}, "ni", " #", "name", "index")',
        "ni",
        {f"NVIDIA Stub 80GB #{gpu}": 1.0 for gpu in EACH},
    ),
    "14574 and 25547 jobs": (
        'count by (job) (nvidia_smi_index{job="$job", instance="$node"})',
        "job",
        {"gpuwatch": 3.0},
    ),
    "alert: collection failing": ("nvidia_smi_last_collect_success == 0", "uuid", {}),
    "alert: collection stale": ("time() - nvidia_smi_last_collect_success_timestamp_seconds > 120", "uuid", {}),
}

# The dashboard of nvitop-exporter.

_HOST = '{hostname=~"$hostname"}'
_OF_HOST = (
    "host_cpu_percent_Percentage",
    "host_load_average_(?:1|5|15)m_Percentage",
    "host_virtual_memory_(?:used_MiB|percent_Percentage)",
    "host_swap_memory_used_MiB",
)
_USER = '{hostname=~"$hostname", username=~"$username"}'

NVITOP: dict[str, Row] = {
    "22589 utilization": (f"gpu_utilization_Percentage{_HOST}", "index", {"0": 50.0, "1": 0.0}),
    "22589 memory": (f"gpu_memory_percent_Percentage{_HOST}", "index", {"0": 60.0, "1": 0.0, "2": 0.0}),
    "22589 power": (f"gpu_power_usage_W{_HOST}", "index", EACH),
    "22589 NVLink": (f"gpu_nvlink_total_rx_throughput_MiBps{_HOST}", "index", {"0": 8.0, "2": 0.0}),
    "22589 GPUs occupied": (f"count(group by(uuid) (process_gpu_memory_MiB{_USER}))", "index", {"": 1.0}),
    "22589 GPUs": (f"count(gpu_memory_total_MiB{_HOST})", "index", {"": 3.0}),
    "22589 processes of a GPU": (f"count by(hostname, index) (process_gpu_memory_MiB{_USER})", "index", {"0": 1.0}),
    "22589 processes of a host": (
        f"count by(hostname) (count by(hostname, pid) (process_info_info{_USER}))",
        "index",
        {"": 1.0},
    ),
    "22589 table: GPU memory": (f"process_gpu_memory_MiB{_USER}", "pid", {"4711": 500.0}),
    "22589 table: resident memory": (f"process_rss_memory_MiB{_USER}", "pid", {"4711": 1.0}),
    "22589 table: time": (f"process_running_time_Second{_USER}", "pid", {"4711": 95.0}),
    "22589 table: user": (f"process_info_info{_USER}", "username", {"root": 1.0}),
    "22589 table: status": (f"process_info_info{_USER}", "status", {"running": 1.0}),
    "22589 table: what runs": (f"process_info_info{_USER}", "command", {"[train.service]": 1.0}),
    "22589 host": (f'count({{__name__=~"{"|".join(_OF_HOST)}", {_HOST[1:]})', "index", {"": 7.0}),
    "22589 hosts": ('count(count by (hostname) ({hostname!="", index="0"}))', "index", {"": 1.0}),
}

PANELS = {**DCGM, **NVIDIA_SMI, **NVITOP}


@pytest.fixture(scope="module")
def scraped(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningPrometheus, str]]:
    """A Prometheus, and the agent that it scrapes in all dialects."""
    require("prometheus")
    folder = tmp_path_factory.mktemp("dashboards")
    driver = StubDriver(folder / "driver", nvml_library, gpus=3)
    works = driver.gpu(0).utilization(0.5).set(power=400_000, clock_events=0x4, energy_grows=1)
    works.set(memory_total=1000 * MIB, memory_used=600 * MIB, memory_reserved=0)
    works.processes({4711: 500 * MIB, 815: None}).gpm({1: 60, 5: 40, 20: 3, 60: 8})
    driver.gpu(1).set(gpm=0)
    driver.gpu(2).mig((1, "1g.10gb", 9 * GIB, GIB, 37), *[(2, "1c.2g.20gb", 18 * GIB, 2 * GIB, 12)] * 2)
    proc = a_proc(folder / "proc", p4711="R 30 10 500 256")
    with RunningAgent(driver.environment, compat=",".join(DIALECTS), attribution__proc=proc) as agent:
        node = agent.url.removeprefix("http://")
        running = RunningPrometheus(folder / "prometheus", node)
        running.sees("count(nvidia_smi_gpu_info)", {"": 3.0})
        driver.gpu(0).xid(31)
        yield running, node
        running.close()


@pytest.mark.parametrize(("query", "label", "expected"), PANELS.values(), ids=PANELS)
def test_a_panel_finds_its_values(
    scraped: tuple[RunningPrometheus, str], query: str, label: str, expected: dict[str, float]
) -> None:
    """Its query, joins and variables included, gives what the driver shows."""
    prometheus, node = scraped
    variables = {
        "$Hostname": ".+",
        "$hostname": ".+",
        "$username": "root",
        "$gpus": "|".join((*EACH, *UUIDS)),
        "$gpu": UUIDS[0],
        "$node": node,
        "$job": "gpuwatch",
        "$__rate_interval": "2s",
    }
    for name, value in variables.items():
        query = query.replace(name, value)

    prometheus.sees(f'label_replace({query}, "gpu", "$1", "{label}", "(.*)")', expected)
