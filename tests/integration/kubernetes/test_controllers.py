"""Nodes and workloads with Kubernetes' own controllers, its scheduler, and KWOK in the place of kubelets.

Nothing is played here but EC2 (by moto), GPUs (by a stub driver) and containers: what gpuwatch evicts, scales and stops
is ended and made again by the programs that do it in a cluster. `kubernetes_programs.py` builds them once.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.decision import Status
from gpuwatch.model.kubernetes import CORDONED_BY, RELEASED_BY, REPLICAS_BEFORE
from tests.support.builders.kubernetes import (
    daemon_set_object,
    deployment_object,
    job_object,
    stateful_set_object,
)
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import Account, ControlPlane
from tests.support.real.kubernetes_api import Object
from tests.support.real.kubernetes_chart import chart_account
from tests.support.real.kubernetes_controllers import controllers, possible, told
from tests.support.real.kubernetes_workloads import budget, ends, join, running, wanting
from tests.support.real.local_site import Site, a_site

pytestmark = [
    pytest.mark.component("kube-apiserver"),
    pytest.mark.skipif(
        not possible(), reason="`kubernetes_programs.py` builds controllers, scheduler and KWOK with Go"
    ),
]


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with all that makes pods run."""
    with controllers(plane):
        yield plane


@pytest.fixture
def team(plane: ControlPlane) -> str:
    """A namespace whose workloads may be ended."""
    return plane.namespace()


@pytest.fixture
def account(plane: ControlPlane, team: str) -> Account:
    """With the chart's role and nothing else."""
    return chart_account(plane, [team])


def start(site: Site, cluster: ControlPlane, account: Account, rules: Object) -> None:
    """A controller whose only pool has these rules."""
    idle = {"timeout": "2s", "grace_period": "2s", "owner_grace_period": "2s", "instance_store": "discard"}
    pool = {"warm_up": "0s", "idle": idle, **rules}
    kubernetes = {"name": "research", "kubeconfig": str(cluster.kubeconfig(account.token))}
    site.controller(site.configure("enforce", more={"kubernetes": kubernetes, "pools": {"default": pool}}))


def only_once(job: Object) -> Object:
    """A Job that fails with its first pod."""
    job["spec"]["backoffLimit"] = 0
    return job


def uids(cluster: ControlPlane, team: str, app: str) -> set[str]:
    """Of all pods of a workload."""
    return {
        each["metadata"]["uid"]
        for each in cluster.admin.list("Pod", team)
        if each["metadata"]["labels"].get("app") == app
    }


def cordoned(cluster: ControlPlane, node: str) -> bool:
    """Whether gpuwatch has cordoned it."""
    found: dict[str, Any] = cluster.admin.get("Node", node)
    by_us = CORDONED_BY in found["metadata"].get("annotations", {})
    assert by_us == bool(found["spec"].get("unschedulable"))
    return by_us


def test_pods_of_a_drained_node_go_on_elsewhere_as_their_budget_allows(
    site: Site, cluster: ControlPlane, account: Account, team: str
) -> None:
    """Two of the service are there at any time; a StatefulSet's pod comes back under its name and is left alone."""
    idle = join(site, cluster, "gpu-1")
    cluster.admin.create(
        daemon_set_object(team, "watch"),
        wanting(deployment_object(team, "web"), replicas=3),
        budget(team, "web", 2),
        wanting(stateful_set_object(team, "serve"), replicas=1, gpus=1, interruptible="true"),
    )

    def seen() -> str:
        return (
            f"{ {app: running(cluster, team, app) for app in ('web', 'serve', 'watch')} } {told(cluster)} {site.log()}"
        )

    eventually(lambda: running(cluster, team, "web") == ["gpu-1"] * 3, seen)
    eventually(lambda: running(cluster, team, "serve") == ["gpu-1"] == running(cluster, team, "watch"), seen)
    before = uids(cluster, team, "serve")
    busy = join(site, cluster, "gpu-2", utilization=0.9)
    eventually(lambda: running(cluster, team, "watch") == ["gpu-1", "gpu-2"], seen)
    fewest = 3

    def stopped() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(running(cluster, team, "web")))
        return site.state(idle) == "stopped"

    start(site, cluster, account, {"kubernetes": {"node_owner": "gpuwatch", "drain_timeout": "10m"}})
    eventually(stopped, seen)

    eventually(lambda: site.settled_stops(idle) == 1, site.log)
    assert running(cluster, team, "web") == ["gpu-2"] * 3
    assert running(cluster, team, "serve") == ["gpu-2"]
    assert not uids(cluster, team, "serve") & before
    assert "gpu-1" in running(cluster, team, "watch")
    assert fewest >= 2
    assert (site.state(busy), cordoned(cluster, "gpu-2")) == ("running", False)
    assert [each for each in cluster.asked(account) if not each.allowed] == []


