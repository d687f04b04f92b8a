"""gpuwatch beside Karpenter: Karpenter launches and removes the nodes, gpuwatch ends what holds them without use.

Karpenter is the project's own controller with its provider for KWOK. That provider makes node objects alone: their
machines at EC2 (by moto), with Karpenter's tag, are launched and terminated by the tests.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.decision import Status
from gpuwatch.model.kubernetes import PREFIX
from tests.support.builders.kubernetes import deployment_object
from tests.support.real.agents import eventually
from tests.support.real.karpenter import POOL, change_pool, drifted, karpenter, karpenter_possible, karpenter_told
from tests.support.real.kubernetes import Account, ControlPlane
from tests.support.real.kubernetes_api import Object
from tests.support.real.kubernetes_chart import chart_account
from tests.support.real.kubernetes_controllers import controllers, told
from tests.support.real.kubernetes_workloads import budget, ends, join, running, wanting
from tests.support.real.local_site import Site, a_site

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.component("kube-apiserver"),
    pytest.mark.skipif(
        not karpenter_possible(), reason="`kubernetes_programs.py` builds Karpenter, controllers, scheduler and KWOK"
    ),
]
KEEP = "karpenter.sh/do-not-disrupt"
PODS = {"action": "as-annotated", "timeout": "2s", "unused_timeout": "2s", "grace_period": "2s", "rest": "1h"}


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with all that makes pods run, and Karpenter."""
    with controllers(plane), karpenter(plane):
        yield plane


@pytest.fixture
def team(plane: ControlPlane) -> str:
    """A namespace whose workloads may be ended."""
    return plane.namespace()


@pytest.fixture
def account(plane: ControlPlane, team: str) -> Account:
    """With the chart's role and nothing else."""
    return chart_account(plane, [team])


