"""Idle nodes that pods wait for: those that they can use and need, for as long as waiting makes sense."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Proposal, Reason, Step, Verb
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.kubernetes import ClusterView, Pod
from gpuwatch.model.placing import HOSTNAME, Placement
from gpuwatch.model.proposal import Steps
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.keep_warm import keep_warm
from gpuwatch.policies.kubernetes import obstacles
from gpuwatch.policies.kubernetes.gathering import GATHER_SECONDS, needed_nodes
from tests.support.builders.clusters import CLUSTER, a_gpu_pod, a_kubernetes_node
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.builders.kubernetes_views import shown_pod

HOUR = 3600.0
IDLE = IdleRules(timeout="break_even", restart_cost=600.0)


def waits(
    name: str, *, gpus: float = 8.0, since: float = 60.0, group: str | None = None, placement: Placement | None = None
) -> Pod:
    """A pod that has waited for so many seconds."""
    told = {"group": group, "placement": placement or Placement()}
    return shown_pod(name, gpus=gpus, created_at=NOW - timedelta(seconds=since), **told)  # type: ignore[arg-type]


def a_gang(count: int, *, gpus: float = 8.0, since: float = 2 * HOUR, group: str = "gang") -> tuple[Pod, ...]:
    """Pods of one workload."""
    return tuple(waits(f"{group}-{number}", gpus=gpus, since=since, group=group) for number in range(count))


def pool(count: int, *pending: Pod, held: float = 1200.0, gpus: float = 8.0, **known: object) -> Observation:
    """Idle nodes of one pool, and what waits."""
    nodes = tuple(
        a_node(
            f"i-{number}",
            State.IDLE,
            held + number,
            kubernetes=replace(a_kubernetes_node(f"node-{number}"), gpus=gpus, **known),  # type: ignore[arg-type]
        )
        for number in range(count)
    )
    views = tuple(node.kubernetes for node in nodes if node.kubernetes is not None)
    base = an_observation(*nodes)
    fleet = Fleet(observed_at=NOW, nodes=nodes, cluster=ClusterView(name="prod", nodes=views, pending=pending))
    return replace(base, fleet=fleet)


def kept(observation: Observation, nodes: tuple[Node, ...] | None = None) -> dict[str, Step]:
    """The nodes that are held though their wait is over, with the step."""
    steps = tuple(
        Step(node_id=node.id, verb=Verb.NOTICE, reason=Reason(code="idle", sentence="It is idle."), change="Use.")
        for node in nodes or observation.fleet.nodes
    )
    reason = Reason(code="idle", sentence="x")
    proposal = Proposal(policy="idle", pool="default", steps=Steps.one_per_target(steps, steps), reason=reason)
    told = keep_warm(observation, proposal, IDLE, {})
    return {step.node_id: step for step in told.steps if step.verb is Verb.HOLD}


def test_one_waiting_pod_holds_one_node_and_not_the_pool() -> None:
    """52 of 52 nodes were held for one."""
    found = kept(pool(5, waits("a")))
    assert found.keys() == {"i-0"}
    assert "the pod team/a has waited for 1m, and may run here" in found["i-0"].reason.sentence


@given(count=st.integers(0, 6), each=st.sampled_from([1.0, 2.0, 4.0, 8.0]), nodes=st.integers(1, 6))
def test_pods_hold_the_nodes_that_they_need(count: int, each: float, nodes: int) -> None:
    """As many as their GPUs fill, and never more than there are."""
    found = kept(pool(nodes, *(waits(f"p-{number}", gpus=each) for number in range(count))))
    assert len(found) == min(nodes, -(-count * int(each) // 8))


def test_a_pod_that_has_waited_for_longer_than_a_restart_costs_holds_nothing() -> None:
    """It waits for something else: a volume, or memory."""
    assert kept(pool(3, waits("a", since=601.0))) == {}


@pytest.mark.parametrize(
    "pod",
    [
        waits("too-large", gpus=16.0),
        waits("elsewhere", placement=Placement(selector={"nvidia.com/gpu.product": "A100"})),
    ],
)
def test_a_pod_that_fits_no_node_holds_none(pod: Pod) -> None:
    """Every cluster has one that has waited for forty days."""
    assert kept(pool(3, pod)) == {}


def test_a_gang_keeps_what_is_gathered_for_hours() -> None:
    """Three of four nodes are there; the fourth may take a while, and none of them is let go meanwhile."""
    found = kept(pool(3, *a_gang(4)))
    assert found.keys() == {"i-0", "i-1", "i-2"}
    assert {step.reason.code for step in found.values()} == {"gathered"}
    assert "4 pods of Deployment team/serve have waited for 2h, and it is kept for them (22h at most)" in (
        found["i-0"].reason.sentence
    )


def test_a_gang_keeps_no_more_than_it_needs() -> None:
    """A fifth node goes."""
    assert len(kept(pool(5, *a_gang(4)))) == 4


def test_a_gang_is_given_up_after_a_day() -> None:
    """What has not come by then is not on its way, and the nodes cost money."""
    assert kept(pool(3, *a_gang(4, since=GATHER_SECONDS))) == {}


def test_the_waiting_half_of_a_gang_counts_though_it_is_one_pod() -> None:
    """The other half runs."""
    base = pool(2, *a_gang(1))
    view = base.fleet.cluster
    assert view is not None
    runs = a_kubernetes_node("node-9", pods=(a_gpu_pod("gang-9", group="gang", node="node-9"),))
    seen = replace(base, fleet=replace(base.fleet, cluster=replace(view, nodes=(*view.nodes, runs))))
    assert {step.reason.code for step in kept(seen).values()} == {"gathered"}


def test_gpus_that_pods_hold_are_not_free() -> None:
    """Nor is a node that takes no pods."""
    full = a_gpu_pod("train", gpus=4.0)
    assert kept(pool(2, waits("a"), pods=(full,))) == {}
    assert kept(pool(2, waits("a"), ready=False)) == {}


def test_the_same_nodes_are_kept_in_each_round_whatever_the_order() -> None:
    """No node is held in one round and noticed in the next."""
    observation = pool(6, *a_gang(2), waits("a"), *a_gang(2, group="other", since=HOUR))
    nodes = observation.fleet.nodes
    assert (
        needed_nodes(observation, "default", nodes).keys() == needed_nodes(observation, "default", nodes[::-1]).keys()
    )


def test_work_that_is_no_pod_keeps_the_pool_as_before() -> None:
    """A number of the pool's own says nothing of nodes."""
    assert kept(replace(pool(3), queued={"default": 60.0})).keys() == {"i-0", "i-1", "i-2"}


def test_a_node_that_the_scheduler_makes_room_on_is_held_for_its_pod() -> None:
    """It ends the pods of lower priority there, and a cordon would take the nomination away."""
    observation = pool(1, nominated=("team/prod-1",))
    why = obstacles.pods(observation.fleet.nodes[0], observation, CLUSTER, HOUR)
    assert why == "The scheduler makes room on it for team/prod-1."


@pytest.mark.parametrize("host", range(4))
def test_a_pod_that_names_its_host_keeps_that_one(host: int) -> None:
    """Whichever of its pool it is, and no other."""
    observation = pool(4, waits("a", placement=Placement(selector={HOSTNAME: f"node-{host}"})))
    nodes = tuple(
        replace(node, kubernetes=replace(node.kubernetes, labels={HOSTNAME: node.kubernetes.name}))
        for node in observation.fleet.nodes
        if node.kubernetes is not None
    )
    found = kept(replace(observation, fleet=replace(observation.fleet, nodes=nodes)))

    assert found.keys() == {f"i-{host}"}
