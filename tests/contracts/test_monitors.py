"""What the monitors of all clouds measured is read for the machine that each series names, or not at all.

The answers have the form of those that were recorded of Azure and Tencent Cloud, and of the others' documented ones.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.alibaba import survey as alibaba
from gpuwatch.clouds.aws import survey as aws
from gpuwatch.clouds.aws.errors import asking
from gpuwatch.clouds.azure import survey as azure
from gpuwatch.clouds.gcp import survey as gcp
from gpuwatch.clouds.survey import CloudUse
from gpuwatch.clouds.tencent import survey as tencent

END = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
BEGIN = END - timedelta(hours=2)
NODE, OTHER = "i-own", "i-other"
Use = Mapping[str, CloudUse]


def of_aws(name: object) -> Use:
    """GetMetricData: each result has the id of its query, which is about one machine."""
    ids = {NODE: "q0x0", OTHER: "q7x0"}
    told = {} if name is ... else {"Id": ids.get(str(name), name)}
    pages = [{"MetricDataResults": [{**told, "Values": [50.0]}]}]
    paginator = SimpleNamespace(paginate=lambda **_: iter(pages))
    reading = SimpleNamespace(cloudwatch=SimpleNamespace(get_paginator=lambda _: paginator))
    place: Any = SimpleNamespace(name="r", reading=reading, asking=asking)
    return aws.use_in(place, [NODE], BEGIN, END)


def of_azure(name: object) -> Use:
    """Metrics List: asked of one machine, each series has the name of its metric."""
    metrics = {NODE: "Percentage CPU", OTHER: "Network In"}
    told = {} if name is ... else {"name": {"value": metrics.get(str(name), name)}}
    body = {"value": [{**told, "timeseries": [{"metadatavalues": [], "data": [{"average": 50.0}]}]}]}
    place: Any = SimpleNamespace(get=lambda *_, **__: SimpleNamespace(body=body))
    place.beside_path = lambda _: place
    return azure.use_of(place, {NODE: "/a/path"}, BEGIN, END)


def of_gcp(name: object) -> Use:
    """timeSeries.list: each series has the labels of its resource."""
    labels = {} if name is ... else {"instance_id": name}
    series = {"resource": {"labels": labels}, "points": [{"value": {"doubleValue": 0.5}}]}
    client: Any = SimpleNamespace(pages=lambda *_, **__: iter([{"timeSeries": [series]}]))
    return gcp.use_in(client, [NODE], BEGIN, END)


def of_alibaba(name: object) -> Use:
    """DescribeMetricList: each point has its machine."""
    told = {} if name is ... else {"instanceId": name}
    answer = {"Code": "200", "Datapoints": json.dumps([{"timestamp": 1, "Average": 50.0, **told}])}
    reading = SimpleNamespace(name_call=str, ask=lambda *_: answer)
    place: Any = SimpleNamespace(region="r", reading=reading)
    return alibaba.use_in(place, [NODE], BEGIN, END)


def of_tencent(name: object) -> Use:
    """GetMonitorData: each series has dimensions; those of a disk have no machine, as was recorded."""
    dimensions = [{"Name": "diskId", "Value": "disk-1"} if name is ... else {"Name": "InstanceId", "Value": name}]
    answer = {"DataPoints": [{"Dimensions": dimensions, "Timestamps": [1], "AvgValues": [50.0]}]}
    reading = SimpleNamespace(name_call=str, ask=lambda *_, **__: answer)
    place: Any = SimpleNamespace(reading=reading)
    return tencent.use_in(place, [NODE], BEGIN, END)


def aws_pages(*pages: Mapping[str, Any]) -> Use:
    """What CloudWatch says on these pages."""
    paginator = SimpleNamespace(paginate=lambda **_: iter(pages))
    reading = SimpleNamespace(cloudwatch=SimpleNamespace(get_paginator=lambda _: paginator))
    place: Any = SimpleNamespace(name="r", reading=reading, asking=asking)
    return aws.use_in(place, [NODE], BEGIN, END)


def a_result(status: str | None, *values: float, query: str = "q0x0", **more: object) -> dict[str, Any]:
    """One result of GetMetricData."""
    return {"Id": query, "Values": list(values), **({} if status is None else {"StatusCode": status}), **more}


def azure_metrics(*metrics: Mapping[str, Any]) -> Use:
    """What Azure Monitor says of one machine."""
    place: Any = SimpleNamespace(get=lambda *_, **__: SimpleNamespace(body={"value": metrics}))
    place.beside_path = lambda _: place
    return azure.use_of(place, {NODE: "/a/path"}, BEGIN, END)


def a_metric(average: object, **more: object) -> dict[str, Any]:
    """One metric of Azure Monitor."""
    series = {"metadatavalues": [], "data": [{"timeStamp": "2026-01-05T08:00:00Z", "average": average}]}
    return {"name": {"value": "Percentage CPU"}, "unit": "Percent", "timeseries": [series], **more}


def tencent_series(*series: Mapping[str, Any]) -> Use:
    """What Tencent's monitor says of one machine."""
    dimensions = [{"Name": "InstanceId", "Value": NODE}]
    answer = {"DataPoints": [{"Dimensions": dimensions, **each} for each in series]}
    reading = SimpleNamespace(name_call=str, ask=lambda *_, **__: answer)
    place: Any = SimpleNamespace(reading=reading)
    return tencent.use_in(place, [NODE], BEGIN, END)


