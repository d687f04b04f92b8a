"""Pools that grow by the pods that wait for GPUs, and by no more than these need."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import LedgerView, Observation, Proposal, Status, Verb
from gpuwatch.model.fleet import CapacityType, Fleet, Node, NodeState
from gpuwatch.model.kubernetes import KubernetesNode, Pod
from gpuwatch.model.placing import HOSTNAME, Placement, Taint
from gpuwatch.model.sight import Sight
from gpuwatch.model.slurm import SlurmJob, SlurmNode, SlurmView
from gpuwatch.policies import capacity, scaling
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.idle_timeout.demand import free_gpus, hints_of
from gpuwatch.policies.idle_timeout.facts import count
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.scaling import Metric, queries
from tests.support.builders.configurations import mistakes, read
from tests.support.builders.fleet import NOW, a_node, a_stop
from tests.support.builders.guard_cases_gpus import TAKEN
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.pending_capacity import an_intent
from tests.support.builders.scaled_pools import POOL, free_rules, proposed

RULES = free_rules(pods=Metric(signal="kubernetes_pending"))
WHY = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def waits(name: str, gpus: float, **other: object) -> Pod:
    """A pod that the scheduler has found no node for."""
    return shown_pod(name, gpus=gpus, **{"unschedulable": WHY, **other})  # type: ignore[arg-type]


def a_member(number: int, *held: float, age: float = 86400.0, **other: object) -> Node:
    """A node of the pool with 8 GPUs, of which pods hold so many each."""
    pods = [shown_pod(f"w-{number}-{place}", f"gpu-{number}", gpus=gpus) for place, gpus in enumerate(held)]
    known = replace(shown_node(f"gpu-{number}", f"i-{number}", *pods), **other)  # type: ignore[arg-type]
    return replace(a_node(f"i-{number}", gpu_count=8), launched_at=NOW - timedelta(seconds=age), kubernetes=known)


def seen(*nodes: Node, pending: tuple[Pod, ...] = (), trouble: str | None = None) -> Observation:
    """These machines, and the pods that wait in their cluster."""
    known: list[KubernetesNode] = [node.kubernetes for node in nodes if node.kubernetes is not None]
    cluster = shown_cluster(*known, pending=pending, trouble=trouble)
    return Observation(now=NOW, fleet=Fleet(observed_at=NOW, nodes=nodes, cluster=cluster), ledger=LedgerView())


def wants(*nodes: Node, pending: tuple[Pod, ...] = (), trouble: str | None = None) -> Proposal:
    """What the policy says."""
    return proposed(seen(*nodes, pending=pending, trouble=trouble), RULES)


def test_a_node_that_its_cloud_is_about_to_take_is_room_until_another_comes_for_it() -> None:
    """The pool's size counts it for so long. Its room counted on, so that one node fewer was wanted than pods hold."""
    taken = replace(a_member(2), cloud_notice=TAKEN)
    comes = an_intent(Verb.LAUNCH, "new:default:1", Status.ACCEPTED, {"adds": "1"})
    comes = replace(comes, intent=replace(comes.intent, pool=POOL, at=NOW))
    alone, followed = seen(a_member(1, 8.0), taken, pending=(waits("p1", 8.0),)), LedgerView(open_intents=(comes,))

    assert proposed(alone, RULES).desired_nodes == 2
    assert proposed(replace(alone, ledger=followed), RULES).desired_nodes == 2
    assert proposed(replace(seen(a_member(1, 8.0), taken), ledger=followed), RULES).desired_nodes == 2


def test_as_many_nodes_as_the_waiting_pods_need() -> None:
    """Two full nodes; three pods of 4 GPUs take two more, and the sentence has the arithmetic."""
    pending = tuple(waits(f"p{number}", 4.0) for number in range(3))
    result = wants(a_member(1, 8.0), a_member(2, 8.0), pending=pending)

    assert (result.desired_nodes, result.grows) == (4, True)
    assert result.reason.sentence == (
        "pods: 3 pods (team/p0, team/p1 and 1 more) wait for 12 GPUs, which takes 2 new nodes of 8 GPUs: 2 → 4 nodes."
    )


