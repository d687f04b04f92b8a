"""The chart's role: the controller needs every right of it, and no other, by the API server's own audit log."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from gpuwatch.clouds.errors import CloudError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.calls import RIGHTS
from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Target
from gpuwatch.model.workload_kinds import ACTIONS, KINDS
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import (
    cron_job_object,
    deployment_object,
    job_object,
    node_object,
    pod_object,
    replica_set_object,
    replication_controller_object,
    stateful_set_object,
)
from tests.support.builders.kubernetes_kinds import kueue_kind, longhorn_kind, object_of, our_kind
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import Account, Asked, ControlPlane
from tests.support.real.kubernetes_api import Api, ApiError, Object
from tests.support.real.kubernetes_chart import chart_account, cluster_rules, patches, team_rules

pytestmark = pytest.mark.component("kube-apiserver")
CUSTOM = [each for each in KINDS if each.by != "Kubernetes"]
CHANGES = {
    Asked("nodes", "patch"),
    Asked("pods/eviction", "create"),
    Asked("events", "create"),
    Asked("pods", "patch"),
    *(Asked(f"{each.group}/{each.resource}", "patch") for each in KINDS if each.actions),
    *(Asked(f"{each.group}/{each.resource}/scale", "patch") for each in KINDS if each.scaled),
}
# Of each way in which one of them is missed: a list, a watch, a call of the controller's own, and each change.
DAILY = {
    *(Asked("nodes", verb) for verb in ("list", "watch", "patch")),
    *(Asked("pods", verb) for verb in ("get", "patch")),
    *(Asked(what, "create") for what in ("events", "pods/eviction")),
    *(Asked("policy/poddisruptionbudgets", "list"), Asked("batch/jobs", "patch")),
    Asked("apps/deployments/scale", "patch"),
}
ONE_OF_APPS = {Asked("apps/deployments", "patch"), Asked("apps/deployments/scale", "patch")}  # for all kinds of theirs
HOW = {"Pod": "delete", **{each.kind: each.actions[0] for each in KINDS if each.actions}}


def role() -> list[Object]:
    """All rules that Helm writes for a controller that may act, wherever they hold."""
    return [*cluster_rules(), *team_rules()]


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
        group, _, resource = each.what.partition("/") if "/" in each.what else ("", "", each.what)
        group, resource = ("", each.what) if each.what == "pods/eviction" else (group, resource)
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
    # Rights are the same whatever is in them, and those of full length, made anew for each test, would cost minutes.
    plane.custom(kueue_kind(), longhorn_kind(), *map(our_kind, CUSTOM))
    for each in CUSTOM:
        (owner,) = plane.admin.create(object_of(each, team, "alice", definition=our_kind(each)))
        plane.admin.create(pod_object(team, f"alice-{each.resource}", node="gpu-1", gpus=1, owner=owner))


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
    cluster.workloads.release(target, HOW[target.kind], uids, "key-3", permit=permit)


def test_the_role_is_that_of_the_table() -> None:
    """gpuwatch/kubernetes/calls.py says why each right is there."""
    table = {
        Asked("/".join(filter(None, (right.group, right.resource, right.subresource))), verb)
        for right in RIGHTS
        for verb in right.verbs
    }

    assert granted(role()) == table


@pytest.mark.usefixtures("others")
def test_the_controller_uses_its_whole_role_and_nothing_else(plane: ControlPlane, team: str) -> None:
    """No call is forbidden, no right is left over, and every pod's owner is known."""
    account = chart_account(plane, [team])
    with as_account(plane, account) as cluster:
        seen, _ = exercise(cluster)
        eventually(lambda: granted(role()) <= plane.asked(account), lambda: granted(role()) - plane.asked(account))

    assert seen.trouble is None
    assert {str(pod.workload.kind) for node in seen.nodes for pod in node.pods} == {
        *("Deployment", "CronJob", "StatefulSet", "ReplicationController", "ReplicaSet", "Job", "Pod"),
        *(each.label for each in KINDS if each.by != "Kubernetes"),
    }
    assert [pod.protected for node in seen.nodes for pod in node.pods if pod.protected] == []
    assert plane.asked(account) == granted(role())


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param(each, marks=() if each in DAILY else pytest.mark.nightly)
        for each in sorted(granted(role()))
        if "/" not in each.what
        or each.what in {"pods/eviction", "batch/jobs", "policy/poddisruptionbudgets"}
        or each in ONE_OF_APPS
    ],
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

    expected = {Asked(left_out.what, left_out.verb, allowed=False)}
    eventually(lambda: refused_calls(plane, account) == expected, lambda: refused_calls(plane, account))


def refused_calls(plane: ControlPlane, account: Account) -> set[Asked]:
    """What the API server has refused this account so far."""
    return {each for each in plane.asked(account) if not each.allowed}


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


