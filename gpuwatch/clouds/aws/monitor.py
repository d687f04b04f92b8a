"""What CloudWatch says of machines: CPU and network. It has no values of GPUs, unless somebody sends them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.survey import CloudUse

NAME = "CloudWatch"
_PERIOD_SECONDS = 3600  # hours: CloudWatch keeps them for 455 days, minutes for 15
_QUERIES_A_CALL = 500
# What is asked of each machine: the metric and its statistic within an hour.
_ASKED = (("CPUUtilization", "Average"), ("CPUUtilization", "Maximum"), ("NetworkIn", "Sum"), ("NetworkOut", "Sum"))
_NODES_A_CALL = _QUERIES_A_CALL // len(_ASKED)


def use_of(place: Region, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that CloudWatch knows. Source: GetMetricData to its last page.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    found: dict[str, CloudUse] = {}
    for first in range(0, len(node_ids), _NODES_A_CALL):
        batch = node_ids[first : first + _NODES_A_CALL]
        values = _values(place, batch, begin, end)
        for number, node_id in enumerate(batch):
            own = [values.get(f"q{number}x{kind}", []) for kind in range(len(_ASKED))]
            if any(own):
                found[node_id] = _use(*own)
    return found


def _values(place: Region, batch: Sequence[str], begin: datetime, end: datetime) -> Mapping[str, list[float]]:
    """The hours' values by the ids of the queries; one query's may be on several pages."""
    queries = [
        {
            "Id": f"q{number}x{kind}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/EC2",
                    "MetricName": metric,
                    "Dimensions": [{"Name": "InstanceId", "Value": node_id}],
                },
                "Period": _PERIOD_SECONDS,
                "Stat": statistic,
            },
        }
        for number, node_id in enumerate(batch)
        for kind, (metric, statistic) in enumerate(_ASKED)
    ]
    found: dict[str, list[float]] = {}
    with place.asking("GetMetricData", service=NAME):
        pages: Any = place.reading.cloudwatch.get_paginator("get_metric_data")
        for page in pages.paginate(MetricDataQueries=queries, StartTime=begin, EndTime=end):
            for result in page["MetricDataResults"]:
                found.setdefault(result["Id"], []).extend(result["Values"])
    return found


def _use(means: list[float], highest: list[float], received: list[float], sent: list[float]) -> CloudUse:
    """CloudWatch's per cent as ratios, its sums as rates."""
    return CloudUse(
        cpu_mean_ratio=sum(means) / len(means) / 100 if means else None,
        cpu_max_ratio=max(highest) / 100 if highest else None,
        received_bytes_per_second=_rate(received),
        sent_bytes_per_second=_rate(sent),
    )


def _rate(sums: list[float]) -> float | None:
    return sum(sums) / (len(sums) * _PERIOD_SECONDS) if sums else None
