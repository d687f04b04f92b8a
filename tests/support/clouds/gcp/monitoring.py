"""Cloud Monitoring of the fake of Google Cloud: projects.timeSeries.list."""

import re
from collections.abc import Mapping
from typing import Any

from tests.support.clouds.gcp.machines import Project, Resource
from tests.support.clouds.gcp.parts import page_of
from tests.support.clouds.server import Request

# By metric and aligner: what is measured of every machine.
_CPU, _NETWORK = "compute.googleapis.com/instance/cpu/utilization", "compute.googleapis.com/instance/network"
MEASURED = {
    (_CPU, "ALIGN_MEAN"): 0.5,
    (_CPU, "ALIGN_MAX"): 1.0,
    (f"{_NETWORK}/received_bytes_count", "ALIGN_RATE"): 1000.0,
    (f"{_NETWORK}/sent_bytes_count", "ALIGN_RATE"): 10.0,
    ("agent.googleapis.com/gpu/utilization", "ALIGN_MEAN"): 25.0,
}


def time_series(project: Project, request: Request, measured: Mapping[tuple[str, str], float]) -> Resource:
    """The last two hours of each machine that runs; a page counts points."""
    wanted = request.query["filter"]
    metric = re.findall(r'metric.type = "([^"]+)"', wanted)[0]
    assert 'resource.type = "gce_instance"' in wanted, "other resources have other labels"
    ids = re.findall(r'"(\d+)"', wanted.partition("one_of(")[2])
    assert request.query["aggregation.groupByFields"] == "resource.label.instance_id", "reduced to what?"
    value = measured.get((metric, request.query["aggregation.perSeriesAligner"]))
    end = request.query["interval.endTime"]
    point = {"interval": {"startTime": end, "endTime": end}, "value": {"doubleValue": value}}
    points = [(each, point) for each in ids if each in project.machines and value is not None for _ in range(2)]
    page, token = page_of([{"of": each, "point": one} for each, one in points], request.query, "pageSize")
    series: dict[str, list[Any]] = {}
    for each in page:
        series.setdefault(each["of"], []).append(each["point"])
    told_of = [
        {
            "metric": {"type": metric},
            "resource": {"type": "gce_instance", "labels": {"instance_id": each}},
            "points": found,
        }
        for each, found in series.items()
    ]
    return {"timeSeries": told_of, **token} if told_of else {}
