"""What Kubernetes adds to a round: node objects on machines, doubts, and the same again from the ledger."""

from dataclasses import replace

import pytest

from gpuwatch.controller.observe.kubernetes import with_cluster
from gpuwatch.controller.round import observe, step
from gpuwatch.ledger import snapshots
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.builders.kubernetes_views import Shown, shown_cluster, shown_node, shown_pod

VIEW = shown_cluster(
    shown_node("gpu-1", "i-1", shown_pod("agent", "gpu-1", daemon=True), shown_pod("train", "gpu-1", gpus=8.0)),
    shown_node("cpu-1", "", shown_pod("web", "cpu-1"), gpus=None, labels={"a": "b"}),
)


def test_a_round_has_what_kubernetes_tells() -> None:
    """The node object stands on its machine, the view on the fleet; pods elsewhere are nobody's concern."""
    desk = Desk()
    desk.fleet.put(replace(a_node("i-1"), name="one"))
    desk.fleet.put(replace(a_node("i-2"), name="two"))

    fleet = observe(replace(desk.parts, cluster=Shown(VIEW))).fleet

    one, two = fleet.nodes
    assert (one.kubernetes and one.kubernetes.name, two.kubernetes) == ("gpu-1", None)
    assert fleet.cluster is not None
    assert [(node.name, len(node.pods)) for node in fleet.cluster.nodes] == [("gpu-1", 2), ("cpu-1", 0)]


def test_without_a_cluster_nothing_changes() -> None:
    """A fleet is what it was."""
    fleet = Fleet(observed_at=NOW, nodes=(a_node(),))

    assert with_cluster(fleet, None) is fleet


@pytest.mark.parametrize("trouble", [None, "The API server of cluster k has been silent for 1m."])
def test_a_silent_api_server_lets_none_of_its_nodes_go(trouble: str | None) -> None:
    """An idle node of the cluster gets no notice while nobody knows its pods; any other machine does."""
    desk = Desk()
    desk.fleet.put(replace(a_node("i-1"), name="one"))
    desk.fleet.put(replace(a_node("i-2"), name="two"))

    done = step(replace(desk.parts, cluster=Shown(replace(VIEW, trouble=trouble))))

    states = {node.id: node.activity.state for node in done.observation.fleet.nodes}
    assert states == {"i-1": State.IDLE if trouble is None else State.UNKNOWN, "i-2": State.IDLE}
    told = {act.review.step.node_id for act in done.acts}
    assert "i-2" in told
    assert trouble is None or "i-1" not in told


def test_the_ledger_keeps_each_node_object_once_and_gives_all_back() -> None:
    """But for pods of DaemonSets without GPUs, which nothing rests on."""
    desk = Desk()
    desk.fleet.put(replace(a_node("i-1"), name="one"))
    seen = observe(replace(desk.parts, cluster=Shown(VIEW)))

    body = snapshots.encode(seen, None, (), (), ())
    again = snapshots.decode(1, NOW, snapshots.PIECES, body).observation.fleet

    assert again.cluster is not None
    assert [node.name for node in again.cluster.nodes] == ["cpu-1", "gpu-1"]
    (machine,) = again.nodes
    assert machine.kubernetes is not None
    assert [pod.name for pod in machine.kubernetes.pods] == ["train"]
    assert again.cluster.nodes[1] == machine.kubernetes
