"""PURE: what a fleet will cost until a moment, from the machines that exist and how long such machines usually run.

Machines are counted by kind (pool, cloud, region, type, capacity), a day at a time; days end at the last full hour.
Ids say nothing: a pool that replaces its machines each night has new ones every day and costs the same. So "the third
machine of its kind" is followed over four weeks, and each such place is one of two, since the kind's last step:

- It runs, or does not run, for longer than ever before: then it stays so. How it used to be says nothing any
  more. It takes three days, and three times the longest time before.
- It comes and goes: then it runs as much as it usually did, half by the share of four weeks, half by the middle one of
  the last seven days.

A kind steps when all days since are apart from all before by more than these varied, and stay there. What grows by the
same each day goes on growing. A kind that does neither is demand more than machines: its places count for a third, the
curve of its counts (the blend of `methods`) for two thirds. Days of the week differ where they did so for weeks
(`methods.profile`), by the same share for all places. What at least two earlier months had in addition until
their ends comes again, if most of it was on the same days: work at each month's end, and no rise by chance.

The radius of the 80 % interval is the conformal quantile of how far this was off from other days, and never less than
one machine that runs, or does not run, until then.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from operator import mul
from statistics import fmean, median

from gpuwatch.model.money import format_usd
from gpuwatch.model.usage import HOUR_MS, Terms
from gpuwatch.money.accounting.totals import Billed
from gpuwatch.money.forecast.evaluation import radius
from gpuwatch.money.forecast.methods import (
    BLEND,
    DARK,
    LASTS,
    METHODS,
    Past,
    known_values,
    profile,
    since_shift,
    since_step,
    straight_line,
)
from gpuwatch.money.forecast.series import Rhythm

Kind = tuple[str, str, str, str, str]
Values = Sequence[float | None]
DAY = 86_400
_WINDOW = 28
_WEEK = 7
_PLACES = 64  # of a kind that are followed one by one; of more, several together
_SAME_DAYS = 0.7  # of what a month had in addition, on the days on which the others had it
_QUIET = 0.2  # of the week's mean: what a day of the week with less has says nothing of the others
_LEAST_DAYS = 8  # of fewer nothing can be tried
_MOST_ORIGINS = 24
_NORMAL_80 = 1.2816  # standard deviations on either side


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDays:
    """How many machines of each kind ran on average on each day up to `edge` (s since 1970); None: nobody looked."""

    edge: int
    machines: Mapping[Kind, tuple[float | None, ...]]
    usd_per_hour: Mapping[Kind, float]

    @property
    def lasting_usd_per_hour(self) -> float:
        """What an hour has cost on each of the last three days at least, at the prices of now."""
        return min((self.usd(day, day + 1) / 24 for day in range(max(0, self.days - LASTS), self.days)), default=0.0)

    @property
    def dearest_usd_per_hour(self) -> float:
        """What the dearest machine costs that ran on the last day; without any, the dearest of all."""
        ran = [usd for kind, usd in self.usd_per_hour.items() if (self.machines[kind][-1] or 0) > 0]
        return max(ran or self.usd_per_hour.values(), default=0.0)

    @property
    def days(self) -> int:
        """How many days are on record."""
        return max(map(len, self.machines.values()), default=0)

    def seen_days(self, first: int) -> tuple[int, int]:
        """How many days from that one on somebody saw, and how many nobody did."""
        days = [*zip(*(values[first:] for values in self.machines.values()), strict=True)]
        unseen = sum(all(value is None for value in each) for each in days)
        return len(days) - unseen, unseen

    def keep_days(self, days: int) -> "FleetDays":
        """The same as it was known after so many days."""
        return replace(
            self,
            edge=self.edge - (self.days - days) * DAY,
            machines={kind: values[:days] for kind, values in self.machines.items()},
        )

    def usd(self, begin: int, end: int) -> float:
        """What the days from one to another cost at the prices of now; days that nobody saw are not in it."""
        return sum(
            24 * self.usd_per_hour[kind] * sum(value for value in values[begin:end] if value is not None)
            for kind, values in self.machines.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """What comes until a moment: dollars, and the radius of the 80 % interval; None: the past is too short for one.

    `dark_usd` is what of it is for kinds that have just gone dark as a whole: they may be gone, or in maintenance.
    """

    usd: float
    radius: float | None
    dark_usd: float = 0.0
    warnings: tuple[str, ...] = ()

    def probability_above(self, usd: float) -> float | None:
        """How probable it is that more comes; never quite 0 or 1."""
        if self.radius is None:
            return None
        if not self.radius:
            return float(self.usd > usd)
        away = (usd - self.usd) / (self.radius / _NORMAL_80)
        return min(0.99, max(0.01, 0.5 * math.erfc(away / math.sqrt(2))))


def kind_of_place(terms: Terms) -> Kind:
    """What machines have in common that may stand in for each other; not their price, which may change."""
    return terms.pool, terms.cloud or "", terms.region, terms.instance_type, terms.capacity_type


def fleet_days(rows: Iterable[Billed], edge: int, days: int, unseen: frozenset[int] = frozenset()) -> FleetDays:
    """Of rows that begin before the edge, whole days up to it. Foreign machines and rows without a price are in no sum.

    `unseen` are the days, counted from the first, of which nobody knows what ran.
    """
    start = edge - days * DAY
    sums: dict[Kind, list[float]] = {}
    newest: dict[Kind, tuple[int, float, float]] = {}
    begins: dict[Kind, int] = {}
    for row in rows:
        if row.terms.usd_per_hour is None or row.terms.foreign is not None:
            continue
        kind, hours = kind_of_place(row.terms), float(row.node_ms) / HOUR_MS
        mine = sums.setdefault(kind, [0.0] * days)
        begins[kind] = min(begins.get(kind, row.begin), row.begin)
        at, usd, over = newest.get(kind, (row.begin, 0.0, 0.0))
        if row.begin > at:
            at, usd, over = row.begin, 0.0, 0.0
        if row.begin == at:
            newest[kind] = (at, usd + float(row.terms.usd_per_hour) * hours, over + hours)
        for day in range(max(0, (row.begin - start) // DAY), days):
            first = start + day * DAY
            both = min(row.begin + row.span, first + DAY) - max(row.begin, first)
            if both <= 0:
                break
            mine[day] += hours * both / row.span / 24
    for kind, begin in begins.items():
        if edge - DAY < begin < edge:  # a kind's first day counts from its first hour on
            sums[kind][-1] *= DAY / (edge - begin)
    return FleetDays(
        edge=edge,
        machines={
            kind: tuple(None if day in unseen else value for day, value in enumerate(values))
            for kind, values in sums.items()
        },
        usd_per_hour={kind: usd / over if over else 0.0 for kind, (_, usd, over) in newest.items()},
    )


def coming(fleet: FleetDays, seconds: float, month_ends: Sequence[int] = ()) -> Coming:
    """What a fleet will cost from its edge on, for so long.

    Args:
        fleet: its days so far.
        seconds: how far ahead.
        month_ends: the ends of earlier months (s since 1970), for work that comes once a month.

    """
    ahead = seconds / DAY
    floor = fleet.dearest_usd_per_hour * seconds / 3600
    monthly, fleet = _apart_monthly(fleet, ahead, month_ends)
    usd = _expected_usd(fleet, ahead)
    if fleet.days < _LEAST_DAYS:
        short = (
            f"history is too short: {fleet.days} day{'s' * (fleet.days != 1)}, {_LEAST_DAYS} are needed to see how far "
            "such a forecast was off; it has no interval"
        )
        return Coming(usd=usd, radius=None, warnings=(short,))
    held = max(1, min(math.ceil(ahead), (fleet.days - _WEEK) // 2))
    last = fleet.days - held
    first = _WINDOW if last >= 2 * _WINDOW else _WEEK  # where as much was known as now, if there are enough such days
    stride = max(1, math.ceil((last - first + 1) / _MOST_ORIGINS))
    errors = [
        fleet.usd(origin, origin + held) - _expected_usd(fleet.keep_days(origin), held)
        for origin in range(last, first - 1, -stride)
    ]
    reach = (radius(errors) or 0.0) * (ahead / held if held < ahead else min(1.0, ahead / held))
    dark = _dark_usd(fleet, ahead)
    return Coming(usd=usd + monthly, radius=max(floor, reach, dark), dark_usd=dark)


def _expected_usd(fleet: FleetDays, ahead: float) -> float:
    """What the coming days cost, without what comes once a month."""
    return sum(usd * min(1.0, ahead - at) for at, usd in enumerate(_expected_days(fleet, math.ceil(ahead))))


def _expected_days(fleet: FleetDays, ahead: int) -> list[float]:
    """The same day by day."""
    days = [0.0] * ahead
    for kind, values in fleet.machines.items():
        for at, mean in enumerate(expected_machines(values, ahead)):
            days[at] += 24 * fleet.usd_per_hour[kind] * mean
    return days


def _dark_usd(fleet: FleetDays, ahead: float) -> float:
    """What is expected of kinds that have just gone dark as a whole."""
    dark = {
        kind: values
        for kind, values in fleet.machines.items()
        if (seen := [value for value in values[-_WINDOW:] if value is not None])[LASTS:]
        and seen[-1] < DARK * min(seen[:-LASTS])
    }
    return _expected_usd(replace(fleet, machines=dark), ahead)


def _apart_monthly(fleet: FleetDays, ahead: float, month_ends: Sequence[int]) -> tuple[float, FleetDays]:
    """What each of at least two earlier months had more on the same days, from as long before its end on.

    Second: the fleet without it. It says nothing of other days, and who expects it again was not surprised by it.
    """
    length = math.ceil(ahead)
    starts = [fleet.days - (fleet.edge - end) // DAY - length for end in month_ends]
    starts = [first for first in starts if _WEEK <= first <= fleet.days - length]
    if len(starts) < 2:  # noqa: PLR2004  months
        return 0.0, fleet
    more = [_more(fleet, fleet, first, length) for first in starts]
    prices = [24 * usd for usd in fleet.usd_per_hour.values()]
    days = [[sum(map(mul, prices, day)) for day in zip(*each.values(), strict=True)] for each in more]
    if not sum(_common(days)) > _SAME_DAYS * max(map(sum, days)) > 0:
        return 0.0, fleet
    left = dict[Kind, tuple[float | None, ...]]()
    for kind, values in fleet.machines.items():
        common = _common([each[kind] for each in more])
        extra = {first + at: count for first in starts for at, count in enumerate(common)}
        left[kind] = tuple([None if value is None else value - extra.get(at, 0.0) for at, value in enumerate(values)])
    others = replace(fleet, machines=left)
    # Again, since what was usual before a month's end held what came at the end before that one.
    again = [_more(fleet, others, first, length) for first in starts]
    days = [[sum(map(mul, prices, day)) for day in zip(*each.values(), strict=True)] for each in again]
    shared = [at for at, usd in enumerate(_common(days)) if usd]
    return min(sum(each[at] for at in shared) for each in days), others


def _more(fleet: FleetDays, usual: FleetDays, first: int, length: int) -> dict[Kind, list[float]]:
    """How many machines of each kind ran on each day from that one on, beyond what was usual then."""
    end = first + length
    return {
        kind: [
            (value or 0.0) - expected
            for value, expected in zip(
                values[first:end], expected_machines(usual.machines[kind][:first], length), strict=True
            )
        ]
        for kind, values in fleet.machines.items()
    }


def _common(months: Sequence[Sequence[float]]) -> list[float]:
    """What all of them had more on each day."""
    return [max(0.0, min(day)) for day in zip(*months, strict=True)]


def expected_machines(values: Values, ahead: int) -> list[float]:
    """How many machines of a kind will run on each coming day."""
    recent = list(values[-_WINDOW:])
    line = straight_line(known_values(recent))
    if line is not None:
        end, slope = line
        return [max(0.0, end + slope * (at + 1)) for at in range(ahead)]
    shape = _week_shape(recent)
    size = len(recent)
    plain = [
        value / shape[(at - size) % _WEEK]
        for at, value in enumerate(recent)
        if value is not None and shape[(at - size) % _WEEK] >= _QUIET
    ]
    if not plain:
        return [0.0] * ahead
    level = usual_machines(plain)
    found = [level * shape[at % _WEEK] for at in range(ahead)]
    if len(since_step(plain)) < len(plain):
        return found
    rhythm = Rhythm.at_step(DAY)
    blend = METHODS[BLEND](Past.from_values(since_shift(values, rhythm), rhythm), ahead)
    return [(by_place + 2 * max(0.0, whole)) / 3 for by_place, whole in zip(found, blend, strict=True)]


def usual_machines(days: Sequence[float]) -> float:
    """How many of a kind usually run, place by place."""
    days = since_step(days)
    low, top = min(days), max(days)
    size = max(1.0, (top - low) / _PLACES)
    total = base = low
    while base < top:
        total += size * _usual_place([min(1.0, max(0.0, (value - base) / size)) for value in days])
        base += size
    return min(top, total)


def _usual_place(days: Sequence[float]) -> float:
    """The part of the time that a place is taken, of the part on each day."""
    taken = [part >= 0.5 for part in days]  # noqa: PLR2004  half
    now, lasts, longest, lasted = taken[-1], 0, 0, 0
    for each in reversed(taken):
        if each is not now:
            break
        lasts += 1
    for each in taken[: len(taken) - lasts]:
        lasted = lasted + 1 if each is now else 0
        longest = max(longest, lasted)
    if lasts > LASTS * longest and lasts >= min(LASTS, len(days)):
        return fmean(days[1 - lasts :] if lasts > 1 else days[-1:])
    return (median(days[-_WEEK:]) + fmean(days)) / 2


def _week_shape(values: Values) -> list[float]:
    """What part of the week's mean each of the coming days has; ones where weeks show no such rhythm."""
    parts: list[float | None] = [None] * len(values)
    for end in range(len(values), _WEEK - 1, -_WEEK):
        week = [value for value in values[end - _WEEK : end] if value is not None]
        mean = fmean(week) if len(week) * 2 > _WEEK else 0.0
        for at in range(end - _WEEK, end):
            value = values[at]
            parts[at] = value / mean if value is not None and mean > 0 else None
    return [max(0.0, 1 + height) for height in profile(parts, _WEEK)]


