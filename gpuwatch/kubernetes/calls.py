"""PURE: every call that gpuwatch makes of an API server, with the rights that each needs.

The chart's roles are made of this table and the tests hold them to it; `gpuwatch doctor` asks for each of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuwatch.model.workload_kinds import KINDS, WorkloadKind

NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"
DISRUPTION_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
VOLUMES, CLAIMS = "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
# By which annotation of a node each other autoscaler leaves it alone.
MARKS = {"cluster-autoscaler": SCALE_DOWN_DISABLED, "karpenter": DO_NOT_DISRUPT}


# What a controller does with a cluster: each beyond the first is a switch of its own in the chart.
Use = Literal["observe", "nodes", "workloads", "bare-pods"]
IN_NAMESPACES: frozenset[Use] = frozenset({"workloads", "bare-pods"})  # a role in each that is named; others: in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What one role allows: verbs on a resource of a group ("" is the core's). `why` ends the sentence "… are …".

    `use` is what it is needed for.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    use: Use = "observe"
    subresource: str = ""
    foreign: bool = False  # a kind that a cluster may lack


def _ends(kind: WorkloadKind) -> Iterator[tuple[str, str]]:
    """What is patched to end its pods: a subresource, "" for the object itself, and why."""
    if not kind.scaled:
        yield "", f"{'suspended' if kind.suspend else 'stopped'}, after a notice"
        return
    yield "", "marked with the notice"
    yield "scale", "scaled to zero, after a notice"


_FOLLOW = ("get", "list", "watch")

# What a pod's owners are made of; a cluster may lack kinds of other systems, and may have others.
RIGHTS: tuple[Right, ...] = (
    Right(group="", resource="nodes", verbs=_FOLLOW, why="followed, and asked once more before a change"),
    Right(
        group="", resource="pods", verbs=("list", "watch"), why="followed: who holds GPUs, and what a drain would move"
    ),
    Right(group="", resource="namespaces", verbs=_FOLLOW, why="read for their annotations"),
    *(
        Right(
            group=each.group,
            resource=each.resource,
            verbs=_FOLLOW,
            why="owners of pods",
            foreign=each.by != "Kubernetes",
        )
        for each in KINDS
    ),
    Right(
        group="kueue.x-k8s.io",
        resource="workloads",
        verbs=("list", "watch"),
        why="followed: the jobs that wait in Kueue's queues, for which nodes are kept",
        foreign=True,
    ),
    *(
        Right(
            group="resource.k8s.io",
            resource=kind,
            verbs=("list", "watch"),
            why="followed: which GPUs pods claim, and nodes offer",
            foreign=True,
        )
        for kind in ("resourceclaims", "deviceclasses", "resourceslices", "devicetaintrules")
    ),
    Right(
        group="policy",
        resource="poddisruptionbudgets",
        verbs=("list", "watch"),
        why="followed: which of them would refuse an eviction",
    ),
    *(
        Right(
            group="",
            resource=resource,
            verbs=("list", "watch"),
            why="followed: which nodes have data on their disks; without it none is emptied",
        )
        for resource in ("persistentvolumes", "persistentvolumeclaims")
    ),
    Right(
        group="longhorn.io",
        resource="replicas",
        verbs=("list", "watch"),
        why="followed: which nodes have replicas of Longhorn's volumes on their disks",
        foreign=True,
    ),
    Right(
        group="discovery.k8s.io",
        resource="endpointslices",
        verbs=("list", "watch"),
        why="followed: which nodes serve the cluster's API; without it none is emptied",
    ),
    *(
        Right(
            group="storage.k8s.io",
            resource=resource,
            verbs=("list", "watch"),
            why="followed: how many volumes each node takes, and which are attached to it",
        )
        for resource in ("csinodes", "volumeattachments")
    ),
    Right(group="", resource="nodes", verbs=("patch",), why="cordoned, tainted, marked, and given back", use="nodes"),
    Right(group="", resource="pods", subresource="eviction", verbs=("create",), why="evicted by a drain", use="nodes"),
    *(
        Right(
            group=each.group,
            resource=each.resource,
            subresource=part,
            verbs=("patch",),
            why=why,
            use="workloads",
            foreign=each.by != "Kubernetes",
        )
        for each in KINDS
        if each.actions
        for part, why in _ends(each)
    ),
    Right(group="", resource="events", verbs=("create",), why="created with each notice", use="workloads"),
    Right(
        group="",
        resource="pods",
        subresource="eviction",
        verbs=("create",),
        why="evicted where a workload says delete",
        use="workloads",
    ),
    Right(
        group="",
        resource="pods",
        verbs=("get", "patch"),
        why="marked with the notice, where nothing owns them",
        use="bare-pods",
    ),
)
