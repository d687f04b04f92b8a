"""The chart's objects on a real API server: every field is one that it knows, and the pods are as confined as is said.

The renderings are those of tests/golden/helm. Objects of Prometheus Operator are left out: it knows no such kinds.
"""

from typing import Any

import pytest
import yaml

from tests.support.helm_chart import RENDERED, SITES
from tests.support.paths import GOLDEN
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import ApiError, Object
from tools.kustomize import NAMES, files

pytestmark = pytest.mark.component("kube-apiserver")


def objects(name: str) -> list[Object]:
    """What Helm made of the chart."""
    text = (GOLDEN / "helm" / f"{name}.yaml").read_text(encoding="utf-8")
    return [each for each in yaml.safe_load_all(text) if each is not None]


def pod_of(name: str, kind: str) -> Object:
    """The pod that the workload of that kind makes."""
    (found,) = (each for each in objects(name) if each["kind"] == kind)
    made = found["spec"]["template"]
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {**made["metadata"], "name": "made"}}


def confined(plane: ControlPlane, level: str) -> str:
    """A namespace of that level of Pod Security."""
    name = plane.namespace()
    labels: Any = {"pod-security.kubernetes.io/enforce": level}
    plane.admin.patch("Namespace", name, {"metadata": {"labels": labels}})
    return name


@pytest.mark.parametrize("name", RENDERED + SITES)
def test_the_api_server_takes_every_object(plane: ControlPlane, name: str) -> None:
    """Without an unknown or a wrong field, as `helm install --dry-run=server` asks it."""
    for place in ("gpuwatch", "team-a", "team-b", "platform-gpu"):
        if plane.admin.find("Namespace", place) is None:
            plane.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    known = [each for each in objects(name) if not each["apiVersion"].startswith("monitoring.coreos.com/")]

    assert len(plane.admin.create(*known, dry_run=True)) == len(known) > 3


def test_a_field_that_kubernetes_does_not_know_is_refused(plane: ControlPlane) -> None:
    """So the test above would see one."""
    pod = pod_of("kubernetes", "Deployment")
    pod["metadata"]["namespace"] = plane.namespace()
    pod["spec"]["containers"][0]["volumeMount"] = []

    with pytest.raises(ApiError, match="volumeMount"):
        plane.admin.create(pod, dry_run=True)


def test_the_controller_runs_where_pods_are_restricted(plane: ControlPlane) -> None:
    """The strictest level of Pod Security takes it."""
    pod = pod_of("kubernetes", "Deployment")
    pod["metadata"]["namespace"] = confined(plane, "restricted")

    assert plane.admin.create(pod, dry_run=True)


def test_the_agent_needs_what_the_page_says_and_nothing_more(plane: ControlPlane) -> None:
    """It sees the host: its processes, its network and four of its folders. All else is as restricted."""
    pod = pod_of("defaults", "DaemonSet")
    pod["spec"].pop("runtimeClassName")  # there is none here
    pod["metadata"]["namespace"] = confined(plane, "restricted")
    with pytest.raises(ApiError) as refused:
        plane.admin.create(pod, dry_run=True)
    wrong = str(refused.value).partition('violates PodSecurity "restricted:latest": ')[2]

    assert wrong.startswith('host namespaces (hostNetwork=true, hostPID=true), hostPort (container "agent" uses')
    assert wrong.count("restricted volume types") == 1
    for allowed in ("allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "seccompProfile", "privileged"):
        assert allowed not in wrong


def test_the_test_of_helm_runs_where_pods_are_restricted(plane: ControlPlane) -> None:
    """It is one more pod, with no rights and nothing mounted."""
    (pod,) = (each for each in objects("kubernetes") if each["kind"] == "Pod")
    pod["metadata"]["namespace"] = confined(plane, "restricted")

    assert plane.admin.create(pod, dry_run=True)


def test_the_api_server_takes_the_kustomize_base(plane: ControlPlane) -> None:
    """Likewise; kustomize puts it into a namespace."""
    team = plane.namespace()
    made = [each for name in NAMES if "/" not in name for each in yaml.safe_load_all(files()[name]) if each]
    for each in made:
        if not each["kind"].startswith(("ClusterRole", "Namespace", "Kustomization")):
            each["metadata"]["namespace"] = team
    known = [each for each in made if each["kind"] not in {"Kustomization", "Namespace"}]

    assert len(plane.admin.create(*known, dry_run=True)) == len(known) > 6
