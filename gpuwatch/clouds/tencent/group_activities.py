"""What an Auto Scaling group tried to launch, by its own record."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.clouds.group_refusals import Attempt, time_of
from gpuwatch.clouds.tencent.errors import asking, no_machine
from gpuwatch.clouds.tencent.places import Place

_CALL = "DescribeAutoScalingActivities"
_LAUNCHES = "SCALE_OUT"
_LOOKED_BACK = timedelta(hours=1)  # nobody waits longer for a group
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_FAILED = frozenset({"FAILED", "PARTIALLY_SUCCESSFUL", "CANCELLED"})  # not at all, in part, not begun
# These tried, whatever they say. A cancelled one, such as during the cooldown, tried nothing where it names no reason.
_TRIED = frozenset({"FAILED", "PARTIALLY_SUCCESSFUL", "SUCCESSFUL"})
# Messages name CVM's own code, as in: LatestOperationCode: `ResourceInsufficient`.
_NAMED = re.compile(r"Code\W{1,3}([A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)*)")


def attempts(place: Place, group_id: str, now: datetime) -> list[Attempt]:
    """Those of the last hour that have ended. Source: DescribeAutoScalingActivities to its last page.

    Raises:
        CloudError: no answer, or no right to ask.

    """
    filters = [
        {"Name": "auto-scaling-group-id", "Values": [group_id]},
        {"Name": "activity-type", "Values": [_LAUNCHES]},
    ]
    since = (now - _LOOKED_BACK).strftime(_TIME)
    line = place.reading
    found = line.listed("as", _CALL, "ActivitySet", "ActivityId", Filters=filters, StartTime=since)
    with asking(line.asked(_CALL)):
        own = [each for each in found if (each["AutoScalingGroupId"], each["ActivityType"]) == (group_id, _LAUNCHES)]
        return [attempt for each in own for attempt in _attempt(each)]


def _attempt(described: Mapping[str, Any]) -> Iterator[Attempt]:
    """The activity as a try to launch; nothing where it tried nothing, or goes on."""
    status = described["StatusCode"]
    refused = _refused(described) if status in _FAILED else None
    if refused is not None or status in _TRIED:
        began = time_of(described["StartTime"])
        yield Attempt(began=began, ended=time_of(described.get("EndTime") or described["StartTime"]), refused=refused)


def _refused(described: Mapping[str, Any]) -> str | None:
    """The first of its errors that means that there is no machine."""
    for each in described.get("DetailedStatusMessageSet") or ():
        text = each.get("Message") or ""
        for code in (each.get("Code") or "", *_NAMED.findall(text)):
            if no_machine(code):
                return f"{code}: {text or described.get('StatusMessageSimplified') or 'no reason given'}"
    text = described.get("StatusMessage") or ""
    code = next(filter(no_machine, _NAMED.findall(text)), None)
    return None if code is None else f"{code}: {text}"
