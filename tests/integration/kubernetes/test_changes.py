"""Cordon, uncordon and drain on a real API server: whose cordon it is, what stays, and what a permit prevents."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds.errors import NotFoundError, PermitExpiredError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes import ConnectedCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import CORDONED_AT, CORDONED_BY, LOSES_LOCAL_DATA, MARKED_BY, KubernetesNode
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import budget_object, node_object, pod_object
from tests.support.real.kubernetes import ControlPlane

pytestmark = pytest.mark.component("kube-apiserver")

_KEY = "intent-1"


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[ConnectedCluster]:
    """The administrator's view of the test's cluster."""
    made = KubernetesSettings(name="k", kubeconfig=str(plane.kubeconfig())).connect(SystemClock())
    yield made
    made.close()


def permit(*, holds: bool = True) -> Permit:
    """One for a change that is asked for now."""
    return Permit.asked_now(SystemClock(), 60.0, lambda: holds)


def node_of(cluster: ConnectedCluster, name: str = "gpu-1") -> KubernetesNode:
    """As it is now."""
    found = cluster.node(name)
    assert found is not None
    return found


def uids(cluster: ConnectedCluster) -> tuple[str, ...]:
    """Of all pods on the node."""
    return tuple(pod.uid for pod in node_of(cluster).pods)


def test_a_cordon_bears_the_key_of_its_decision(plane: ControlPlane, cluster: ConnectedCluster) -> None:
    """And is undone with its marks; both may be asked for twice."""
    plane.admin.create(node_object("gpu-1"))

    for _ in range(2):
        cluster.cordon("gpu-1", _KEY, permit=permit())
        cordoned = node_of(cluster)
        assert (cordoned.unschedulable, cordoned.cordoned_by) == (True, _KEY)
        assert cordoned.cordoned_at is not None
    for _ in range(2):
        cluster.uncordon("gpu-1", _KEY)
        assert (node_of(cluster).unschedulable, node_of(cluster).cordoned_by) == (False, None)

    marks = plane.admin.get("Node", "gpu-1")["metadata"].get("annotations") or {}
    assert not {CORDONED_BY, CORDONED_AT} & marks.keys()


def test_a_taint_stands_beside_others_and_goes_alone(plane: ControlPlane, cluster: ConnectedCluster) -> None:
    """A patch writes the whole list: what others put there is the same before, between and after, to its last field."""
    key = "gpuwatch-0123456789abcdef-1234567-89abcdef"
    theirs = [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"},
        {"key": "team", "effect": "NoExecute", "timeAdded": "2026-11-23T20:00:00Z"},
    ]
    own = "node.kubernetes.io/"  # what the API server itself adds
    plane.admin.create(node_object("gpu-1", taints=theirs))

    cluster.cordon("gpu-1", key, permit=permit(), taint=True)
    ours = {"key": "gpuwatch.io/unhealthy", "effect": "NoSchedule", "value": key}
    taints = plane.admin.get("Node", "gpu-1")["spec"]["taints"]
    assert [each for each in taints if not each["key"].startswith(own)] == [*theirs, ours]
    assert node_of(cluster).tainted_by == key

    cluster.uncordon("gpu-1", key)
    left = plane.admin.get("Node", "gpu-1")["spec"]["taints"]
    assert [each for each in left if not each["key"].startswith(own)] == theirs


@pytest.mark.parametrize(
    ("owner", "annotation"),
    [
        ("karpenter", "karpenter.sh/do-not-disrupt"),
        ("cluster-autoscaler", "cluster-autoscaler.kubernetes.io/scale-down-disabled"),
    ],
)
def test_a_mark_is_the_annotation_that_the_other_autoscaler_reads(
    plane: ControlPlane, cluster: ConnectedCluster, owner: str, annotation: str
) -> None:
    """And it goes with its key; a value that a person has put there since stays."""
    plane.admin.create(node_object("gpu-1"))
    cluster.mark("gpu-1", owner, _KEY, permit=permit())
    marks = plane.admin.get("Node", "gpu-1")["metadata"]["annotations"]
    assert marks == {annotation: "true", MARKED_BY: _KEY}
    cluster.unmark("gpu-1", _KEY)
    assert not plane.admin.get("Node", "gpu-1")["metadata"].get("annotations")

    cluster.mark("gpu-1", owner, _KEY, permit=permit())
    plane.admin.patch("Node", "gpu-1", {"metadata": {"annotations": {annotation: "false"}}})
    cluster.unmark("gpu-1", _KEY)
    assert plane.admin.get("Node", "gpu-1")["metadata"]["annotations"] == {annotation: "false"}


def test_a_cordon_of_somebody_else_stays(plane: ControlPlane, cluster: ConnectedCluster) -> None:
    """It is neither taken over nor undone."""
    plane.admin.create(node_object("gpu-1", unschedulable=True))

    with pytest.raises(ProtectedError, match="cordoned by somebody else"):
        cluster.cordon("gpu-1", _KEY, permit=permit())
    cluster.uncordon("gpu-1", _KEY)

    assert node_of(cluster).unschedulable


def test_a_cordon_of_another_decision_is_not_taken_over(plane: ControlPlane, cluster: ConnectedCluster) -> None:
    """Another controller may have made it; nor is it undone."""
    plane.admin.create(node_object("gpu-1"))
    cluster.cordon("gpu-1", "intent-0", permit=permit())

    with pytest.raises(ProtectedError, match="intent-0"):
        cluster.cordon("gpu-1", _KEY, permit=permit())
    cluster.uncordon("gpu-1", _KEY)

    assert node_of(cluster).cordoned_by == "intent-0"


def test_a_node_that_its_marks_keep_is_not_cordoned(plane: ControlPlane, cluster: ConnectedCluster) -> None:
    """Those of other autoscalers count like our own."""
    plane.admin.create(node_object("gpu-1", annotations={"karpenter.sh/do-not-disrupt": "true"}))

    with pytest.raises(ProtectedError, match="do-not-disrupt keeps it"):
        cluster.cordon("gpu-1", _KEY, permit=permit())


def test_nothing_leaves_without_a_permit(plane: ControlPlane, cluster: ConnectedCluster) -> None:
    """Neither a cordon nor an eviction."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"), pod_object(team, "train", node="gpu-1"))

    with pytest.raises(PermitExpiredError):
        cluster.cordon("gpu-1", _KEY, permit=permit(holds=False))
    assert not node_of(cluster).unschedulable

    cluster.cordon("gpu-1", _KEY, permit=permit())
    with pytest.raises(PermitExpiredError):
        cluster.drain("gpu-1", uids(cluster), _KEY, permit=permit(holds=False))
    assert node_of(cluster).pods[0].ends_at is None


