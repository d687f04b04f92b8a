"""PURE: waste in the first weeks of metering against the last ones, in hours and money, and what changed between.

Rules, all of them:

1. Weeks are seven local days. The first ones begin with the first whole day on record, the last ones end with the last
   whole day; they never overlap. There are four of each, or as many as there are: with less than two weeks, nothing is
   said.
2. Waste is what it is everywhere: billed time that was seen and of no use, with the prices of its time. Time of which
   nobody knows the use is in neither waste nor useful time; it stands apart.
3. Avoided is what the last weeks would have wasted for each dollar of useful time as the first weeks did, less what
   they wasted. It is an estimate: other work may waste more or less by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from gpuwatch.model.decision import Verb
from gpuwatch.model.money import usd_to_the_cent
from gpuwatch.model.usage import HOUR_MS, Terms
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.totals import Document, Named, Row, Total, whole

DAYS = 7
FULL_WEEKS = 4
_WEEKS_A_YEAR = Fraction(36525, 700)
_NONE = "(none)"
_Name = TypeVar("_Name", str, tuple[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """One week of the curve, which begins on that day; `stops` and `starts` are those that gpuwatch carried out."""

    first: date
    total: Total
    stops: int = 0
    starts: int = 0
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The first and the last weeks of everything, or of one pool or owner."""

    first: Total
    last: Total

    @property
    def avoided(self) -> Fraction | None:
        """Rule 3, in dollars; None: the first weeks had no useful time with a price."""
        if not self.first.usd_useful:
            return None
        return self.first.usd_wasted / self.first.usd_useful * self.last.usd_useful - self.last.usd_wasted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Rule 1: so many weeks at each end, from these days on."""

    count: int
    first: date
    last: date

    @property
    def length(self) -> timedelta:
        """How long each end is."""
        return timedelta(days=self.count * DAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedEnds:
    """Only the ends, by pool and owner; "" is nobody."""

    ends: Ends
    pairs: Mapping[tuple[str, str], Pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """So many weeks at each end, from these days on, and every week between."""

    count: int
    first: date
    last: date
    pair: Pair
    by: Mapping[str, Mapping[str, Pair]]
    weeks: tuple[Week, ...]

    @property
    def avoided_a_year(self) -> Fraction | None:
        """The last weeks' avoided waste, drawn out to a year."""
        avoided = self.pair.avoided
        return None if avoided is None else avoided / self.count * _WEEKS_A_YEAR

    def hours(self, total: Total) -> float:
        """GPU-hours that were wasted, a week."""
        return total.wasted_ms / HOUR_MS / self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that may have changed the waste, when it was, and its sentence; "" is a stop or a start."""

    at: datetime
    verb: Verb | None = None
    what: str = ""


def progress(
    rows: Sequence[Row], began: datetime, end: date, calendar: Calendar, events: Iterable[Event] = ()
) -> Progress | None:
    """Of rows by time since metering began, up to the day `end`, which does not count; None: rule 1."""
    found = ends_of(began, end, calendar)
    if found is None:
        return None
    dated = [(calendar.local((row.begin or 0) * 1000).date(), row) for row in rows]
    early = [row for day, row in dated if found.first <= day < found.first + found.length]
    late = [row for day, row in dated if found.last <= day < end]
    return Progress(
        count=found.count,
        first=found.first,
        last=found.last,
        pair=Pair(first=_total(early), last=_total(late)),
        by={name: _pairs(early, late, of) for name, of in _BY.items()},
        weeks=_weeks(dated, found.first, end, calendar, list(events)),
    )


def ends_of(began: datetime, end: date, calendar: Calendar) -> Ends | None:
    """Rule 1, up to the day `end`, which does not count; None: less than two weeks."""
    local = began.astimezone(calendar.zone)
    midnight = calendar.midnight(local.date())
    start = local.date() if began.timestamp() <= midnight else local.date() + timedelta(days=1)
    count = min(FULL_WEEKS, (end - start).days // (2 * DAYS))
    return Ends(count=count, first=start, last=end - timedelta(days=count * DAYS)) if count >= 1 else None


def compare_ends(ends: Ends, early: Iterable[Row], late: Iterable[Row]) -> ComparedEnds:
    """The same figures as `progress`, of rows of the ends alone."""
    return ComparedEnds(ends=ends, pairs=_pairs(early, late, lambda terms: (terms.pool, terms.owner or "")))


_BY: Mapping[str, Callable[[Terms], str]] = {
    "pool": lambda terms: terms.pool,
    "owner": lambda terms: terms.owner or _NONE,
}


def _total(rows: Iterable[Row]) -> Total:
    made = Total()
    for row in rows:
        made.add(row)
    return made


def _pairs(early: Iterable[Row], late: Iterable[Row], of: Callable[[Terms], _Name]) -> dict[_Name, Pair]:
    """By name, what wasted the most at first before the others."""
    found: dict[_Name, Pair] = {}
    for row in early:
        if row.terms.foreign is None:
            found.setdefault(of(row.terms), Pair(first=Total(), last=Total())).first.add(row)
    for row in (each for each in late if each.terms.foreign is None):
        found.setdefault(of(row.terms), Pair(first=Total(), last=Total())).last.add(row)
    return dict(sorted(found.items(), key=lambda item: (-item[1].first.usd_wasted, -item[1].last.usd_wasted, item[0])))


def _weeks(
    dated: Sequence[tuple[date, Row]], start: date, end: date, calendar: Calendar, events: Sequence[Event]
) -> tuple[Week, ...]:
    """The whole weeks that end with the last one; days before the first whole week are in none."""
    count = (end - start).days // DAYS
    first = end - timedelta(days=count * DAYS)
    totals: dict[int, Total] = {}
    for day, row in dated:
        if first <= day < end:
            totals.setdefault((day - first).days // DAYS, Total()).add(row)
    found: dict[int, list[Event]] = {}
    for each in events:
        day = each.at.astimezone(calendar.zone).date()
        if first <= day < end:
            found.setdefault((day - first).days // DAYS, []).append(each)
    return tuple(
        Week(
            first=first + timedelta(days=number * DAYS),
            total=totals.get(number, whole(())),
            stops=sum(each.verb in {Verb.STOP, Verb.TERMINATE} for each in found.get(number, ())),
            starts=sum(each.verb is Verb.START for each in found.get(number, ())),
            changes=tuple(dict.fromkeys(each.what for each in found.get(number, ()) if each.what)),
        )
        for number in range(count)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchDocument:
    """Some weeks together: what was billed and wasted, in US dollars and GPU-hours; shares are of the dollars.

    Wasted is proven: `usd_unproven` is of time of which nobody knows the use.
    """

    usd: Decimal
    usd_wasted: Decimal
    usd_unproven: Decimal
    usd_waste_ratio: float | None
    gpu_hours_wasted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDocument:
    """The first and the last weeks; `usd_avoided` is null where the first ones had no useful time with a price."""

    first: StretchDocument
    last: StretchDocument
    usd_avoided: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPair(PairDocument, Named):
    """The weeks of one pool or owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekDocument(StretchDocument):
    """One week, which begins on `first`; `changes` are sentences, and stops and starts are gpuwatch's."""

    first: date
    stops: int
    starts: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressDocument(PairDocument):
    """The first `weeks` of metering, from `first_day` on, against the last ones, from `last_day` on.

    `usd_avoided_a_year` is null with less than four weeks at each end.
    """

    weeks: int
    first_day: date
    last_day: date
    usd_avoided_a_year: Decimal | None
    by: Mapping[str, tuple[NamedPair, ...]]
    curve: tuple[WeekDocument, ...]


