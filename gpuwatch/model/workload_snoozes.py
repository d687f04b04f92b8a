"""Orders of people that keep workloads, next to the annotations that do: of both, the later time counts.

It is apart from `gpuwatch.model.kubernetes`, which knows no orders.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from gpuwatch.model.kubernetes import KubernetesNode, Pod, cluster_prefix, is_workload, workload_id
from gpuwatch.model.orders import Snooze


def workloads_kept(orders: Iterable[Snooze]) -> dict[str, datetime]:
    """Return until when workloads are kept by these orders, by their ids."""
    return {each.node_id: each.until for each in orders if is_workload(each.node_id)}


def with_former_names(orders: Iterable[Snooze], clusters: Collection[str]) -> tuple[Snooze, ...]:
    """The orders; one about a workload of a cluster that has that name no more is one about each cluster there is.

    A cluster has another name once several are named. What its people kept stays kept, and a namesake may stay with it.
    """
    found = list[Snooze]()
    for each in orders:
        named = each.node_id.rsplit("/", 3) if is_workload(each.node_id) else []
        former = named and named[0] not in {cluster_prefix(name).rstrip("/") for name in clusters}
        names = [f"{cluster_prefix(name)}{'/'.join(named[1:])}" for name in clusters] if former else []
        found += [replace(each, node_id=name) for name in names] or [each]
    return tuple(found)


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
