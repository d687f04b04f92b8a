"""What Tencent Cloud's own monitor says of machines: CPU, and the use of their GPUs where its agent is on the machine.

More than a million of these questions a month are billed to the account, so only people's commands ask them.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuwatch.clouds.survey import CloudUse
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.places import Place

NAME = "Tencent Cloud Observability Platform"
_CALL = "GetMonitorData"
_PERIOD_SECONDS = 3600
_POINTS_A_CALL, _NODES_A_CALL = 7200, 50
_MEAN_AND_HIGHEST = 3  # SpecifyStatistics: 1 is the mean, 2 the highest
# Of namespace QCE/CVM, in per cent. The first is measured on the host, the second by the agent in the machine.
_CPU, _GPU = "BaseCpuUsage", "GpuUtil"

_Values = Mapping[str, Mapping[str, Any]]  # points of each machine, by its id


def use_of(place: Place, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that the monitor knows. Source: GetMonitorData.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    hours = max(1, math.ceil((end - begin).total_seconds() / _PERIOD_SECONDS))
    size = max(1, min(_NODES_A_CALL, _POINTS_A_CALL // hours))
    found: dict[str, CloudUse] = {}
    for first in range(0, len(node_ids), size):
        batch = node_ids[first : first + size]
        cpu, gpu = (_values(place, metric, batch, begin, end) for metric in (_CPU, _GPU))
        for node_id in batch:
            use = CloudUse(
                cpu_mean_ratio=_mean(cpu, node_id),
                cpu_max_ratio=_highest(cpu, node_id),
                gpu_mean_ratio=_mean(gpu, node_id),
            )
            if use != CloudUse():
                found[node_id] = use
    return found


def _values(place: Place, metric: str, batch: Sequence[str], begin: datetime, end: datetime) -> _Values:
    answer = place.reading.ask(
        "monitor",
        _CALL,
        Namespace="QCE/CVM",
        MetricName=metric,
        Period=_PERIOD_SECONDS,
        Instances=[{"Dimensions": [{"Name": "InstanceId", "Value": node_id}]} for node_id in batch],
        StartTime=begin.isoformat(timespec="seconds"),
        EndTime=end.isoformat(timespec="seconds"),
        SpecifyStatistics=_MEAN_AND_HIGHEST,
    )
    with asking(place.reading.asked(_CALL)):
        return {
            dimension["Value"]: points
            for points in answer["DataPoints"]
            for dimension in points["Dimensions"]
            if dimension["Name"] == "InstanceId"
        }


def _mean(values: _Values, node_id: str) -> float | None:
    means = values.get(node_id, {}).get("AvgValues") or ()
    return sum(means) / len(means) / 100 if means else None


def _highest(values: _Values, node_id: str) -> float | None:
    highest = values.get(node_id, {}).get("MaxValues") or ()
    return max(highest) / 100 if highest else None
