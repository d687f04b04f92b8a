"""PURE: every call that gpuwatch makes of an API server, with the rights that each needs.

The chart's roles are made of this table and the tests hold them to it; `gpuwatch doctor` asks for each of them.
"""

from dataclasses import dataclass

NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What one role allows: verbs on a resource of a group ("" is the core's). `why` ends the sentence "… are …"."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    changes: bool = False
    subresource: str = ""
    foreign: bool = False  # a kind that a cluster may lack


_FOLLOW = ("get", "list", "watch")

# What a pod's owners are made of; kinds of other systems are added to the role where a cluster has them.
RIGHTS: tuple[Right, ...] = (
    Right(group="", resource="nodes", verbs=_FOLLOW, why="followed, and asked once more before a change"),
    Right(
        group="", resource="pods", verbs=("list", "watch"), why="followed: who holds GPUs, and what a drain would move"
    ),
    Right(group="", resource="namespaces", verbs=_FOLLOW, why="read for their annotations"),
    Right(group="", resource="replicationcontrollers", verbs=_FOLLOW, why="owners of pods"),
    Right(group="apps", resource="replicasets", verbs=_FOLLOW, why="owners of pods"),
    Right(group="apps", resource="deployments", verbs=_FOLLOW, why="owners of pods"),
    Right(group="apps", resource="statefulsets", verbs=_FOLLOW, why="owners of pods"),
    Right(group="batch", resource="jobs", verbs=_FOLLOW, why="owners of pods"),
    Right(group="batch", resource="cronjobs", verbs=_FOLLOW, why="owners of jobs"),
    Right(group="kubeflow.org", resource="notebooks", verbs=_FOLLOW, why="owners of pods", foreign=True),
    Right(group="ray.io", resource="rayclusters", verbs=_FOLLOW, why="owners of pods", foreign=True),
    Right(group="", resource="nodes", verbs=("patch",), why="cordoned and uncordoned", changes=True),
    Right(group="", resource="pods", subresource="eviction", verbs=("create",), why="evicted by a drain", changes=True),
)
