"""What a real API server says to what gpuwatch relies on: names that it takes, refusals, and watches that end.

The tests of gpuwatch's own client stand on it: if Kubernetes changes one of these answers, this file says so.
"""

import pytest

from gpuwatch.model.kubernetes import (
    CORDONED_AT,
    CORDONED_BY,
    IDLE_ACTION,
    INTERRUPTIBLE,
    LOSES_LOCAL_DATA,
    OWNER,
    PROTECT,
)
from tests.support.builders.kubernetes import (
    budget_object,
    deployment_object,
    heartbeat,
    node_object,
    pod_object,
    replica_set_object,
)
from tests.support.real.kubernetes import Asked, ControlPlane
from tests.support.real.kubernetes_api import Api, ApiError, Object

pytestmark = pytest.mark.component("kube-apiserver")
_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


def evict(api: Api, pod: Object) -> None:
    """By the eviction API, for that pod and no later one of its name."""
    told = pod["metadata"]
    path = f"/api/v1/namespaces/{told['namespace']}/pods/{told['name']}/eviction"
    named = {"name": told["name"], "namespace": told["namespace"]}
    api.ask("POST", path, {**_EVICTION, "metadata": named, "deleteOptions": {"preconditions": {"uid": told["uid"]}}})


def test_every_annotation_of_ours_is_one_that_kubernetes_takes(plane: ControlPlane) -> None:
    """On nodes, pods, workloads and namespaces, with the values that people write."""
    ours = dict.fromkeys(
        (CORDONED_AT, CORDONED_BY, IDLE_ACTION, INTERRUPTIBLE, LOSES_LOCAL_DATA, OWNER, PROTECT),
        "until 2026-11-24: a, b",
    )
    team = plane.namespace()
    plane.admin.create(
        node_object("gpu-1", annotations=ours),
        pod_object(team, "work", node="gpu-1", annotations=ours),
        deployment_object(team, "serve", annotations=ours),
    )
    plane.admin.patch("Namespace", team, {"metadata": {"annotations": ours}})

    found = plane.admin.get("Pod", "work", team)["metadata"]["annotations"]
    assert found == ours


def test_a_key_with_a_colon_is_refused(plane: ControlPlane) -> None:
    """The tags of clouds (`gpuwatch:fleet`) are no labels of Kubernetes."""
    with pytest.raises(ApiError, match="gpuwatch:fleet"):
        plane.admin.create(node_object("gpu-1", labels={"gpuwatch:fleet": "research"}))


def test_a_node_is_as_its_kubelet_says(plane: ControlPlane) -> None:
    """GPUs are there by the device plugin, and readiness is a condition that ends with the kubelet."""
    plane.admin.create(node_object("gpu-1", provider_id="aws:///us-east-1a/i-1"))
    before = plane.admin.get("Node", "gpu-1")
    plane.admin.patch("Node", "gpu-1", heartbeat(ready=False), part="/status")
    after = plane.admin.get("Node", "gpu-1")

    assert before["spec"]["providerID"] == "aws:///us-east-1a/i-1"
    assert before["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert [before["status"]["conditions"][0]["status"], after["status"]["conditions"][0]["status"]] == [
        "True",
        "Unknown",
    ]


def test_an_evicted_pod_ends_once_its_kubelet_says_so(plane: ControlPlane) -> None:
    """Until then it is there, with the time by which it has to be gone."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"))
    (pod,) = plane.admin.create(pod_object(team, "work", node="gpu-1", gpus=8))
    evict(plane.admin, pod)
    ending = plane.admin.get("Pod", "work", team)
    plane.admin.delete("Pod", "work", team)

    assert "deletionTimestamp" in ending["metadata"]
    assert plane.admin.find("Pod", "work", team) is None


def test_a_budget_without_disruptions_answers_429(plane: ControlPlane) -> None:
    """And takes the same eviction once it has one to give."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"), budget_object(team, "serve", app="serve", allowed=0))
    (pod,) = plane.admin.create(pod_object(team, "serve-0", node="gpu-1", labels={"app": "serve"}))
    with pytest.raises(ApiError) as refused:
        evict(plane.admin, pod)
    plane.admin.patch("PodDisruptionBudget", "serve", {"status": {"disruptionsAllowed": 1}}, team, "/status")
    evict(plane.admin, pod)

    assert refused.value.status == 429
    assert "disruption budget" in str(refused.value)


def test_an_eviction_of_a_pod_that_was_made_anew_is_a_conflict(plane: ControlPlane) -> None:
    """The uid of the old one is not the new one's, although the name is."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"))
    (old,) = plane.admin.create(pod_object(team, "work-0", node="gpu-1"))
    plane.admin.delete("Pod", "work-0", team)
    plane.admin.create(pod_object(team, "work-0", node="gpu-1"))
    with pytest.raises(ApiError) as refused:
        evict(plane.admin, old)

    assert refused.value.status == 409


def test_owners_lead_from_a_pod_to_its_deployment(plane: ControlPlane) -> None:
    """By two references, each with the uid."""
    team = plane.namespace()
    (deployment,) = plane.admin.create(deployment_object(team, "serve"))
    (replicas,) = plane.admin.create(replica_set_object(team, "serve-1", owner=deployment))
    (pod,) = plane.admin.create(pod_object(team, "serve-1-a", owner=replicas))

    assert pod["metadata"]["ownerReferences"][0]["uid"] == replicas["metadata"]["uid"]
    assert replicas["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]


@pytest.mark.nightly  # test_cluster.py has what the controller makes of it
def test_a_version_that_is_forgotten_is_gone(plane: ControlPlane) -> None:
    """A watch from before a compaction and a restart is answered with 410."""
    plane.admin.create(node_object("gpu-1"))
    version = plane.admin.ask("GET", "/api/v1/nodes")["metadata"]["resourceVersion"]
    with plane.down(), plane.elsewhere() as api:
        for number in range(3):
            api.patch("Node", "gpu-1", {"metadata": {"annotations": {"example.com/n": str(number)}}})
        plane.compact()
    answer = plane.admin.ask("GET", f"/api/v1/nodes?watch=1&timeoutSeconds=1&resourceVersion={version}")

    assert answer["type"] == "ERROR"
    assert answer["object"]["code"] == 410


def test_a_role_allows_what_it_lists_and_nothing_else(plane: ControlPlane) -> None:
    """A service account's token is as good as its rules."""
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    account = plane.service_account("default", rules)
    api = plane.admin.with_token(account.token)
    plane.admin.create(node_object("gpu-1"))

    assert [each["metadata"]["name"] for each in api.list("Node")] == ["gpu-1"]
    with pytest.raises(ApiError) as refused:
        api.patch("Node", "gpu-1", {"spec": {"unschedulable": True}})
    assert refused.value.status == 403
    assert plane.asked(account) == {Asked("nodes", "list"), Asked("nodes", "patch", allowed=False)}
