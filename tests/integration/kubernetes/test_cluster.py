"""A cluster as the controller sees it, on a real API server: lists, changes, silence, and what may not be read."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.clouds.errors import ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes import ConnectedCluster
from gpuwatch.kubernetes.calls import RIGHTS
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import IDLE_ACTION, OWNER, PROTECT, ClusterView, KubernetesNode, Pod, Target
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.kubernetes import (
    api_slice_object,
    budget_object,
    custom_kind,
    custom_object,
    deployment_object,
    job_object,
    node_object,
    pod_object,
    queued_object,
    replica_set_object,
)
from tests.support.builders.kubernetes_kinds import kueue_kind
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import Object

pytestmark = pytest.mark.component("kube-apiserver")

SILENCE_SECONDS = 2.0
Connect = Callable[[Path], ConnectedCluster]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes a cluster of a kubeconfig, which is followed until the test ends."""
    made: list[ConnectedCluster] = []

    def of(kubeconfig: Path) -> ConnectedCluster:
        settings = KubernetesSettings(name="k", kubeconfig=str(kubeconfig), max_silence=SILENCE_SECONDS, timeout=1.0)
        made.append(settings.connect(SystemClock()))
        return made[-1]

    yield of
    for cluster in made:
        cluster.close()


def role(*left_out: str) -> list[Object]:
    """The rules of a ClusterRole with the rights of `calls.RIGHTS`, without those to these resources."""
    return [
        {
            "apiGroups": [right.group],
            "resources": [f"{right.resource}/{right.subresource}" if right.subresource else right.resource],
            "verbs": list(right.verbs),
        }
        for right in RIGHTS
        if right.resource not in left_out
    ]


def node_of(view: ClusterView, name: str) -> KubernetesNode:
    """The node of that name."""
    return next(node for node in view.nodes if node.name == name)


def names(cluster: ConnectedCluster) -> list[str]:
    """Of all pods on nodes."""
    return [pod.name for node in cluster.view().nodes for pod in node.pods]


def first_pod(cluster: ConnectedCluster) -> Pod:
    """Of the only node."""
    (pod,) = cluster.view().nodes[0].pods
    return pod


def test_the_first_view_is_whole(plane: ControlPlane, connect: Connect) -> None:
    """Nodes with their pods, GPUs offered and requested, and pods that wait for GPUs, from the first answer on."""
    team = plane.namespace()
    plane.admin.create(
        node_object("gpu-1", provider_id="aws:///us-east-1a/i-0abc"),
        node_object("cpu-1", gpus=0),
        pod_object(team, "train", node="gpu-1", gpus=3),
        pod_object(team, "web", node="cpu-1"),
        pod_object(team, "waits", gpus=2, nodeSelector={"team": "a"}),
        pod_object(team, "done", node="gpu-1", gpus=8, phase="Succeeded"),
        pod_object("kube-system", "dns", node="gpu-1"),
    )

    view = connect(plane.kubeconfig()).view()

    gpu = node_of(view, "gpu-1")
    assert view.trouble is None
    assert (gpu.provider_id, gpu.gpus, gpu.requested_gpus, gpu.ready) == ("aws:///us-east-1a/i-0abc", 8.0, 3.0, True)
    assert [(str(pod), pod.system) for pod in gpu.pods] == [("kube-system/dns", True), (f"{team}/train", False)]
    assert node_of(view, "cpu-1").gpus is None
    assert [pod.name for pod in view.pending] == ["waits"]


