"""Pods that wait for GPUs bring nodes in a whole round: seen in the cluster, decided, allowed, launched, once."""

from dataclasses import replace
from datetime import timedelta

from gpuwatch.controller.round import step
from gpuwatch.model.decision import Status, Verb
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.builders.kubernetes_views import Shown, shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_price

RULES = PoolRules(
    min_nodes=1,
    max_nodes=3,
    scaling=ScalingRules(metrics={"pods": Metric(signal="kubernetes_pending")}, max_out=8, cooldown_out=0.0),
    launch=LaunchRules(template="lt-1", instance_type="g6.xlarge"),
)


def test_waiting_pods_bring_nodes_within_the_pool_s_limits() -> None:
    """Four pods of a whole node each: two nodes come, for three are the most; the next round asks for none again."""
    desk = Desk(rules=RULES, prices={"g6.xlarge": a_price("8")})
    desk.fleet.put(replace(a_node("i-1", gpu_count=8), launched_at=NOW - timedelta(days=1)))
    waiting = tuple(shown_pod(f"p{number}", gpus=8.0, unschedulable="0/1 nodes: Insufficient.") for number in range(4))
    busy = shown_node("gpu-1", "i-1", shown_pod("works", "gpu-1", gpus=8.0))
    parts = replace(desk.parts, cluster=Shown(shown_cluster(busy, pending=waiting)))

    first, second = step(parts), step(parts)

    launched = [act for act in first.acts if act.review.step.verb is Verb.LAUNCH]
    assert [act.outcome.status for act in launched] == [Status.ACCEPTED, Status.ACCEPTED]
    assert any(
        "4 pods (team/p0, team/p1 and 2 more) wait for 32 GPUs" in each.reason.sentence for each in first.proposals
    )
    assert [act for act in second.acts if act.review.step.verb is Verb.LAUNCH] == []
