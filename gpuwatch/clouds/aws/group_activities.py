"""What an Auto Scaling group tried to launch, by its own record."""

from gpuwatch.clouds.aws.groups import SERVICE, Group
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.group_refusals import Attempt

_NEWEST = 20  # activities; the newest come first
_LAUNCHES = "Launching a new EC2 instance"  # how the description of a launch begins
_FAILED = frozenset({"Failed", "Cancelled"})
_ENDED = _FAILED | {"Successful"}


def attempts(place: Region, group: Group) -> list[Attempt]:
    """The newest that have ended. A group's record has no codes, so each failure is a refusal.

    Source: DescribeScalingActivities.

    Raises:
        CloudError: no answer, or no right to ask.

    """
    with place.asking("DescribeScalingActivities", service=SERVICE):
        auto_scaling = place.reading.autoscaling
        found = auto_scaling.describe_scaling_activities(AutoScalingGroupName=group.name, MaxRecords=_NEWEST)
        return [
            Attempt(
                began=each["StartTime"],
                ended=each.get("EndTime") or each["StartTime"],
                refused=each.get("StatusMessage") or "it failed" if each["StatusCode"] in _FAILED else None,
            )
            for each in found["Activities"]
            if each.get("Description", "").startswith(_LAUNCHES) and each["StatusCode"] in _ENDED
        ]
