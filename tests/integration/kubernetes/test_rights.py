"""The chart's role: the controller needs every right of it, and no other, by the API server's own audit log."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from gpuwatch.clouds.errors import CloudError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.calls import RIGHTS
from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Target
from gpuwatch.policies.kubernetes.idle_pods_obstacles import ACTIONS
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import (
    cron_job_object,
    custom_kind,
    custom_object,
    deployment_object,
    job_object,
    node_object,
    pod_object,
    replica_set_object,
    replication_controller_object,
    stateful_set_object,
)
from tests.support.paths import GOLDEN
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import Account, Asked, ControlPlane
from tests.support.real.kubernetes_api import Object

pytestmark = pytest.mark.component("kube-apiserver")
CUSTOM = (("kubeflow.org", "Notebook", "notebooks"), ("ray.io", "RayCluster", "rayclusters"))
CHANGES = {
    Asked("nodes", "patch"),
    Asked("pods/eviction", "create"),
    Asked("events", "create"),
    Asked("pods", "patch"),
    *(Asked(f"apps/{each}", "patch") for each in ("deployments", "replicasets", "statefulsets")),
    Asked("batch/jobs", "patch"),
    Asked("kubeflow.org/notebooks", "patch"),
}
DEPLOYMENTS = Asked("apps/deployments", "patch")  # for all kinds of its group
HOW = {"Notebook": "stop", "Job": "stop", "Pod": "delete"}  # any other is scaled to zero


def role() -> list[Object]:
    """The rules that Helm writes for a controller that may act."""
    text = (GOLDEN / "helm/kubernetes.yaml").read_text(encoding="utf-8")
    (found,) = (each["rules"] for each in yaml.safe_load_all(text) if each and each["kind"] == "ClusterRole")
    rules: list[Object] = found
    return rules


def granted(rules: Sequence[Mapping[str, Any]]) -> set[Asked]:
    """What rules allow."""
    return {
        Asked(f"{group}/{resource}" if group else resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(left_out: Asked) -> list[Object]:
    """The chart's rules but for one verb of one resource."""
    kept = sorted(granted(role()) - {left_out})
    rules = []
    for each in kept:
        group, _, resource = each.what.rpartition("/") if each.what != "pods/eviction" else ("", "", each.what)
        rules.append({"apiGroups": [group], "resources": [resource], "verbs": [each.verb]})
    return rules


@pytest.fixture
def team(plane: ControlPlane) -> str:
    """A namespace with a pod of each of Kubernetes' own kinds of owner, and one of none, on the node gpu-1."""
    name = plane.namespace()
    (deployment, cron) = plane.admin.create(deployment_object(name, "serve"), cron_job_object(name, "nightly"))
    owners = plane.admin.create(
        replica_set_object(name, "serve-1", owner=deployment),
        job_object(name, "nightly-1", owner=cron),
        stateful_set_object(name, "store"),
        replication_controller_object(name, "old"),
        replica_set_object(name, "alone"),
        job_object(name, "train"),
    )
    plane.admin.create(node_object("gpu-1"))
    for number, owner in enumerate(owners):
        plane.admin.create(pod_object(name, f"work-{number}", node="gpu-1", gpus=1, owner=owner))
    plane.admin.create(pod_object(name, "bare", node="gpu-1", gpus=1))
    return name


@pytest.fixture
def others(plane: ControlPlane, team: str) -> None:
    """There as well, pods that objects of other systems own."""
    for group, kind, plural in CUSTOM:
        plane.custom(custom_kind(group, kind, plural))
        (owner,) = plane.admin.create(custom_object(group, kind, team, "alice"))
        plane.admin.create(pod_object(team, f"alice-{plural}", node="gpu-1", gpus=1, owner=owner))


@contextmanager
def as_account(plane: ControlPlane, account: Account) -> Iterator[ApiCluster]:
    """The controller's client, with that account's token."""
    settings = KubernetesSettings(kubeconfig=str(plane.kubeconfig(account.token)), max_silence=10.0)
    cluster = settings.connect(SystemClock())
    assert isinstance(cluster, ApiCluster)
    try:
        yield cluster
    finally:
        cluster.close()


