"""What Alibaba Cloud's own monitor says of machines: CPU, and the use of their GPUs where its agent is on the machine.

More than a million of these questions a month are billed to the account, so only people's commands ask them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.alibaba.errors import reading
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.survey import CloudUse

NAME = "CloudMonitor"
_CALL = "cms:DescribeMetricList"
_PERIOD_SECONDS = 3600  # an hour: kept for 91 days
_LONGEST = timedelta(days=31)  # of one question
_NODES_A_CALL, _POINTS_A_PAGE, _MOST_PAGES = 50, 1440, 1000
# Of the namespace acs_ecs_dashboard, in per cent. The first is measured on the host, the second by CloudMonitor's agent
# in the machine, over all its GPUs.
_CPU, _GPU = "CPUUtilization", "instance_gpu_gpu_usedutilization"

_Points = Mapping[str, Sequence[Mapping[str, Any]]]  # of each machine, by its id


def use_of(place: Region, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that the monitor knows. Source: DescribeMetricList to its last page.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    begin, found = max(begin, end - _LONGEST), {}
    for first in range(0, len(node_ids), _NODES_A_CALL):
        batch = node_ids[first : first + _NODES_A_CALL]
        cpu, gpu = (_points(place, metric, batch, begin, end) for metric in (_CPU, _GPU))
        for node_id in batch:
            use = CloudUse(
                cpu_mean_ratio=_mean(cpu.get(node_id, ())),
                cpu_max_ratio=_highest(cpu.get(node_id, ())),
                gpu_mean_ratio=_mean(gpu.get(node_id, ())),
            )
            if use != CloudUse():
                found[node_id] = use
    return found


def _points(place: Region, metric: str, batch: Sequence[str], begin: datetime, end: datetime) -> _Points:
    """The hours of a metric, by machine."""
    asked = {
        "RegionId": place.region,
        "Namespace": "acs_ecs_dashboard",
        "MetricName": metric,
        "Period": str(_PERIOD_SECONDS),
        "StartTime": str(_milliseconds(begin)),
        "EndTime": str(_milliseconds(end)),
        "Length": str(_POINTS_A_PAGE),
        "Dimensions": json.dumps([{"instanceId": node_id} for node_id in batch]),
    }
    found: dict[str, list[Mapping[str, Any]]] = {}
    more: dict[str, str] = {}
    tokens: set[str] = set()
    said = place.reading.asked(_CALL)
    for _ in range(_MOST_PAGES):
        answer = place.reading.ask(_CALL, {**asked, **more})
        with reading(said):
            if str(answer["Code"]) != "200":
                raise CloudUnavailableError(f"{said}: {answer.get('Message')}", code=str(answer["Code"]))
            for point in json.loads(answer["Datapoints"]):
                found.setdefault(point["instanceId"], []).append(point)
        token = answer.get("NextToken") or ""
        if not token:
            return found
        if token in tokens:
            break
        tokens.add(token)
        more = {"NextToken": token}
    raise CloudUnavailableError(f"{said}: the list has no end", code="TornList")


def _mean(points: Iterable[Mapping[str, Any]]) -> float | None:
    """A machine with several GPUs may have a point for each of them and hour."""
    values = [float(point["Average"]) for point in points if point.get("Average") is not None]
    return sum(values) / len(values) / 100 if values else None


def _highest(points: Iterable[Mapping[str, Any]]) -> float | None:
    values = [float(point["Maximum"]) for point in points if point.get("Maximum") is not None]
    return max(values) / 100 if values else None


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
