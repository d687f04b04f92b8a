"""Which other system owns a machine on AWS, by the tags that such systems leave. Any doubt makes it theirs."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

GROUP_TAG = "aws:autoscaling:groupName"
_STACK_TAGS = "aws:cloudformation:"

# Tags by which other systems own a machine: pattern of the key, what owns it. The first match wins.
_OWNERS: tuple[tuple[str, str], ...] = (
    ("aws:eks:cluster-name", "EKS cluster"),
    ("eks:cluster-name", "EKS cluster"),
    ("aws:eks:*", "EKS"),
    ("eks:*", "EKS"),
    ("kubernetes.io/cluster/*", "Kubernetes cluster"),
    ("k8s.io/cluster-autoscaler/*", "cluster autoscaler"),
    ("karpenter.sh/nodepool", "Karpenter node pool"),
    ("karpenter.*", "Karpenter"),
    ("AWSBatchServiceTag", "AWS Batch"),
    ("aws:batch:*", "AWS Batch"),
    ("AmazonECSManaged", "ECS"),
    ("aws:ecs:*", "ECS"),
    ("aws:elasticmapreduce:*", "EMR"),
    ("sagemaker:*", "SageMaker"),
    ("aws:sagemaker:*", "SageMaker"),
    ("parallelcluster:*", "ParallelCluster"),
    ("aws:pcs:*", "Parallel Computing Service"),
    ("ray-cluster-name", "Ray cluster"),
    ("elasticbeanstalk:*", "Elastic Beanstalk"),
    (GROUP_TAG, "Auto Scaling group"),
    ("aws:ec2spot:fleet-request-id", "spot fleet"),
    ("aws:ec2:fleet-id", "EC2 fleet"),
    ("aws:cloudformation:stack-name", "CloudFormation stack"),
)
# What an Auto Scaling group itself leaves on its members: it may launch them through an EC2 fleet.
_OF_A_GROUP = frozenset({GROUP_TAG, "aws:ec2:fleet-id"})


def managed_by(tags: Mapping[str, str], *, group: Mapping[str, str] | None = None) -> str | None:
    """Which other system owns a machine; None if none does.

    `group` are the tags of the Auto Scaling group that it is a member of, where the group's owner consents to gpuwatch:
    then the group is no foreign owner, nor is the stack that made the group. A stack that made the machine itself is
    a foreign owner, and so is a system that drives the group (EKS, Batch, ECS, a cluster autoscaler): the consent of
    the group's owner does not overrule them.
    """
    if group is not None:
        tags = {key: tags[key] for key in tags if key not in _OF_A_GROUP and not _inherited(key, tags, group)}
        tags |= {key: group[key] for key in group if not key.startswith(_STACK_TAGS)}
    for pattern, owner in _OWNERS:
        for key in sorted(tags):
            if fnmatchcase(key, pattern):
                name = key.removeprefix("kubernetes.io/cluster/") if pattern == "kubernetes.io/cluster/*" else tags[key]
                return f"{owner} {name}".strip()
    return None


def _inherited(key: str, tags: Mapping[str, str], group: Mapping[str, str]) -> bool:
    """Whether a stack's tag came to the machine with its group's."""
    return key.startswith(_STACK_TAGS) and group.get(key) == tags[key]