def alibaba_points(*points: Mapping[str, Any]) -> Use:
    """What CloudMonitor says of one machine."""
    answer = {
        "Code": "200",
        "Datapoints": json.dumps([{"instanceId": NODE, "timestamp": 1, **each} for each in points]),
    }
    place: Any = SimpleNamespace(region="r", reading=SimpleNamespace(name_call=str, ask=lambda *_: answer))
    return alibaba.use_in(place, [NODE], BEGIN, END)


def gcp_series(*values: float) -> Use:
    """What Cloud Monitoring says of one machine, in so many series."""
    named = {"resource": {"labels": {"instance_id": NODE}}}
    series = [{**named, "points": [{"value": {"doubleValue": value}}]} for value in values]
    client: Any = SimpleNamespace(pages=lambda *_, **__: iter([{"timeSeries": [each]} for each in series]))
    return gcp.use_in(client, [NODE], BEGIN, END)


READERS: Mapping[str, Callable[[object], Use]] = {
    "aws": of_aws,
    "azure": of_azure,
    "gcp": of_gcp,
    "alibaba": of_alibaba,
    "tencent": of_tencent,
}


@pytest.mark.parametrize("cloud", READERS)
def test_a_series_that_names_its_machine_is_its_use(cloud: str) -> None:
    """Half of the processor, or of the GPUs."""
    found = READERS[cloud](NODE)[NODE]
    assert 0.5 in {found.cpu_mean_ratio, found.gpu_mean_ratio}


@pytest.mark.parametrize("name", [..., None, "", 7], ids=["missing", "null", "empty", "a number"])
@pytest.mark.parametrize("cloud", READERS)
def test_a_series_that_names_no_machine_is_no_answer(cloud: str, name: object) -> None:
    """Of any machine: what was measured would be missing in one of them, which would look like rest."""
    with pytest.raises(CloudUnavailableError, match=r"names no machine|no usable answer"):
        READERS[cloud](name)


@pytest.mark.parametrize("cloud", sorted(set(READERS) - {"aws"}))
def test_a_series_of_something_else_is_nobodys_use(cloud: str) -> None:
    """Of another machine, or, where one machine alone is asked about, of another metric."""
    assert READERS[cloud](OTHER) == {}


def test_an_answer_to_no_query_is_no_answer() -> None:
    """CloudWatch answers each query by its id."""
    with pytest.raises(CloudUnavailableError, match="names no machine"):
        of_aws(OTHER)


