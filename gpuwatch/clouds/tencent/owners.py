"""Which other system owns a machine on Tencent Cloud, by the tags that it leaves. Any doubt makes it theirs."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from gpuwatch.clouds.tags import Owners, owner_by

GROUP_TAG = "tencentcloud:autoscaling:auto-scaling-group-id"  # which Auto Scaling leaves on the machines it makes

# Tags by which other systems own a machine: pattern of the key, what owns it. The first match wins.
_OWNERS: Owners = (
    ("tke-clusterId", "TKE cluster"),
    ("tke-*", "TKE"),
    ("tke.cloud.tencent.com/*", "TKE"),
    ("tencentcloud:tke:*", "TKE"),
    ("kubernetes.io/cluster/*", "Kubernetes cluster"),
    ("k8s.io/cluster-autoscaler/*", "cluster autoscaler"),
    ("karpenter.*", "Karpenter"),
    ("emr-*", "EMR"),
    ("tencentcloud:emr:*", "EMR"),
    ("tencentcloud:batch:*", "Batch Compute"),
    ("tencentcloud:thpc:*", "THPC cluster"),
    ("ray-cluster-name", "Ray cluster"),
    ("tencentcloud:autoscaling:*", "Auto Scaling group"),
    ("tencentcloud:*", "a service of Tencent Cloud"),  # the prefix is kept for its own services
)
_OF_A_GROUP = "tencentcloud:autoscaling:*"


def managed_by(tags: Mapping[str, str], *, in_own_group: bool = False) -> str | None:
    """Which other system owns a machine or a group; None if none does.

    `in_own_group`: it is an Auto Scaling group with consent for gpuwatch, or a member of one. Then
    the group is no foreign owner; a system that drives the group (TKE, EMR) still is one.
    """
    return owner_by(_OWNERS, tags, lambda key: in_own_group and fnmatchcase(key, _OF_A_GROUP))
