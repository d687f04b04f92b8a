"""Kinds of other systems are ended as their own projects mean it, on a real API server, by the chart's role and policy.

Their definitions are their projects' own (`tests/support/builders/kubernetes_kinds.py`), without their controllers.
"""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.clouds.errors import ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import IDLE_ACTION, RELEASED_BY, REPLICAS_BEFORE, STOP_AT, Target
from gpuwatch.model.workload_kinds import KINDS, WorkloadKind, suspension
from gpuwatch.policies.kubernetes.workload_words import back
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import job_object, node_object, pod_object
from tests.support.builders.kubernetes_kinds import (
    OTHER_OPERATOR,
    is_ours,
    kind_of,
    object_of,
    our_kind,
    stored_version,
    with_other_image,
)
from tests.support.components import missing
from tests.support.kubernetes_programs import KINDS_OF, fetched
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import ControlPlane, control_plane
from tests.support.real.kubernetes_api import Api, ApiError, Object
from tests.support.real.kubernetes_chart import chart_account

pytestmark = pytest.mark.component("kube-apiserver")
ENDED = [each for each in KINDS if each.actions and each.by != "Kubernetes"]


Case = tuple[WorkloadKind, str]  # and whose definition: its project's, another operator's, or an older one
OLDER = "older"
DEFINED: list[Case] = [(each, "") for each in ENDED] + [
    (each, OTHER_OPERATOR) for each in ENDED if each.kind == "MPIJob"
]
# By the field, the scale or the annotation that ends them: one kind of each runs each day.
WAYS = {(each.suspend, each.scaled): each for each in reversed(ENDED)}.values()


def in_words(each: Case) -> str:
    """The name of a case."""
    return " ".join(filter(None, (each[0].kind, each[1])))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=() if each[0] in WAYS and not each[1] else pytest.mark.nightly) for each in DEFINED
    ],
    ids=in_words,
)
def defined(request: pytest.FixtureRequest) -> tuple[WorkloadKind, Object]:
    """Each kind in turn, with its definition."""
    kind, whose = request.param
    return kind, without_suspension(kind) if whose == OLDER else kind_of(kind, whose)


@pytest.fixture(scope="module")
def kind(defined: tuple[WorkloadKind, Object]) -> WorkloadKind:
    """The kind."""
    return defined[0]


@pytest.fixture(scope="module")
def served(defined: tuple[WorkloadKind, Object]) -> Iterator[tuple[WorkloadKind, Object]]:
    """The same, and the API server knows the definition, for all tests of the kind."""
    plane = control_plane()
    plane.custom(defined[1])
    plane.keeps_kinds = True
    yield defined
    plane.keeps_kinds = False
    plane.empty()


@pytest.fixture
def team(plane: ControlPlane, served: tuple[WorkloadKind, Object]) -> Iterator[str]:
    """A namespace with an object of that kind, and a pod of it that a Job below it owns."""
    kind, definition = served
    name = plane.namespace()
    plane.admin.create(node_object("gpu-1", gpus=1))
    made = object_of(kind, name, "work", annotations={IDLE_ACTION: kind.actions[0]}, definition=definition)
    (created,) = plane.admin.create(made)
    (job,) = plane.admin.create(job_object(name, "work-0", owner=created))
    plane.admin.create(pod_object(name, "work-0-a", node="gpu-1", gpus=1, owner=job))
    yield name
    plane.admin.ask("DELETE", place_of(kind, definition, name))


def place_of(kind: WorkloadKind, definition: Object, team: str) -> str:
    """Where the object is."""
    return f"/apis/{kind.group}/{stored_version(definition)}/namespaces/{team}/{kind.resource}/work"


@pytest.fixture
def path(defined: tuple[WorkloadKind, Object], team: str) -> str:
    """Where the object is."""
    return place_of(*defined, team)


@pytest.fixture
def cluster(plane: ControlPlane, team: str) -> Iterator[ApiCluster]:
    """The controller's client, with what the chart gives."""
    token = chart_account(plane, [team]).token
    cluster = KubernetesSettings(kubeconfig=str(plane.kubeconfig(token)), max_silence=10.0).connect(SystemClock())
    assert isinstance(cluster, ApiCluster)
    yield cluster
    cluster.close()


