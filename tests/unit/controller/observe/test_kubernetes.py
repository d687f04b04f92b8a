"""What Kubernetes adds to a round: node objects on machines, doubts, and the same again from the ledger."""

from dataclasses import replace

import pytest

from gpuwatch.controller.observe.kubernetes import with_cluster
from gpuwatch.controller.round import observe, step
from gpuwatch.ledger import snapshots
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet, Node, PodVerdict
from gpuwatch.model.kubernetes import ClusterView, Pod
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


PODS = [shown_pod(f"train-{number}", f"gpu-{number}", gpus=8.0) for number in range(4)]


def with_pods(node: Node, *pods: Pod) -> Node:
    """The machine; its agent sees these pods on its GPUs, and they work."""
    assert node.verdict is not None
    busy = tuple(PodVerdict(uid=pod.uid, name=str(pod), activity=node.verdict.activity) for pod in pods)
    return replace(node, signal=replace(node.signal, verdict=replace(node.verdict, pods=busy)))


def idle_after(view: ClusterView, seen: int) -> set[str]:
    """The idle machines of five in the cluster and one outside; on the first ones of the five agents see pods."""
    desk = Desk()
    for number in range(5):
        node = a_node(f"i-{number}", State.IDLE if number >= seen else State.BUSY, pool="k")
        desk.fleet.put(with_pods(node, *PODS[number : number + 1]) if number < seen else node)
    desk.fleet.put(a_node("i-out", pool="other"))
    done = step(replace(desk.parts, cluster=Shown(replace(view, pools=("k",)))))
    return {node.id for node in done.observation.fleet.nodes if node.activity.state is State.IDLE}


@pytest.mark.parametrize("nodes", [0, 5])
def test_an_api_server_that_has_lost_its_pods_lets_none_of_its_nodes_go(nodes: int) -> None:
    """It was restored from an empty store: no node of it is idle. Machines of other pools are judged as before."""
    view = shown_cluster(*(shown_node(f"gpu-{number}", f"i-{number}") for number in range(nodes)))
    assert idle_after(view, seen=4) == {"i-out"}
    assert idle_after(view, seen=2) == {"i-2", "i-3", "i-4", "i-out"}, "two may have ended a moment ago"


def test_an_api_server_that_lacks_a_few_pods_is_believed() -> None:
    """As one whose pods end: most of what the agents see is there."""
    view = shown_cluster(*(shown_node(f"gpu-{n}", f"i-{n}", *PODS[n : n + 1] * (n != 1)) for n in range(5)))
    assert idle_after(view, seen=4) == {"i-4", "i-out"}
