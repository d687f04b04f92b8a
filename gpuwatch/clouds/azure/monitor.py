"""What Azure Monitor says of machines: CPU and network. It has no values of GPUs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.survey import CloudUse

NAME = "Azure Monitor"
_PERIOD_SECONDS = 3600  # an hour: the platform's own metrics are kept for 93 days
_CPU, _RECEIVED, _SENT = "Percentage CPU", "Network In Total", "Network Out Total"
_FORM = "%Y-%m-%dT%H:%M:%SZ"


def of_machines(place: Subscription, paths: Mapping[str, str], begin: datetime, end: datetime) -> dict[str, CloudUse]:
    """Use of those of these machines that have values, by their ids; raises likewise."""
    found = {name: use_of(place.beside_path(path), path, begin, end) for name, path in paths.items()}
    return {name: use for name, use in found.items() if use is not None}


def use_of(place: Subscription, path: str, begin: datetime, end: datetime) -> CloudUse | None:
    """Use of one machine between two times; None: it has no values. Source: Metrics List of the machine.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    answer = place.get(
        f"{path}/providers/Microsoft.Insights/metrics",
        version="metrics",
        metricnames=f"{_CPU},{_RECEIVED},{_SENT}",
        timespan=f"{begin.strftime(_FORM)}/{end.strftime(_FORM)}",
        interval="PT1H",
        aggregation="Average,Maximum,Total",
    )
    hours = {_name(metric): _hours(metric) for metric in answer.body.get("value") or ()}
    means = _values(hours.get(_CPU, []), "average")
    highest = _values(hours.get(_CPU, []), "maximum")
    received = _values(hours.get(_RECEIVED, []), "total")
    sent = _values(hours.get(_SENT, []), "total")
    if not (means or highest or received or sent):
        return None
    return CloudUse(
        cpu_mean_ratio=sum(means) / len(means) / 100 if means else None,
        cpu_max_ratio=max(highest) / 100 if highest else None,
        received_bytes_per_second=_rate(received),
        sent_bytes_per_second=_rate(sent),
    )


def _name(metric: Mapping[str, Any]) -> str:
    return str((metric.get("name") or {}).get("value", ""))


def _hours(metric: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [hour for series in metric.get("timeseries") or () for hour in series.get("data") or ()]


def _values(hours: list[Mapping[str, Any]], word: str) -> list[float]:
    """An hour without values counts for nothing: the machine was off."""
    return [float(hour[word]) for hour in hours if hour.get(word) is not None]


def _rate(sums: list[float]) -> float | None:
    return sum(sums) / (len(sums) * _PERIOD_SECONDS) if sums else None