def test_gpus_that_are_free_in_pieces_are_no_room_for_a_large_pod() -> None:
    """Six of eight are held on each of two nodes: four GPUs are free, and a pod of four fits neither."""
    assert wants(a_member(1, 6.0), a_member(2, 6.0), pending=(waits("p", 4.0),)).desired_nodes == 3
    assert wants(a_member(1, 6.0), a_member(2, 6.0), pending=(waits("p", 2.0),)).desired_nodes == 2


def test_nodes_on_their_way_are_counted_first() -> None:
    """One that was launched a minute ago and is no node yet, or is not ready: nothing is ordered twice."""
    young = replace(a_member(2, age=60.0), kubernetes=None)
    late = replace(a_member(2, age=86400.0), kubernetes=None)

    assert wants(a_member(1, 8.0), young, pending=(waits("p", 8.0),)).desired_nodes == 2
    assert wants(a_member(1, 8.0), a_member(2, age=60.0, ready=False), pending=(waits("p", 8.0),)).desired_nodes == 2
    assert wants(a_member(1, 8.0), late, pending=(waits("p", 8.0),)).desired_nodes == 3


@pytest.mark.parametrize(
    "closed", [{"unschedulable": True}, {"taints": (Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"),)}]
)
def test_a_node_that_takes_no_pods_has_no_room(closed: dict[str, object]) -> None:
    """Another node would take them, so one comes; while no pod waits, the closed one is not wanted."""
    nodes = (a_member(1, 8.0), a_member(2, age=86400.0, **closed))

    assert wants(*nodes, pending=(waits("p", 8.0),)).desired_nodes == 3
    assert wants(*nodes).desired_nodes == 1


def test_a_node_that_no_pod_holds_is_not_wanted_and_one_that_a_pod_waits_for_is() -> None:
    """What goes is the idle policy's to say; a floor keeps as many as are wanted."""
    nodes = (a_member(1, 8.0), a_member(2), a_member(3))

    assert wants(*nodes).desired_nodes == 1
    assert wants(*nodes, pending=(waits("p", 8.0),)).desired_nodes == 2


@pytest.mark.parametrize(
    "pod",
    [
        shown_pod("not-tried-yet", gpus=8.0),
        waits("elsewhere", 8.0, placement=Placement(selector={"pool": "other"})),
        waits("too-large", 16.0),
    ],
)
def test_pods_that_are_no_demand_of_the_pool_bring_nothing(pod: Pod) -> None:
    """One that the scheduler has not tried, or has gates; one that fits no node of the pool."""
    assert wants(a_member(1, 8.0), pending=(pod,)).desired_nodes == 1


def test_a_pod_that_waits_for_another_reason_brings_no_second_node() -> None:
    """A node with room for it is there: nothing is added, one node stays for it, and people read why."""
    stays = "No node is added for it; while it waits, the pool keeps one."
    result = wants(a_member(1, 8.0), a_member(2), pending=(waits("p", 8.0, unschedulable="no volume here."),))

    assert result.desired_nodes == 2
    assert [each.reason.sentence for each in result.advice] == [
        f"The pod team/p waits although gpu-2 has GPUs free for it: no volume here. {stays}"
    ]
    young = wants(a_member(1, 8.0), a_member(2, age=60.0), pending=(waits("p", 8.0),))
    assert (young.desired_nodes, young.advice) == (2, ())


def test_what_is_not_known_keeps_every_node() -> None:
    """A silent API server, or a pool without any node in the cluster."""
    outside = replace(a_member(1), kubernetes=None)

    for result in (wants(a_member(1), a_member(2), trouble="It is silent."), wants(outside, a_node("i-2"))):
        assert (result.desired_nodes, result.kept_nodes, result.grows) == (None, 2, False)
        assert "is unknown" in result.reason.sentence


@given(
    held=st.lists(st.lists(st.sampled_from([1.0, 2.0, 4.0]), max_size=2), min_size=1, max_size=5),
    pending=st.lists(st.sampled_from([1.0, 2.0, 4.0, 8.0]), max_size=12),
)
def test_what_came_is_enough(held: list[list[float]], pending: list[float]) -> None:
    """With the nodes that were wanted there, no more are wanted while the same pods wait: constant load settles."""
    pods = tuple(waits(f"p{number}", gpus) for number, gpus in enumerate(pending))
    nodes = [a_member(number, *gpus) for number, gpus in enumerate(held)]
    first = wants(*nodes, pending=pods).desired_nodes
    assert first is not None
    came = [a_member(number) for number in range(len(nodes), first)]
    enough = wants(*nodes, *came, pending=pods).desired_nodes

    assert enough is not None
    assert enough <= max(first, len(nodes))
    assert first >= sum(bool(gpus) for gpus in held)
    assert first - len(nodes) <= -(-sum(pending) // 4)


def test_nothing_is_measured_for_it_and_learned_waits_know_it() -> None:
    """It is in what every round sees; so it is a hint of how soon nodes are needed."""
    pending = (waits("p", 8.0),)

    assert queries(POOL, RULES) == ()
    assert hints_of(seen(a_member(1), pending=pending), POOL, IdleRules())["hint kubernetes_pending"] > 0
    assert "hint kubernetes_pending" not in hints_of(seen(a_node("i-1"), pending=pending), POOL, IdleRules())


def test_gpus_that_are_free_beside_work_are_a_hint_too() -> None:
    """Of nodes with pods alone; a node without any, and GPUs that are requested twice, count nothing."""
    fleet = seen(a_member(1, 2.0, 1.0), a_member(2, 8.0), a_member(3), a_member(4, 8.0, 4.0)).fleet

    assert free_gpus(fleet, POOL) == 5.0
    assert hints_of(seen(a_member(1, 2.0)), POOL, IdleRules())["hint free_gpus"] == count(6.0)
    assert free_gpus(seen(a_member(1, 2.0), trouble="no answer").fleet, POOL) is None
    assert free_gpus(seen(a_node("i-1")).fleet, POOL) is None


def test_slurms_jobs_tell_of_free_gpus_as_well() -> None:
    """By the jobs on each node, where Slurm is asked for them and says so; a node in doubt counts nothing."""
    job = SlurmJob(id="1", user="ann", gpus=3)
    nodes = [
        replace(a_node(f"i-{number}", gpu_count=8), slurm=SlurmNode(name=f"n{number}", gpus=8, jobs=jobs, doubt=doubt))
        for number, (jobs, doubt) in enumerate([((job, job), None), ((), None), ((job,), "two have its address")])
    ]

    def told(view: SlurmView | None) -> float | None:
        return free_gpus(Fleet(observed_at=NOW, nodes=tuple(nodes), slurm=view), POOL)

    assert told(SlurmView(pools=(POOL,), sees_jobs=True)) == 2.0
    assert told(SlurmView(pools=(POOL,))) is None
    assert told(SlurmView(pools=("other",), sees_jobs=True)) is None
    assert told(None) is None


def test_mistakes_are_named(tmp_path: Path) -> None:
    """No cluster; another autoscaler that adds nodes for the same pods; a target that means nothing here."""
    file = tmp_path / "gpuwatch.yaml"
    pool = "pools: {gpu: {min_nodes: 1, scaling: {metrics: {pods: {signal: kubernetes_pending%s}}}%s}}\n"
    cluster = "kubernetes: {in_cluster: true}\n"
    owned = ", kubernetes: {node_owner: karpenter}"

    assert "kubernetes_pending, and no cluster is set" in mistakes(file, pool % ("", ""))
    assert "node_owner is karpenter, which adds nodes for the same pods" in mistakes(file, cluster + pool % ("", owned))
    assert "target is set, and kubernetes_pending follows the pods" in mistakes(
        file, cluster + pool % (", target: 1", "")
    )
    assert read(file, cluster + pool % ("", "")).pools["gpu"].scaling.metrics["pods"].signal == "kubernetes_pending"


def named(name: str, host: str) -> Pod:
    """A pod of four GPUs that may run on that node alone."""
    return waits(name, 4.0, placement=Placement(selector={HOSTNAME: host}))


def a_host(number: int, *held: float, state: NodeState = NodeState.RUNNING, age: float = 86400.0) -> Node:
    """A member that has the label with its name; a stopped one is there as its cluster still shows it."""
    ready = state is NodeState.RUNNING
    return replace(a_member(number, *held, ready=ready, labels={HOSTNAME: f"gpu-{number}"}, age=age), state=state)


def started(*nodes: Node, pending: tuple[Pod, ...]) -> tuple[int | None, list[str]]:
    """How many nodes the pool should have, and which stopped ones come first, if anybody's may be started."""
    observation = seen(*nodes, pending=pending)
    wish = scaling.propose(observation, POOL, RULES, warm_up=900.0, start="any").desired_nodes
    steps = capacity.additions(observation, POOL, wish or 0, LaunchRules(), "any")
    return wish, [step.node_id for step in steps]


def test_a_pod_that_names_a_stopped_node_wants_that_one() -> None:
    """And no other, though it was stopped first; two pods of one node want one."""
    full, one, two = a_host(1, 8.0), a_host(2, state=NodeState.STOPPED), a_host(3, state=NodeState.STOPPED)

    assert started(full, one, two, pending=(named("p", "gpu-2"),)) == (2, ["i-2"])
    assert started(full, one, two, pending=(named("p", "gpu-3"),)) == (2, ["i-3"])
    assert started(full, one, two, pending=(named("p", "gpu-3"), named("q", "gpu-3"))) == (2, ["i-3"])


@pytest.mark.parametrize("host", ["gpu-1", "gpu-2", "gpu-3", "gone"])
def test_a_pod_that_names_a_node_which_cannot_come_wants_none(host: str) -> None:
    """A full one, one that may not be started, one on its way, one that is gone: a new machine is none of them."""
    full, kept = a_host(1, 8.0), replace(a_host(2, state=NodeState.STOPPED), protected="a tag")
    coming = a_host(3, state=NodeState.PENDING, age=60.0)

    assert started(full, kept, coming, pending=(named("p", host),)) == (2, [])


def test_a_pod_that_waits_wakes_a_host_of_ones_own_only_if_gpuwatch_switched_it_off() -> None:
    """Its cluster still shows its node; one that its owner switched off stays off, whatever waits."""
    own = {"capacity_type": CapacityType.OWN, "launched_at": None, "sight": Sight()}
    full, off = (replace(a_host(n, *held, state=state), **own) for n, held, state in (  # type: ignore[arg-type]
        (1, (8.0,), NodeState.RUNNING), (2, (), NodeState.STOPPED),
    ))  # fmt: skip
    observation = seen(full, off, pending=(waits("p", 8.0),))
    ours = replace(observation, ledger=LedgerView(stopped=(a_stop("i-2", at=NOW - timedelta(hours=1)),)))
    for found, woken in ((observation, []), (ours, ["i-2"])):
        wish = scaling.propose(found, POOL, RULES, warm_up=900.0, start="any").desired_nodes
        assert [each.node_id for each in capacity.additions(found, POOL, wish or 0, LaunchRules(), "any")] == woken


def test_pods_that_name_their_hosts_take_no_place_of_others() -> None:
    """One that waits for its own node leaves the node on its way to the pod that it comes for."""
    young = replace(a_member(2, age=60.0), kubernetes=None)

    assert started(a_host(1, 8.0), young, pending=(named("p", "gpu-1"), waits("q", 8.0))) == (2, [])
