"""The section of a report that compares the first weeks with the last ones, and its JSON."""

from collections.abc import Iterator
from datetime import date, timedelta
from fractions import Fraction
from typing import TypedDict

from gpuwatch.model.money import cents_of, format_usd
from gpuwatch.money.accounting.totals import Total, plain_usd
from gpuwatch.money.report.blocks import Bar, Bars, Part, Table, Words, percent, usd
from gpuwatch.money.report.progress import DAYS, FULL_WEEKS, Pair, Progress, Week, wasted_ms

_MOST = 10
_MOST_BARS = 26
_CENT = Fraction(1, 100)


def since_we_began(found: Progress) -> Iterator[Part]:
    """What was wasted then and now, the curve, pools and owners, and what changed."""
    yield Words(tuple(_sentences(found)))
    shown = found.weeks[-_MOST_BARS:]
    yield Bars("A week each, from that day on; * something changed", tuple(_bar(each) for each in shown))
    for by, pairs in found.by.items():
        if pairs:
            yield _table(by, found)
    changed = [(f"{each.first}", "; ".join(_changes(each))) for each in found.weeks if any(_changes(each))]
    if changed:
        rows = tuple(changed[-_MOST_BARS:])
        yield Table(
            caption="What changed, by week", heads=("week of", "what"), rows=rows, left=frozenset({0, 1}), beneath=True
        )


def _sentences(found: Progress) -> Iterator[str]:
    first, last = found.pair.first, found.pair.last
    weeks = "week" if found.count == 1 else f"{found.count} weeks"
    yield (
        f"The first {weeks} of metering ({_days(found.first, found)}) wasted {_weekly(first, found)} a week"
        f"{_share(first)}; the last {weeks} ({_days(found.last, found)}) {_weekly(last, found)}{_share(last)}."
    )
    avoided, year = found.pair.avoided, found.avoided_a_year
    if avoided is None or year is None:
        return
    word = "less" if avoided >= 0 else "more"
    pace = f", about {format_usd(abs(year))} a year at this pace" if found.count >= FULL_WEEKS else ""
    yield (
        f"For the same useful work that is {format_usd(abs(avoided) / found.count)} a week {word} than at first{pace} "
        "(an estimate: other work may waste more or less by itself)."
    )


def _days(first: date, found: Progress) -> str:
    return f"{first} to {first + timedelta(days=found.count * DAYS - 1)}"


def _weekly(total: Total, found: Progress) -> str:
    """Money and hours of one week."""
    return f"{format_usd(total.usd_wasted / found.count)} and {found.hours(total):,.1f} GPU-hours"


def _share(total: Total) -> str:
    return "" if total.usd_waste_ratio is None else f" ({percent(total.usd_waste_ratio)} of the cost)"


def _bar(week: Week) -> Bar:
    cents, wasted = cents_of(week.total.usd), cents_of(week.total.usd_wasted)
    share = f", {percent(wasted / cents)} wasted" if cents else ""
    written = usd(week.total, cents) + share
    return Bar(
        label=f"{week.first}{' *' if week.changes else ''}", useful=cents - wasted, wasted=wasted, written=written
    )


def _table(by: str, found: Progress) -> Table:
    """The worst at first, with what they waste now."""
    named = list(found.by[by].items())[:_MOST]
    rows = tuple((name, *_cells(pair, found)) for name, pair in named)
    heads = (by, "GPU-hours first", "now", "wasted first", "now", "of cost first", "now")
    return Table(
        caption=f"Wasted a week, by {by}", heads=heads, rows=rows, left=frozenset({0}), extra=frozenset({1, 2})
    )


def _cells(pair: Pair, found: Progress) -> Iterator[str]:
    for total in (pair.first, pair.last):
        yield f"{found.hours(total):,.1f}"
    for total in (pair.first, pair.last):
        yield format_usd(total.usd_wasted / found.count)
    for total in (pair.first, pair.last):
        yield "-" if total.usd_waste_ratio is None else percent(total.usd_waste_ratio)


def _changes(week: Week) -> Iterator[str]:
    """What was ordered or set, and how often gpuwatch acted."""
    yield from week.changes
    if week.stops:
        yield f"{week.stops} stop{'s' if week.stops != 1 else ''}"
    if week.starts:
        yield f"{week.starts} start{'s' if week.starts != 1 else ''}"


class StretchDocument(TypedDict):
    """Some weeks together: what was billed and wasted, in US dollars and GPU-hours; shares are of the dollars."""

    usd: str
    usd_wasted: str
    usd_waste_ratio: float | None
    gpu_hours_wasted: float


class PairDocument(TypedDict):
    """The first and the last weeks; `usd_avoided` is null where the first ones had no useful time with a price."""

    first: StretchDocument
    last: StretchDocument
    usd_avoided: str | None


class NamedPair(PairDocument):
    """Of one pool or owner."""

    name: str


class WeekDocument(StretchDocument):
    """One week, which begins on `first`; `changes` are sentences, and stops and starts are gpuwatch's."""

    first: date
    stops: int
    starts: int
    changes: list[str]


class ProgressDocument(PairDocument):
    """The first `weeks` of metering, from `first_day` on, against the last ones, from `last_day` on.

    `usd_avoided_a_year` is null with less than four weeks at each end.
    """

    weeks: int
    first_day: date
    last_day: date
    usd_avoided_a_year: str | None
    by: dict[str, list[NamedPair]]
    curve: list[WeekDocument]


def as_object(found: Progress) -> ProgressDocument:
    """Everything, in US dollars."""
    return {
        **_pair(found.pair),
        "weeks": found.count,
        "first_day": found.first,
        "last_day": found.last,
        "usd_avoided_a_year": _usd(found.avoided_a_year) if found.count >= FULL_WEEKS else None,
        "by": {by: [{"name": name, **_pair(pair)} for name, pair in pairs.items()] for by, pairs in found.by.items()},
        "curve": [
            {
                **_stretch(each.total),
                "first": each.first,
                "stops": each.stops,
                "starts": each.starts,
                "changes": list(each.changes),
            }
            for each in found.weeks
        ],
    }


def _pair(pair: Pair) -> PairDocument:
    return {"first": _stretch(pair.first), "last": _stretch(pair.last), "usd_avoided": _usd(pair.avoided)}


def _stretch(total: Total) -> StretchDocument:
    return {
        "usd": plain_usd(round(total.usd / _CENT)),
        "usd_wasted": plain_usd(round(total.usd_wasted / _CENT)),
        "usd_waste_ratio": total.usd_waste_ratio,
        "gpu_hours_wasted": round(wasted_ms(total) / 3_600_000, 3),
    }


def _usd(amount: Fraction | None) -> str | None:
    return None if amount is None else plain_usd(round(amount / _CENT))
