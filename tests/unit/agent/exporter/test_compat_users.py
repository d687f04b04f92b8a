"""agent/compat: the processes, pods and MIG instances behind a GPU."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.attribution.pods import Workload
from gpuwatch.agent.attribution.process import Owner
from gpuwatch.agent.exporter.compat import DIALECTS
from gpuwatch.model.gpu import GpuDown, GpuReading, ProcessKind
from tests.support.builders.compat_pages import FULL, INFO, INSTANCE, LABELS, MIB, MIG_VALUES, SMI_UUID, Page, a_proc
from tests.support.builders.gpu import GIB, a_down, a_process, a_reading

OF_GPU = LABELS["nvitop"]
MUTE = replace(a_reading(1), processes=None)
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


# Who holds it.


def test_process_series_are_the_largest_and_no_more() -> None:
    """As many per GPU as top_processes allows, with their user where that is known; never a command line."""
    users = View(monotonic_seconds=0.0, owners={4711: Owner(user="ada")})
    page = Page("nvitop", "nvidia_smi", users=users, top_processes=2).cycle(FULL)
    largest = {**OF_GPU, "pid": "4711", "username": "ada"}
    second = {**OF_GPU, "pid": "815", "username": "N/A"}

    assert page.samples("process_gpu_memory_MiB") == [(largest, 12 * 1024.0), (second, 6 * 1024.0)]
    assert page.samples("process_info_info") == [(largest, 1.0), (second, 1.0)]
    for name, values in (("used_memory_bytes", (12.0 * GIB, 6.0 * GIB)), ("info", (1.0, 1.0))):
        assert page.samples(f"nvidia_smi_compute_app_{name}") == [
            ({"uuid": SMI_UUID, "pid": "4711"}, values[0]),
            ({"uuid": SMI_UUID, "pid": "815"}, values[1]),
        ]


def test_a_process_whose_memory_is_not_told_has_its_info_alone() -> None:
    """As the original has it; it comes after those whose memory is known, and one that only draws is not there."""
    processes = (a_process(7, None), a_process(9, 0), a_process(11, GIB, ProcessKind.GRAPHICS))
    page = Page("nvidia_smi").cycle(replace(FULL, processes=processes))

    assert [labels["pid"] for labels, _ in page.samples("nvidia_smi_compute_app_info")] == ["9", "7"]
    assert page.samples("nvidia_smi_compute_app_used_memory_bytes") == [({"uuid": SMI_UUID, "pid": "9"}, 0.0)]
    assert page.samples("nvidia_smi_compute_apps") == [({"uuid": SMI_UUID}, 2.0)]


@pytest.mark.parametrize(("entries", "success"), [((FULL,), 1.0), ((FULL, MUTE), 0.0), ((FULL, a_down(2)), 0.0)])
def test_processes_that_could_not_be_listed_are_told(entries: tuple[GpuReading | GpuDown, ...], success: float) -> None:
    """An empty table then means nobody only where every GPU's list could be read."""
    page = Page("nvidia_smi").cycle(*entries)

    assert page.samples("nvidia_smi_compute_apps_last_collect_success") == [({}, success)]


WORKS: dict[str, tuple[Placement, Workload | None, str | None]] = {
    "a pod": (Placement(container_id="3f8a"), Workload(namespace="ml", pod="t-0", container="main"), "[ml/t-0/main]"),
    "a pod of which no container is known": (
        Placement(container_id="3f8a"),
        Workload(namespace="ml", pod="t-0", container=None),
        "[ml/t-0]",
    ),
    "a job": (Placement(slurm_job="4711", systemd_unit="slurmd.service"), None, "[slurm job 4711]"),
    "a container": (Placement(container_id="3f8a", systemd_unit="docker.service"), None, "[3f8a]"),
    "a unit": (Placement(systemd_unit="jupyter.service"), None, "[jupyter.service]"),
    "nothing": (Placement(), None, None),
}


@pytest.mark.parametrize(("place", "workload", "told"), WORKS.values(), ids=WORKS)
def test_what_a_process_belongs_to_stands_where_others_have_its_command(
    place: Placement, workload: Workload | None, told: str | None
) -> None:
    """In brackets, as nvitop's `command` and nvidia_gpu_exporter's `process_name`; what belongs nowhere has none."""
    workloads = {} if workload is None else {4711: workload}
    users = View(monotonic_seconds=0.0, owners={4711: Owner(user="ada", placement=place)}, workloads=workloads)
    page = Page("nvitop", "nvidia_smi", users=users, top_processes=1).cycle(FULL)
    [(of_nvitop, _)] = page.samples("process_info_info")
    [(of_smi, _)] = page.samples("nvidia_smi_compute_app_used_memory_bytes")

    assert (of_nvitop.get("command"), of_smi.get("process_name")) == (told, told)
    assert page.samples("nvidia_smi_compute_app_info") == [(of_smi, 1.0)]


