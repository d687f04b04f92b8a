"""What Cloud Monitoring says of machines: CPU and network, and of GPUs where Google's Ops Agent is on the machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.gcp.calls import LIST_TIME_SERIES
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.survey import CloudUse

NAME = "Cloud Monitoring"
_HOUR = "3600s"
_NODES_A_CALL = 50
_BY_MACHINE = "resource.label.instance_id"
_FORM = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A metric, its value of an hour, and how a machine's several series become one."""

    metric: str
    aligner: str
    reducer: str


# The CPU's is a ratio, the network's counts of bytes become rates, the GPU's is per cent of each GPU.
_CPU = "compute.googleapis.com/instance/cpu/utilization"
_NETWORK = "compute.googleapis.com/instance/network"
_MEAN = _Question(metric=_CPU, aligner="ALIGN_MEAN", reducer="REDUCE_MEAN")
_HIGHEST = _Question(metric=_CPU, aligner="ALIGN_MAX", reducer="REDUCE_MAX")
_RECEIVED = _Question(metric=f"{_NETWORK}/received_bytes_count", aligner="ALIGN_RATE", reducer="REDUCE_SUM")
_SENT = _Question(metric=f"{_NETWORK}/sent_bytes_count", aligner="ALIGN_RATE", reducer="REDUCE_SUM")
_GPU = _Question(metric="agent.googleapis.com/gpu/utilization", aligner="ALIGN_MEAN", reducer="REDUCE_MEAN")

_Hours = Mapping[str, Sequence[float]]  # the values of the hours, by machine


def use_of(client: Client, node_ids: Sequence[str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use between two times of the machines that Cloud Monitoring knows. Source: projects.timeSeries.list.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    found: dict[str, CloudUse] = {}
    for first in range(0, len(node_ids), _NODES_A_CALL):
        batch = node_ids[first : first + _NODES_A_CALL]
        questions = (_MEAN, _HIGHEST, _RECEIVED, _SENT, _GPU)
        mean, highest, received, sent, gpu = (_hours(client, each, batch, begin, end) for each in questions)
        for node_id in batch:
            percent = _mean(gpu, node_id)
            use = CloudUse(
                cpu_mean_ratio=_mean(mean, node_id),
                cpu_max_ratio=max(highest.get(node_id, ()), default=None),
                received_bytes_per_second=_mean(received, node_id),
                sent_bytes_per_second=_mean(sent, node_id),
                gpu_mean_ratio=None if percent is None else percent / 100,
            )
            if use != CloudUse():
                found[node_id] = use
    return found


def _hours(client: Client, asked: _Question, batch: Sequence[str], begin: datetime, end: datetime) -> _Hours:
    """The values of each machine's hours; a series may go on on the next page."""
    ids = ",".join(f'"{node_id}"' for node_id in batch)
    query = {
        "filter": f'metric.type = "{asked.metric}" AND resource.type = "gce_instance" AND '
        f"resource.labels.instance_id = one_of({ids})",
        "interval.startTime": begin.strftime(_FORM),
        "interval.endTime": end.strftime(_FORM),
        "aggregation.alignmentPeriod": _HOUR,
        "aggregation.perSeriesAligner": asked.aligner,
        "aggregation.crossSeriesReducer": asked.reducer,
        "aggregation.groupByFields": _BY_MACHINE,
    }
    found: dict[str, list[float]] = {}
    for page in client.pages(LIST_TIME_SERIES, query=query):
        if page.get("executionErrors") or page.get("unreachable"):
            raise CloudUnavailableError(f"{LIST_TIME_SERIES.name} in {client}: a part is missing", code="Partial")
        for series in page.get("timeSeries", ()):
            node_id = series["resource"]["labels"]["instance_id"]
            found.setdefault(node_id, []).extend(_value(point) for point in series.get("points", ()))
    return found


def _value(point: Mapping[str, Any]) -> float:
    """A mean is a double, whatever the metric is; the API writes whole numbers as text."""
    value = point["value"]
    return float(value["doubleValue"] if "doubleValue" in value else value["int64Value"])


def _mean(hours: _Hours, node_id: str) -> float | None:
    values = hours.get(node_id, ())
    return sum(values) / len(values) if values else None
