"""Nodes whose pods are not sure to run elsewhere stay, also between the decision and the act."""

from dataclasses import replace

import pytest

from gpuwatch.controller.observe import places
from gpuwatch.controller.observe.places import with_former_reasons
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.kubernetes import Pod
from gpuwatch.model.placing import Needs, Place, PlacedPod, Room
from tests.support.builders.clusters import (
    ENDING,
    ClusterDesk,
    a_cluster_desk,
    a_daemon,
    a_gpu_pod,
    a_kubernetes_node,
    a_pod,
)
from tests.support.builders.fleet import a_node

_CORES = 20


def show_room(desk: ClusterDesk, cores: int, *more: Place) -> None:
    """The API server shows nodes with so many cores each, and pods that each ask for 20 of them."""
    needs = Needs(requests=(("cpu", _CORES),))
    known = desk.cluster.nodes.values()
    pods = [
        PlacedPod(name=str(pod), namespace=pod.namespace, uid=pod.uid, node=node.name, needs=needs)
        for node in known
        for pod in node.pods
        if not pod.daemon
    ]
    places = [Place(name=each.name, offers={"cpu": cores, "pods": 9}, closed=each.unschedulable) for each in known]
    desk.cluster.space = Room(places=(*places, *more), pods=tuple(pods))


def rounds(desk: ClusterDesk, cores: int, *more: Place, number: int = 12) -> None:
    """So many rounds, some minutes apart."""
    for _ in range(number):
        show_room(desk, cores, *more)
        desk.round(300.0)


def noticed(desk: ClusterDesk, machine: str = "i-1") -> bool:
    """Whether its people were told that it goes."""
    return any(each.intent.verb is Verb.NOTICE for each in desk.ledger.history(machine))


def a_busy_neighbour(*pods: Pod) -> ClusterDesk:
    """An idle node with these pods, and a busy one beside it."""
    return a_cluster_desk(ENDING, *pods)


def test_a_node_whose_pods_fit_nowhere_else_gets_no_notice() -> None:
    """It would be a service without its pods, all night, and nothing brings another node for them."""
    desk = a_busy_neighbour(a_pod())
    rounds(desk, _CORES - 1)

    assert desk.calls() == []
    assert not noticed(desk)


def test_a_node_whose_pods_fit_elsewhere_goes() -> None:
    """The simulation keeps no node for good."""
    desk = a_busy_neighbour(a_pod())
    rounds(desk, _CORES)

    assert desk.calls("cordon", "drain") == [("cordon", "node-1"), ("drain", "node-1")]


def test_a_pod_with_gpus_that_may_be_moved_needs_a_place_as_well() -> None:
    """It would wait, and bring another machine for nothing."""
    desk = a_busy_neighbour(a_gpu_pod())
    rounds(desk, _CORES - 1)
    assert not noticed(desk)

    desk = a_busy_neighbour(a_gpu_pod())
    rounds(desk, _CORES)
    assert desk.calls("drain") == [("drain", "node-1")]


def test_a_node_of_whose_cluster_nobody_knows_the_room_stays() -> None:
    """No answer is no place: its pods might wait all night."""
    desk = a_busy_neighbour(a_pod())
    desk.cluster.shows_room = False
    for _ in range(12):
        seen = desk.round(300.0).observation.fleet.find("i-1")

    assert desk.calls() == []
    assert not noticed(desk)
    assert seen is not None
    assert seen.kubernetes is not None
    assert [pod.stranded for pod in seen.kubernetes.pods if not pod.daemon] == [
        "where else it fits is not known: its cluster does not show what room it has"
    ]


def test_what_nothing_makes_again_needs_no_place() -> None:
    """Where the pool ends bare pods, nobody waits for one of them."""
    rules = replace(ENDING, kubernetes=replace(ENDING.kubernetes, bare_pods="evict"))
    desk = a_cluster_desk(rules, a_pod(bare=True))
    rounds(desk, _CORES - 1)

    assert desk.calls("drain") == [("drain", "node-1")]


def test_of_two_nodes_that_count_on_one_place_one_goes() -> None:
    """The other stays as long as that place is taken, and its notice is taken back."""
    desk = a_busy_neighbour(a_pod())
    desk.fleet.put(a_node("i-3", State.IDLE, 7200.0, managed_by="EKS cluster prod"))
    desk.cluster.put(a_kubernetes_node("node-3"))
    desk.cluster.bind("node-3", a_pod("web-3"))
    for _ in range(12):
        show_room(desk, 0, Place(name="cpu-1", offers={"cpu": _CORES, "pods": 9}))
        room = desk.cluster.space
        assert room is not None
        # What was evicted has taken the place.
        moved = [
            PlacedPod(name=str(pod), namespace="a", uid=f"new {pod.uid}", node="cpu-1", needs=room.pods[0].needs)
            for pod in desk.cluster.evicted
        ]
        desk.cluster.space = replace(room, pods=(*room.pods, *moved))
        desk.round(300.0)

    assert len(desk.cluster.evicted) == 1
    assert len(desk.calls("cordon")) == 1


def test_what_a_round_cannot_look_at_waits_for_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand idle nodes do not hold up a round; the others follow once the first are gone."""
    monkeypatch.setattr(places, "_MOST_LOOKS", 1)
    desk = a_busy_neighbour(a_pod())
    desk.fleet.put(a_node("i-3", State.IDLE, 7200.0, managed_by="EKS cluster prod"))
    desk.cluster.put(a_kubernetes_node("node-3"))
    desk.cluster.bind("node-3", a_pod("web-3"))
    show_room(desk, 3 * _CORES)
    nodes = desk.round(300.0).observation.fleet.nodes
    told = [pod.stranded for node in nodes if node.kubernetes is not None for pod in node.kubernetes.pods]
    assert [why.partition(",")[0] for why in told if why is not None] == [
        "where else it fits is not known yet: its node comes after 1 node"
    ]
    rounds(desk, 3 * _CORES, number=40)
    assert {node for _, node in desk.calls("drain")} == {"node-1", "node-3"}


def test_of_a_pod_that_came_since_nobody_knows_where_it_fits() -> None:
    """The last question before a drain brings it; of the others it is said what was said."""
    before = a_kubernetes_node(pods=(a_pod(stranded="it is full"),), placed=True)
    now = a_kubernetes_node(pods=(a_pod(), a_pod("late-1"), a_daemon()))

    told = {pod.name: pod.stranded for pod in with_former_reasons(now, before).pods}
    assert (told["web-1"], told["dcgm-1"]) == ("it is full", None)
    assert "a moment ago" in str(told["late-1"])
    assert with_former_reasons(now, replace(before, placed=False)) == now
