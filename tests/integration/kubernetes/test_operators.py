"""What gpuwatch ends stays ended while the project's own controller runs, and comes back by the command that is told.

`kubernetes_programs.py` builds JobSet's controller from its Go module, and the rest of the cluster, once.
"""

import contextlib
import json
import re
from collections.abc import Iterator

import pytest

from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import IDLE_ACTION, Target
from gpuwatch.model.workload_kinds import BY_LABEL
from gpuwatch.policies.kubernetes.workload_words import back
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import GPU, node_object
from tests.support.builders.kubernetes_kinds import kind_of, object_of
from tests.support.kubernetes_programs import built
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import ApiError, Object
from tests.support.real.kubernetes_chart import chart_account
from tests.support.real.kubernetes_controllers import controllers, jobset_controller, possible

pytestmark = [
    pytest.mark.component("kube-apiserver"),
    pytest.mark.skipif(
        not possible() or not built("jobset-controller").exists(),
        reason="`kubernetes_programs.py` builds controllers, scheduler, KWOK and jobset-controller with Go",
    ),
]
JOB_SET = BY_LABEL["JobSet"]
MERGE = "application/merge-patch+json"


@pytest.fixture
def team(plane: ControlPlane) -> Iterator[str]:
    """A namespace in a cluster with JobSet and one node of four GPUs."""
    plane.custom(kind_of(JOB_SET))
    with controllers(plane), jobset_controller(plane):
        plane.admin.create(node_object("gpu-1", gpus=4))
        yield plane.namespace()


@pytest.fixture
def cluster(plane: ControlPlane, team: str) -> Iterator[ApiCluster]:
    """The controller's client, with what the chart gives."""
    token = chart_account(plane, [team]).token
    cluster = KubernetesSettings(kubeconfig=str(plane.kubeconfig(token)), max_silence=10.0).connect(SystemClock())
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

    eventually(create, lambda: (plane.folder / "jobset-controller.log").read_text(errors="replace")[-1500:])
    return made[0]


def a_training(team: str) -> Object:
    """Two workers with two GPUs each, whose people let it be stopped."""
    container = {"name": "main", "image": "work", "resources": {"limits": {GPU: "2"}}}
    pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = {"template": {"spec": {"template": pod, "backoffLimit": 0}}, "name": "workers", "replicas": 2}
    return object_of(JOB_SET, team, "train", annotations={IDLE_ACTION: "stop"}, replicatedJobs=[job])


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