def patched(api: Api, path: str, change: Object) -> Any:  # noqa: ANN401  an object of any kind
    """A merge patch."""
    return api.ask("PATCH", path, change, "application/merge-patch+json")


def test_each_kind_is_there_as_its_project_defines_it() -> None:
    """But Kubeflow's Notebook, which no Go module defines; where one was not fetched, ours stands in for it."""
    for name in KINDS_OF:
        if not fetched(name):
            missing(f"the kinds of {name} are not here (`python3 tests/support/kubernetes_programs.py definitions`)")

    ours = [each.kind for each in KINDS if "." in each.group and is_ours(kind_of(each))]
    assert ours == ["Notebook"]


def test_what_stands_in_for_a_kind_has_the_version_that_its_objects_are_kept_in() -> None:
    """An API server serves no definition without it, and the tests of one worker share a server."""
    of_projects = [(each, kind_of(each)) for each in KINDS if "." in each.group]
    lacking = [
        each.kind
        for each, made in [*of_projects, *((each, kind_of(each, whose)) for each, whose in DEFINED)]
        if stored_version(made) not in {version["name"] for version in our_kind(each)["spec"]["versions"]}
    ]

    assert lacking == []


def test_it_is_ended_and_comes_back_by_the_command_that_people_are_told(
    plane: ControlPlane, cluster: ApiCluster, kind: WorkloadKind, team: str, path: str
) -> None:
    """A notice, then its end, once; the rest of its specification is as it was."""
    eventually(
        lambda: [pod.workload.idle_action for node in cluster.view().nodes for pod in node.pods] == [kind.actions[0]],
        cluster.view,
    )
    (pod,) = (pod for node in cluster.view().nodes for pod in node.pods)
    its = pod.workload
    assert (its.kind, its.name, its.idle_action) == (kind.kind, "work", kind.actions[0])
    target = Target(namespace=its.namespace, kind=its.kind, name=its.name, uid=its.uid)
    permit = Permit.asked_now(SystemClock(), 60.0, lambda: True)
    before = plane.admin.ask("GET", path)["spec"]

    cluster.workloads.announce(target, "key-1", SystemClock().now(), "Its pods are idle.", permit=permit)
    assert STOP_AT in plane.admin.ask("GET", path)["metadata"]["annotations"]
    for _ in range(2):
        cluster.workloads.release(target, kind.actions[0], (pod.uid,), "key-2", permit=permit)

    found = plane.admin.ask("GET", path)
    said = cluster.workloads.workload(target)
    assert said is not None
    assert (said.wants, said.released_by, said.stop_at) == (0, "key-2", None)
    marks = found["metadata"]["annotations"]
    assert marks[RELEASED_BY] == "key-2"
    command = back(target, kind.actions[0], 2)
    assert command is not None
    if kind.scaled:
        assert found["spec"] == {**before, "replicas": 0}
        assert marks[REPLICAS_BEFORE] == "2"
        assert command == f"kubectl -n {team} scale {kind.kind.lower()}/work --replicas=2"
        patched(plane.admin, f"{path}/scale", {"spec": {"replicas": 2}})
    elif kind.suspend:
        assert found["spec"] == {**before, **suspension(kind, suspended=True)}
        body = re.search(r"-p '(.*)'", command)
        assert body is not None
        patched(plane.admin, path, json.loads(body[1]))
    else:
        assert found["spec"] == before
        assert kind.stopped_by in marks
        assert command == f"kubectl -n {team} annotate {kind.kind.lower()}/work {kind.stopped_by}-"
        patched(plane.admin, path, {"metadata": {"annotations": {kind.stopped_by: None}}})
    again = cluster.workloads.workload(target)
    assert again is not None
    assert again.wants in {1, 2}


