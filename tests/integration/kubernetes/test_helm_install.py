"""Helm installs, upgrades and removes the chart on a real API server, with the values of eight sites."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.builders.kubernetes import custom_kind
from tests.support.helm_chart import HELM, SITES, SOURCE, manifests, values_of
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import Object, place

pytestmark = [
    pytest.mark.component("kube-apiserver"),
    pytest.mark.skipif(HELM is None, reason="`kubernetes_programs.py` builds Helm with Go"),
]
VALUES = ("defaults", "kubernetes", *SITES)
DAILY = {"kubernetes", "openshift"}  # with and without rights to act
_OPERATOR = "monitoring.coreos.com"  # Prometheus Operator, of which some of the values make objects
_CLAIM = "PersistentVolumeClaim"
_KINDS = (("PodMonitor", "podmonitors"), ("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules"))


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The namespaces that the values name, and the kinds of Prometheus Operator."""
    plane.custom(*(custom_kind(_OPERATOR, kind, plural) for kind, plural in _KINDS))
    named = {each["metadata"].get("namespace", "gpuwatch") for name in VALUES for each in manifests(name)}
    for name in sorted(named):
        if plane.admin.find("Namespace", name) is None:
            plane.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield plane
    run(plane, "uninstall", "gpuwatch", "--ignore-not-found")
    for claim in plane.admin.list(_CLAIM, "gpuwatch"):  # Helm keeps it, and no controller lets it go
        plane.admin.patch(_CLAIM, claim["metadata"]["name"], {"metadata": {"finalizers": None}}, "gpuwatch")
        plane.admin.delete(_CLAIM, claim["metadata"]["name"], "gpuwatch")


def run(plane: ControlPlane, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Real Helm, as the cluster's administrator."""
    assert HELM is not None
    where = ("--kubeconfig", str(plane.kubeconfig()), "--namespace", "gpuwatch")
    return subprocess.run([HELM, *arguments, *where], capture_output=True, text=True, check=False)


def done(plane: ControlPlane, *arguments: str) -> str:
    """The same, where it has to succeed."""
    found = run(plane, *arguments)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def is_there(plane: ControlPlane, made: Object) -> bool:
    """Whether the API server has an object of a rendering."""
    meta = made["metadata"]
    clusters = made["kind"].startswith(("Cluster", "Validating"))
    return (
        plane.admin.find(made["kind"], meta["name"], None if clusters else meta.get("namespace", "gpuwatch"))
        is not None
    )


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.nightly) for name in VALUES]
)
def test_it_is_installed_upgraded_and_removed_whole(cluster: ControlPlane, name: str) -> None:
    """Each object of the rendering is there, and gone afterwards but for the ledger's volume."""
    expected = [each for each in manifests(name) if "helm.sh/hook" not in each["metadata"].get("annotations", {})]
    assert len(expected) > 3

    assert "STATUS: deployed" in done(cluster, "install", "gpuwatch", str(SOURCE), *values_of(name))
    assert [place(each["kind"]) for each in expected if not is_there(cluster, each)] == []
    change = ("--set", "agent.podAnnotations.changed=again")
    assert "REVISION: 2" in done(cluster, "upgrade", "gpuwatch", str(SOURCE), *values_of(name), *change)
    agents = cluster.admin.list("DaemonSet")
    assert [each["spec"]["template"]["metadata"]["annotations"]["changed"] for each in agents] == ["again"]
    done(cluster, "uninstall", "gpuwatch")

    left = {each["kind"] for each in expected if is_there(cluster, each)}
    assert left <= {_CLAIM}
