"""Why an Auto Scaling group gets no more instances, by its own record of what it tried."""

from gpuwatch.clouds.aws.groups import SERVICE, Group
from gpuwatch.clouds.aws.regions import Region
from gpuwatch.clouds.errors import CloudError
from gpuwatch.model.fleet import GroupRefusal

_NEWEST = 20  # activities; the newest come first
_LAUNCHES = "Launching a new EC2 instance"  # how the description of a launch begins
_FAILED = frozenset({"Failed", "Cancelled"})
_LONGEST = 300  # characters of a message


def refusal(place: Region, group: Group) -> GroupRefusal | None:
    """What became of the group's newest try to launch, where it failed; None: it did not, or nobody may tell.

    Only a group that lacks members is asked about. A role without the right to ask is no trouble: then the wait is
    longer. Source: DescribeScalingActivities.
    """
    if group.desired <= len(group.members):
        return None
    try:
        with place.asking("DescribeScalingActivities", service=SERVICE):
            auto_scaling = place.reading.autoscaling
            found = auto_scaling.describe_scaling_activities(AutoScalingGroupName=group.name, MaxRecords=_NEWEST)
            tried = [each for each in found["Activities"] if each.get("Description", "").startswith(_LAUNCHES)]
            if not tried or tried[0]["StatusCode"] not in _FAILED:
                return None
            at, why = tried[0].get("EndTime") or tried[0]["StartTime"], tried[0].get("StatusMessage") or "it failed"
    except CloudError:
        return None
    return GroupRefusal(at=at, why=why.partition("\n")[0].strip().removesuffix(".")[:_LONGEST])