@pytest.mark.nightly
def test_a_budget_that_never_allows_it_gets_the_node_back_with_the_reason(
    site: Site, cluster: ControlPlane, account: Account, team: str
) -> None:
    """No pod was moved, and its budget is named."""
    machine = join(site, cluster, "gpu-1")
    cluster.admin.create(wanting(deployment_object(team, "web"), replicas=1), budget(team, "web", 1))
    eventually(lambda: running(cluster, team, "web") == ["gpu-1"], lambda: told(cluster))
    before = uids(cluster, team, "web")
    join(site, cluster, "gpu-2", utilization=0.9)
    start(site, cluster, account, {"kubernetes": {"node_owner": "gpuwatch", "drain_timeout": "4s"}})
    eventually(lambda: cordoned(cluster, "gpu-1"), site.log)
    eventually(lambda: not cordoned(cluster, "gpu-1"), site.log)

    def why() -> str:
        return " ".join(site.run("explain", machine).stdout.split())

    eventually(lambda: "Its drain was not over within 4s" in why(), lambda: why() + site.log())
    assert (site.state(machine), uids(cluster, team, "web")) == ("running", before)
    assert f"PodDisruptionBudget {team}/web" in why() + site.run("audit", "log", "--node", machine).stdout


@pytest.mark.nightly
def test_ended_workloads_are_really_ended_by_their_own_controllers(
    site: Site, cluster: ControlPlane, account: Account, team: str
) -> None:
    """A Deployment and a StatefulSet have no pods, a Job is suspended; one that hangs is restarted; each comes back.

    A Job that would fail for good by an eviction is left alone.
    """
    join(site, cluster, "gpu-1")
    join(site, cluster, "gpu-2")
    cluster.admin.create(
        wanting(deployment_object(team, "serve"), replicas=2, gpus=1, action="scale-to-zero"),
        wanting(stateful_set_object(team, "store"), replicas=2, gpus=1, action="scale-to-zero"),
        wanting(only_once(job_object(team, "train")), gpus=1, action="stop"),
        wanting(job_object(team, "hangs"), gpus=1, action="delete"),
        wanting(only_once(job_object(team, "last")), gpus=1, action="delete"),
        wanting(deployment_object(team, "kept"), replicas=1, gpus=1),
    )
    wanted = {"serve": 2, "store": 2, "train": 1, "hangs": 1, "last": 1, "kept": 1}

    def seen() -> str:
        return f"{ {app: running(cluster, team, app) for app in wanted} } {told(cluster)} {site.log()}"

    eventually(lambda: {app: len(running(cluster, team, app)) for app in wanted} == wanted, seen)
    first = {app: uids(cluster, team, app) for app in wanted}

    def ended(workload: str) -> bool:
        return ends(site, workload) == [Status.SETTLED]

    pods = {"action": "as-annotated", "timeout": "2s", "unused_timeout": "2s", "grace_period": "2s", "rest": "1h"}
    start(site, cluster, account, {"idle": {"action": "report"}, "kubernetes": {"pods": pods}})

    kinds = {"serve": "Deployment", "store": "StatefulSet", "train": "Job", "hangs": "Job"}
    for app, kind in kinds.items():
        eventually(partial(ended, f"{team}/{kind}/{app}"), seen)
    for app in ("serve", "store", "train"):
        assert uids(cluster, team, app) == set(), app
    for app in ("serve", "store"):
        found = cluster.admin.get(kinds[app], app, team)
        assert (found["spec"]["replicas"], found["metadata"]["annotations"][REPLICAS_BEFORE]) == (0, "2")
    job = cluster.admin.get("Job", "train", team)
    assert job["spec"]["suspend"] is True
    assert ("Suspended", "True") in {(each["type"], each["status"]) for each in job["status"]["conditions"]}
    eventually(lambda: len(running(cluster, team, "hangs")) == 1, seen)
    assert not uids(cluster, team, "hangs") & first["hangs"]
    for app in ("last", "kept"):
        assert uids(cluster, team, app) == first[app], app

    cluster.admin.patch("StatefulSet", "store", {"spec": {"replicas": 2}}, team)
    cluster.admin.patch("Job", "train", {"spec": {"suspend": False}}, team)
    eventually(lambda: (len(running(cluster, team, "store")), len(running(cluster, team, "train"))) == (2, 1), seen)
    assert ends(site, f"{team}/StatefulSet/store") == [Status.SETTLED]
    assert RELEASED_BY in cluster.admin.get("StatefulSet", "store", team)["metadata"]["annotations"]
    assert [each for each in cluster.asked(account) if not each.allowed] == []
