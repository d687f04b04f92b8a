"""The whole line in a cluster, with real processes: API server, EC2 played by moto, agents, and a controller.

The controller has a token with the chart's role and nothing else. What kubelets and the controllers of Kubernetes would
do, the tests do.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.kubernetes import CORDONED_BY, INTERRUPTIBLE
from tests.support.builders.kubernetes import (
    budget_object,
    deployment_object,
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


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


@pytest.fixture
def account(plane: ControlPlane) -> Account:
    """With the chart's role."""
    return chart_account(plane, [])


def configure(site: Site, plane: ControlPlane, account: Account, mode: str = "enforce") -> Path:
    """The controller's settings: nodes of this cluster are gpuwatch's."""
    idle = {"timeout": "2s", "grace_period": "2s", "owner_grace_period": "2s", "instance_store": "discard"}
    pool = {"warm_up": "0s", "idle": idle, "kubernetes": {"node_owner": "gpuwatch", "drain_timeout": "10m"}}
    cluster = {"name": "research", "kubeconfig": str(plane.kubeconfig(account.token))}
    return site.configure(mode, more={"kubernetes": cluster, "pools": {"default": pool}})


def join(site: Site, plane: ControlPlane, name: str, utilization: float = 0.0) -> str:
    """A machine that is a node of the cluster; gives the instance's id."""
    machine = site.launch(name, utilization)
    plane.admin.create(node_object(name, gpus=1, provider_id=f"aws:///us-east-1a/{machine}"))
    return machine


def serve(plane: ControlPlane, team: str, node: str, **pod: object) -> Object:
    """A pod of a Deployment on that node."""
    (deployment,) = plane.admin.create(deployment_object(team, "serve"))
    (replicas,) = plane.admin.create(replica_set_object(team, "serve-1", owner=deployment))
    made = pod_object(team, "serve-1-a", node=node, owner=replicas, labels={"app": "serve"}, **pod)  # type: ignore[arg-type]
    (created,) = plane.admin.create(made)
    return created


def cordoned_by(plane: ControlPlane, node: str) -> str | None:
    """Whose cordon a node carries; None: it takes pods."""
    found = plane.admin.get("Node", node)
    by: str | None = found["metadata"].get("annotations", {}).get(CORDONED_BY)
    assert (by is not None) == bool(found["spec"].get("unschedulable"))
    return by


def ending(plane: ControlPlane, team: str) -> bool:
    """Whether its pod has been asked to go."""
    return "deletionTimestamp" in plane.admin.get("Pod", "serve-1-a", team)["metadata"]


def test_an_idle_node_is_cordoned_drained_and_stopped_and_a_crash_in_between_loses_nothing(
    site: Site, plane: ControlPlane, account: Account
) -> None:
    """A PodDisruptionBudget holds it up, and the controller is killed: the next one goes on with the same cordon."""
    team = plane.namespace()
    machine, busy = join(site, plane, "gpu-1"), join(site, plane, "gpu-2", utilization=0.9)
    serve(plane, team, "gpu-1")
    plane.admin.create(budget_object(team, "serve", app="serve", allowed=0))
    config = configure(site, plane, account)
    first = site.controller(config)
    eventually(lambda: cordoned_by(plane, "gpu-1"), site.log)
    cordon = cordoned_by(plane, "gpu-1")
    eventually(lambda: "pods/eviction" in {each.what for each in plane.asked(account)}, site.log)
    first.kill()
    first.wait()
    assert not ending(plane, team)
    second = site.controller(config)
    plane.admin.patch("PodDisruptionBudget", "serve", {"status": {"disruptionsAllowed": 1}}, team, "/status")
    eventually(lambda: ending(plane, team), site.log)
    assert site.state(machine) == "running"  # the pod still ends
    plane.admin.delete("Pod", "serve-1-a", team)  # as its kubelet confirms

    eventually(lambda: site.state(machine) == "stopped", site.log)
    eventually(lambda: site.settled_stops(machine) == 1, site.log)
    assert cordoned_by(plane, "gpu-1") == cordon
    assert (site.state(busy), cordoned_by(plane, "gpu-2")) == ("running", None)
    assert [each for each in plane.asked(account) if not each.allowed] == []
    second.send_signal(signal.SIGTERM)
    assert second.wait(15) == 0


@pytest.mark.nightly  # test_matrix.py has pods that do not consent, that fit nowhere else, and that may go
def test_a_pod_that_holds_a_gpu_keeps_its_node_unless_it_consents(
    site: Site, plane: ControlPlane, account: Account
) -> None:
    """The agent calls the node idle, and yet nobody has allowed to move the pod; with consent and a place it may go."""
    team = plane.namespace()
    machine = join(site, plane, "gpu-1")
    serve(plane, team, "gpu-1", gpus=1)
    site.controller(configure(site, plane, account))

    def why() -> str:
        return " ".join(site.run("explain", machine).stdout.split())

    eventually(lambda: f"{team}/serve-1-a" in why(), lambda: why() + site.log())
    assert (site.state(machine), cordoned_by(plane, "gpu-1")) == ("running", None)
    plane.admin.patch("Pod", "serve-1-a", {"metadata": {"annotations": {INTERRUPTIBLE: "true"}}}, team)
    eventually(lambda: f"{team}/serve-1-a fits on no other node" in why(), lambda: why() + site.log())
    assert cordoned_by(plane, "gpu-1") is None
    join(site, plane, "gpu-2", utilization=0.9)
    eventually(lambda: cordoned_by(plane, "gpu-1"), lambda: why() + site.log())


@pytest.mark.nightly  # test_idle_workloads.py has one that observes
def test_a_controller_that_observes_changes_nothing(site: Site, plane: ControlPlane, account: Account) -> None:
    """And shows which machine is which node."""
    machine = join(site, plane, "gpu-1")
    configure(site, plane, account, mode="observe")
    eventually(lambda: f"may not notice {machine}" in site.run("plan").stdout, lambda: site.run("plan").stdout)
    (row,) = json.loads(site.run("status", "--json").stdout)["nodes"]

    assert row["id"] == machine
    assert cordoned_by(plane, "gpu-1") is None
    assert {each.verb for each in plane.asked(account)} <= {"get", "list", "watch"}
