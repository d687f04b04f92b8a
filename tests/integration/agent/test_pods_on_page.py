"""agent/attribution: pods on the agent's page, from a kubelet's answers, control groups and folders of logs."""

import logging
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.attribution.pods import Workload
from gpuwatch.model.gpu import GpuProcess, GpuReading, ProcessKind
from gpuwatch.model.mig import MigDevice, MigInstance
from tests.support.builders.gpu import a_down, a_process, a_reading
from tests.support.fakes.gpu_users import Host
from tests.support.fakes.kubelet import UIDS, Kubelet, a_claimed_device, a_kubelet, refused
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """One that has given GPU-0 to one pod."""
    with a_kubelet(tmp_path) as running:
        yield running


def in_pod(uid: str) -> str:
    """The control group of a process of that pod."""
    return f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope\n"


def test_a_process_is_told_with_its_pod(tmp_path: Path, kubelet: Kubelet) -> None:
    """Names from the kubelet, uid and container from the control group."""
    host = Host(tmp_path)
    host.process(7, uid=1000, cgroup=in_pod(UIDS[0]))
    host.holding(7)

    (info,) = host.lines("gpuwatch_process_info")

    assert 'container="main",container_id="abababababab",namespace="team-a",pid="7",pod="train-0",' in info
    assert f'pod_uid="{UIDS[0]}",user="1000"' in info
    assert len(kubelet.asked) == 1


def test_a_process_outside_kubernetes_has_no_pod(tmp_path: Path, kubelet: Kubelet) -> None:
    """Also if it uses a GPU that a pod was given."""
    host = Host(tmp_path)
    host.process(7, uid=0)
    host.holding(7)

    assert host.lines("gpuwatch_process_info") == ['{pid="7",user="root"} 1.0']
    assert kubelet.asked == [b""]


def test_a_gpu_given_and_not_used_is_told(tmp_path: Path, kubelet: Kubelet) -> None:
    """Allocated and idle, or allocated and lost: who pays for it is known without any process."""
    rows = ['{container="main",namespace="team-a",pod="train-0"} 1.0']
    host = Host(tmp_path)

    assert host.cycle(a_reading()).lines("gpuwatch_gpu_pod_info") == rows
    assert host.cycle(a_down()).lines("gpuwatch_gpu_pod_info") == rows
    assert kubelet.asked == [b""]


def test_a_new_pod_is_asked_for_at_once_and_an_old_one_seldom(tmp_path: Path, kubelet: Kubelet) -> None:
    """Half a minute passes between two lists, unless a pod appears that the last one cannot know."""
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    for _ in range(20):
        host.holding(7)
    after_20_seconds = len(kubelet.asked)
    host.end(7)
    host.process(8, cgroup=in_pod(UIDS[1]))
    kubelet.knows({("team-b", "serve-1"): {"main": ["GPU-0"]}})
    host.holding(8)
    after_new_pod = len(kubelet.asked)
    for _ in range(31):
        host.holding(8)

    assert (after_20_seconds, after_new_pod, len(kubelet.asked)) == (1, 2, 3)
    assert [found.pod for found in host.told.workloads.values()] == ["serve-1"]


def test_a_list_made_before_a_pod_came_never_names_it(tmp_path: Path, kubelet: Kubelet) -> None:
    """While the kubelet refuses, a GPU's new pod does not get the name of the one before it."""
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    host.holding(7)
    host.end(7)
    host.process(8, cgroup=in_pod(UIDS[1]))
    kubelet.answer = refused
    host.holding(8)

    assert host.told.workloads == {}


