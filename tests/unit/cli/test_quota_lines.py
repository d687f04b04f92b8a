"""What `gpuwatch status` says of the account's limits, beneath the table."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuwatch.cli.quotas import ask_clouds
from gpuwatch.clouds import AuthFailedError, Cloud, CloudError, CloudUnavailableError
from gpuwatch.clouds.permissions import Quota
from gpuwatch.clouds.several import SeveralClouds
from gpuwatch.controller.timings import Timings, time_calls
from gpuwatch.runtime.clock import ManualClock


def a_quota(limit: float, used: float | None, **more: Any) -> Quota:  # noqa: ANN401  any field
    """Of P machines."""
    fields = {"name": "Running On-Demand P instances", "region": "us-east-1", "unit": "vCPUs"}
    return Quota(**{**fields, "limit": limit, "used": used, **more})


def a_cloud(answer: Sequence[Quota] | CloudError) -> Cloud:
    """One that answers so, wrapped as the commands have it."""

    def ask(_: object) -> Sequence[Quota]:
        if isinstance(answer, CloudError):
            raise answer
        return answer

    cloud: Any = type("Limited", (), {"quotas": ask})()
    return time_calls(cloud, "aws", ManualClock(), Timings().cloud_calls)


def lines(answer: Sequence[Quota] | CloudError) -> list[str]:
    """What is said of it."""
    return list(ask_clouds(a_cloud(answer)).lines)


@pytest.mark.parametrize(
    ("quota", "line"),
    [
        (a_quota(384, 192), "Quota in us-east-1: 192 of 384 vCPUs left (Running On-Demand P instances)"),
        (a_quota(384, 360), "Warning: quota in us-east-1: 24 of 384 vCPUs left (Running On-Demand P instances)"),
        (a_quota(8, 16), "Warning: quota in us-east-1: 0 of 8 vCPUs left (Running On-Demand P instances)"),
        (
            a_quota(8, 4, region="", unit="GPUs"),
            "Quota of the account: 4 of 8 GPUs left (Running On-Demand P instances)",
        ),
        (
            a_quota(8, None),
            "Quota in us-east-1: 8 vCPUs; what is used of it is not known (Running On-Demand P instances)",
        ),
    ],
)
def test_what_is_left_is_said_with_its_limit(quota: Quota, line: str) -> None:
    """Less than a tenth is worth a warning."""
    assert lines([quota]) == [line]


def test_a_limit_that_nobody_has_or_uses_is_not_shown() -> None:
    """AWS gives a new account zero of many things."""
    assert lines([a_quota(0, 0), a_quota(0, None)]) == []


def test_the_permission_is_optional() -> None:
    """A refusal is not shown; silence is."""
    assert lines(AuthFailedError("denied", code="AccessDeniedException")) == []
    assert lines(CloudUnavailableError("no answer")) == ["Quotas unavailable: no answer"]


def test_each_of_several_clouds_is_asked_by_itself() -> None:
    """One that refuses, and one that does not answer, hide no other."""
    several = SeveralClouds(
        {
            "shut": a_cloud(AuthFailedError("denied", code="AccessDeniedException")),
            "mute": a_cloud(CloudUnavailableError("no answer")),
            "bj": a_cloud([a_quota(8, 4, region="ap-beijing", name="GPUs of GN10X", unit="GPUs")]),
        }
    )

    assert list(ask_clouds(several).lines) == [
        "Quotas of cloud mute unavailable: no answer",
        "Quota in ap-beijing of cloud bj: 4 of 8 GPUs left (GPUs of GN10X)",
    ]


def test_a_cloud_without_quotas_says_nothing() -> None:
    """Such as the simulated one."""
    assert ask_clouds(time_calls(object(), "x", ManualClock(), Timings().cloud_calls)).rows == ()  # type: ignore[arg-type]
