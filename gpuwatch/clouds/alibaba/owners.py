"""Which other system owns a machine on Alibaba Cloud, by tags and by names. Any doubt makes it theirs."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from gpuwatch.clouds.tags import Owners, owner_by, without_own_group

GROUP_TAG = "acs:autoscaling:scalingGroupId"
_STACK_TAG = "acs:ros:*"

# Tags that Alibaba's own services set and that say nothing of an owner: resource groups, who made it.
_HARMLESS = ("acs:rm:*", "acs:tag:*", "acs:ecs:supportVtpm")
# Tags by which other systems own a machine: pattern of the key, what owns it. The first match wins.
_OWNERS: Owners = (
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


# How Container Service (ACK) names a node; the cluster's id ends the name, or another mark follows it.
_OF_ACK = re.compile(r".*k8s-for-cs-(?P<cluster>[0-9a-z]+)?")


def managed_by(tags: Mapping[str, str], *, name: str = "", group: Mapping[str, str] | None = None) -> str | None:
    """Which other system owns a machine; None if none does.

    `name` is its own. `group` are the tags of the scaling group that it is a member of, where the group's owner
    consents to gpuwatch.
    """
    own = tags if group is None else without_own_group(tags, group, left=frozenset({GROUP_TAG}), stack=_STACK_TAG)
    tagged = owner_by(_OWNERS, own, lambda key: any(fnmatchcase(key, each) for each in _HARMLESS))
    named = _OF_ACK.match(name)
    if named is not None and (tagged is None or tagged.startswith("Auto Scaling")):
        return f"Container Service (ACK) cluster {named['cluster'] or ''}".strip()
    return tagged