def test_a_pod_is_no_older_than_by_the_controllers_own_clock(plane: ControlPlane) -> None:
    """The API server's clock is ten minutes behind ours, in the view as at the last question; that is said."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"), pod_object(team, "train", node="gpu-1", gpus=1))
    clock = ManualClock(wall=SystemClock().now() + timedelta(minutes=10))
    settings = KubernetesSettings(name="k", kubeconfig=str(plane.kubeconfig()))
    cluster = settings.connect(clock)
    try:
        view = cluster.view()
        (pod,) = view.nodes[0].pods
        asked = cluster.node("gpu-1")
    finally:
        cluster.close()

    assert pod.created_at is not None
    assert pod.created_at > clock.now() - timedelta(minutes=2)
    assert asked is not None
    assert asked.pods == (pod,)
    assert any("behind" in note for note in view.notes)


def test_one_node_asked_now_is_as_the_watch_shows_it(plane: ControlPlane, connect: Connect) -> None:
    """Both ways lead to the same nouns, so that the last question judges what the round judged."""
    team = plane.namespace()
    (deployment,) = plane.admin.create(deployment_object(team, "serve", annotations={OWNER: "ann"}))
    (replicas,) = plane.admin.create(replica_set_object(team, "serve-1", owner=deployment))
    plane.admin.create(
        node_object("gpu-1"),
        pod_object(team, "serve-1-a", node="gpu-1", gpus=1, owner=replicas),
        pod_object(team, "alone", node="gpu-1", volumes=[{"name": "scratch", "emptyDir": {}}]),
    )
    cluster = connect(plane.kubeconfig())

    seen = node_of(cluster.view(), "gpu-1")

    assert cluster.node("gpu-1") == seen
    assert cluster.node("gpu-2") is None


def test_a_pod_belongs_to_the_topmost_of_its_owners(plane: ControlPlane, connect: Connect) -> None:
    """By way of a ReplicaSet; what people wrote there, or on the namespace, holds for the pod."""
    team = plane.namespace()
    plane.admin.patch("Namespace", team, {"metadata": {"annotations": {OWNER: "the team", IDLE_ACTION: "stop"}}})
    (deployment,) = plane.admin.create(deployment_object(team, "serve", annotations={OWNER: "ann"}))
    (replicas,) = plane.admin.create(replica_set_object(team, "serve-1", owner=deployment))
    plane.admin.create(node_object("gpu-1"), pod_object(team, "serve-1-a", node="gpu-1", gpus=1, owner=replicas))

    pod = first_pod(connect(plane.kubeconfig()))

    assert str(pod.workload) == f"Deployment {team}/serve"
    assert (pod.workload.owner, pod.workload.idle_action, pod.bare, pod.protected) == ("ann", "stop", False, None)


def test_an_owner_of_a_kind_that_nobody_has_heard_of_counts(plane: ControlPlane, connect: Connect) -> None:
    """A Notebook of Kubeflow, found by the API server's own list of kinds."""
    plane.custom(custom_kind("kubeflow.org", "Notebook", "notebooks"))
    team = plane.namespace()
    notebook = custom_object("kubeflow.org", "Notebook", team, "alice", annotations={PROTECT: "true"})
    (made,) = plane.admin.create(notebook)
    plane.admin.create(node_object("gpu-1"), pod_object(team, "alice-0", node="gpu-1", gpus=1, owner=made))

    pod = first_pod(connect(plane.kubeconfig()))

    assert str(pod.workload) == f"Notebook {team}/alice"
    assert pod.protected == f"the annotation {PROTECT} of its owner alice protects it"


def test_the_parts_of_a_work_belong_together_whatever_owns_them(plane: ControlPlane, connect: Connect) -> None:
    """A Ray head with its worker on another node, and Spark's driver, a pod that owns its executor."""
    team = plane.namespace()
    plane.custom(custom_kind("ray.io", "RayCluster", "rayclusters"))
    (ray,) = plane.admin.create(custom_object("ray.io", "RayCluster", team, "big"))
    head, worker, driver = plane.admin.create(
        *(node_object("cpu-1", gpus=0), node_object("gpu-1")),
        pod_object(team, "big-head", node="cpu-1", owner=ray),
        pod_object(team, "big-worker", node="gpu-1", gpus=4, owner=ray),
        pod_object(team, "spark-driver", node="cpu-1"),
    )[2:]
    plane.admin.create(pod_object(team, "spark-exec-1", node="gpu-1", gpus=1, owner=driver))
    assert head["metadata"]["uid"] != worker["metadata"]["uid"]

    cluster = connect(plane.kubeconfig(plane.service_account(team, role()).token))

    shown = {pod.name: pod.group for node in cluster.view().nodes for pod in node.pods}
    assert shown["big-head"] == shown["big-worker"] is not None
    assert shown["spark-driver"] == shown["spark-exec-1"] is not None
    assert shown["big-head"] != shown["spark-driver"]
    asked = [cluster.node("cpu-1"), cluster.node("gpu-1")]
    now = {pod.name: pod for node in asked if node is not None for pod in node.pods}
    assert {name: pod.group for name, pod in now.items()} == shown
    assert str(now["spark-exec-1"].workload) == f"Pod {team}/spark-driver"
    assert {pod.protected for pod in now.values()} == {None}