def progress_document(found: Progress) -> ProgressDocument:
    """All weeks, in US dollars."""
    return _pair(
        ProgressDocument,
        found.pair,
        weeks=found.count,
        first_day=found.first,
        last_day=found.last,
        usd_avoided_a_year=_usd(found.avoided_a_year) if found.count >= FULL_WEEKS else None,
        by={
            by: tuple(_pair(NamedPair, pair, name=name) for name, pair in pairs.items())
            for by, pairs in found.by.items()
        },
        curve=tuple(
            _stretch(
                WeekDocument, each.total, first=each.first, stops=each.stops, starts=each.starts, changes=each.changes
            )
            for each in found.weeks
        ),
    )


def _pair(kind: Callable[..., Document], pair: Pair, **more: object) -> Document:
    first, last = (_stretch(StretchDocument, total) for total in (pair.first, pair.last))
    return kind(first=first, last=last, usd_avoided=_usd(pair.avoided), **more)


def _stretch(kind: Callable[..., Document], total: Total, **more: object) -> Document:
    return kind(
        usd=usd_to_the_cent(total.usd),
        usd_wasted=usd_to_the_cent(total.usd_wasted),
        usd_unproven=usd_to_the_cent(total.usd_unproven),
        usd_waste_ratio=total.usd_waste_ratio,
        gpu_hours_wasted=round(total.wasted_ms / HOUR_MS, 3),
        **more,
    )


def _usd(amount: Fraction | None) -> Decimal | None:
    return None if amount is None else usd_to_the_cent(amount)
