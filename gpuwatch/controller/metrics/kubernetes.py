"""Metrics of a Kubernetes cluster as the last round saw it: GPUs requested and used, pods that wait, and silence.

A cluster that is not configured has no series.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal

from gpuwatch.controller.context import Round
from gpuwatch.controller.metrics.state import ROUND, MetricsState, Series, Value, counter, gauge
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode
from gpuwatch.money.accounting.totals import Row, by_use, totals
from gpuwatch.policies.kubernetes import pending_pods, pod_use
from gpuwatch.policies.kubernetes.idle_pods import GPUS, HOW
from gpuwatch.policies.kubernetes.pod_use import PodUse
from gpuwatch.policies.kubernetes.workload_words import workload_of_id


def count_billed(state: MetricsState, held: Iterable[Row]) -> None:
    """Add what one round has billed of a cluster's nodes, by who held their GPUs."""
    for labels, total in totals(held, _held_by).items():
        for use, seconds, usd in by_use(total):
            if seconds:
                state.count("kube_billed_gpu_seconds", (*labels, use), seconds)
            if usd:
                state.count("kube_billed_usd", (*labels, use), usd)


def _held_by(row: Row) -> tuple[str, str, str]:
    holder = row.holder
    return ("", row.terms.pool, "") if holder is None else (holder.cluster, row.terms.pool, holder.namespace)


def _of_cluster(value: Callable[[ClusterView], float]) -> Series:
    """One number of the whole."""

    def series(state: MetricsState) -> Iterator[Value]:
        view = None if state.observation is None else state.observation.fleet.cluster
        for each in () if view is None else view.each:
            yield (each.name,), value(each)

    return series


def _joined_nodes(state: MetricsState) -> Iterator[tuple[Node, KubernetesNode]]:
    """The machines that are nodes."""
    for node in () if state.observation is None else state.observation.fleet.nodes:
        if node.kubernetes is not None:
            yield node, node.kubernetes


def _by_pool(value: Callable[[KubernetesNode], float]) -> Series:
    """Sums over a pool's nodes."""

    def series(state: MetricsState) -> Iterator[Value]:
        sums: dict[tuple[str, ...], float] = {}
        for node, known in _joined_nodes(state):
            key = (known.cluster, node.pool)
            sums[key] = sums.get(key, 0.0) + value(known)
        yield from sorted(sums.items())

    return series


def _uses(state: MetricsState) -> Iterator[PodUse]:
    return iter(()) if state.observation is None else pod_use.uses(state.observation)


def _pods(state: MetricsState) -> Iterator[Value]:
    """How many pods hold GPUs, by what they do with them."""
    counts: dict[tuple[str, ...], float] = {}
    for each in _uses(state):
        key = (_cluster(each), each.node.pool, each.pod.namespace, each.state.value)
        counts[key] = counts.get(key, 0.0) + 1.0
    yield from sorted(counts.items())


def _unused_series(value: Callable[[PodUse], float | None], *, money: bool = False) -> Series:
    """One series for each pod that is reported; of money, where its machine counts."""

    def series(state: MetricsState) -> Iterator[Value]:
        for each in () if state.observation is None else pod_use.unused_pods(state.observation):
            number = None if money and each.node.id in state.uncounted else value(each)
            if number is not None:
                workload = each.pod.workload
                labels = (_cluster(each), each.node.pool, each.node.id, each.pod.namespace, each.pod.name)
                yield (*labels, workload.kind, workload.name, workload.owner or "", each.state.value), number

    return series


def _spending(state: MetricsState) -> Iterator[Value]:
    """What requested GPUs cost now, by namespace and by what is done with them."""
    sums: dict[tuple[str, ...], Decimal] = {}
    for each in _uses(state):
        if each.usd_per_hour is not None and each.node.id not in state.uncounted:
            key = (_cluster(each), each.node.pool, each.pod.namespace, each.state.value)
            sums[key] = sums.get(key, Decimal(0)) + each.usd_per_hour
    yield from ((key, float(usd)) for key, usd in sorted(sums.items()))