def test_a_drain_asks_each_pod_and_says_what_stays(plane: ControlPlane, cluster: ConnectedCluster) -> None:
    """A budget's 429 is an answer; local data stays without consent; a pod that was not named is not asked."""
    team = plane.namespace()
    scratch = [{"name": "scratch", "emptyDir": {}}]
    plane.admin.create(
        node_object("gpu-1"),
        pod_object(team, "free", node="gpu-1"),
        pod_object(team, "held", node="gpu-1", labels={"app": "held"}),
        pod_object(team, "data", node="gpu-1", volumes=scratch),
        pod_object(team, "lost", node="gpu-1", volumes=scratch, annotations={LOSES_LOCAL_DATA: "true"}),
        budget_object(team, "keeps", app="held", allowed=0),
    )
    named = uids(cluster)
    plane.admin.create(pod_object(team, "later", node="gpu-1"))
    cluster.cordon("gpu-1", _KEY, permit=permit())

    done = cluster.drain("gpu-1", (*named, "a-uid-that-is-gone"), _KEY, permit=permit())

    assert set(done.evicted) == {f"{team}/free", f"{team}/lost"}
    assert done.refused[f"{team}/data"] == "its volume scratch would be lost"
    assert "disruption budget" in done.refused[f"{team}/held"]
    assert "keeps" in done.refused[f"{team}/held"]
    assert done.refused.keys() == {f"{team}/data", f"{team}/held"}
    stay = {pod.name for pod in node_of(cluster).pods if pod.ends_at is None}
    assert stay == {"data", "held", "later"}


def test_a_node_without_our_cordon_is_not_drained(plane: ControlPlane, cluster: ConnectedCluster) -> None:
    """Its pods would come back."""
    team = plane.namespace()
    plane.admin.create(node_object("gpu-1"), pod_object(team, "train", node="gpu-1"))

    with pytest.raises(ProtectedError, match="does not carry our cordon"):
        cluster.drain("gpu-1", uids(cluster), _KEY, permit=permit())


@pytest.mark.usefixtures("plane")
def test_a_node_that_is_gone_is_not_found(cluster: ConnectedCluster) -> None:
    """For each of the three."""
    with pytest.raises(NotFoundError):
        cluster.cordon("gpu-9", _KEY, permit=permit())
    with pytest.raises(NotFoundError):
        cluster.uncordon("gpu-9", _KEY)
    with pytest.raises(NotFoundError):
        cluster.drain("gpu-9", (), _KEY, permit=permit())