@pytest.mark.parametrize("body", [{}, {"value": None}, {"value": 5}])
def test_an_answer_of_azure_without_its_list_is_no_answer(body: Mapping[str, Any]) -> None:
    """A page of something else is not a machine without values."""
    place: Any = SimpleNamespace(get=lambda *_, **__: SimpleNamespace(body=body))
    place.beside_path = lambda _: place
    with pytest.raises(CloudUnavailableError):
        azure.use_of(place, {NODE: "/a/path"}, BEGIN, END)


@pytest.mark.parametrize("turned", [False, True])
def test_two_series_of_one_machine_are_both_counted(*, turned: bool) -> None:
    """Whichever comes last: a busy GPU beside an idle one, or a second page, is never rest."""
    order = [90.0, 0.0] if turned else [0.0, 90.0]
    found = [
        tencent_series(*({"AvgValues": [each], "MaxValues": [each]} for each in order)),
        alibaba_points(*({"Average": each, "Maximum": each} for each in order)),
        azure_metrics(*map(a_metric, order)),
        gcp_series(*(each / 100.0 for each in order)),
        aws_pages(*({"MetricDataResults": [a_result("Complete", each)]} for each in order)),
    ]
    assert [use[NODE].cpu_mean_ratio for use in found] == [0.45] * len(found)
    assert {use[NODE].cpu_max_ratio for use in (found[0], found[1], found[3])} == {0.9}


@pytest.mark.parametrize(
    "page",
    [
        {"MetricDataResults": [a_result("PartialData", 0.0)]},
        {"MetricDataResults": [a_result("InternalError", 0.0)]},
        {"MetricDataResults": [a_result("Forbidden")]},
        {"MetricDataResults": [a_result("Complete", 0.0), a_result("PartialData", 0.0, query="q0x1")]},
        {"MetricDataResults": [a_result("a new word", 0.0)]},
        {"MetricDataResults": [a_result("Complete", 0.0, Messages=[{"Code": "Part", "Value": "some are missing"}])]},
        {
            "MetricDataResults": [a_result("Complete", 0.0)],
            "Messages": [{"Code": "MaxMetricsExceeded", "Value": "why"}],
        },
    ],
)
def test_a_partial_answer_of_cloudwatch_is_no_answer(page: Mapping[str, Any]) -> None:
    """By the status of a result, and by the messages of a result or of the whole."""
    with pytest.raises(CloudUnavailableError, match="a part is missing") as caught:
        aws_pages(page)
    assert caught.value.code == "Partial"


def test_what_one_page_of_cloudwatch_lacks_the_next_may_bring() -> None:
    """A result in part says that the next page goes on; the last word counts."""
    first, last = ({"MetricDataResults": [a_result(word, 50.0)]} for word in ("PartialData", "Complete"))
    assert aws_pages(first, last)[NODE].cpu_mean_ratio == 0.5
    with pytest.raises(CloudUnavailableError):
        aws_pages(last, first)
    assert aws_pages({"MetricDataResults": [a_result(None, 50.0)]})[NODE].cpu_mean_ratio == 0.5


def test_a_metric_that_azure_could_not_read_is_no_answer() -> None:
    """Each metric of a list has its own error code."""
    assert azure_metrics(a_metric(50.0, errorCode="Success"))[NODE].cpu_mean_ratio == 0.5
    with pytest.raises(CloudUnavailableError, match="a part is missing"):
        azure_metrics(a_metric(0.0, errorCode="InternalServerError", errorMessage="try again"))


def test_values_that_are_none_are_left_out_and_what_is_no_number_is_no_answer() -> None:
    """An hour without a value is no hour at rest."""
    assert tencent_series({"AvgValues": [None, 80.0], "MaxValues": None})[NODE].cpu_mean_ratio == 0.8
    assert alibaba_points({"Average": None}, {"Average": 80.0})[NODE].cpu_mean_ratio == 0.8
    with pytest.raises(CloudUnavailableError):
        tencent_series({"AvgValues": ["-"]})
    with pytest.raises(CloudUnavailableError):
        alibaba_points({"Average": "-"})
    with pytest.raises(CloudUnavailableError):
        azure_metrics(a_metric("-"))
