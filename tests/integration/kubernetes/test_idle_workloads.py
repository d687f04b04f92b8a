"""Idle workloads with real processes: API server, EC2 played by moto, agents, and a controller that ends their pods.

What the controllers of Kubernetes and of Kubeflow would do, the tests do.
"""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.kubernetes import IDLE_ACTION, RELEASED_BY, REPLICAS_BEFORE, STOP_AT
from gpuwatch.model.workload_kinds import KUBEFLOW_STOPPED
from tests.support.builders.kubernetes import (
    custom_kind,
    custom_object,
    deployment_object,
    job_object,
    node_object,
    pod_object,
    replica_set_object,
)
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import Account, ControlPlane
from tests.support.real.kubernetes_api import Object
from tests.support.real.kubernetes_chart import chart_account
from tests.support.real.local_site import Site, a_site

pytestmark = pytest.mark.component("kube-apiserver")

PODS = {
    "action": "as-annotated",
    "timeout": "2s",
    "unused_timeout": "2s",
    "grace_period": "2s",
    "rest": "1h",
    "bare_pods": "delete",
}


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


@pytest.fixture
def team(plane: ControlPlane) -> str:
    """A namespace of people who let their notebooks be stopped."""
    plane.custom(custom_kind("kubeflow.org", "Notebook", "notebooks"))
    return plane.namespace()


@pytest.fixture
def account(plane: ControlPlane, team: str) -> Account:
    """With the chart's role and nothing else."""
    return chart_account(plane, [team])


def configure(site: Site, plane: ControlPlane, account: Account, mode: str = "enforce") -> Path:
    """Nodes are only reported; pods are ended as annotated."""
    idle = {"action": "report", "instance_store": "discard"}
    pool = {"warm_up": "0s", "idle": idle, "kubernetes": {"pods": PODS}}
    cluster = {"name": "research", "kubeconfig": str(plane.kubeconfig(account.token))}
    return site.configure(mode, more={"kubernetes": cluster, "pools": {"default": pool}})


def join(site: Site, plane: ControlPlane, name: str, utilization: float = 0.0) -> None:
    """A machine that is a node of the cluster."""
    machine = site.launch(name, utilization)
    plane.admin.create(node_object(name, gpus=1, provider_id=f"aws:///us-east-1a/{machine}"))


def consenting(made: Object, action: str) -> Object:
    """An object whose people say what may become of it."""
    made["metadata"].setdefault("annotations", {})[IDLE_ACTION] = action
    return made


def serve(plane: ControlPlane, team: str, name: str, *nodes: str) -> None:
    """A Deployment that may be scaled to zero, with a pod on each of these nodes."""
    made = consenting(deployment_object(team, name), "scale-to-zero")
    made["spec"]["replicas"] = len(nodes)
    (deployment,) = plane.admin.create(made)
    (replicas,) = plane.admin.create(replica_set_object(team, f"{name}-1", owner=deployment))
    for node in nodes:
        plane.admin.create(pod_object(team, f"{name}-{node}", node=node, gpus=1, owner=replicas))


def open_notebook(plane: ControlPlane, team: str, name: str) -> None:
    """A notebook that may be stopped, with its pod on the second machine."""
    (notebook,) = plane.admin.create(consenting(custom_object("kubeflow.org", "Notebook", team, name), "stop"))
    plane.admin.create(pod_object(team, f"{name}-0", node="gpu-2", gpus=1, owner=notebook))


def annotations(plane: ControlPlane, kind: str, name: str, team: str) -> dict[str, Any]:
    """Of an object."""
    found: dict[str, Any] = plane.admin.get(kind, name, team)["metadata"].get("annotations", {})
    return found


def settled(site: Site, workload: str) -> list[tuple[Verb, Status | None]]:
    """What the ledger says of a workload, newest first."""
    ledger = Ledger.open(site.folder / "ledger.db", read_only=True)
    try:
        history = ledger.history(f"kube:research/{workload}")
        return [(each.intent.verb, each.outcomes[-1].status if each.outcomes else None) for each in history]
    finally:
        ledger.close()


def events(plane: ControlPlane, team: str, name: str) -> list[tuple[str, str]]:
    """Reason and message of what gpuwatch told at objects of a name, as `kubectl describe` shows them."""
    found = plane.admin.ask("GET", f"/api/v1/namespaces/{team}/events?fieldSelector=involvedObject.name%3D{name}")
    return [(each["reason"], each["message"]) for each in found["items"]]