def test_a_kubelet_that_restarts_takes_no_names_away_and_one_that_stays_silent_does(
    tmp_path: Path, kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """Names are kept for a minute and a half; the trouble is logged once."""
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    host.holding(7)
    kubelet.answer = refused
    pods = []
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            host.holding(7)
            pods.append(len(host.told.workloads))

    assert pods[:85] == [1] * 85
    assert pods[-5:] == [0] * 5
    assert len(kubelet.asked) < 6
    (message,) = [record.message for record in caplog.records]
    assert message.startswith(f"the kubelet cannot be asked at {kubelet.path} who has which GPU: the server refuses")


def test_a_mig_device_belongs_to_its_gpu(tmp_path: Path, kubelet: Kubelet) -> None:
    """Processes are listed by the GPU, devices allocated by the instance."""
    kubelet.knows({("ns", "a"): {"main": ["MIG-aaaa"]}})
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    instance = MigInstance(id=1, devices=(MigDevice(uuid="MIG-aaaa", compute_instance=0),))
    reading: GpuReading = a_reading(processes=(a_process(7),), mig_instances=(instance,))
    host.cycle(reading)

    assert host.told.workloads == {7: Workload(namespace="ns", pod="a", container="main")}


def a_process_in(instance: int, pid: int) -> GpuProcess:
    """One that runs in a MIG instance."""
    return GpuProcess(pid=pid, kind=ProcessKind.COMPUTE, gpu_instance=instance, compute_instance=0)


def test_mig_instances_of_one_gpu_belong_to_their_pods(tmp_path: Path, kubelet: Kubelet) -> None:
    """Each process is its own pod's; the GPU was given to both."""
    kubelet.knows({("ns", "a"): {"main": ["MIG-aaaa"]}, ("ns", "b"): {"main": ["MIG-bbbb"]}})
    host = Host(tmp_path)
    for pid, uid in zip((7, 8), UIDS, strict=False):
        host.process(pid, cgroup=in_pod(uid))
    parts = tuple(
        MigInstance(id=number, devices=(MigDevice(uuid=uuid, compute_instance=0),))
        for number, uuid in ((1, "MIG-aaaa"), (2, "MIG-bbbb"))
    )
    host.cycle(a_reading(processes=(a_process_in(1, 7), a_process_in(2, 8)), mig_instances=parts))

    assert {pid: found.pod for pid, found in host.told.workloads.items()} == {7: "a", 8: "b"}
    assert [found.pod for found in host.told.held["GPU-0"]] == ["a", "b"]


def test_time_sliced_pods_have_their_names_from_the_control_group(tmp_path: Path, kubelet: Kubelet) -> None:
    """With the kubelet's folder of logs each process is its own pod's; without it none of them has a name."""
    kubelet.knows({("ns", "a"): {"main": ["GPU-0::0"]}, ("ns", "b"): {"main": ["GPU-0::1"]}})
    host = Host(tmp_path)
    for pid, uid in zip((7, 8), UIDS, strict=False):
        host.process(pid, cgroup=in_pod(uid))
    without = host.holding(7, 8).told.workloads
    for pod, uid in zip("ab", UIDS, strict=False):
        (host.pod_logs / f"ns_{pod}_{uid}").mkdir(parents=True)
    host.holding(7, 8)

    assert without == {}
    assert host.told.workloads == {
        pid: Workload(namespace="ns", pod=pod, container="main") for pid, pod in ((7, "a"), (8, "b"))
    }


def test_folders_name_pods_without_a_kubelet(tmp_path: Path) -> None:
    """An agent that may not ask the kubelet knows the pod, not the container."""
    host = Host(tmp_path)
    host.process(7, cgroup=in_pod(UIDS[0]))
    (host.pod_logs / f"ns_a_{UIDS[0]}").mkdir(parents=True)

    assert host.holding(7).told.workloads == {7: Workload(namespace="ns", pod="a", container=None)}


def test_a_claimed_gpu_belongs_to_its_pod(tmp_path: Path, kubelet: Kubelet) -> None:
    """Dynamic resource allocation: by the driver's number, where index and minor number are the same."""
    kubelet.knows({("ns", "a"): {"main": [a_claimed_device("gpu-0")]}})
    host = Host(tmp_path)
    host.numbered(bus_01=0)
    host.process(7, cgroup=in_pod(UIDS[0]))
    host.holding(7)

    assert host.told.workloads == {7: Workload(namespace="ns", pod="a", container="main")}
    assert host.lines("gpuwatch_gpu_pod_info") == ['{container="main",namespace="ns",pod="a"} 1.0']


def test_a_claimed_gpu_whose_number_could_be_anothers_is_not_told(tmp_path: Path, kubelet: Kubelet) -> None:
    """Index 0 has the minor number 1: gpu-0 may be either, but a process on one of the two is the only claimant's."""
    kubelet.knows({("ns", "a"): {"main": [a_claimed_device("gpu-0")]}})
    host = Host(tmp_path)
    host.numbered(bus_01=1, bus_02=0)
    host.process(7, cgroup=in_pod(UIDS[0]))
    host.cycle(a_reading(0, processes=(a_process(7),)), a_reading(1))

    assert host.told.held == {}
    assert host.told.workloads == {7: Workload(namespace="ns", pod="a", container="main")}


def test_a_running_agent_tells_mig_pods_apart(tmp_path: Path, driver: StubDriver, kubelet: Kubelet) -> None:
    """From the driver's list of processes through probe and protocol to the page."""
    driver.gpu(0).mig((1, "1g.10gb", 9 << 30, 1 << 30, 50), (2, "1g.10gb", 9 << 30, 1 << 30, 50))
    driver.gpu(0).processes_in_mig((7, 1 << 30, 1, 0), (8, 1 << 30, 2, 0))
    uuids = [f"MIG-00000000-0000-4000-8000-{number:04d}00000000" for number in (1, 2)]
    kubelet.knows({("ns", "a"): {"main": uuids[:1]}, ("ns", "b"): {"main": uuids[1:]}})
    host = Host(tmp_path)
    for pid, uid in zip((7, 8), UIDS, strict=False):
        host.process(pid, cgroup=in_pod(uid))
    attribution = {"proc": host.proc, "pod_resources_socket": kubelet.path, "pod_logs": host.pod_logs}
    settings: dict[str, Any] = {f"attribution__{name}": value for name, value in attribution.items()}
    with RunningAgent(driver.environment, **settings) as agent:
        eventually(lambda: 'pod="b"' in agent.get("/metrics"), lambda: agent.get("/metrics"))
        page = agent.get("/metrics")

    for pid, pod in ((7, "a"), (8, "b")):
        assert re.search(rf'^gpuwatch_process_info{{.*pid="{pid}",pod="{pod}",', page, re.MULTILINE)


def test_a_running_agent_says_who_uses_and_who_was_given_its_gpu(
    tmp_path: Path, driver: StubDriver, kubelet: Kubelet
) -> None:
    """The real agent, a real process and a real kubelet's answer; of the process's environment only its job is seen."""
    kubelet.knows({("team-a", "train-0"): {"main": ["nvidia0"]}})
    secret = {"SLURM_JOB_ID": "777", "TOKEN": "hunter2"}
    with subprocess.Popen(["sleep", "300"], env={**driver.environment, **secret}) as user, ExitStack() as ended:
        ended.callback(user.kill)
        driver.gpu(0).processes({user.pid: 1 << 30})
        proc = tmp_path / "proc"
        (proc / "self/ns").mkdir(parents=True)
        (proc / "self/ns/pid").symlink_to("pid:[4026531836]")
        for pid in (1, user.pid):
            (proc / str(pid)).symlink_to(f"/proc/{pid}")
        (proc / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
        (proc / "driver/nvidia/gpus/0000:01:00.0/information").write_text("Device Minor: 0\n", encoding="utf-8")
        settings: dict[str, Any] = {"attribution__proc": proc, "attribution__pod_resources_socket": kubelet.path}
        with RunningAgent(driver.environment, control_socket="none", **settings) as agent:
            eventually(lambda: 'slurm_job="777"' in agent.get("/metrics"), lambda: agent.get("/metrics"))
            page, log = agent.get("/metrics"), agent.log

    assert re.search(r'^gpuwatch_process_info{.*pid="\d+".*slurm_job="777".*user=".*} 1.0$', page, re.MULTILINE)
    assert re.search(r'^gpuwatch_gpu_pod_info{container="main",.*pod="train-0".*} 1.0$', page, re.MULTILINE)
    assert "gpuwatch_gpu_dead_process_memory_bytes{" not in page
    for hidden in ("hunter2", "TOKEN", "sleep"):
        assert hidden not in page
        assert hidden not in log