# What a process uses of the host.

OWNED = View(monotonic_seconds=0.0, owners={4711: Owner(user="ada")})
FIGURES = {
    "process_running_time_Second": 104.0 - 500 / TICKS,
    "process_cpu_percent_Percentage": 100.0 * 200 / TICKS / 4.0,
    "process_rss_memory_MiB": 25_600 * PAGE_BYTES / MIB,
    "process_memory_percent_Percentage": round(100.0 * 25_600 * PAGE_BYTES / GIB, 1),
}


@pytest.mark.parametrize("name", FIGURES)
def test_nvitop_shows_what_a_process_uses(name: str, tmp_path: Path) -> None:
    """Of each that attribution has found, from its stat; its CPU between two pages, of one core."""
    proc = a_proc(tmp_path, uptime=100.0, p4711="R 30 10 500 25600", p815="S 30 10 500 25600")
    page = Page("nvitop", users=OWNED, proc=proc).cycle(FULL)
    assert page.samples("process_cpu_percent_Percentage") == []

    a_proc(tmp_path, uptime=104.0, p4711="D 180 60 500 25600")

    labels = {**OF_GPU, "pid": "4711", "username": "ada"}
    assert page.cycle(FULL).samples(name) == [(labels, FIGURES[name])]
    assert page.samples("process_info_info")[0] == ({**labels, "status": "disk-sleep"}, 1.0)


def test_pages_in_quick_succession_tell_the_same_cpu_use(tmp_path: Path) -> None:
    """Two scrapers do not spoil each other's figures: less than a second is too short to count ticks over."""
    page = Page("nvitop", users=OWNED, proc=a_proc(tmp_path, uptime=100.0, p4711="R 0 0 1 1")).cycle(FULL)
    seen = []
    for uptime, ticks in ((100.0, 0), (101.0, TICKS // 2), (101.5, 5 * TICKS), (102.0, 5 * TICKS)):
        a_proc(tmp_path, uptime=uptime, p4711=f"R {ticks} 0 1 1")
        seen.append([value for _, value in page.cycle(FULL).samples("process_cpu_percent_Percentage")])

    assert seen == [[], [50.0], [50.0], [450.0]]


def test_another_process_of_the_same_pid_starts_anew(tmp_path: Path) -> None:
    """Its CPU time is not the difference to that of the one before it."""
    page = Page("nvitop", users=OWNED, proc=a_proc(tmp_path, uptime=100.0, p4711="R 50 0 1 1")).cycle(FULL)
    page.text()
    a_proc(tmp_path, uptime=110.0, p4711="R 900 0 10500 1")

    assert page.cycle(FULL).samples("process_cpu_percent_Percentage") == []
    assert [value for _, value in page.samples("process_running_time_Second")] == [110.0 - 10_500 / TICKS]


def test_processes_that_attribution_does_not_know_are_not_looked_at(tmp_path: Path) -> None:
    """In another PID namespace the driver's pid is somebody else here; one that is gone or garbled costs no other."""
    proc = a_proc(tmp_path, p4711="R 1 1 1 1", p815="R 1 1 1 1", p42="R 1 1 1 1")
    (proc / "42/stat").write_text("42 (x) S", encoding="ascii")
    owners = {pid: Owner(user="ada") for pid in (4711, 42, 43)}
    page = Page("nvitop", users=View(monotonic_seconds=0.0, owners=owners), proc=proc, top_processes=4).cycle(FULL)
    blind = Page("nvitop", proc=proc).cycle(FULL)

    assert [labels["pid"] for labels, _ in page.samples("process_rss_memory_MiB")] == ["4711"]
    assert len(page.samples("process_gpu_memory_MiB")) == 4
    assert blind.samples("process_rss_memory_MiB") == []


def test_no_dialect_tells_a_command_line(tmp_path: Path) -> None:
    """Neither arguments nor the program's name get on the page, whatever else is told of the process."""
    page = Page(*DIALECTS, users=OWNED, proc=a_proc(tmp_path, p4711="R 1 1 1 1")).cycle(FULL)

    assert len(page.samples("process_rss_memory_MiB")) == 1
    assert not {word for word in ("hunter2", "sesame") if word in page.text()}


# Who was given it.


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
