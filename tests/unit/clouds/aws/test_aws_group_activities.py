"""What an Auto Scaling group's record says of its launches."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.clouds.aws.groups import attempts
from gpuwatch.clouds.groups import refusal_of

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
WHY = "We currently do not have sufficient g5.xlarge capacity. Launching EC2 instance failed."


def an_activity(
    status: str, *, minutes_ago: float = 1.0, description: str = "Launching a new EC2 instance: i-1"
) -> Any:  # noqa: ANN401  as boto3 gives it
    """As DescribeScalingActivities gives it."""
    at = NOW - timedelta(minutes=minutes_ago)
    return {"Description": description, "StatusCode": status, "StatusMessage": WHY, "StartTime": at, "EndTime": at}


def why(*activities: Any) -> str | None:  # noqa: ANN401  likewise
    """What a group with this record says, the newest first."""
    scaling = SimpleNamespace(describe_scaling_activities=lambda **_: {"Activities": list(activities)})
    place: Any = SimpleNamespace(asking=lambda *_, **__: nullcontext(), reading=SimpleNamespace(autoscaling=scaling))
    group: Any = SimpleNamespace(name="train")
    found = refusal_of(attempts(place, group), NOW)
    return None if found is None else found.why


@pytest.mark.parametrize("status", ["Failed", "Cancelled"])
def test_a_launch_that_failed_is_a_refusal_in_the_clouds_words(status: str) -> None:
    """Its record has no codes."""
    assert why(an_activity(status)) == WHY.removesuffix(".")


def test_a_launch_after_it_ends_the_refusal() -> None:
    """One came."""
    assert why(an_activity("Successful"), an_activity("Failed", minutes_ago=5.0)) is None


@pytest.mark.parametrize("status", ["InProgress", "PreInService", "WaitingForInstanceId"])
def test_a_try_that_goes_on_leaves_the_refusal(status: str) -> None:
    """The group tries again and again: it would be left and waited for in turn."""
    assert why(an_activity(status), an_activity("Failed", minutes_ago=5.0)) is not None


def test_what_is_no_launch_says_nothing() -> None:
    """A termination that failed."""
    assert why(an_activity("Failed", description="Terminating EC2 instance: i-1")) is None