class Launched:
    """A Deployment of one pod with a GPU, the node that Karpenter has made for it, and its machine."""

    def __init__(
        self, site: Site, cluster: ControlPlane, team: str, app: str, utilization: float, **words: str
    ) -> None:
        """When it runs."""
        self.site, self.cluster = site, cluster
        cluster.admin.create(wanting(deployment_object(team, app), replicas=1, gpus=1, **words))
        eventually(lambda: len(running(cluster, team, app)) == 1, lambda: said(site, cluster))
        (self.node,) = running(cluster, team, app)
        self.machine = site.launch(self.node, utilization, **{"karpenter.sh/nodepool": POOL})

    def found(self) -> Object | None:
        """The node object."""
        return self.cluster.admin.find("Node", self.node)

    def marks(self) -> dict[str, str]:
        """The annotations that keep it, and gpuwatch's own."""
        found = (self.found() or {"metadata": {}})["metadata"].get("annotations", {})
        return {key: value for key, value in found.items() if key == KEEP or key.startswith(PREFIX)}

    def deleted(self) -> bool:
        """Whether somebody has deleted it."""
        return "deletionTimestamp" in (self.found() or {"metadata": {}})["metadata"]

    def disrupted(self) -> bool:
        """Whether Karpenter is about to remove it."""
        found = self.found()
        taints = () if found is None else found["spec"].get("taints", ())
        return any(each["key"] == "karpenter.sh/disrupted" for each in taints)

    def explained(self) -> Any:  # noqa: ANN401  JSON
        """By gpuwatch."""
        answer = self.site.run("explain", self.machine, "--json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def why(self) -> str:
        """In words."""
        return " ".join(self.site.run("explain", self.machine).stdout.split())

    def done(self) -> list[str]:
        """What gpuwatch did to it, and tried to do."""
        return [each["intent"]["verb"] for each in self.explained()["history"]]


def said(site: Site, cluster: ControlPlane) -> str:
    """By all who take part."""
    return f"{karpenter_told(cluster)} {told(cluster)} {site.log()}"


def nodes_of(site: Site) -> list[str]:
    """The machines that gpuwatch has in its fleet, by id."""
    return [each["id"] for each in json.loads(site.run("status", "--json").stdout)["nodes"]]


def start(site: Site, cluster: ControlPlane, account: Account, **rules: object) -> None:
    """A controller whose only pool has these rules for its nodes."""
    idle = {"timeout": "2s", "grace_period": "2s", "owner_grace_period": "2s", "instance_store": "discard"}
    pool = {"warm_up": "0s", "idle": idle, "kubernetes": {"pods": PODS, **rules}}
    kubernetes = {"name": "research", "kubeconfig": str(cluster.kubeconfig(account.token))}
    site.controller(site.configure("enforce", more={"kubernetes": kubernetes, "pools": {"default": pool}}))


@pytest.mark.parametrize("owner", ["gpuwatch", "karpenter"])
def test_a_node_that_karpenter_replaces_is_left_to_it(
    site: Site, cluster: ControlPlane, account: Account, team: str, owner: str
) -> None:
    """Neither drained nor marked while its drain waits for a budget, also where its pool says that it is gpuwatch's."""
    theirs = owner == "karpenter"
    one = Launched(site, cluster, team, "serve", 0.9 if theirs else 0.0, interruptible="true")
    cluster.admin.create(budget(team, "serve", 1))
    change_pool(cluster)
    eventually(one.deleted, lambda: said(site, cluster))
    if theirs:
        other = Launched(site, cluster, team, "train", 0.9)
    else:
        machine = join(site, cluster, "own", gpus=0)
    start(site, cluster, account, node_owner=owner, mark_busy=theirs)

    if theirs:
        eventually(lambda: KEEP in other.marks(), lambda: said(site, cluster))
    else:
        eventually(lambda: site.state(machine) == "stopped", lambda: said(site, cluster))
        assert "Its marks say that karpenter removes it, and its pool says gpuwatch." in one.why()
    assert (one.deleted(), one.marks(), one.done()) == (True, {}, [])
    assert running(cluster, team, "serve") == [one.node]

    cluster.admin.delete("PodDisruptionBudget", "serve", team)
    eventually(lambda: one.found() is None, lambda: said(site, cluster))
    assert (site.state(one.machine), one.done()) == ("running", [])


def test_karpenter_removes_what_gpuwatch_has_emptied_and_keeps_what_it_has_marked(
    site: Site, cluster: ControlPlane, account: Account, team: str
) -> None:
    """An idle node is ended by its workload alone, a busy one is kept until it rests, a person's mark stays."""
    rests = Launched(site, cluster, team, "rests", 0.0, action="scale-to-zero")
    kept = Launched(site, cluster, team, "kept", 0.0, action="scale-to-zero")
    silent = Launched(site, cluster, team, "silent", 0.0)
    works = Launched(site, cluster, team, "works", 0.9)
    cluster.admin.patch("Node", kept.node, {"metadata": {"annotations": {KEEP: "true"}}})
    start(site, cluster, account, node_owner="karpenter", mark_busy=True)

    def see() -> str:
        return said(site, cluster)

    eventually(lambda: KEEP in works.marks(), see)
    eventually(lambda: ends(site, f"{team}/Deployment/rests") == [Status.SETTLED], see)
    eventually(lambda: ends(site, f"{team}/Deployment/kept") == [Status.SETTLED], see)
    eventually(lambda: rests.found() is None, see)
    assert "karpenter removes its pool's nodes" in kept.why()
    assert running(cluster, team, "silent") == [silent.node]

    change_pool(cluster)
    eventually(lambda: silent.found() is None, see)
    assert {kept.node, works.node} <= drifted(cluster)
    assert (works.disrupted(), running(cluster, team, "works")) == (False, [works.node])
    site.drivers[works.machine].gpu(0).utilization(0.0)
    eventually(lambda: works.found() is None, see)
    assert (kept.disrupted(), kept.marks()) == (False, {KEEP: "true"})

    gone = (rests, silent, works)
    assert [one.done() for one in (*gone, kept)] == [[], [], ["unmark", "mark"], []]
    assert {site.state(one.machine) for one in gone} == {"running"}
    assert all("is not among the nodes of the Kubernetes cluster research" in one.why() for one in gone)
    site.ec2.terminate_instances(InstanceIds=[one.machine for one in gone])
    eventually(lambda: nodes_of(site) == [kept.machine], see)
    written = json.loads(site.run("audit", "log", "--json").stdout)["records"]
    assert sorted(each["what"] for each in written) == ["mark", *["notice"] * 2, *["release"] * 2, "unmark"]
    assert [each for each in cluster.asked(account) if not each.allowed] == []
