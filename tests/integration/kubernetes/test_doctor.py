"""`gpuwatch doctor controller` and the cluster: it asks a real API server for each right that the settings need."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.doctor import kubernetes
from gpuwatch.cli.doctor.report import Finding
from gpuwatch.clouds import CloudError
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.policies import PoolRules
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.doctor_findings import a_controller, codes
from tests.support.builders.kubernetes import custom_kind, node_object, pod_object
from tests.support.real.kubernetes import Account, ControlPlane
from tests.support.real.kubernetes_api import Object
from tests.support.real.kubernetes_chart import chart_account, cluster_rules, team_rules

pytestmark = pytest.mark.component("kube-apiserver")
ENDS = IdlePodRules(action="as-annotated", bare_pods="delete")


def role(*left_out: str) -> list[Object]:
    """The chart's, for a controller that may do everything, without what changes these."""
    return [
        rule
        for rule in (*cluster_rules(), *team_rules())
        if not ({"patch", "create"} & set(rule["verbs"]) and set(left_out) & set(rule["resources"]))
    ]


def found(plane: ControlPlane, rules: Sequence[Object], *, mode: str = "enforce", **pool: Any) -> list[Finding]:  # noqa: ANN401  of a pool
    """What the doctor says with that role, in a pool with these rules for Kubernetes."""
    return said(plane, plane.service_account("default", rules), mode=mode, **pool)


def said(plane: ControlPlane, account: Account, *, mode: str = "enforce", **pool: Any) -> list[Finding]:  # noqa: ANN401  of a pool
    """What the doctor says with that account."""
    cluster = KubernetesSettings(name="research", kubeconfig=str(plane.kubeconfig(account.token)))
    pools = {"default": PoolRules(kubernetes=KubernetesRules(**pool))}
    settings: dict[str, Any] = {"kubernetes": cluster, "mode": mode, "pools": pools}
    return list(kubernetes.cluster(a_controller(CloudError("not asked"), settings=settings)))


def test_with_the_charts_role_all_is_well(plane: ControlPlane) -> None:
    """Its version, each right, and what the cluster shows."""
    plane.custom(custom_kind("kubeflow.org", "Notebook", "notebooks"))
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"), pod_object(team, "work", node="gpu-1", gpus=1))
    seen = found(plane, role(), node_owner="gpuwatch", pods=ENDS)
    text = " ".join(each.seen for each in seen)

    assert codes(seen) == []
    assert "its API server answers at https://127.0.0.1:" in text
    assert ": v1." in text
    for right in (
        "patch nodes",
        "create pods/eviction",
        "patch deployments of apps",
        "patch notebooks of kubeflow.org",
    ):
        assert right in text
    assert "get, patch pods" in text
    assert "1 node with 8 GPUs, 1 pod" in text


def test_each_of_several_clusters_is_looked_at(plane: ControlPlane) -> None:
    """One whose credentials are no good hides nothing of the other."""
    good = plane.service_account("default", role())
    clusters = {
        "prod": KubernetesSettings(kubeconfig=str(plane.kubeconfig(good.token))),
        "research": KubernetesSettings(kubeconfig=str(plane.kubeconfig("no token of anybody's"))),
    }
    settings: dict[str, Any] = {"clusters": clusters, "mode": "observe"}
    seen = list(kubernetes.cluster(a_controller(CloudError("not asked"), settings=settings)))
    wrong = [each for each in seen if each.code in {"kubernetes.unusable", "kubernetes.silent", "kubernetes.denied"}]

    assert any("its API server answers" in each.seen for each in seen)
    assert wrong
    assert all("research" in str(each) for each in wrong)


def test_a_right_that_the_settings_need_and_the_role_lacks_is_named(plane: ControlPlane) -> None:
    """With what it is for."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"), pod_object(team, "work", node="gpu-1", gpus=1))
    seen = found(plane, role("deployments", "events"), pods=ENDS)
    denied = [each.seen for each in seen if each.code == "kubernetes.denied"]

    assert denied == [
        *(
            f"patch: refused in {team}; they are marked with the notice",
            f"patch: refused in {team}; they are scaled to zero, after a notice",
        )
        * 3,
        f"create: refused in {team}; they are created with each notice",
    ]


def test_rights_in_some_namespaces_are_enough_and_these_are_named(plane: ControlPlane) -> None:
    """As the chart gives them; what is not named there stays."""
    team, other = plane.namespace(), plane.namespace()
    plane.admin.create(node_object("gpu-1"), pod_object(team, "work", node="gpu-1", gpus=1))
    plane.admin.create(pod_object(other, "work", node="gpu-1", gpus=1))
    seen = said(plane, chart_account(plane, [team]), pods=ENDS)
    text = " ".join(each.seen for each in seen)

    assert codes(seen) == []
    assert f"patch deployments/scale of apps in {team};" in text


def test_without_pods_that_hold_gpus_no_right_to_workloads_is_asked_for(plane: ControlPlane) -> None:
    """There is no namespace yet that it would be needed in."""
    seen = said(plane, chart_account(plane, []), pods=ENDS)

    assert codes(seen) == []
    assert "not asked for: no pod holds GPUs" in [each.seen for each in seen]


@pytest.mark.parametrize(
    ("mode", "pool"),
    [("observe", {"node_owner": "gpuwatch", "pods": ENDS}), ("enforce", {}), ("enforce", {"pods": IdlePodRules()})],
)
def test_who_only_looks_needs_no_right_to_change(plane: ControlPlane, mode: str, pool: dict[str, Any]) -> None:
    """A role that reads is enough while gpuwatch observes, and for pools that leave nodes and pods alone."""
    reading = [rule for rule in role() if not {"patch", "create"} & set(rule["verbs"])]

    assert set(codes(found(plane, reading, mode=mode, **pool))) == set()


def test_a_right_to_read_that_is_missing_makes_the_view_incomplete(plane: ControlPlane) -> None:
    """Both are said: the right, and what follows from it."""
    rules = [rule for rule in role() if "pods" not in rule["resources"]]

    assert set(codes(found(plane, rules, mode="observe"))) == {"kubernetes.denied", "kubernetes.silent"}


def test_a_kubeconfig_that_cannot_be_used_is_one_finding(tmp_path: Path) -> None:
    """With the reason; without a cluster in the settings nothing is looked at."""
    cluster = KubernetesSettings(name="research", kubeconfig=str(tmp_path / "missing"))
    seen = list(kubernetes.cluster(a_controller(CloudError("not asked"), settings={"kubernetes": cluster})))

    assert codes(seen) == ["kubernetes.unusable"]
    assert "missing" in seen[0].seen
    assert list(kubernetes.cluster(a_controller(CloudError("not asked")))) == []
