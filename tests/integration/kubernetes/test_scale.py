"""A scale to zero in its two calls on a real API server: whatever comes between them, nothing false is said."""

from collections.abc import Iterator, Mapping

import pytest

from gpuwatch.clouds.errors import CloudError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.kubernetes.workload_objects import WorkloadObject
from gpuwatch.kubernetes.workloads import ApiWorkloads
from gpuwatch.model.kubernetes import RELEASED_BY, REPLICAS_BEFORE, STOP_AT, Target, WorkloadNow
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import deployment_object
from tests.support.real.kubernetes import Account, ControlPlane
from tests.support.real.kubernetes_chart import chart_account, cluster_rules, team_rules

pytestmark = pytest.mark.component("kube-apiserver")
KEY = "key-1"


@pytest.fixture
def team(plane: ControlPlane) -> str:
    """A namespace with a Deployment of three pods, which is to be ended."""
    name = plane.namespace()
    made = deployment_object(name, "serve")
    made["spec"]["replicas"] = 3
    made["metadata"]["annotations"] = {STOP_AT: "2030-01-01T00:00:00Z"}
    plane.admin.create(made)
    return name


@pytest.fixture
def may_all(plane: ControlPlane, team: str) -> Account:
    """What the chart gives."""
    return chart_account(plane, [team])


def target(plane: ControlPlane, team: str) -> Target:
    """The Deployment."""
    uid = plane.admin.get("Deployment", "serve", team)["metadata"]["uid"]
    return Target(namespace=team, kind="Deployment", name="serve", uid=uid)


def connected(plane: ControlPlane, account: Account) -> Iterator[ApiCluster]:
    """The controller's client."""
    cluster = KubernetesSettings(kubeconfig=str(plane.kubeconfig(account.token))).connect(SystemClock())
    assert isinstance(cluster, ApiCluster)
    try:
        yield cluster
    finally:
        cluster.close()


def release(plane: ControlPlane, account: Account, team: str) -> WorkloadNow:
    """Scale it to zero, and what it is then; raises what the client raises."""
    for cluster in connected(plane, account):
        about, permit = target(plane, team), Permit.asked_now(SystemClock(), 60.0, lambda: True)
        cluster.workloads.release(about, "scale-to-zero", (), KEY, permit=permit)
    return now(plane, account, team)


def now(plane: ControlPlane, account: Account, team: str) -> WorkloadNow:
    """What the client says that it is."""
    (found,) = (cluster.workloads.workload(target(plane, team)) for cluster in connected(plane, account))
    assert found is not None
    return found


def annotations(plane: ControlPlane, team: str) -> dict[str, str]:
    """On the object itself."""
    found: dict[str, str] = plane.admin.get("Deployment", "serve", team)["metadata"]["annotations"]
    return found


def test_at_its_end_it_bears_the_key_and_no_time(plane: ControlPlane, may_all: Account, team: str) -> None:
    """And what it wanted before, so that people can undo it."""
    found = release(plane, may_all, team)

    assert (found.wants, found.released_by, found.stop_at) == (0, KEY, None)
    assert annotations(plane, team)[REPLICAS_BEFORE] == "3"


def test_marks_without_a_scale_are_no_end(plane: ControlPlane, may_all: Account, team: str) -> None:
    """The controller died, or was refused, between the two: it has not ended, and the same decision may go on."""
    narrow = [rule for rule in team_rules() if rule["resources"][0] != "deployments"]
    patch = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]}
    may_mark = plane.service_account("default", [*cluster_rules(), *narrow, patch])
    with pytest.raises(CloudError, match="forbidden"):
        release(plane, may_mark, team)
    assert annotations(plane, team)[RELEASED_BY] == KEY
    assert (now(plane, may_all, team).wants, now(plane, may_all, team).released_by) == (3, None)

    assert release(plane, may_all, team).released_by == KEY


def test_what_its_people_bring_back_has_ended(plane: ControlPlane, may_all: Account, team: str) -> None:
    """The end was ours, also when they bring it back before anybody has looked; the same decision ends it no more."""
    release(plane, may_all, team)
    plane.admin.patch("Deployment", "serve", {"spec": {"replicas": 3}}, team)
    found = release(plane, may_all, team)

    assert (found.wants, found.released_by) == (3, KEY)


def test_a_scale_by_somebody_in_between_wins(
    plane: ControlPlane, may_all: Account, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale goes out for the object as it was marked, and for no later one."""
    change = ApiWorkloads._change

    def with_somebody_else(
        self: ApiWorkloads, about: Target, read: WorkloadObject, part: str, body: Mapping[str, object], permit: Permit
    ) -> bytes:
        if part == "/scale":
            plane.admin.patch("Deployment", "serve", {"spec": {"replicas": 5}}, team)
        return change(self, about, read, part, body, permit)

    monkeypatch.setattr(ApiWorkloads, "_change", with_somebody_else)
    with pytest.raises(CloudError):
        release(plane, may_all, team)

    assert now(plane, may_all, team).wants == 5
