"""Which other system owns a machine on AWS, by the marks that such systems leave. Any doubt makes it theirs.

EC2's own word, the operator of a machine, is read in `instances.py`. A machine of Batch or ECS may have no tag at all:
its instance profile has the name that the service itself gives to it.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from gpuwatch.clouds.tags import Owners, owner_by, without_own_group

GROUP_TAG = "aws:autoscaling:groupName"
_STACK_TAGS = "aws:cloudformation:*"

# Tags by which other systems own a machine: pattern of the key, what owns it. The first match wins.
_OWNERS: Owners = (
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
    ("aws:gamelift:*", "GameLift"),
    ("Vendor=Databricks", "Databricks"),
    (GROUP_TAG, "Auto Scaling group"),
    ("aws:ec2spot:fleet-request-id", "spot fleet"),
    ("aws:ec2:fleet-id", "EC2 fleet"),
    ("aws:cloudformation:stack-name", "CloudFormation stack"),
)
# The instance profiles that services make for their machines, by name: what owns a machine with one.
_PROFILES: Owners = (
    ("eks-????????-????-????-????-????????????", "EKS"),  # of a managed node group
    ("KarpenterNodeInstanceProfile-*", "Karpenter"),
    ("KarpenterNodeRole-*", "Karpenter"),
    ("ecsInstanceRole*", "ECS or AWS Batch"),
    ("EMR_EC2_DefaultRole", "EMR"),
    ("aws-elasticbeanstalk-ec2-role", "Elastic Beanstalk"),
)
# What an Auto Scaling group itself leaves on its members: it may launch them through an EC2 fleet.
_OF_A_GROUP = frozenset({GROUP_TAG, "aws:ec2:fleet-id"})


def managed_by(tags: Mapping[str, str], *, group: Mapping[str, str] | None = None, profile: str = "") -> str | None:
    """Which other system owns a machine; None if none does.

    `group` are the tags of the Auto Scaling group that it is a member of, where the group's owner consents to gpuwatch.
    `profile` is the ARN of its instance profile.
    """
    own = tags if group is None else without_own_group(tags, group, left=_OF_A_GROUP, stack=_STACK_TAGS)
    name = profile.rpartition("/")[2]
    return owner_by(_OWNERS, own) or next((owner for pattern, owner in _PROFILES if fnmatchcase(name, pattern)), None)
