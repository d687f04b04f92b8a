"""What gpuwatch ends stays ended while the project's own controller runs, and comes back by the command that is told.

`kubernetes_programs.py` builds the controllers of JobSet, LeaderWorkerSet and Kueue from their Go modules, and the rest
of the cluster, once.
"""

import contextlib
import json
import re
from collections.abc import Iterator

import pytest

from gpuwatch.clouds.errors import ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.errors import ConflictError
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import IDLE_ACTION, Pod, PodPhase, Target
from gpuwatch.model.workload_kinds import BY_LABEL, DEACTIVATE
from gpuwatch.policies.kubernetes.workload_words import back
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import GPU, job_object, node_object
from tests.support.builders.kubernetes_kinds import kind_of, object_of, project_kinds
from tests.support.kubernetes_programs import built
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import ApiError, Object
from tests.support.real.kubernetes_chart import chart_account
from tests.support.real.kubernetes_controllers import (
    controllers,
    jobset_controller,
    kueue_manager,
    lws_controller,
    possible,
)

pytestmark = [
    pytest.mark.component("kube-apiserver"),
    pytest.mark.skipif(
        not possible(), reason="`kubernetes_programs.py` builds controllers, scheduler and KWOK with Go"
    ),
]
JOB_SET, GROUPS = BY_LABEL["JobSet"], BY_LABEL["LeaderWorkerSet"]
MERGE = "application/merge-patch+json"


