"""The power is cut between cordon, eviction, end and settlement: after the restart nothing is lost, nobody is hurt."""

from dataclasses import replace

import pytest

from gpuwatch.controller.round import step
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.verbs import TargetKind
from tests.support.builders.clusters import ENDING, ClusterDesk, a_cluster_desk, a_gpu_pod, a_pod
from tests.support.builders.fleet import Desk
from tests.support.crash_points import Mortal, PowerCut, Story, every_cut
from tests.support.nightly import by_night


def a_story(more: int = 15, **befalls: object) -> Story:
    """An idle node at the end of its grace, with a pod to move and one that its people let go; as far as its end."""
    desk = a_cluster_desk(ENDING, a_pod(), a_gpu_pod())
    desk.cluster.grace_seconds = 90.0
    for _ in range(10):
        desk.round()
    return Story(desk=desk, rounds=5, more=more, **befalls)  # type: ignore[arg-type]


def on_record(where: str, desk: ClusterDesk) -> None:
    """Every call to cluster and cloud has its intent, each intent its end, and no cordon of ours is left."""
    entries = [entry for node_id in ("i-1", "i-2") for entry in desk.ledger.history(node_id, limit=300)]
    keys = {entry.intent.key for entry in entries}
    made = {key for call, _, key in desk.cluster.calls}
    assert made | {key for _, _, key in desk.fleet.calls} <= keys, f"{where}: a call without a record"
    assert desk.ledger.view(desk.clock.now()).open_intents == (), f"{where}: an intent was left open"
    known = desk.cluster.nodes["node-2"]
    assert not known.unschedulable, f"{where}: the working node is cordoned"


@pytest.mark.parametrize(
    ("downtime", "pace", "begin", "more"),
    [(61.0, 13, 1, 15), *by_night((0.0, 7, 0, 15), (3600.0, 45, 2, 90))],
)
def test_a_power_cut_anywhere_ends_the_node_once_and_drained(downtime: float, pace: int, begin: int, more: int) -> None:
    """It is terminated once, after its pods were gone, or all begins anew with a notice; nothing hangs between."""
    for where, desk in every_cut(a_story(more), downtime, pace=pace, begin=begin):
        assert isinstance(desk, ClusterDesk)
        assert desk.fleet.stopped_while == [State.IDLE], where
        assert desk.fleet.nodes_["i-1"].state is NodeState.TERMINATED, where
        assert {pod.name for pod in desk.cluster.nodes["node-1"].pods} == {"dcgm-node-1"}, where
        on_record(where, desk)


def test_work_that_begins_during_the_downtime_gets_its_node_back() -> None:
    """Cut anywhere between cordon and end; the node works when the controller is back: uncordoned, never ended."""

    def works(desk: Desk, number: int) -> None:
        if number == 2:
            desk.fleet.show("i-1", State.BUSY, 0.0)

    for where, desk in every_cut(a_story(befalls=works), 61.0, pace=13):
        assert isinstance(desk, ClusterDesk)
        if desk.fleet.stopped_while:
            assert desk.fleet.stopped_while == [State.IDLE], where
            continue
        known = desk.cluster.nodes["node-1"]
        assert not known.unschedulable, f"{where}: it works under a cordon"
        assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING, where
        on_record(where, desk)


def test_a_cordon_whose_record_of_the_answer_is_lost_is_known_as_ours() -> None:
    """The key is in the ledger before the call: the next round goes on, or undoes it."""
    story = a_story()
    desk = story.desk
    assert isinstance(desk, ClusterDesk)
    while not desk.cluster.calls:
        try:
            step(replace(desk.parts, cluster=Mortal(desk.cluster, _cut_after_cordon)))  # type: ignore[arg-type]
        except PowerCut:
            break
        desk.rest(60.0)
    assert desk.cluster.nodes["node-1"].unschedulable
    entries = desk.ledger.history("i-1", limit=10)
    assert [entry.intent.verb for entry in entries if entry.outcomes == ()] == [Verb.CORDON]

    desk.fleet.show("i-1", State.BUSY, 0.0)
    for _ in range(3):
        desk.round()
    assert not desk.cluster.nodes["node-1"].unschedulable
    ended = {
        entry.intent.verb: entry.outcomes[-1].status
        for entry in desk.ledger.history("i-1", limit=20)
        if entry.intent.verb.target is TargetKind.CLUSTER_NODE
    }
    assert ended == {Verb.CORDON: Status.SETTLED, Verb.UNCORDON: Status.SETTLED}


def _cut_after_cordon(where: str) -> None:
    if where == "after cordon":
        raise PowerCut(where)


@pytest.mark.parametrize("changed", ["uid", "provider_id"])
def test_another_machine_under_the_same_name_is_not_touched(changed: str) -> None:
    """The node object is made again between look and cordon, or names another machine: it is vetoed, each time."""
    desk = a_cluster_desk()

    def made_again(call: str, name: str) -> None:
        if call == "node" and name == "node-1" and not desk.cluster.calls:
            known = desk.cluster.nodes[name]
            other = {"uid": f"{known.uid}+", "provider_id": f"{known.provider_id}23"}
            desk.cluster.put(replace(known, **{changed: other[changed]}))  # type: ignore[arg-type]  # a text each

    desk.cluster.befalls = made_again
    for _ in range(14):
        desk.round()

    assert desk.cluster.calls == []
    assert desk.fleet.stopped_while == []
