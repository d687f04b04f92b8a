"""PURE: waste in the first weeks of metering against the last ones, in hours and money, and what changed between.

Rules, all of them:

1. Weeks are seven local days. The first ones begin with the first whole day on record, the last ones end with the last
   whole day; they never overlap. There are four of each, or as many as there are: with less than two weeks, nothing is
   said.
2. Waste is what it is everywhere: billed time without useful activity, with the prices of its time.
3. Avoided is what the last weeks would have wasted for each dollar of useful time as the first weeks did, less what
   they wasted. It is an estimate: other work may waste more or less by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import TypeVar

from gpuwatch.model.decision import Verb
from gpuwatch.model.usage import HOUR_MS, Terms
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.totals import Row, Total, whole

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
        useful = self.first.usd - self.first.usd_wasted
        if not useful:
            return None
        return self.first.usd_wasted / useful * (self.last.usd - self.last.usd_wasted) - self.last.usd_wasted


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
        """GPU-hours without use, a week."""
        return wasted_ms(total) / HOUR_MS / self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that may have changed the waste, when it was, and its sentence; "" is a stop or a start."""

    at: datetime
    verb: Verb | None = None
    what: str = ""


def wasted_ms(total: Total) -> int:
    """Billed GPU time without useful activity."""
    useful = next(ms for use, ms in total.gpu_ms_by_use.items() if use.value == "useful")
    return total.gpu_ms - useful


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


def compared(ends: Ends, early: Iterable[Row], late: Iterable[Row]) -> ComparedEnds:
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
        found.setdefault(of(row.terms), Pair(first=Total(), last=Total())).first.add(row)
    for row in late:
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