@pytest.fixture
def team(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace in a cluster with one operator and one node of four GPUs."""
    kinds, operator, program = request.param
    if not built(program).exists():
        pytest.skip(f"`kubernetes_programs.py {program}` builds it with Go")
    plane.custom(*kinds())
    with controllers(plane), operator(plane):
        plane.admin.create(node_object("gpu-1", gpus=4))
        yield plane.namespace()
        plane.empty()  # while the operator takes its finalizers away


@pytest.fixture
def cluster(plane: ControlPlane, team: str) -> Iterator[ApiCluster]:
    """The controller's client, with what the chart gives, and the Role for Kueue of docs/kubernetes-workloads.md."""
    account = chart_account(plane, [team])
    rbac = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "gpuwatch-kueue", "namespace": team},
    }
    rule = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]}
    name = account.user.rpartition(":")[2]
    plane.admin.create(
        {**rbac, "kind": "Role", "rules": [rule]},
        {
            **rbac,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gpuwatch-kueue"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    )
    settings = KubernetesSettings(kubeconfig=str(plane.kubeconfig(account.token)), max_silence=10.0)
    cluster = settings.connect(SystemClock())
    assert isinstance(cluster, ApiCluster)
    yield cluster
    cluster.close()


def workers(plane: ControlPlane, team: str) -> dict[str, str]:
    """The pods that are there, with their phases, by their uids."""
    return {each["metadata"]["uid"]: each["status"].get("phase", "") for each in plane.admin.list("Pod", team)}


def eventual(plane: ControlPlane, wanted: Object) -> Object:
    """An object that is made once the webhook listens."""
    made = list[Object]()

    def create() -> bool:
        with contextlib.suppress(ApiError):
            made.extend(plane.admin.create(wanted))
        return bool(made)

    def said() -> str:
        return "".join(each.read_text(errors="replace")[-1500:] for each in plane.folder.glob("*-controller.log"))

    eventually(create, said)
    return made[0]


def a_training(team: str) -> Object:
    """Two workers with two GPUs each, whose people let it be stopped."""
    container = {"name": "main", "image": "work", "resources": {"limits": {GPU: "2"}}}
    pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = {"template": {"spec": {"template": pod, "backoffLimit": 0}}, "name": "workers", "replicas": 2}
    return object_of(JOB_SET, team, "train", annotations={IDLE_ACTION: "stop"}, replicatedJobs=[job])


@pytest.mark.parametrize(
    "team", [(lambda: [kind_of(JOB_SET)], jobset_controller, "jobset-controller")], indirect=True, ids=["jobset"]
)
def test_a_job_set_ends_stays_ended_and_comes_back(plane: ControlPlane, team: str, cluster: ApiCluster) -> None:
    """Its controller suspends its Jobs, so that nobody makes its pods again until its people resume it."""
    made = eventual(plane, a_training(team))
    eventually(lambda: sorted(workers(plane, team).values()) == ["Running"] * 2, lambda: str(workers(plane, team)))
    target = Target(namespace=team, kind="JobSet", name="train", uid=made["metadata"]["uid"])
    permit = Permit.asked_now(SystemClock(), 60.0, lambda: True)

    def seen() -> list[str | None]:
        pods = [pod for node in cluster.view().nodes for pod in node.pods]
        return [pod.workload.idle_action for pod in pods if pod.workload.uid == target.uid]

    eventually(lambda: seen() == ["stop"] * 2, lambda: str(seen()))
    first = workers(plane, team)
    cluster.workloads.release(target, "stop", tuple(first), "key-1", permit=permit)

    def over() -> bool:
        jobs = plane.admin.list("Job", team)
        return not workers(plane, team) and len(jobs) == 2 and all(each["spec"]["suspend"] for each in jobs)

    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{team}/jobsets/train"
    eventually(over, lambda: str(plane.admin.ask("GET", path)["status"]))
    told = plane.admin.ask("GET", path)["status"]["conditions"]
    assert {each["type"]: each["status"] for each in told}["Suspended"] == "True"

    body = re.search(r"-p '(.*)'", back(target, "stop", 2) or "")
    assert body is not None
    plane.admin.ask("PATCH", path, json.loads(body[1]), MERGE)
    eventually(lambda: sorted(workers(plane, team).values()) == ["Running"] * 2, lambda: str(workers(plane, team)))
    assert not first.keys() & workers(plane, team).keys()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "team", [(lambda: [kind_of(GROUPS)], lws_controller, "lws-controller")], indirect=True, ids=["lws"]
)
def test_a_group_of_a_leader_and_its_workers_is_one_whole(plane: ControlPlane, team: str, cluster: ApiCluster) -> None:
    """The leader without a GPU has its worker's group and no other; scaled to zero they end, and come back."""
    leader, worker = ({"containers": [{"name": "main", "image": "work", "resources": each}]} for each in _PARTS)
    parts = {"size": 2, "leaderTemplate": {"spec": leader}, "workerTemplate": {"spec": worker}}
    made = eventual(
        plane,
        object_of(
            GROUPS, team, "serve", annotations={IDLE_ACTION: "scale-to-zero"}, replicas=2, leaderWorkerTemplate=parts
        ),
    )
    names = {"serve-0", "serve-0-1", "serve-1", "serve-1-1"}

    def seen() -> dict[str, Pod]:
        pods = [pod for node in cluster.view().nodes for pod in node.pods if pod.namespace == team]
        return {pod.name: pod for pod in pods if pod.phase is PodPhase.RUNNING and pod.ends_at is None}

    eventually(lambda: seen().keys() == names, lambda: str(plane.admin.list("Pod", team)))
    pods = seen()
    assert {(str(pod.workload), pod.bare, pod.protected) for pod in pods.values()} == {
        (f"LeaderWorkerSet {team}/serve", False, None)
    }
    groups = {name: pod.group for name, pod in pods.items()}
    assert groups["serve-0"] == groups["serve-0-1"] != groups["serve-1"] == groups["serve-1-1"]
    assert None not in groups.values()

    target = Target(namespace=team, kind="LeaderWorkerSet", name="serve", uid=made["metadata"]["uid"])
    permit = Permit.asked_now(SystemClock(), 60.0, lambda: True)
    uids = tuple(pod.uid for pod in pods.values())

    def released() -> bool:
        with contextlib.suppress(ConflictError):  # its controller has just written its status
            cluster.workloads.release(target, "scale-to-zero", uids, "key-1", permit=permit)
            return True
        return False

    eventually(released)
    eventually(lambda: not workers(plane, team), lambda: str(plane.admin.list("Pod", team)))
    path = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{team}/leaderworkersets/serve"
    assert plane.admin.ask("GET", path)["spec"]["replicas"] == 0
    plane.admin.ask("PATCH", path, {"spec": {"replicas": 2}}, MERGE)
    eventually(lambda: seen().keys() == names, lambda: str(plane.admin.list("Pod", team)))
    assert not set(uids) & workers(plane, team).keys()


def a_queued_job(team: str, name: str) -> Object:
    """A Job of Kueue's queue with one pod of two GPUs, whose people let it be stopped."""
    made = job_object(team, name, annotations={IDLE_ACTION: "stop"})
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    container = {"name": "main", "image": "work", "resources": {"requests": {"cpu": "1"}, "limits": {GPU: "2"}}}
    made["spec"] = {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    return made


def a_queue(team: str) -> list[Object]:
    """Quota for two GPUs."""
    amounts = [{"name": GPU, "nominalQuota": 2}, {"name": "cpu", "nominalQuota": 99}]
    group = {"coveredResources": [GPU, "cpu"], "flavors": [{"name": "any", "resources": amounts}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    about = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    return [
        {**about, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}},
        {**about, "kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": spec},
        {
            **about,
            "kind": "LocalQueue",
            "metadata": {"name": "gpus", "namespace": team},
            "spec": {"clusterQueue": "all"},
        },
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "team", [(lambda: project_kinds("kueue"), kueue_manager, "kueue-manager")], indirect=True, ids=["kueue"]
)
def test_a_job_of_kueues_waits_runs_ends_and_comes_back(plane: ControlPlane, team: str, cluster: ApiCluster) -> None:
    """One that waits for quota is demand; one that runs is stopped by its Workload, and the other one has its turn."""
    for each in a_queue(team):
        eventual(plane, each)
    first = eventual(plane, a_queued_job(team, "first"))
    eventually(lambda: list(workers(plane, team).values()) == ["Running"], lambda: str(plane.admin.list("Job", team)))
    eventual(plane, a_queued_job(team, "second"))

    def waiting() -> list[tuple[str, float]]:
        return [(pod.workload.name.rpartition("-")[0], pod.gpus) for pod in cluster.view().pending]

    eventually(lambda: waiting() == [("job-second", 2.0)], lambda: str(cluster.view().pending))
    assert len(workers(plane, team)) == 1, "it has no pods before it is admitted"

    target = Target(namespace=team, kind="Job", name="first", uid=first["metadata"]["uid"])
    permit = Permit.asked_now(SystemClock(), 60.0, lambda: True)
    uids = tuple(workers(plane, team))
    with pytest.raises(ProtectedError, match="Kueue owns its suspension"):
        cluster.workloads.release(target, "stop", uids, "key-1", permit=permit)
    cluster.workloads.release(target, DEACTIVATE, uids, "key-1", permit=permit)

    def runs(name: str) -> list[str]:
        pods = plane.admin.list("Pod", team)
        return [each["status"]["phase"] for each in pods if each["metadata"]["labels"]["job-name"] == name]

    eventually(lambda: not runs("first") and runs("second") == ["Running"], lambda: str(plane.admin.list("Pod", team)))
    eventually(lambda: not waiting(), lambda: str(cluster.view().pending))
    body = re.search(r"-p '(.*)'", back(target, DEACTIVATE, 1) or "")
    assert body is not None
    queue = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{team}/workloads"
    named = [each["metadata"]["name"] for each in plane.admin.ask("GET", queue)["items"]]
    plane.admin.ask("PATCH", f"{queue}/{min(named)}", json.loads(body[1]), MERGE)
    eventually(lambda: waiting() == [("job-first", 2.0)], lambda: str(cluster.view().pending))
    plane.admin.ask("PATCH", f"{queue}/{max(named)}", {"spec": {"active": False}}, MERGE)
    eventually(lambda: runs("first") == ["Running"], lambda: str(plane.admin.list("Pod", team)))


_PARTS: tuple[Object, Object] = ({"requests": {"cpu": "1"}}, {"limits": {GPU: "2"}})
