"""The measured load of one machine type, hour by hour, from what the ledger has metered."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from gpuwatch.model.usage import USES, HourKey, Terms, Use
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import cloud_name

_HOUR = 3600
_USEFUL = USES.index(Use.USEFUL)


class LoadError(ValueError):
    """There is no such load; the sentence says what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Machines in use on the mean of each hour, None where nothing was metered; the newest price and its source.

    Of days that are kept whole only as days every hour has the day's mean: `coarse_hours` says of how many.
    """

    instance_type: str
    hours: tuple[float | None, ...]
    coarse_hours: int
    usd_per_hour: Decimal | None
    price_source: str | None


def load_of(spend: SpendBook, instance_type: str | None, cloud: str | None = None) -> Load:
    """What was useful of a type's time; without a type, of the only one that there is. `cloud`: in that one alone.

    Raises:
        LoadError: nothing is metered, nothing of that type or cloud, or there are several types and none was named.

    """
    rows = [(key, terms, amounts[_USEFUL]) for key, terms, amounts in _rows(spend)]
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
    coarse, newest = set[int](), max((row for row in rows if row[1].instance_type == instance_type), key=_begin)[1]
    for key, terms, useful in rows:
        covered = range(key.begin // _HOUR - first, -(-(key.begin + key.span) // _HOUR) - first)
        units = useful / 1000 / (len(covered) * _HOUR) if terms.instance_type == instance_type else 0.0
        for hour in covered:
            hours[hour] = (hours[hour] or 0.0) + units
        if len(covered) > 1:
            coarse.update(covered)
    return Load(
        instance_type=instance_type,
        hours=tuple(hours),
        coarse_hours=len(coarse),
        usd_per_hour=newest.usd_per_hour,
        price_source=newest.price_source,
    )


def _begin(row: tuple[HourKey, Terms, int]) -> int:
    return row[0].begin


def _rows(spend: SpendBook) -> Iterator[tuple[HourKey, Terms, list[int]]]:
    began = spend.began()
    return iter(()) if began is None else spend.each(0, 2**40)