def test_what_waits_in_kueues_queues_is_demand_and_a_job_of_it_is_stopped_by_its_workload(
    plane: ControlPlane, connect: Connect
) -> None:
    """A gang of four that is not admitted yet; a Job that runs: Kueue owns its suspension."""
    plane.custom(kueue_kind())
    team = plane.namespace()
    job = job_object(team, "train", annotations={IDLE_ACTION: "stop"})
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    (job,) = plane.admin.create(job)
    plane.admin.create(
        node_object("gpu-1"),
        pod_object(team, "train-1", node="gpu-1", gpus=8, owner=job),
        queued_object(team, "job-train-1", owner=job),
        queued_object(team, "job-big-2", count=4),
        queued_object(team, "off", count=4, active=False),
    )
    rights = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]}
    without, account = (plane.service_account(team, [*role(), *more]).token for more in ([], [rights]))

    refused = first_pod(connect(plane.kubeconfig(without))).workload
    cluster = connect(plane.kubeconfig(account))
    view = cluster.view()
    pod = first_pod(cluster)

    waiting = [str(each) for each in view.pending if str(each).startswith(f"{team}/")]
    assert waiting == [f"{team}/job-big-2-main-{number}" for number in range(4)]
    assert "has no right to patch workloads.kueue.x-k8s.io" in (refused.unstoppable or "")
    assert (pod.workload.queued, pod.workload.unstoppable) == (True, None)
    its = Target(namespace=team, kind="Job", name="train", uid=pod.workload.uid)
    permit = Permit.asked_now(SystemClock(), 60.0, lambda: True)
    with pytest.raises(ProtectedError, match="Kueue owns its suspension"):
        cluster.workloads.release(its, "stop", (), "key-1", permit=permit)
    for _ in range(2):  # as after a crash
        cluster.workloads.release(its, "deactivate", (), "key-1", permit=permit)
    queue = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{team}/workloads"
    assert plane.admin.ask("GET", f"{queue}/job-train-1")["spec"]["active"] is False
    assert plane.admin.get("Job", "train", team)["spec"].get("suspend") in {None, False}
    assert plane.admin.get("Job", "train", team)["metadata"]["annotations"]["gpuwatch.io/released-by"] == "key-1"


def test_changes_are_seen_as_they_happen(plane: ControlPlane, connect: Connect) -> None:
    """A pod that comes, a node that is cordoned, an annotation, a pod that ends: each without a new list."""
    team = plane.namespace()
    (made,) = plane.admin.create(node_object("gpu-1"))
    cluster = connect(plane.kubeconfig())
    assert names(cluster) == []

    plane.admin.create(pod_object(team, "train", node="gpu-1", gpus=8))
    eventually(lambda: names(cluster) == ["train"])
    plane.admin.patch("Node", "gpu-1", {"spec": {"unschedulable": True}})
    eventually(lambda: node_of(cluster.view(), "gpu-1").unschedulable)
    plane.admin.patch("Namespace", team, {"metadata": {"annotations": {PROTECT: "true"}}})
    eventually(lambda: first_pod(cluster).protected is not None)
    plane.admin.patch("Pod", "train", {"status": {"phase": "Succeeded"}}, team, part="/status")
    eventually(lambda: names(cluster) == [])

    assert made["metadata"]["uid"] == node_of(cluster.view(), "gpu-1").uid


def test_a_silent_api_server_is_trouble(plane: ControlPlane, connect: Connect) -> None:
    """It takes connections and says nothing: after the silence that is allowed nobody relies on what it said before."""
    plane.admin.create(node_object("gpu-1"))
    cluster = connect(plane.kubeconfig())
    assert cluster.view().trouble is None

    with plane.frozen():
        eventually(lambda: cluster.view().trouble is not None)
        view = cluster.view()
        assert "silent" in (view.trouble or "")
        assert view.silent_seconds > SILENCE_SECONDS
        assert [node.name for node in view.nodes] == ["gpu-1"]

    eventually(lambda: cluster.view().trouble is None)


def test_what_happened_while_the_api_server_was_away_is_seen(
    plane: ControlPlane, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """It went down, the world went on, and all versions from before are forgotten: 410 Gone, and a new list."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"), pod_object(team, "old", node="gpu-1", gpus=1))
    cluster = connect(plane.kubeconfig())
    assert names(cluster) == ["old"]
    caplog.set_level("INFO")

    with plane.down(), plane.elsewhere() as other:
        other.ask("DELETE", f"/api/v1/namespaces/{team}/pods/old?gracePeriodSeconds=0")
        other.create(pod_object(team, "new", node="gpu-1", gpus=1))
        plane.compact()

    eventually(lambda: names(cluster) == ["new"])
    eventually(lambda: cluster.view().trouble is None)
    assert "/api/v1/pods: everything is listed again" in caplog.text


def test_a_quiet_cluster_is_no_silent_one(plane: ControlPlane, connect: Connect) -> None:
    """Nothing happens for longer than the silence that is allowed, and the view is whole all the time."""
    plane.admin.create(node_object("gpu-1"))
    clock = SystemClock()
    cluster = connect(plane.kubeconfig())
    cluster.view()

    until = clock.now() + timedelta(seconds=2 * SILENCE_SECONDS)
    while clock.now() < until:
        assert cluster.view().trouble is None
        clock.sleep(0.1)


def test_the_rights_of_the_table_are_enough(plane: ControlPlane, connect: Connect) -> None:
    """With exactly these a whole view can be had."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"), pod_object(team, "train", node="gpu-1", gpus=1))
    token = plane.service_account(team, role()).token

    view = connect(plane.kubeconfig(token)).view()

    assert view.trouble is None
    assert [node.requested_gpus for node in view.nodes] == [1.0]