def _waiting(state: MetricsState) -> Iterator[Value]:
    """GPUs that pending pods want, by pool; those that fit no pool stand apart."""
    seen = state.observation
    view = None if seen is None else seen.fleet.cluster
    if seen is None or view is None:
        return
    fitting: set[str] = set()
    sums = {(each.name, ""): 0.0 for each in view.each}
    for pool in seen.fleet.pools:
        if pending_pods.is_demand_known(seen.fleet, pool):
            pods = pending_pods.waiting(seen.fleet, pool)
            fitting |= {pod.uid for pod in pods}
            for home in sorted(pending_pods.homes(seen.fleet, pool)) if view.parts else (view.name,):
                sums[home, pool] = 0.0
            for pod in pods:
                sums[view.home_of_pending[pod.uid], pool] += pod.gpus
    for pod in view.pending:
        if pod.uid not in fitting:
            sums[view.home_of_pending[pod.uid], ""] += pod.gpus
    yield from sums.items()


def _unjoined_values(state: MetricsState) -> Iterator[Value]:
    view = None if state.observation is None else state.observation.fleet.cluster
    if view is not None:
        joined = {known.name for _, known in _joined_nodes(state)}
        lost = [each for each in view.nodes if each.gpus is not None and each.name not in joined]
        for part in view.each:
            yield (part.name,), float(sum(not view.parts or each.cluster == part.name for each in lost))


def _cluster(each: PodUse) -> str:
    return "" if each.node.kubernetes is None else each.node.kubernetes.cluster


def _noticed_values(state: MetricsState) -> Iterator[Value]:
    """Workloads with a notice in force, by the pool that it was given for."""
    seen = state.observation
    found: Counter[tuple[str, ...]] = Counter()
    for each in () if seen is None else seen.ledger.notices:
        name = workload_of_id(each.node_id)
        if name is not None and each.promise is not None:
            found[name.cluster, each.promise.pool] += 1
    yield from sorted((key, float(count)) for key, count in found.items())


def _refused_values(state: MetricsState) -> Iterator[Value]:
    """Workloads by each rule that refused their notice or end; several rules may refuse the same one."""
    found: Counter[tuple[str, ...]] = Counter()
    for review in () if state.last is None else state.last.reviews:
        name = workload_of_id(review.step.node_id)
        if name is not None and review.step.verb in {Verb.NOTICE, Verb.RELEASE}:
            found.update((name.cluster, review.pool, answer.rule) for answer in review.refusals)
    yield from sorted((key, float(count)) for key, count in found.items())


def count(state: MetricsState, done: Round) -> None:
    """Count the ends of pods that this round has carried out."""
    costs = {each.use.id: each.use.usd_per_hour for each in done.workloads}
    for act in done.acts:
        step, name = act.review.step, workload_of_id(act.review.step.node_id)
        if name is None or step.verb is not Verb.RELEASE or act.outcome.status not in _CARRIED_OUT:
            continue
        labels = (name.cluster, act.review.pool)
        state.count("kube_released_workloads", (*labels, step.arguments[HOW]))
        state.count("kube_released_gpus", labels, float(step.arguments[GPUS]))
        state.count("kube_released_usd_per_hour", labels, float(costs.get(step.node_id) or 0))


_CARRIED_OUT = frozenset({Status.ACCEPTED, Status.SETTLED})
_POD = ("kube_cluster", "pool", "node", "namespace", "pod", "kind", "workload", "owner", "activity")