def asked_to_go(plane: ControlPlane, pod: str, team: str) -> bool:
    """Whether a pod ends, or is gone."""
    found = plane.admin.find("Pod", pod, team)
    return found is None or "deletionTimestamp" in found["metadata"]


def end_at_once(controller: subprocess.Popen[str]) -> None:
    """As a power cut does."""
    controller.kill()
    controller.wait()


def test_idle_workloads_are_ended_as_their_people_say_and_crashes_in_between_lose_nothing(
    site: Site, plane: ControlPlane, account: Account, team: str
) -> None:
    """A Deployment goes to zero, a Notebook is stopped, a Job's pod evicted; a busy one, and local data, stay."""
    for name, utilization in (("gpu-1", 0.0), ("gpu-2", 0.0), ("gpu-3", 0.9)):
        join(site, plane, name, utilization)
    serve(plane, team, "serve", "gpu-1")
    serve(plane, team, "half", "gpu-1", "gpu-3")
    (job,) = plane.admin.create(consenting(job_object(team, "train"), "delete"))
    open_notebook(plane, team, "alice")
    plane.admin.create(
        pod_object(team, "train-0", node="gpu-2", gpus=1, owner=job),
        consenting(
            pod_object(team, "alone", node="gpu-1", gpus=1, volumes=[{"name": "scratch", "emptyDir": {}}]), "delete"
        ),
    )
    config = configure(site, plane, account)
    first = site.controller(config)
    eventually(lambda: STOP_AT in annotations(plane, "Deployment", "serve", team), site.log)
    end_at_once(first)
    second = site.controller(config)
    eventually(lambda: plane.admin.get("Deployment", "serve", team)["spec"]["replicas"] == 0, site.log)
    end_at_once(second)
    told = annotations(plane, "Deployment", "serve", team)
    assert (told[REPLICAS_BEFORE], STOP_AT in told) == ("1", False)
    third = site.controller(config)
    plane.admin.delete("Pod", "serve-gpu-1", team)  # as its ReplicaSet does

    released = (Verb.RELEASE, Status.SETTLED)
    eventually(lambda: settled(site, f"{team}/Deployment/serve")[0] == released, site.log)
    eventually(lambda: KUBEFLOW_STOPPED in annotations(plane, "Notebook", "alice", team), site.log)
    plane.admin.delete("Pod", "alice-0", team)  # as Kubeflow does
    eventually(lambda: settled(site, f"{team}/Notebook/alice")[0] == released, site.log)
    eventually(lambda: settled(site, f"{team}/Job/train")[0] == released, site.log)
    assert asked_to_go(plane, "train-0", team)
    # A power cut may fall between an annotation and its event: what a controller that lives tells is seen at another.
    open_notebook(plane, team, "bob")
    eventually(lambda: len(events(plane, team, "bob")) == 2, site.log)
    reasons, notes = zip(*sorted(events(plane, team, "bob")), strict=True)
    assert reasons == ("GPUsReleased", "GPUsWithoutUse")
    assert all(f"kubectl -n {team} annotate notebook/bob {KUBEFLOW_STOPPED}-" in note for note in notes)
    assert settled(site, f"{team}/Deployment/serve") == [released, (Verb.NOTICE, Status.SETTLED)]
    assert annotations(plane, "Deployment", "serve", team)[RELEASED_BY] == told[RELEASED_BY]
    assert not asked_to_go(plane, "alone", team)
    assert plane.admin.get("Deployment", "half", team)["spec"]["replicas"] == 2
    assert settled(site, f"{team}/Deployment/half") == []
    assert [each for each in plane.asked(account) if not each.allowed] == []
    third.send_signal(signal.SIGTERM)
    assert third.wait(15) == 0


def test_a_controller_that_observes_tells_what_it_would_do(
    site: Site, plane: ControlPlane, account: Account, team: str
) -> None:
    """And changes nothing, neither on the object nor beside it."""
    join(site, plane, "gpu-1")
    serve(plane, team, "serve", "gpu-1")
    site.controller(configure(site, plane, account, mode="observe"))
    wanted = f"may not notice kube:research/{team}/Deployment/serve"
    eventually(lambda: wanted in site.run("plan").stdout, lambda: site.run("plan").stdout + site.log())

    explained = " ".join(site.run("explain", f"{team}/deployment/serve").stdout.split())
    assert "the guard refuses (observe_only)" in explained
    assert f"Deployment {team}/serve" in site.run("status").stdout
    assert STOP_AT not in annotations(plane, "Deployment", "serve", team)
    assert settled(site, f"{team}/Deployment/serve") == []
    assert {each.verb for each in plane.asked(account)} <= {"get", "list", "watch"}
