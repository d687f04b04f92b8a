"""An idle workload on a machine that others keep busy: it ends by the word of the agent about its own pod."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.fleet import GpuVerdict, NodeVerdict, PodVerdict
from gpuwatch.model.kubernetes import IDLE_ACTION
from gpuwatch.model.workload_kinds import KUBEFLOW_STOPPED
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import a_verdict
from tests.support.builders.kubernetes import custom_kind, custom_object, node_object, pod_object
from tests.support.fakes.scraped_agent import an_agent, encoded
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import Account, ControlPlane
from tests.support.real.kubernetes_chart import chart_account
from tests.support.real.local_site import Site, a_site

pytestmark = pytest.mark.component("kube-apiserver")

PODS = {"action": "as-annotated", "timeout": "2s", "unused_timeout": "2s", "grace_period": "2s", "rest": "1h"}
TRAFFIC = Evidence(name="network", says=State.BUSY, observed=9e6, limit=1e3, unit="bytes per second", source="/proc")
HELD_SECONDS = 3600.0


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


@pytest.fixture
def team(plane: ControlPlane) -> str:
    """A namespace whose workloads may be ended."""
    return plane.namespace()


@pytest.fixture
def account(plane: ControlPlane, team: str) -> Account:
    """With the chart's role and nothing else."""
    return chart_account(plane, [team])


def doing(state: State) -> Activity:
    """It has been so for an hour."""
    held = HELD_SECONDS if state is State.IDLE else 0.0
    evidence = (TRAFFIC,) if state is State.BUSY else ()
    return Activity(state=state, since=None, held_seconds=held, evidence=evidence)


def saying(
    machine: str, team: str, pods: Mapping[str, tuple[str, State, State]]
) -> Callable[[BaseHTTPRequestHandler], None]:
    """An agent of a busy machine with a GPU for each pod: by name the uid, what its GPU does, what it does besides.

    As the chart starts it, it does not ask the kubelet: a GPU names the pod that has a process on it, and the pods
    without one are looked at as well (tests/integration/agent/test_chart_agent.py has the real one).
    """

    def verdict() -> NodeVerdict:
        whole = a_verdict(machine, State.BUSY, at=SystemClock().now())
        gpus = (
            GpuVerdict(
                uuid=f"GPU-{index}",
                index=index,
                activity=doing(gpu),
                pods=(f"{team}/{name}",) if gpu is State.BUSY else (),
            )
            for index, (name, (_, gpu, _)) in enumerate(pods.items())
        )
        told = {
            name: PodVerdict(uid=uid, name=f"{team}/{name}", activity=doing(work))
            for name, (uid, _, work) in pods.items()
        }
        on_gpus = tuple(each for name, each in told.items() if pods[name][1] is State.BUSY)
        others = tuple(each for each in told.values() if each not in on_gpus)
        return replace(whole, activity=doing(State.BUSY), gpus=tuple(gpus), pods=on_gpus, other_pods=others)

    def rule(request: BaseHTTPRequestHandler) -> None:
        nonce = next(iter(parse_qs(urlparse(request.path).query).get("confirm", ())), None)
        found = verdict() if nonce is None else replace(verdict(), confirm=nonce, looked_seconds=0.0)
        body = encoded(found)
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return rule


def test_an_idle_notebook_is_stopped_next_to_one_that_computes_and_one_that_downloads(
    site: Site, plane: ControlPlane, account: Account, team: str
) -> None:
    """All three consent, and all are on one machine with busy processors, disks and network."""
    plane.custom(custom_kind("kubeflow.org", "Notebook", "notebooks"))
    does = {
        "rests": (State.IDLE, State.IDLE),
        "computes": (State.BUSY, State.IDLE),
        "downloads": (State.IDLE, State.BUSY),
        "unseen": (State.IDLE, State.UNKNOWN),
    }
    machine = site.launch("gpu-1", 0.9)
    plane.admin.create(node_object("gpu-1", gpus=len(does), provider_id=f"aws:///us-east-1a/{machine}"))
    pods = {}
    for name, (gpu, work) in does.items():
        made = custom_object("kubeflow.org", "Notebook", team, name)
        made["metadata"].setdefault("annotations", {})[IDLE_ACTION] = "stop"
        (notebook,) = plane.admin.create(made)
        (pod,) = plane.admin.create(pod_object(team, f"{name}-0", node="gpu-1", gpus=1, owner=notebook))
        pods[f"{name}-0"] = (pod["metadata"]["uid"], gpu, work)
    site.targets[machine] = site.stack.enter_context(an_agent(saying(machine, team, pods)))
    pool = {"warm_up": "0s", "idle": {"action": "report"}, "kubernetes": {"pods": PODS}}
    cluster = {"name": "research", "kubeconfig": str(plane.kubeconfig(account.token))}
    config = site.configure("enforce", more={"kubernetes": cluster, "pools": {"default": pool}})
    site.controller(config)

    def stopped(name: str) -> bool:
        return KUBEFLOW_STOPPED in plane.admin.get("Notebook", name, team)["metadata"].get("annotations", {})

    eventually(lambda: stopped("rests"), site.log)
    assert [name for name in does if stopped(name)] == ["rests"]
    explained = " ".join(site.run("explain", f"{team}/notebook/downloads").stdout.split())
    assert f"It works: {team}/downloads-0 (network)." in explained
    ledger = Ledger.open(site.folder / "ledger.db", read_only=True)
    try:
        others = [ledger.history(f"kube:research/{team}/Notebook/{name}") for name in does if name != "rests"]
    finally:
        ledger.close()
    assert not any(others)
