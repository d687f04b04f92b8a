"""Which other system owns a machine on Alibaba Cloud, by the tags that systems leave. Any doubt makes it theirs."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

GROUP_TAG = "acs:autoscaling:scalingGroupId"
_STACK_TAG = "acs:ros:*"

# Tags that Alibaba's own services set and that say nothing of an owner: resource groups, who made it.
_HARMLESS = ("acs:rm:*", "acs:tag:*", "acs:ecs:supportVtpm")
# Tags by which other systems own a machine: pattern of the key, what owns it. The first match wins.
_OWNERS: tuple[tuple[str, str], ...] = (
    ("ack.aliyun.com", "Container Service (ACK) cluster"),
    ("ack.alibabacloud.com/*", "Container Service (ACK)"),
    ("alibabacloud.com/nodepool-id", "Container Service (ACK) node pool"),
    ("kubernetes.io/cluster/*", "Kubernetes cluster"),
    ("k8s.io/cluster-autoscaler/*", "cluster autoscaler"),
    ("k8s.aliyun.com*", "cluster autoscaler"),
    ("karpenter.*", "Karpenter"),
    ("acs:emr:*", "EMR"),
    ("emr:*", "EMR"),
    ("ehpc*", "E-HPC"),
    ("acs:pai:*", "PAI"),
    ("ray-cluster-name", "Ray cluster"),
    (GROUP_TAG, "Auto Scaling group"),
    (_STACK_TAG, "ROS stack"),
    ("acs:*", "an Alibaba Cloud service"),
)


def managed_by(tags: Mapping[str, str], *, group: Mapping[str, str] | None = None) -> str | None:
    """Which other system owns a machine; None if none does.

    `group` are the tags of the scaling group that it is a member of, where the group's owner consents to gpuwatch: then
    the group is no foreign owner, nor is the stack that made the group. A system that drives the group (ACK, E-HPC, a
    cluster autoscaler) is one: the consent of the group's owner does not overrule it.
    """
    if group is not None:
        tags = {key: tags[key] for key in tags if key != GROUP_TAG and not _inherited(key, tags, group)}
        tags |= {key: group[key] for key in group if not fnmatchcase(key, _STACK_TAG)}
    for pattern, owner in _OWNERS:
        for key in sorted(tags):
            if fnmatchcase(key, pattern) and not any(fnmatchcase(key, each) for each in _HARMLESS):
                name = key.removeprefix("kubernetes.io/cluster/") if pattern == "kubernetes.io/cluster/*" else tags[key]
                return f"{owner} {name}".strip()
    return None


def _inherited(key: str, tags: Mapping[str, str], group: Mapping[str, str]) -> bool:
    """Whether a stack's tag came to the machine with its group's."""
    return fnmatchcase(key, _STACK_TAG) and group.get(key) == tags[key]
