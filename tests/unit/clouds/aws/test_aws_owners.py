"""Which other system owns a machine on AWS, and whose stop it was, by what EC2 shows."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.clouds.aws.instances import _last_stop
from gpuwatch.clouds.aws.owners import managed_by
from gpuwatch.model.fleet import NodeState

_PROFILE = "arn:aws:iam::123456789012:instance-profile"


@pytest.mark.parametrize(
    ("tags", "profile", "owner"),
    [
        ({}, "", None),
        ({}, f"{_PROFILE}/gpuwatch-node", None),
        ({}, f"{_PROFILE}/ecsInstanceRole", "ECS or AWS Batch"),
        ({}, f"{_PROFILE}/eks-8ac2f3c4-4f7e-7f0e-8d0e-a1b2c3d4e5f6", "EKS"),
        ({}, f"{_PROFILE}/EMR_EC2_DefaultRole", "EMR"),
        ({}, f"{_PROFILE}/aws-elasticbeanstalk-ec2-role", "Elastic Beanstalk"),
        ({"Vendor": "Databricks"}, "", "Databricks"),
        ({"Vendor": "Supermicro"}, "", None),
        ({"AWSBatchServiceTag": "batch"}, f"{_PROFILE}/ecsInstanceRole", "AWS Batch batch"),
        ({"parallelcluster:cluster-name": "hpc"}, "", "ParallelCluster hpc"),
        ({"elasticbeanstalk:environment-id": "e-1"}, "", "Elastic Beanstalk e-1"),
        ({"aws:ec2spot:fleet-request-id": "sfr-1"}, "", "spot fleet sfr-1"),
        ({"aws:ec2:fleet-id": "fleet-1"}, "", "EC2 fleet fleet-1"),
    ],
)
def test_each_service_is_known_by_its_marks(tags: dict[str, str], profile: str, owner: str | None) -> None:
    """A machine of Batch may have no tag at all."""
    assert managed_by(tags, profile=profile) == owner


AT = datetime(2026, 10, 4, 14, 13, 33, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "code", "at", "other"),
    [
        ("User initiated (2026-10-04 14:13:33 GMT)", "Client.UserInitiatedShutdown", AT, ""),
        ("User initiated (2026-10-04 14:13:33 GMT)", "", AT, ""),
        ("User initiated", "Client.UserInitiatedShutdown", None, ""),
        ("", "", None, ""),
        ("Service initiated (2026-10-04 14:13:33 GMT)", "", AT, "Service initiated"),
        ("Service initiated (2026-10-04 14:13:33 GMT)", "Client.UserInitiatedShutdown", AT, "Service initiated"),
        ("Server.SpotInstanceShutdown: Instance stopped due to interruption", "", None, "Server.SpotInstanceShutdown"),
        ("User initiated (2026-10-04 14:13:33 GMT)", "Client.InstanceInitiatedShutdown", AT, "InstanceInitiated"),
        ("", "Server.ScheduledStop", None, "Server.ScheduledStop"),
        ("", "Server.InternalError", None, "Server.InternalError"),
    ],
)
def test_a_stop_can_be_ours_only_where_a_user_initiated_it(
    words: str, code: str, at: datetime | None, other: str
) -> None:
    """A service's stop at the time of a call of ours is that service's (P24)."""
    described: Any = {"StateTransitionReason": words, **({"StateReason": {"Code": code}} if code else {})}
    found = _last_stop(described, NodeState.STOPPED)

    assert found is not None
    assert found.at == at
    assert (found.other is None) == (not other)
    assert other in (found.other or "")