FAMILIES = (
    gauge(
        "kube_up",
        ("kube_cluster",),
        "1 if the view of the cluster's API server is reliable, 0 if not: then none of its nodes is removed.",
        ROUND,
        _of_cluster(lambda view: float(view.trouble is None)),
    ),
    gauge(
        "kube_silence_seconds",
        ("kube_cluster",),
        "How long ago the cluster's API server was heard on nodes, pods, namespaces and owners, the longest of these.",
        ROUND,
        _of_cluster(lambda view: view.silent_seconds),
    ),
    gauge(
        "kube_unjoined_nodes",
        ("kube_cluster",),
        "Node objects with GPUs that are no machine of the fleet, or that do not fit machines one to one.",
        ROUND,
        _unjoined_values,
    ),
    gauge(
        "kube_allocatable_gpus",
        ("kube_cluster", "pool"),
        "GPUs that the device plugins of a pool's nodes offer.",
        ROUND,
        _by_pool(lambda node: node.gpus or 0.0),
    ),
    gauge(
        "kube_requested_gpus",
        ("kube_cluster", "pool"),
        "GPUs that pods on a pool's nodes request; a request says nothing about use.",
        ROUND,
        _by_pool(lambda node: node.requested_gpus),
    ),
    gauge(
        "kube_pending_gpus",
        ("kube_cluster", "pool"),
        "GPUs that pending pods want which could run in the pool; in several, each counts them. Without pool: in none.",
        ROUND,
        _waiting,
    ),
    gauge(
        "kube_cordoned_nodes",
        ("kube_cluster", "pool"),
        "Nodes of a pool that take no new pods, by any cordon.",
        ROUND,
        _by_pool(lambda node: float(node.unschedulable)),
    ),
    gauge(
        "kube_gpu_pods",
        ("kube_cluster", "pool", "namespace", "activity"),
        "Pods that hold GPUs, by what their nodes' agents say of these GPUs.",
        ROUND,
        _pods,
    ),
    gauge(
        "kube_gpu_pods_usd_per_hour",
        ("kube_cluster", "pool", "namespace", "activity"),
        "What the GPUs cost that a namespace's pods request, by what is done with them.",
        ROUND,
        _spending,
    ),
    counter(
        "kube_billed_gpu_seconds_total",
        ("kube_cluster", "pool", "namespace", "use"),
        "Time for which a cluster's GPUs were billed, by the namespace that requests them, and by what they did.",
        "ledger",
    ),
    counter(
        "kube_billed_usd_total",
        ("kube_cluster", "pool", "namespace", "use"),
        "What that cost (`gpuwatch cost --by namespace`); namespace (unallocated): no pod requests them.",
        "ledger",
    ),
    gauge(
        "kube_unused_pod_seconds",
        _POD,
        "How long a pod has held GPUs without use: idle, parked or stalled for an hour and more.",
        ROUND,
        _unused_series(lambda each: each.held_seconds),
    ),
    gauge(
        "kube_unused_pod_usd_per_hour",
        _POD,
        "What such a pod's GPUs cost.",
        ROUND,
        _unused_series(lambda each: None if each.usd_per_hour is None else float(each.usd_per_hour), money=True),
    ),
    gauge(
        "kube_noticed_workloads",
        ("kube_cluster", "pool"),
        "Workloads with a notice in force: their pods are ended at its time unless they are used or kept.",
        ROUND,
        _noticed_values,
    ),
    gauge(
        "kube_refused_workloads",
        ("kube_cluster", "pool", "rule"),
        "Workloads that a rule of the guard refused to notice or to end.",
        ROUND,
        _refused_values,
    ),
    counter(
        "kube_released_workloads_total",
        ("kube_cluster", "pool", "how"),
        "Workloads that lost their pods to gpuwatch, by what their people had annotated.",
        "the controller's own count",
    ),
    counter(
        "kube_released_gpus_total",
        ("kube_cluster", "pool"),
        "GPUs that these pods held.",
        "the controller's own count",
    ),
    counter(
        "kube_released_usd_per_hour_total",
        ("kube_cluster", "pool"),
        "What an hour of these GPUs cost, added up; saved is what of it ends with their nodes, or serves others.",
        "the controller's own count",
    ),
)
