"""policies/wakes.py: hosts of one's own that pods wait for are started by name; what was in vain rests."""

import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.decision import LedgerView, Observation, Step, Verb
from gpuwatch.model.fleet import CapacityType, Fleet, Node, NodeReport, NodeState
from gpuwatch.model.kubernetes import Pod
from gpuwatch.model.life import STARTED, WOKEN_FOR, End, Life
from gpuwatch.model.placing import Placement
from gpuwatch.model.sight import Sight
from gpuwatch.policies import PoolRules, propose, resolve
from gpuwatch.policies.scaling import Metric, ScalingRules
from gpuwatch.policies.wakes import rests_of
from tests.support.builders.fleet import NOW, RULES, a_node, a_stop
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod

WHY = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def a_host(number: int, gpus: float = 8.0, *, off: bool = True, **other: object) -> Node:
    """A host of one's own with so many GPUs; its cluster still shows its node while it is off."""
    known = replace(shown_node(f"gpu-{number}", f"i-{number}"), gpus=gpus, ready=not off)
    node = a_node(f"i-{number}", gpu_count=int(gpus))
    node = replace(node, state=NodeState.STOPPED, signal=NodeReport()) if off else node
    own = replace(node, capacity_type=CapacityType.OWN, launched_at=None, sight=Sight(), kubernetes=known)
    return replace(own, **other)  # type: ignore[arg-type]


def a_pod(name: str = "p", gpus: float = 8.0, **other: object) -> Pod:
    """A pod that the scheduler has found no node for."""
    return shown_pod(name, gpus=gpus, **{"unschedulable": WHY, **other})  # type: ignore[arg-type]


def seen(
    *nodes: Node, pods: tuple[Pod, ...] = (), lives: tuple[Life, ...] = (), trouble: str | None = None
) -> Observation:
    """These hosts, of which gpuwatch has switched off those that are off, and the pods that wait."""
    cluster = shown_cluster(*(node.kubernetes for node in nodes if node.kubernetes), pending=pods, trouble=trouble)
    stops = tuple(a_stop(node.id, at=NOW - timedelta(hours=1)) for node in nodes if node.state is NodeState.STOPPED)
    fleet = Fleet(observed_at=NOW, nodes=nodes, cluster=cluster)
    return Observation(now=NOW, fleet=fleet, ledger=LedgerView(stopped=stops), lives=lives)


def started(observation: Observation, rules: PoolRules = RULES) -> list[Step]:
    """The starts that are decided."""
    decision = resolve(observation, "default", propose(observation, "default", rules), rules)
    return [step for step in decision.steps if step.verb is Verb.START]


def names(observation: Observation, rules: PoolRules = RULES) -> list[str]:
    """The hosts that are to be started."""
    return [step.node_id for step in started(observation, rules)]


def test_a_pod_has_the_host_started_that_it_fits_and_the_reason_names_it() -> None:
    """Without any metric in the pool; the other host has too few GPUs, though it was stopped as late."""
    (step,) = started(seen(a_host(1, 1.0), a_host(2), pods=(a_pod(), a_pod("small", 1.0))[:1]))
    assert step.node_id == "i-2"
    assert step.reason.sentence == "The pod team/p waits for GPUs, and could run on it. It is started for that."
    assert step.arguments == {WOKEN_FOR: "team/p"}


@pytest.mark.parametrize(
    ("pods", "hosts"),
    [
        ((a_pod(), a_pod("q")), ["i-1", "i-2"]),
        ((a_pod(gpus=4.0), a_pod("q", 4.0)), ["i-1"]),
        ((a_pod(gpus=16.0),), []),
        ((a_pod(unschedulable=None),), []),
        ((a_pod(placement=Placement(selector={"zone": "elsewhere"})),), []),
        ((), []),
    ],
)
def test_as_many_hosts_as_the_pods_need(pods: tuple[Pod, ...], hosts: list[str]) -> None:
    """Two whole ones; two halves of one; one that no host has; one that the scheduler has not tried."""
    assert names(seen(a_host(1), a_host(2), a_host(3), pods=pods)) == hosts


def test_room_that_is_there_or_on_its_way_comes_first() -> None:
    """An idle host, or one that was started a minute ago."""
    for there in (a_host(2, off=False), a_host(2, off=False, launched_at=NOW - timedelta(minutes=1), kubernetes=None)):
        assert names(seen(a_host(1), there, pods=(a_pod(),))) == []


def test_what_nobody_knows_and_what_is_anothers_wakes_nothing() -> None:
    """A silent API server; a machine of a cloud, which `scaling.metrics` is for; a host that its owner switched off."""
    assert names(seen(a_host(1), pods=(a_pod(),), trouble="It is silent.")) == []
    assert names(seen(a_host(1, capacity_type=CapacityType.ON_DEMAND), pods=(a_pod(),))) == []
    foreign = replace(seen(a_host(1), pods=(a_pod(),)), ledger=LedgerView())
    assert names(foreign) == []