@pytest.fixture
def thief(plane: ControlPlane, team: str) -> Api:
    """Somebody with the token of a controller that may do everything that the chart lets it."""
    return plane.admin.with_token(chart_account(plane, [team]).token)


def refused(thief: Api, kind: str, name: str, change: Object, namespace: str, part: str = "") -> str:
    """The API server's words; fails if it is not refused."""
    with pytest.raises(ApiError) as caught:
        thief.patch(kind, name, change, namespace, part)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Deployment", "serve"), pytest.param("StatefulSet", "store", marks=pytest.mark.nightly), ("Job", "train")],
)
def test_a_stolen_token_changes_nothing_of_what_workloads_run(
    plane: ControlPlane, thief: Api, team: str, kind: str, name: str
) -> None:
    """Nor whose they are, nor what their people have said, in the namespaces that are its own."""
    plane.admin.patch(kind, name, {"metadata": {"annotations": {"gpuwatch.io/protect": "true"}}}, team)
    before = plane.admin.get(kind, name, team)

    for what, change in patches().items():
        words = refused(thief, kind, name, change, team)
        assert "denied request: gpuwatch" in words or "field is immutable" in words, what
    assert plane.admin.get(kind, name, team) == before


@pytest.mark.parametrize(
    "kind",
    ["Deployment", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("ReplicaSet", "StatefulSet"))],
)
def test_a_stolen_token_scales_to_zero_and_no_further(plane: ControlPlane, thief: Api, team: str, kind: str) -> None:
    """More pods would be somebody's money; fewer, but not none, nobody has agreed to."""
    name = {"Deployment": "serve", "ReplicaSet": "alone", "StatefulSet": "store"}[kind]
    plane.admin.patch(kind, name, {"spec": {"replicas": 3}}, team)
    for replicas in (2, 4):
        assert "scales to zero" in refused(thief, kind, name, {"spec": {"replicas": replicas}}, team, "/scale")
    assert "no specification" in refused(thief, kind, name, {"spec": {"replicas": 0}}, team)
    thief.patch(kind, name, {"spec": {"replicas": 0}}, team, "/scale")

    assert plane.admin.get(kind, name, team)["spec"]["replicas"] == 0


def test_a_stolen_token_lets_no_job_go_on(thief: Api, team: str) -> None:
    """It suspends, and no more."""
    thief.patch("Job", "train", {"spec": {"suspend": True}}, team)

    assert "lets no job go on" in refused(thief, "Job", "train", {"spec": {"suspend": False}}, team)
    assert "no specification" in refused(thief, "Job", "train", {"spec": {"parallelism": 9}}, team)


def test_a_stolen_token_marks_a_pod_and_changes_no_more_of_it(plane: ControlPlane, thief: Api, team: str) -> None:
    """Whose image anybody with a right to patch it could change."""
    thief.patch("Pod", "bare", {"metadata": {"annotations": {"gpuwatch.io/stop-at": "2030-01-01T00:00:00Z"}}}, team)
    containers = plane.admin.get("Pod", "bare", team)["spec"]["containers"]
    image = {"spec": {"containers": [{**each, "image": "evil"} for each in containers]}}

    assert "denied request: gpuwatch" in refused(thief, "Pod", "bare", image, team)


@pytest.mark.parametrize("elsewhere", ["kube-system", pytest.param("default", marks=pytest.mark.nightly)])
def test_a_stolen_token_changes_nothing_elsewhere(plane: ControlPlane, thief: Api, elsewhere: str) -> None:
    """Neither what Kubernetes is made of, nor the workloads of teams that are not named."""
    name = "coredns"
    plane.admin.create(deployment_object(elsewhere, name))
    try:
        for change in ({"spec": {"replicas": 0}}, {"metadata": {"annotations": {"gpuwatch.io/stop-at": "x"}}}):
            assert "forbidden" in refused(thief, "Deployment", name, change, elsewhere)
        assert "forbidden" in refused(thief, "Deployment", name, {"spec": {"replicas": 0}}, elsewhere, "/scale")
    finally:
        plane.admin.delete("Deployment", name, elsewhere)


def test_even_with_a_right_nothing_of_kubernetes_itself_is_changed(plane: ControlPlane) -> None:
    """Whatever role somebody binds to the controller: the policy holds in every namespace."""
    account = chart_account(plane, [], rules=[*cluster_rules(), *team_rules()])
    thief = plane.admin.with_token(account.token)
    plane.admin.create(deployment_object("kube-system", "coredns"))
    try:
        told = refused(thief, "Deployment", "coredns", {"spec": {"replicas": 0}}, "kube-system", "/scale")
    finally:
        plane.admin.delete("Deployment", "coredns", "kube-system")

    assert "denied request: gpuwatch changes workloads of their teams" in told


def test_everybody_else_is_not_concerned(plane: ControlPlane, thief: Api, team: str) -> None:
    """The policy is of one account."""
    del thief
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "new"}]}}}}

    assert plane.admin.patch("Deployment", "serve", image, team)