def exercise(cluster: ApiCluster) -> tuple[ClusterView, KubernetesNode | None]:
    """Everything that a controller asks of a cluster, each once: what was seen, and the node as it was asked last."""
    clock = SystemClock()
    permit = Permit.asked_now(clock, 60.0, lambda: True)
    seen = cluster.view()
    asked = cluster.node("gpu-1")
    if asked is not None:
        cluster.cordon("gpu-1", "key-1", permit=permit)
        cluster.drain("gpu-1", tuple(pod.uid for pod in asked.to_drain), "key-1", permit=permit)
        cluster.uncordon("gpu-1", "key-1")
        cluster.mark("gpu-1", "karpenter", "key-1", permit=permit)
        cluster.unmark("gpu-1", "key-1")
        for target in targets_in(seen):
            end(cluster, target)
    return seen, asked


def targets_in(seen: ClusterView) -> list[Target]:
    """What owns its pods and can be ended."""
    found = {pod.workload for node in seen.nodes for pod in node.pods}
    return [
        Target(namespace=each.namespace, kind=each.kind, name=each.name, uid=each.uid)
        for each in sorted(found, key=str)
        if each.kind in ACTIONS
    ]


def end(cluster: ApiCluster, target: Target) -> None:
    """Its notice, and what the notice said."""
    permit = Permit.asked_now(SystemClock(), 60.0, lambda: True)
    now = cluster.workloads.workload(target)
    assert now is not None
    cluster.workloads.announce(target, "key-2", SystemClock().now(), "Its pods are idle.", permit=permit)
    uids = tuple(pod.uid for pod in now.pods)
    cluster.workloads.release(target, HOW.get(target.kind, "scale-to-zero"), uids, "key-3", permit=permit)


def test_the_role_is_that_of_the_table() -> None:
    """gpuwatch/kubernetes/calls.py says why each right is there."""
    table = {
        Asked("/".join(filter(None, (right.group, right.resource, right.subresource))), verb)
        for right in RIGHTS
        for verb in right.verbs
    }

    assert granted(role()) == table


@pytest.mark.usefixtures("others")
def test_the_controller_uses_its_whole_role_and_nothing_else(plane: ControlPlane) -> None:
    """No call is forbidden, no right is left over, and every pod's owner is known."""
    account = plane.service_account("default", role())
    with as_account(plane, account) as cluster:
        seen, _ = exercise(cluster)
        eventually(lambda: granted(role()) <= plane.asked(account), lambda: granted(role()) - plane.asked(account))

    assert seen.trouble is None
    assert {str(pod.workload.kind) for node in seen.nodes for pod in node.pods} == {
        *("Deployment", "CronJob", "StatefulSet", "ReplicationController", "ReplicaSet", "Job", "Pod"),
        *("Notebook", "RayCluster"),
    }
    assert [pod.protected for node in seen.nodes for pod in node.pods if pod.protected] == []
    assert plane.asked(account) == granted(role())


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize(
    "left_out",
    sorted(
        each
        for each in granted(role())
        if "/" not in each.what
        or each.what in {"pods/eviction", "batch/jobs", "policy/poddisruptionbudgets"}
        or each == DEPLOYMENTS
    ),
    ids=lambda each: f"{each.verb} {each.what}",
)
def test_without_any_right_something_is_missing_and_said(
    plane: ControlPlane, left_out: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    """An error, a trouble of the whole, a pod protected by doubt, or a warning, with the API server's own word."""
    caplog.set_level(logging.WARNING, "gpuwatch")
    account = plane.service_account("default", without(left_out))
    told: list[str] = []

    def said() -> bool:
        return "forbidden" in " ".join([*told, *caplog.messages])

    with as_account(plane, account) as cluster:
        try:
            seen, asked = exercise(cluster)
        except CloudError as error:
            told.append(str(error))
            seen, asked = cluster.view(), None
        told.append(str(seen.trouble))
        told += [str(pod.protected) for node in (*seen.nodes, asked) if node is not None for pod in node.pods]
        eventually(said, lambda: [*told, *caplog.messages])

    refused = {each for each in plane.asked(account) if not each.allowed}
    assert refused == {Asked(left_out.what, left_out.verb, allowed=False)}


@pytest.mark.usefixtures("team")
def test_a_controller_that_may_not_act_can_change_nothing(plane: ControlPlane) -> None:
    """Without `act` and `podActions` the rights to change are left out; it observes all the same."""
    reading = [each for each in role() if not {"patch", "create"} & set(each["verbs"])]
    account = plane.service_account("default", reading)
    with as_account(plane, account) as cluster:
        assert cluster.view().trouble is None
        with pytest.raises(CloudError, match="forbidden"):
            exercise(cluster)

    assert granted(role()) - granted(reading) == CHANGES | {Asked("pods", "get")}
    assert plane.admin.get("Node", "gpu-1")["spec"].get("unschedulable") is None