def test_the_node_at_whose_address_the_api_is_served_is_kept(plane: ControlPlane, connect: Connect) -> None:
    """By the watch as at the last question; who may not read it knows of no node that it is none."""
    there, other = node_object("gpu-1"), node_object("gpu-2")
    for node, address in ((there, "10.1.0.13"), (other, "10.1.0.14")):
        node["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
    plane.admin.create(there, other, api_slice_object("10.1.0.13"))
    try:
        seeing = connect(plane.kubeconfig(plane.service_account("default", role()).token))
        nodes = {each.name: each.vital for each in seeing.view().nodes}
        asked = [seeing.node(name) for name in nodes]
    finally:
        plane.admin.delete("EndpointSlice", "kubernetes", "default")
    blind = connect(plane.kubeconfig(plane.service_account("default", role("endpointslices")).token)).view()

    why = "its address 10.1.0.13 serves the cluster's API (EndpointSlice default/kubernetes)"
    assert nodes == {"gpu-1": why, "gpu-2": None}
    assert [None if each is None else each.vital for each in asked] == list(nodes.values())
    assert blind.trouble is None
    assert all("may serve the cluster's API" in str(each.vital) for each in blind.nodes)


def test_a_budget_that_would_refuse_is_seen_and_one_that_may_not_be_read_is_no_trouble(
    plane: ControlPlane, connect: Connect
) -> None:
    """As its controller counts, so the pod says; without the right nothing is said, and nothing else changes."""
    team = plane.namespace()
    plane.admin.create(
        node_object("gpu-1"),
        budget_object(team, "serve", app="serve", allowed=0),
        pod_object(team, "serve-0", node="gpu-1", gpus=1, labels={"app": "serve"}),
    )
    blind = connect(plane.kubeconfig(plane.service_account("default", role("poddisruptionbudgets")).token))
    cluster = connect(plane.kubeconfig())
    refused = "allows no eviction now: 1 are healthy, and 1 have to be"

    assert first_pod(cluster).refused_by == f"the PodDisruptionBudget {team}/serve {refused}"
    assert (first_pod(blind).refused_by, blind.view().trouble) == (None, None)
    plane.admin.patch("PodDisruptionBudget", "serve", {"status": {"disruptionsAllowed": 1}}, team, "/status")
    eventually(lambda: first_pod(cluster).refused_by is None, lambda: first_pod(cluster))


@pytest.mark.parametrize("resource", ["nodes", "pods", "namespaces"])
def test_a_list_that_is_refused_is_trouble(plane: ControlPlane, connect: Connect, resource: str) -> None:
    """And the sentence says which."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"))
    token = plane.service_account(team, role(resource)).token

    trouble = connect(plane.kubeconfig(token)).view().trouble

    assert trouble is not None
    assert f"has not shown its {resource} yet" in trouble
    assert "forbidden" in trouble


def test_an_owner_that_may_not_be_read_protects_its_pods(plane: ControlPlane, connect: Connect) -> None:
    """It may be protected; the rest of the view is as good as ever."""
    team = plane.namespace()
    (replicas,) = plane.admin.create(replica_set_object(team, "serve-1"))
    plane.admin.create(node_object("gpu-1"), pod_object(team, "serve-1-a", node="gpu-1", gpus=1, owner=replicas))
    token = plane.service_account(team, role("replicasets")).token

    cluster = connect(plane.kubeconfig(token))

    assert cluster.view().trouble is None
    assert "its owner ReplicaSet serve-1 cannot be read" in (first_pod(cluster).protected or "")
    asked = cluster.node("gpu-1")
    assert asked is not None
    assert "its owner ReplicaSet serve-1 cannot be read" in (asked.pods[0].protected or "")


def test_its_threads_end_with_it(plane: ControlPlane, connect: Connect) -> None:
    """A reload of the settings makes another cluster, and leaves nothing behind."""
    cluster = connect(plane.kubeconfig())
    cluster.view()
    assert [each for each in threading.enumerate() if each.name.startswith("watch ")]

    cluster.close()

    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("watch ")])
