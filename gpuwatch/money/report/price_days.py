"""PURE: the days and the sources of the prices behind a sum: list prices change, and old ones mislead."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import TypedDict

from gpuwatch.model.money import dated
from gpuwatch.model.usage import GPU
from gpuwatch.money.accounting.totals import Row

_MOST_SOURCES = 3  # in a sentence; JSON has all


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceDays:
    """The oldest and the newest day, and the sources, that of the most machine time first."""

    oldest: date
    newest: date
    sources: tuple[str, ...]


class PriceDaysDocument(TypedDict):
    """The days of the prices; `age_days` is of the oldest, on the day of the report."""

    oldest: date
    newest: date
    age_days: int
    sources: list[str]


def price_days(rows: Iterable[Row]) -> PriceDays | None:
    """What the rows were priced by; None: none has a price."""
    weights: dict[str, int] = {}
    days = set()
    for row in rows:
        if row.terms.price_as_of is not None:
            days.add(row.terms.price_as_of)
            source = row.terms.price_source or "a source that is not known"
            weights[source] = weights.get(source, 0) + sum(row.amounts[:GPU])
    if not days:
        return None
    return PriceDays(
        oldest=min(days), newest=max(days), sources=tuple(sorted(weights, key=lambda name: -weights[name]))
    )


def words(days: PriceDays, today: date) -> str:
    """As a sentence."""
    span = dated(days.oldest, today)
    if days.newest != days.oldest:
        span = f"{days.oldest} to {days.newest}, the oldest {(today - days.oldest).days} days old"
    more = len(days.sources) - _MOST_SOURCES
    named = ". ".join(days.sources[:_MOST_SOURCES])
    return f"Prices are of {span}: {named}{f', and {more} more sources' if more > 0 else ''}."


def as_object(days: PriceDays, today: date) -> PriceDaysDocument:
    """For JSON."""
    return {
        "oldest": days.oldest,
        "newest": days.newest,
        "age_days": (today - days.oldest).days,
        "sources": list(days.sources),
    }
