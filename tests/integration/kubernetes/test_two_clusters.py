"""One controller over two real API servers whose nodes, namespaces and pods have the same names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.kubernetes import CORDONED_BY
from tests.support.builders.kubernetes import deployment_object, node_object, pod_object, replica_set_object
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import ControlPlane, another_control_plane
from tests.support.real.kubernetes_api import Object
from tests.support.real.kubernetes_chart import chart_account
from tests.support.real.local_site import Site, a_site

pytestmark = pytest.mark.component("kube-apiserver")


@pytest.fixture
def other() -> Iterator[ControlPlane]:
    """The second cluster."""
    with another_control_plane() as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


def serve(plane: ControlPlane, machine: str, *more: Object) -> None:
    """The node gpu-0, which is this machine, with the pod team/serve of a Deployment, and more nodes."""
    if plane.admin.find("Namespace", "team") is None:
        plane.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    plane.admin.create(node_object("gpu-0", gpus=1, provider_id=f"aws:///us-east-1a/{machine}"), *more)
    (deployment,) = plane.admin.create(deployment_object("team", "serve"))
    (replicas,) = plane.admin.create(replica_set_object("team", "serve-1", owner=deployment))
    plane.admin.create(pod_object("team", "serve", node="gpu-0", owner=replicas))


def asked_to_go(plane: ControlPlane) -> bool:
    """Whether its pod was."""
    return "deletionTimestamp" in plane.admin.get("Pod", "serve", "team")["metadata"]


def cordoned(plane: ControlPlane) -> bool:
    """Whether its node is, by gpuwatch."""
    return CORDONED_BY in plane.admin.get("Node", "gpu-0")["metadata"].get("annotations", {})


@pytest.mark.nightly  # test_site.py: a node of one cluster
def test_each_node_goes_in_its_own_cluster_once_its_pods_have_room_there(
    site: Site, plane: ControlPlane, other: ControlPlane
) -> None:
    """`prod/gpu-0` is drained and stopped; its namesake in research stays until research has another node."""
    ours, theirs = (site.launch(name, 0.0) for name in ("ours", "theirs"))
    serve(plane, ours, node_object("spare"))
    serve(other, theirs)
    idle = {"timeout": "2s", "grace_period": "2s", "owner_grace_period": "2s", "instance_store": "discard"}
    pool: dict[str, Any] = {"warm_up": "0s", "idle": idle, "kubernetes": {"node_owner": "gpuwatch"}}
    clusters = {
        name: {"kubeconfig": str(each.kubeconfig(chart_account(each, []).token))}
        for name, each in (("prod", plane), ("research", other))
    }
    site.controller(site.configure("enforce", more={"kubernetes": clusters, "pools": {"default": pool}}))
    eventually(lambda: asked_to_go(plane), site.log)
    plane.admin.delete("Pod", "serve", "team")  # as its kubelet confirms
    eventually(lambda: site.state(ours) == "stopped", site.log)
    why = " ".join(site.run("explain", theirs).stdout.split())

    assert "team/serve fits on no other node" in why
    assert (site.state(theirs), cordoned(other), asked_to_go(other)) == ("running", False, False)
    other.admin.create(node_object("spare"))
    eventually(lambda: asked_to_go(other), site.log)
    assert cordoned(other)