def test_a_pool_without_a_host_that_is_off_costs_a_round_nothing() -> None:
    """A cloud's thousands of nodes are not compared with thousands of pods: none of its nodes is woken for them."""
    clouds = [
        a_host(number, off=number < 5, capacity_type=CapacityType.ON_DEMAND, launched_at=NOW - timedelta(days=9))
        for number in range(40)
    ]
    found = seen(*clouds, pods=tuple(a_pod(f"p{number}", 8.0) for number in range(50)))
    resolve(found, "default", propose(found, "default", RULES), RULES)
    called = list[str]()
    before = sys.getprofile()
    sys.setprofile(lambda frame, *_: called.append(frame.f_code.co_name))
    try:
        resolve(found, "default", propose(found, "default", RULES), RULES)
    finally:
        sys.setprofile(before)
    assert "resolve" in called
    assert "takes" not in called


def test_a_pool_that_scales_by_pods_has_the_same_host_started_once() -> None:
    """The wish of its metric, and the host that the pod fits."""
    scales = replace(RULES, scaling=ScalingRules(metrics={"pods": Metric(signal="kubernetes_pending")}))
    found = seen(a_host(1, 1.0), a_host(2), a_host(3, off=False, kubernetes=None), pods=(a_pod(),))
    assert names(found, scales) == [], "the third may be on its way into the cluster"
    found = replace(found, watched={"i-3": 86400.0})
    assert names(found, scales) == ["i-2"]


def a_start(number: int, hours_ago: float, work: str = "team/p", **other: object) -> Life:
    """A start for a pod that was over so long ago, in vain unless told otherwise."""
    ended = NOW - timedelta(hours=hours_ago)
    asked = {STARTED: f"i-{number}", WOKEN_FOR: work}
    life = Life(
        key=f"k{hours_ago}", pool="default", at=ended - timedelta(hours=1), asked=asked, node_id=f"i-{number}",
        end=End.REMOVED, ended_at=ended, worked=False,
    )  # fmt: skip
    return replace(life, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lives", "hosts"),
    [
        ((a_start(1, 0.5),), []),
        ((a_start(1, 1.5),), ["i-1"]),
        ((a_start(1, 4.0), a_start(1, 1.5)), []),
        ((a_start(1, 4.0), a_start(1, 2.5)), ["i-1"]),
        ((a_start(1, 4.0), a_start(1, 0.5, worked=True)), ["i-1"]),
        ((a_start(1, 0.5, work="team/gone"),), ["i-1"]),
        ((a_start(2, 0.5),), []),
        ((a_start(1, 0.5, worked=None),), []),
        ((a_start(1, 0.5, end=End.STOPPED),), ["i-1"]),
    ],
    ids=["an hour", "over", "two: two hours", "over, too", "it worked", "that pod is gone", "of another host",
         "nobody looked all the time", "it stopped by itself: another rule's"],
)  # fmt: skip
def test_a_start_in_vain_rests_host_and_pod_ever_longer(lives: tuple[Life, ...], hosts: list[str]) -> None:
    """As long as the pod waits that it was for."""
    assert names(seen(a_host(1), pods=(a_pod(),), lives=lives)) == hosts


def test_hosts_that_were_started_together_for_one_job_were_in_vain_once() -> None:
    """Eight hosts of one job rest it for an hour after the last of them, as one would; eight times in a row do not."""
    together = tuple(
        a_start(number, 0.5 + number / 100, work="901", key=f"k{number}", at=NOW - timedelta(hours=2))
        for number in range(8)
    )
    found = seen(a_host(1))
    assert rests_of(replace(found, lives=together), {"901"}).work == {"901": NOW + timedelta(minutes=30)}
    still = replace(together[0], end=None, ended_at=None)
    left = rests_of(replace(found, lives=(still, *together[1:])), {"901"})
    assert left.work == {"901": NOW + timedelta(minutes=29.4)}, "one of them has not gone yet"
    assert rests_of(replace(found, lives=(still,)), {"901"}).work == {}
    before = tuple(a_start(number, 2.0 + 2 * number, work="901") for number in range(1, 3))
    rests = rests_of(replace(found, lives=(*together, *before)), {"901"})
    assert rests.work == {"901": NOW + timedelta(hours=3.5)}


def test_a_host_that_rests_leaves_the_pod_to_another_only_if_the_pod_does_not_rest() -> None:
    """Another pod's start was in vain here: this pod has the next host started."""
    found = seen(a_host(1), a_host(2), pods=(a_pod(), a_pod("q")), lives=(a_start(1, 0.5, work="team/q"),))
    assert names(found) == ["i-2"]
    rests = rests_of(found, {"team/p", "team/q"})
    assert "in vain before" in (rests.sentence("i-1", "team/p") or "")
    assert rests.sentence("i-2", "team/p") is None
