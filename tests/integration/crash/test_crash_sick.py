"""The power is cut around a sick node's cordon, the eviction of its pods, and the replacement of a sick machine."""

from dataclasses import replace

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.health_settings import HealthRules
from tests.support.builders.clusters import OURS, ClusterDesk, a_cluster_desk, a_gpu_pod, a_pod
from tests.support.builders.desk import a_desk
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.crash_points import Story, every_cut
from tests.support.nightly import by_night

DRAIN = HealthRules(action="drain", taint=True, drain_after=120.0, max_failing_ratio=0.5, max_cordoned_ratio=0.5)


def failing(desk: Desk, *sick: str) -> None:
    """The agents of these machines call their GPU failing."""

    def answer(node: Node) -> NodeReport:
        verdict = node.signal.verdict
        if verdict is None:
            return node.signal
        state = Health.FAILING if node.id in sick else Health.HEALTHY
        health = GpuHealth(state=state, since=desk.clock.now())
        gpus = tuple(replace(gpu, health=health) for gpu in verdict.gpus)
        return NodeReport(verdict=replace(verdict, at=desk.clock.now(), age_seconds=0.5, gpus=gpus))

    desk.fleet.answer = answer


def on_record(where: str, desk: Desk) -> None:
    """Every call has its intent, and each intent its end."""
    ids = {node_id for _, node_id, _ in desk.fleet.calls} | set(desk.fleet.nodes_) | {"new:default:1", "new:default:2"}
    keys = {entry.intent.key for node_id in ids for entry in desk.ledger.history(node_id, limit=300)}
    made = {key for _, _, key in desk.fleet.calls}
    if isinstance(desk, ClusterDesk):
        made |= {key for call, _, key in desk.cluster.calls if call != "uncordon"}
    assert made <= keys, f"{where}: a call without a record"
    assert desk.ledger.view(desk.clock.now()).open_intents == (), f"{where}: an intent was left open"


def a_sick_story() -> Story:
    """A sick node with a pod to move and one that its people let go, in a pool that only reports what is idle."""
    rules = replace(OURS, health=DRAIN, idle=replace(OURS.idle, action="report"))
    desk = a_cluster_desk(rules, a_pod(), a_gpu_pod())
    desk.cluster.grace_seconds = 30.0

    def befalls(desk: Desk, _: int) -> None:
        failing(desk, "i-1")

    return Story(desk=desk, rounds=6, more=8, befalls=befalls)


@pytest.mark.parametrize(("downtime", "pace", "begin"), [(61.0, 11, 1), *by_night((0.0, 7, 0))])
def test_a_power_cut_anywhere_empties_the_sick_node_and_keeps_its_cordon(
    downtime: float, pace: int, begin: int
) -> None:
    """Its pods are gone, it bears our cordon and taint, and is given back once it is well; nobody else was touched."""
    for where, desk in every_cut(a_sick_story(), downtime, pace=pace, begin=begin):
        assert isinstance(desk, ClusterDesk)
        known, other = desk.cluster.nodes["node-1"], desk.cluster.nodes["node-2"]
        assert known.to_drain == (), f"{where}: pods are left"
        assert known.cordoned_by == known.tainted_by is not None, where
        assert not other.unschedulable, where
        assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING, where
        assert {pod.name for pod in desk.cluster.evicted} == {"web-1", "train-1"}, where
        failing(desk)
        for _ in range(3):
            desk.round()
        assert (known := desk.cluster.nodes["node-1"]).cordoned_by is None, where
        assert (known.unschedulable, known.tainted_by) == (False, None), where
        on_record(where, desk)


def test_what_works_on_a_sick_node_stays_through_every_cut() -> None:
    """Work that begins before the first eviction keeps all pods; those that have gone are gone."""
    story = a_sick_story()

    def works(desk: Desk, number: int) -> None:
        failing(desk, "i-1")
        if number == 2:
            desk.fleet.show("i-1", State.BUSY, 0.0)

    for where, desk in every_cut(replace(story, befalls=works), 61.0, pace=9):
        assert isinstance(desk, ClusterDesk)
        assert desk.cluster.evicted == [], f"{where}: pods of a busy node were moved"
        assert desk.cluster.nodes["node-1"].unschedulable, where


def a_replacement_story() -> Story:
    """A machine in no cluster at the end of its grace, idle, with a failing GPU, in a pool that replaces it."""
    health = HealthRules(action="replace", max_failing_ratio=0.5)
    idle = replace(RULES.idle, action="terminate")
    rules = replace(RULES, health=health, idle=idle, launch=LaunchRules(template="lt-1"))
    desk = a_desk(a_node("i-1"), a_node("i-2", State.BUSY), rules=rules)
    failing(desk, "i-1")
    for _ in range(10):
        desk.round()

    def befalls(desk: Desk, _: int) -> None:
        failing(desk, "i-1")

    return Story(desk=desk, rounds=6, more=25, befalls=befalls)


@pytest.mark.parametrize(("downtime", "pace"), [(0.0, 7), *by_night((61.0, 11))])
def test_a_power_cut_anywhere_brings_one_machine_for_one_loss(downtime: float, pace: int) -> None:
    """It is terminated once while idle, and one new machine comes."""
    for where, desk in every_cut(a_replacement_story(), downtime, pace=pace):
        assert desk.fleet.stopped_while == [State.IDLE], where
        assert desk.fleet.nodes_["i-1"].state is NodeState.TERMINATED, where
        new = set(desk.fleet.nodes_) - {"i-1", "i-2"}
        assert len(new) == 1, f"{where}: {new} came for one machine"
        on_record(where, desk)


def test_an_idle_machine_that_is_well_goes_for_good() -> None:
    """The same pool, and no failing GPU: nothing comes for it."""
    desk = a_replacement_story().desk
    failing(desk)
    for _ in range(20):
        desk.round()

    assert desk.fleet.nodes_["i-1"].state is NodeState.TERMINATED
    assert set(desk.fleet.nodes_) == {"i-1", "i-2"}
    assert Verb.LAUNCH.value not in {call for call, _, _ in desk.fleet.calls}