def test_a_stolen_token_ends_it_and_changes_no_more(
    plane: ControlPlane, kind: WorkloadKind, team: str, path: str
) -> None:
    """Neither what it runs, nor whose it is, nor what its people say; and nothing lets it go on again."""
    thief = plane.admin.with_token(chart_account(plane, [team]).token)

    def refused(change: Object, part: str = "") -> str:
        with pytest.raises(ApiError) as caught:
            patched(thief, path + part, change)
        return str(caught.value)

    for change in (
        with_other_image(plane.admin.ask("GET", path)),
        *([{"spec": {"runPolicy": {"ttlSecondsAfterFinished": 1}}}] if "." in kind.suspend else []),
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {IDLE_ACTION: "delete"}}},
    ):
        assert re.search("denied request: gpuwatch|field is immutable", refused(change)), change
    if kind.scaled:
        assert "scales to zero" in refused({"spec": {"replicas": 1}}, "/scale")
        patched(thief, f"{path}/scale", {"spec": {"replicas": 0}})
    elif kind.suspend:
        patched(thief, path, {"spec": suspension(kind, suspended=True)})
        assert "lets no job go on" in refused({"spec": suspension(kind, suspended=False)})
    else:
        patched(thief, path, {"metadata": {"annotations": {kind.stopped_by: "true"}}})


@pytest.mark.parametrize("defined", [each for each in DEFINED if each[0].kind == "RayJob"], ids=in_words, indirect=True)
def test_a_ray_job_that_kuberay_would_give_up_is_kept(
    plane: ControlPlane, cluster: ApiCluster, kind: WorkloadKind, team: str, path: str
) -> None:
    """Without shutdownAfterJobFinishes, or on the cluster of somebody else; it does not even get a notice."""
    made = plane.admin.ask("GET", path)
    target = Target(namespace=team, kind=kind.kind, name="work", uid=made["metadata"]["uid"])
    permit = Permit.asked_now(SystemClock(), 60.0, lambda: True)
    for change in ({"shutdownAfterJobFinishes": False}, {"clusterSelector": {"ray.io/cluster": "shared"}}):
        patched(plane.admin, path, {"spec": {"shutdownAfterJobFinishes": True, **change}})
        with pytest.raises(ProtectedError, match="KubeRay"):
            cluster.workloads.announce(target, "key-1", SystemClock().now(), "It is idle.", permit=permit)
        with pytest.raises(ProtectedError, match="KubeRay"):
            cluster.workloads.release(target, "stop", (), "key-2", permit=permit)
    assert "suspend" not in plane.admin.ask("GET", path)["spec"]


def without_suspension(kind: WorkloadKind) -> Object:
    """Its definition of a time before its project could suspend it."""
    older = copy.deepcopy(kind_of(kind))
    for version in (each for each in older["spec"]["versions"] if each["served"]):
        part = version["schema"]["openAPIV3Schema"]
        *above, field = ["spec", *kind.suspend.split(".")]
        for each in above:
            part = part["properties"][each]
        del part["properties"][field]
        part.pop("x-kubernetes-preserve-unknown-fields", None)
    return older


@pytest.mark.parametrize(
    "defined",
    [
        pytest.param(
            (each, OLDER), marks=() if each.kind == "MPIJob" else pytest.mark.nightly
        )  # in runPolicy, and in spec
        for each in ENDED
        if each.kind in {"MPIJob", "SparkApplication"}
    ],
    ids=in_words,
    indirect=True,
)
def test_an_older_operator_that_cannot_suspend_it_keeps_it(
    plane: ControlPlane, cluster: ApiCluster, kind: WorkloadKind, team: str, path: str
) -> None:
    """Its API server drops the field and accepts the rest: that is no end, today and in the next round."""
    made = plane.admin.ask("GET", path)
    target = Target(namespace=team, kind=kind.kind, name="work", uid=made["metadata"]["uid"])
    permit = Permit.asked_now(SystemClock(), 60.0, lambda: True)

    for _ in range(2):
        with pytest.raises(ProtectedError, match=re.escape(f"has no spec.{kind.suspend}")):
            cluster.workloads.release(target, "stop", (), "key-1", permit=permit)

    found = cluster.workloads.workload(target)
    assert found is not None
    assert (found.wants, found.released_by) == (1, None)
