"""The agent exactly as the chart and the kustomize base start it: as its user, without rights, without the kubelet."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gpuwatch.agent.attribution.pod_resources import parse_list
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.fleet import Node, NodeReport, NodeVerdict
from gpuwatch.model.kubernetes import Pod
from gpuwatch.policies.kubernetes.gpus_of_pods import holding
from gpuwatch.policies.kubernetes.pod_use import use_of
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.kubernetes_views import shown_node, shown_pod
from tests.support.fakes.gpu_users import Host
from tests.support.fakes.kubelet import UIDS, a_kubelet
from tests.support.fakes.nvml import StubDriver
from tests.support.nightly import by_night
from tests.support.paths import ROOT
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.kubernetes_chart import chart_agent, python_of

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="root becomes the chart's user, by setpriv"
)
GIB = 1 << 30
# Of one pod of each quality of service: systemd's and cgroupfs' drivers, version 1 and 2.
GROUPS = {
    7: f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UIDS[0].replace('-', '_')}.slice/"
    f"cri-containerd-{'ab' * 32}.scope\n",
    8: f"0::/kubepods.slice/kubepods-pod{UIDS[1].replace('-', '_')}.slice/crio-{'cd' * 32}.scope\n",
    9: f"4:memory:/kubepods/besteffort/pod{UIDS[2]}/{'ef' * 32}\n",
}
NAMES = {UIDS[0]: "train-a", UIDS[1]: "dev-b", UIDS[2]: "other-c"}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the agent's user may enter, as pytest's own is not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def driver(nvml_library: Path, open_folder: Path) -> StubDriver:
    """Four GPUs: two compute, one holds memory, and one is empty."""
    shutil.copytree(nvml_library, open_folder / "nvml")
    (open_folder / "nvml").chmod(0o755)
    driver = StubDriver(open_folder / "driver", open_folder / "nvml", gpus=4)
    for index, (pid, utilization) in enumerate([(7, 0.9), (7, 0.9), (8, 0.0)]):
        driver.gpu(index).processes({pid: 2 * GIB}).utilization(utilization)
    driver.gpu(3).utilization(0.0)
    return driver


def a_verdict(rendered: str, folder: Path, driver: StubDriver) -> tuple[NodeVerdict, str]:
    """What the agent of the chart says of a host with these pods, and its page."""
    rights, settings, mounted = chart_agent(rendered)
    python = python_of(rights)
    if python is None:
        pytest.skip("no Python of this machine can be started by another user")
    command = (*rights, python[0], "-m", "gpuwatch")
    environment = {**driver.environment, **python[1]}
    assert "/var/log/pods" in mounted
    assert not any("kubelet" in each for each in mounted)
    host = Host(folder)
    for pid, group in GROUPS.items():
        host.process(pid, uid=0, cgroup=group)
    for uid, name in NAMES.items():
        (host.pod_logs / f"team_{name}_{uid}").mkdir(parents=True)
    attribution = {"proc": host.proc, "pod_logs": host.pod_logs}
    paths = {f"attribution__{name}": value for name, value in attribution.items()}
    own = {name: value for name, value in settings.items() if name not in {"host", "port"}}
    with RunningAgent(environment, command, **own, **paths) as agent:

        def verdict() -> NodeVerdict:
            return msgspec.json.decode(agent.get("/v1/verdict"), type=NodeVerdict)

        # A GPU is shown as soon as it is read, before the next one's pods are known.
        eventually(lambda: sum(bool(gpu.pods) for gpu in verdict().gpus) == len(PODS), lambda: agent.log)
        return verdict(), agent.get("/metrics")


@pytest.mark.parametrize("rendered", ["kubernetes.yaml", *by_night("kustomize.yaml")])
def test_the_shipped_agent_names_the_pods_of_its_gpus(rendered: str, open_folder: Path, driver: StubDriver) -> None:
    """By their processes; and the controller finds the pod that holds memory, and the one that never used its GPU."""
    verdict, page = a_verdict(rendered, open_folder, driver)

    assert [gpu.pods for gpu in verdict.gpus] == [("team/train-a",), ("team/train-a",), ("team/dev-b",), ()]
    assert 'namespace="team",pod="dev-b"' in "".join(
        line for line in page.splitlines() if line.startswith("gpuwatch_gpu_pod_info")
    )
    pods = {name: shown_pod(name, "gpu-1", gpus=gpus, devices=int(gpus)) for name, gpus in PODS.items()}
    node = a_node_with(verdict, *pods.values())
    found = {name: holding(node, pod) for name, pod in pods.items()}
    assert {name: [gpu.index for gpu in its.sure] if its else [] for name, its in found.items()} == {
        "train-a": [0, 1],
        "dev-b": [2],
        "other-c": [3],
    }
    assert use_of(node, pods["other-c"], NOW)[0] is State.IDLE
    assert use_of(node, pods["dev-b"], NOW)[0] is State.PARKED
    assert use_of(node, pods["train-a"], NOW)[0] is State.BUSY


def test_the_list_of_the_kubelet_needs_root_and_no_capability(open_folder: Path) -> None:
    """As the chart's second container: it writes what root's socket says, and the agent's user may read that alone."""
    rights, _, _ = chart_agent("kubernetes.yaml")
    file, folder = open_folder / "list", open_folder / "pod-resources"
    folder.mkdir(mode=0o750)
    with a_kubelet(folder) as kubelet:
        kubelet.path.chmod(0o755)
        root = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", sys.executable]
        module = ["-m", "gpuwatch.agent.attribution.pod_list", str(kubelet.path), str(file)]
        with subprocess.Popen([*root, *module], cwd=ROOT, stderr=subprocess.PIPE) as asking:
            try:
                eventually(file.exists, lambda: f"it has ended: {asking.poll()}")
            finally:
                asking.terminate()
        seen = subprocess.run([*rights, "cat", str(file)], capture_output=True, check=True).stdout
        refused = subprocess.run([*rights, "ls", str(folder)], capture_output=True, check=False)

    assert [each.pod for each in parse_list(seen)] == ["train-0"]
    assert refused.returncode != 0


PODS = {"train-a": 2.0, "dev-b": 1.0, "other-c": 1.0}


def a_node_with(verdict: NodeVerdict, *pods: Pod) -> Node:
    """A node of which the agent says so; it has seen for long enough what each GPU does."""
    states = [State.BUSY, State.BUSY, State.PARKED, State.IDLE]
    gpus = tuple(
        replace(gpu, activity=Activity(state=state, since=NOW, held_seconds=3600.0))
        for gpu, state in zip(verdict.gpus, states, strict=True)
    )
    told = replace(verdict, gpus=gpus, activity=Activity(state=State.BUSY, since=NOW, held_seconds=0.0))
    object_ = shown_node("gpu-1", "i-1", *pods, gpus=4.0, whole_gpus=4)
    return replace(a_node("i-1"), gpu_count=4, kubernetes=object_, signal=NodeReport(verdict=told))
