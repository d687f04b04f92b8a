"""A workload is judged whole before one of its pods is asked to go, from whatever node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Reason, Step, Verb
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.kubernetes import ClusterView, Pod
from gpuwatch.policies.kubernetes import idle_pods_obstacles, obstacles, sick
from gpuwatch.policies.kubernetes.nodes import node_steps
from gpuwatch.policies.kubernetes.workload_use import workloads
from tests.support.builders.clusters import CLUSTER, OURS, a_gpu_pod, a_kubernetes_node, a_pod
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.builders.workloads import a_host, a_notebook, its_pod
from tests.support.builders.workloads import seen as workloads_seen

HOURS = 7200.0
HEAD = a_pod("big-head", group="ray")
WORKER = a_gpu_pod("big-worker-1", group="ray")


def seen(
    *others: Node, here: Pod = HEAD, pending: tuple[Pod, ...] = (), unwatched: tuple[Pod, ...] = ()
) -> Observation:
    """An idle node with one pod, others of the fleet, and pods on a node that no machine of the fleet is."""
    known = a_kubernetes_node("node-1", pods=(replace(here, node="node-1"),))
    nodes = (a_node("i-1", State.IDLE, 3 * HOURS, kubernetes=known), *others)
    views = [node.kubernetes for node in nodes if node.kubernetes is not None]
    if unwatched:
        views.append(a_kubernetes_node("n-far", pods=tuple(replace(pod, node="n-far") for pod in unwatched)))
    view = ClusterView(name="prod", nodes=tuple(views), pending=pending)
    base = an_observation(*nodes)
    return replace(base, fleet=Fleet(observed_at=NOW, nodes=nodes, cluster=view))


def why_kept(observation: Observation, *, busy_too: bool = False) -> str | None:
    """Why the pods of node-1 stay."""
    node = observation.fleet.nodes[0]
    return obstacles.pods(node, observation, CLUSTER, HOURS, busy_too=busy_too)


def test_the_head_of_a_busy_ray_cluster_stays_and_explain_names_its_worker() -> None:
    """It has no GPU, and its end is the end of all workers."""
    observation = seen(a_host(2, (WORKER, State.BUSY)))
    assert why_kept(observation) == (
        "The pod team-a/big-head belongs to a workload that goes whole, and its worker team-a/big-worker-1 on node "
        "node-2 is busy."
    )
    step = Step(
        node_id="i-1", verb=Verb.TERMINATE, reason=Reason(code="expired", sentence="It is idle."), change="Use."
    )
    told = next(each for each in node_steps([step], observation, OURS) if each.node_id == "i-1")
    assert (told.verb, "big-worker-1 on node node-2" in told.reason.sentence) == (Verb.HOLD, True)


@pytest.mark.parametrize("state", [State.UNKNOWN, State.PARKED, State.STALLED, State.OCCUPIED])
def test_a_sibling_that_is_not_proven_idle_keeps_it(state: State) -> None:
    """Doubt is no idleness."""
    assert "big-worker-1" in (why_kept(seen(a_host(2, (WORKER, state)))) or "")


def test_siblings_that_are_idle_for_long_keep_nothing() -> None:
    """Then the workload as a whole has no use."""
    assert why_kept(seen(a_host(2, (WORKER, State.IDLE), held=3 * HOURS))) is None


def test_a_sibling_that_has_been_idle_for_a_minute_keeps_it() -> None:
    """Between two tasks."""
    assert "has been idle for 1m" in (why_kept(seen(a_host(2, (WORKER, State.IDLE), held=60.0))) or "")


def test_a_sibling_that_waits_for_a_node_keeps_it() -> None:
    """The work is about to begin."""
    waits = replace(WORKER, node=None)
    assert "its worker team-a/big-worker-1 waits for a node" in (why_kept(seen(pending=(waits,))) or "")


def test_a_sibling_on_a_machine_that_nobody_watches_keeps_it() -> None:
    """What it does is not known."""
    assert "what its worker team-a/big-worker-1 on node n-far does is not known" in (
        why_kept(seen(unwatched=(WORKER,))) or ""
    )


def test_a_head_that_nobody_watches_keeps_its_idle_workers() -> None:
    """Its driver may be at work on a machine without GPUs, where no agent runs."""
    worker = replace(a_gpu_pod("big-worker-1"), group="ray")
    assert "what its head team-a/big-head on node n-far does is not known" in (
        why_kept(seen(here=worker, unwatched=(HEAD,))) or ""
    )


@pytest.mark.parametrize(("state", "stays"), [(State.IDLE, False), (State.BUSY, True), (State.OCCUPIED, True)])
def test_a_head_on_a_watched_machine_is_as_idle_as_that(state: State, *, stays: bool) -> None:
    """Of a machine at work nobody knows which of its pods works."""
    here = replace(a_gpu_pod("big-worker-1"), group="ray")
    host = a_host(2, (a_gpu_pod("other"), State.IDLE), held=3 * HOURS)
    assert host.kubernetes is not None
    known = replace(host.kubernetes, pods=(*host.kubernetes.pods, replace(HEAD, node="node-2")))
    told = replace(a_node("i-2", state, 3 * HOURS), kubernetes=known)
    assert (why_kept(seen(told, here=here)) is not None) == stays


def test_a_database_of_three_pods_without_gpus_is_moved_as_ever() -> None:
    """Nobody watches its other nodes, and no GPU is at stake."""
    db = a_pod("db-0", group="db")
    assert why_kept(seen(here=db, unwatched=(a_pod("db-1", group="db"), a_pod("db-2", group="db")))) is None


def test_consent_is_none_for_a_busy_whole() -> None:
    """It is for an idle one."""
    head = replace(HEAD, interruptible=True)
    assert why_kept(seen(a_host(2, (WORKER, State.BUSY)), here=head)) is not None


def test_from_a_sick_node_go_pods_that_may_be_interrupted_at_work() -> None:
    """Their people have said so; of others nobody has."""
    busy = a_host(2, (WORKER, State.BUSY))
    assert why_kept(seen(busy, here=replace(HEAD, interruptible=True)), busy_too=True) is None
    assert why_kept(seen(busy), busy_too=True) is not None


def test_an_idle_gpu_pod_of_a_busy_whole_stays() -> None:
    """One stage of a pipeline waits for the other."""
    here = replace(a_gpu_pod("stage-0"), group="ray")
    assert "big-worker-1" in (why_kept(seen(a_host(2, (WORKER, State.BUSY)), here=here)) or "")


def test_another_work_keeps_nothing() -> None:
    """Neither of another group, nor of none."""
    assert why_kept(seen(a_host(2, (replace(WORKER, group="other"), State.BUSY)))) is None
    assert why_kept(seen(a_host(2, (replace(WORKER, group=None), State.BUSY)))) is None


@pytest.mark.parametrize(("state", "stays"), [(State.BUSY, True), (State.UNKNOWN, False), (State.IDLE, False)])
def test_of_one_release_only_work_keeps_a_pod_without_gpus(state: State, *, stays: bool) -> None:
    """What was installed together may be several works."""
    scheduler = a_pod("scheduler", release="dask")
    worker = a_gpu_pod("dask-worker", release="dask")
    assert (why_kept(seen(a_host(2, (worker, state), held=60.0), here=scheduler)) is not None) == stays
    idle = replace(a_gpu_pod("other"), release="dask")
    assert why_kept(seen(a_host(2, (worker, state)), here=idle)) is None


@given(st.lists(st.sampled_from([State.IDLE, State.BUSY, State.UNKNOWN, State.PARKED]), min_size=1, max_size=4))
def test_more_work_of_siblings_never_makes_a_removal_likelier(states: list[State]) -> None:
    """P8: it stays while one sibling is not idle, and never otherwise."""
    others = [
        a_host(number, (replace(WORKER, name=f"w-{number}", uid=f"w-{number}"), state), held=3 * HOURS)
        for number, state in enumerate(states, start=2)
    ]
    assert (why_kept(seen(*others)) is None) == (set(states) == {State.IDLE})


def test_a_sick_node_moves_no_head_of_a_busy_cluster() -> None:
    """`health.action: drain` is no consent of its people either."""
    observation = seen(a_host(2, (WORKER, State.BUSY)))
    node = observation.fleet.nodes[0]
    assert node.kubernetes is not None
    movable, why = sick.evacuable(node, node.kubernetes, observation, OURS)
    assert movable == frozenset()
    assert "big-worker-1" in (why or "")


def test_a_workload_is_not_ended_while_a_sibling_of_another_one_works() -> None:
    """Two Jobs of one work: one of them is idle, and its people let it end."""
    its = replace(a_notebook(), kind="Job", name="a", uid="uid-a")
    idle = its_pod("a-0", its, group="set")
    other = its_pod("b-0", replace(its, name="b", uid="uid-b"), group="set")
    told = {state: obstacles_of(idle, other, state) for state in (State.BUSY, State.UNKNOWN, State.IDLE)}

    assert told[State.BUSY] == (
        "team-a/a-0 goes with its siblings, and its sibling team-a/b-0 on node node-2 is busy.",
        None,
    )
    assert told[State.UNKNOWN] == (
        None,
        "team-a/a-0 goes with its siblings, and what its sibling team-a/b-0 on node node-2 does is not known.",
    )
    assert told[State.IDLE] == (None, None)


def obstacles_of(idle: Pod, other: Pod, state: State) -> tuple[str | None, str | None]:
    """Who works, and what is not known, of the workload of an idle pod."""
    observation = workloads_seen(a_host(1, (idle, State.IDLE)), a_host(2, (other, state)))
    use = next(each for each in workloads(observation) if each.workload.name == "a")
    return idle_pods_obstacles.working(use, observation), idle_pods_obstacles.not_known(use, observation)
