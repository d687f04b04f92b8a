"""The measured load of one machine type, hour by hour, from what the ledger has metered."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import ceil

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.usage import GPU, USES, HourKey, Terms, Use
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import cloud_name

_HOUR = 3600
_WEEK_HOURS = 168
_USEFUL = USES.index(Use.USEFUL)
_RESERVED = frozenset({CapacityType.RESERVED, CapacityType.PREPAID, CapacityType.CAPACITY_BLOCK})
_SLACK = 0.01  # of a machine: one that began within an hour and one that ended in it are not two


class LoadError(ValueError):
    """There is no such load; the sentence says what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Machines in use on the mean of each hour, None where nothing was metered; the newest price and its source.

    The price is that of an hour on demand, None where only spot was metered. Of days that are kept whole only as days
    every hour has the day's mean: `coarse_hours` says of how many. `reserved_machines` are the most that were
    reserved or prepaid at once in the last week, at work or not, as far as clouds show that of a machine.
    """

    instance_type: str
    hours: tuple[float | None, ...]
    coarse_hours: int
    usd_per_hour: Decimal | None
    price_source: str | None
    reserved_machines: int


def load_of(spend: SpendBook, instance_type: str | None, cloud: str | None = None) -> Load:
    """What was useful of a type's time; without a type, of the only one that there is. `cloud`: in that one alone.

    Raises:
        LoadError: nothing is metered, nothing of that type or cloud, or there are several types and none was named.

    """
    rows = [(key, terms, amounts[:GPU]) for key, terms, amounts in _rows(spend)]
    if not rows:
        raise LoadError("nothing is metered yet; let `gpuwatch controller` run, or give --csv")
    clouds = sorted({cloud_name(terms) for _, terms, _ in rows})
    if cloud is not None and cloud not in clouds:
        raise LoadError(f"nothing of the cloud {cloud} is metered; expected --cloud with one of {', '.join(clouds)}")
    rows = [row for row in rows if cloud in {None, cloud_name(row[1])}]
    types = sorted({terms.instance_type for _, terms, _ in rows})
    if instance_type is None and len(types) == 1:
        instance_type = types[0]
    if instance_type not in types:
        named = "several machine types are metered" if instance_type is None else f"no {instance_type} is metered"
        raise LoadError(f"{named}; expected --instance-type with one of {', '.join(types)}")
    first = min(key.begin for key, _, _ in rows) // _HOUR
    last = max(-(-(key.begin + key.span) // _HOUR) for key, _, _ in rows)
    hours: list[float | None] = [None] * (last - first)
    coarse, reserved = set[int](), [0.0] * len(hours)
    priced = [
        row for row in rows if row[1].instance_type == instance_type and row[1].capacity_type != CapacityType.SPOT
    ]
    newest = max(priced, key=_begin)[1] if priced else None
    for key, terms, by_use in rows:
        covered = range(key.begin // _HOUR - first, -(-(key.begin + key.span) // _HOUR) - first)
        share = 1 / (1000 * len(covered) * _HOUR) if terms.instance_type == instance_type else 0.0
        for hour in covered:
            hours[hour] = (hours[hour] or 0.0) + by_use[_USEFUL] * share
            reserved[hour] += sum(by_use) * share if terms.capacity_type in _RESERVED else 0.0
        if len(covered) > 1:
            coarse.update(covered)
    return Load(
        instance_type=instance_type,
        hours=tuple(hours),
        coarse_hours=len(coarse),
        usd_per_hour=None if newest is None else newest.usd_per_hour,
        price_source=None if newest is None else newest.price_source,
        reserved_machines=ceil(max(reserved[-_WEEK_HOURS:]) - _SLACK),
    )


def _begin(row: tuple[HourKey, Terms, list[int]]) -> int:
    return row[0].begin


def _rows(spend: SpendBook) -> Iterator[tuple[HourKey, Terms, list[int]]]:
    """Those of machines that count."""
    began = spend.began()
    return (row for row in (() if began is None else spend.each(0, 2**40)) if row[1].foreign is None)