def fleet_change(fleet: FleetDays, now: datetime) -> str | None:
    """The dearest step of the last two weeks as a clause, such as `6 machines more in pool serving since Thursday`."""
    found: list[tuple[float, str]] = []
    for kind, values in fleet.machines.items():
        days = [value for value in values[-_WINDOW:] if value is not None]
        since = since_step(days)
        if len(since) == len(days) or len(since) > 2 * _WEEK:
            continue
        before = days[: -len(since) - 1]
        here, then = fmean(since), fmean(before[-_WEEK:])
        count = round(here - then)
        if not count:
            continue
        part = min(1.0, max(0.0, (days[-len(since) - 1] - then) / (here - then)))
        at = datetime.fromtimestamp(fleet.edge - (len(since) + part) * DAY, UTC).astimezone(now.tzinfo)
        day = f"{at:%A}" if len(since) < _WEEK - 1 else f"{at:%Y-%m-%d}"
        usd = abs(count) * fleet.usd_per_hour[kind]
        words = f"{abs(count)} machine{'s' * (abs(count) != 1)} {'more' if count > 0 else 'fewer'} in pool {kind[0]}"
        found.append((usd, f"{words} since {day}, {format_usd(Decimal(str(round(usd, 2))))} an hour"))
    return max(found)[1] if found else None
