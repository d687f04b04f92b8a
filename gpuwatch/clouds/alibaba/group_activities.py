"""What a scaling group tried to launch, by its own record."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuwatch.clouds.alibaba.errors import no_machine
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.group_refusals import Attempt, time_of

_CALL = "ess:DescribeScalingActivities"
_A_PAGE = 50  # the largest; the newest come first, and older ones say nothing of today
_FAILED = frozenset({"Failed", "Warning", "Rejected"})  # not at all, in part, not begun
_SUCCEEDED = frozenset({"Successful", "Warning"})
_MADE = ("CreatedCapacity", "StartedCapacity", "CreatedInstances", "StartedInstances")


def attempts(place: Region, group_id: str) -> list[Attempt]:
    """The newest that have ended. Source: DescribeScalingActivities.

    Raises:
        CloudError: no answer, or no right to ask.

    """
    line = place.reading
    answer = line.ask(_CALL, {"RegionId": place.region, "ScalingGroupId": group_id, "PageSize": _A_PAGE})
    with reading(line.asked(_CALL)):
        own = [each for each in answer["ScalingActivities"] if each["ScalingGroupId"] == group_id]
        return [found for each in own for found in _attempt(each)]


def _attempt(described: Mapping[str, Any]) -> Iterator[Attempt]:
    """The activity as a try to launch; nothing where it tried nothing, or goes on."""
    status = described["StatusCode"]
    refused = _refused(described) if status in _FAILED else None
    made = status in _SUCCEEDED and any(described.get(name) for name in _MADE)
    if refused is not None or made or status == "Failed":
        began = time_of(described["StartTime"])
        # Times have no seconds. The minute's end is taken: a group that has no stock says so within seconds.
        ended = time_of(described.get("EndTime") or described["StartTime"]).replace(second=59)
        yield Attempt(began=began, ended=ended, refused=refused)


def _refused(described: Mapping[str, Any]) -> str | None:
    """The first of its errors that means that there is no machine."""
    errors = [(described.get("ErrorCode"), described.get("ErrorMessage"))]
    errors += [(each.get("Code"), each.get("Message")) for each in described.get("ErrorMessages") or ()]
    return next((f"{code}: {text or 'no reason given'}" for code, text in errors if code and no_machine(code)), None)
