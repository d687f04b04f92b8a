"""A Kubernetes cluster on the fleet's board: GPUs that are requested and what is done with them."""

from dashboards.source.boards import node_link
from dashboards.source.currency import MONEY
from dashboards.source.parts import COLOURS, ORANGE, Column, Query, Row, coloured, override, series, table
from dashboards.source.queries import IN_POOL, differs, led, told

_NO_USE = differs("use", "useful")
_POD = "kube_cluster, pool, node, namespace, pod, kind, workload, owner, activity"


def _colour(name: str, colour: str) -> dict[str, object]:
    return override(name, color={"fixedColor": colour, "mode": "fixed"})


KUBERNETES = Row(
    title="Kubernetes",
    panels=[
        series(
            "GPUs offered, requested, waited for",
            "GPUs that the nodes' device plugins offer, that pods request, and that pending pods want. A request says "
            "nothing about use.",
            [
                Query(expr=f"sum({led('kube_allocatable_gpus', IN_POOL)})", legend="offered"),
                Query(expr=f"sum({led('kube_requested_gpus', IN_POOL)})", legend="requested"),
                Query(expr=f"sum({led('kube_pending_gpus', IN_POOL)})", legend="waited for"),
            ],
            "none",
            overrides=[_colour("requested", COLOURS["busy"]), _colour("waited for", ORANGE)],
            width=8,
            decimals=0,
        ),
        series(
            "Pods with GPUs by what they do",
            "Pods that hold GPUs, as their nodes' agents report it. Unknown: the agent does not know which pod has "
            "which GPU, or says nothing.",
            [Query(expr=f"sum by (activity) ({led('kube_gpu_pods', IN_POOL)})", legend="{{activity}}")],
            "none",
            stacked=True,
            overrides=coloured(),
            width=8,
            decimals=0,
        ),
        series(
            "Cost of requested GPUs by namespace",
            "What the GPUs cost that each namespace's pods request, used or not.",
            [Query(expr=f"sum by (namespace) ({led('kube_gpu_pods_usd_per_hour', IN_POOL)})", legend="{{namespace}}")],
            MONEY,
            stacked=True,
            width=8,
        ),
        series(
            "Workloads with a notice, and refused ones",
            "A workload with a notice loses its pods at the announced time unless it is used or kept. The others are "
            "those that the guard refuses to notice or to end, by rule.",
            [
                Query(expr=f"sum({led('kube_noticed_workloads', IN_POOL)})", legend="with a notice"),
                Query(expr=f"sum by (rule) ({led('kube_refused_workloads', IN_POOL)})", legend="{{rule}}"),
            ],
            "none",
            overrides=[_colour("with a notice", ORANGE)],
            width=12,
            decimals=0,
        ),
        series(
            "GPUs given back",
            "GPUs of the pods that were ended within each step of the graph, by pool.",
            [
                Query(
                    expr=f"sum by (pool) (increase({told('kube_released_gpus_total', IN_POOL)}[$__rate_interval]))",
                    legend="{{pool}}",
                )
            ],
            "none",
            width=12,
            decimals=0,
        ),
        table(
            "Cost by namespace, requested and used",
            "What was billed within the time range for GPUs that a namespace's pods request, and the part of it in "
            "which these GPUs were of no use. (unallocated): no pod requests them.",
            [
                f"sum by (namespace) (increase({told('kube_billed_usd_total', IN_POOL)}[$__range])) > 0",
                f"sum by (namespace) (increase({told('kube_billed_usd_total', IN_POOL, _NO_USE)}[$__range]))",
                f"sum by (namespace) (increase({told('kube_billed_gpu_seconds_total', IN_POOL)}[$__range]))",
            ],
            [
                Column(source="namespace", title="Namespace"),
                Column(source="Value #A", title="Cost", unit=MONEY),
                Column(source="Value #B", title="Of no use", unit=MONEY),
                Column(source="Value #C", title="GPU time", unit="s"),
            ],
            width=24,
            sort="Cost",
        ),
        table(
            "Pods that hold GPUs without use",
            "Idle, parked or stalled for an hour and more; those that cost most first.",
            [
                f"max by ({_POD}) ({led('kube_unused_pod_seconds', IN_POOL)})",
                f"max by ({_POD}) ({led('kube_unused_pod_usd_per_hour', IN_POOL)})",
            ],
            [
                Column(source="namespace", title="Namespace"),
                Column(source="pod", title="Pod"),
                Column(source="kind", title="Kind"),
                Column(source="workload", title="Workload"),
                Column(source="owner", title="Owner"),
                Column(source="node", title="Machine", properties=node_link()),
                Column(source="activity", title="Activity"),
                Column(source="Value #A", title="For", unit="s"),
                Column(source="Value #B", title="Per hour", unit=MONEY),
            ],
            width=24,
            sort="Per hour",
        ),
    ],
)
