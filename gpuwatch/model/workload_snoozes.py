"""Orders of people that keep workloads, next to the annotations that do: of both, the later time counts.

It is apart from `gpuwatch.model.kubernetes`, which knows no orders.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from gpuwatch.model.kubernetes import KubernetesNode, Pod, is_workload, workload_id
from gpuwatch.model.orders import Snooze


def workloads_kept(orders: Iterable[Snooze]) -> dict[str, datetime]:
    """Return until when workloads are kept by these orders, by their ids."""
    return {each.node_id: each.until for each in orders if is_workload(each.node_id)}


def with_snoozes(node: KubernetesNode, orders: Iterable[Snooze]) -> KubernetesNode:
    """The node as decisions see it: of a workload's annotations and the order about it the later time counts."""
    until = workloads_kept(orders)
    if not until:
        return node
    return replace(
        node, pods=tuple(_with_snooze(pod, until.get(workload_id(node.cluster, pod.workload))) for pod in node.pods)
    )


def _with_snooze(pod: Pod, until: datetime | None) -> Pod:
    """One pod, with its workload snoozed at least until then."""
    annotated = pod.workload.snoozed_until
    if until is None or (annotated is not None and annotated >= until):
        return pod
    return replace(pod, workload=replace(pod.workload, snoozed_until=until))
