"""Where a month and the coming year will end: what was spent, and a forecast of the rest with its interval.

A month's rest is forecast from the machines that exist (`machines`), a year from a series of amounts per step
(dollars a day or an hour), so that they add up. Months are those of the zone of `now`: one with a clock change is
an hour longer or shorter, and is counted so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from statistics import fmean

from gpuwatch.money.forecast.evaluation import longer, radius
from gpuwatch.money.forecast.machines import FleetDays, coming, fleet_change
from gpuwatch.money.forecast.methods import profile
from gpuwatch.money.forecast.series import DAY_SECONDS, Series

_CENT = Decimal("0.01")
_MONTH_DAYS = 30
_LEVEL_DAYS = 28
_ENOUGH = 4
_YEAR = 12
_SHORTEST_MONTH_DAYS = 28
_EARLIER = 3  # months that may show work that comes once a month
MACHINES = "the machines that exist"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthEnd:
    """A month's total. Bounds of the 80 % interval and the probability are None where the past is too short."""

    month: datetime
    actual: Decimal  # of what was measured so far
    missing_steps: int  # days gone by that nobody saw; counted at the mean of the others
    expected: Decimal
    lower: Decimal | None
    upper: Decimal | None
    probability_over: float | None  # of the budget; None without one
    method: str
    warnings: tuple[str, ...]
    lasting_usd_per_hour: Decimal | None = None  # on each of the last three days at least
    change: str | None = None  # the fleet's last step, where it had one lately
    dark_usd: Decimal = Decimal(0)  # of `expected`, for kinds of machines that have just gone dark as a whole


def month_end(fleet: FleetDays, spent: Fraction, now: datetime, budget: Decimal | None = None) -> MonthEnd:
    """The total of the month of `now`.

    Args:
        fleet: its days up to now; the last may end a little before.
        spent: what the month has cost until these days end.
        now: aware; its zone says where months begin.
        budget: the amount that the month may exceed; the answer says how probable that is.

    """
    begin, end = _month(now, 0), _month(now, 1)
    first = max(0, fleet.days - math.ceil((fleet.edge - begin.timestamp()) / DAY_SECONDS))
    known, missing = fleet.seen_days(first)
    actual = float(spent)
    unseen = fleet.usd(first, fleet.days) / known * missing if known else 0.0
    rest = max(0.0, end.timestamp() - fleet.edge)
    # Days that end before the month begins say what its first hours cost.
    ahead = coming(fleet, rest, [int(_month(now, -number).timestamp()) for number in range(_EARLIER)])
    skipped = max(0.0, begin.timestamp() - fleet.edge)
    ahead = replace(ahead, usd=unseen + (ahead.usd * (1 - skipped / rest) if rest else 0.0))
    over = None if budget is None else 1.0 if spent > budget else ahead.probability_above(float(budget) - actual)
    return MonthEnd(
        month=begin.astimezone(now.tzinfo),
        actual=_cents(actual),
        missing_steps=missing,
        expected=_cents(actual + ahead.usd),
        lower=None if ahead.radius is None else _cents(actual + max(0.0, ahead.usd - ahead.radius)),
        upper=None if ahead.radius is None else _cents(actual + ahead.usd + ahead.radius),
        probability_over=over,
        method=MACHINES if rest else "measured",
        warnings=(*ahead.warnings, *([_unseen_days(missing)] if missing else ())),
        lasting_usd_per_hour=_cents(fleet.lasting_usd_per_hour),
        change=fleet_change(fleet, now),
        dark_usd=_cents(ahead.dark_usd),
    )


def _unseen_days(count: int) -> str:
    return f"{count} day{'s' * (count != 1)} of this month hold no value; counted at the mean of the others"


def year_ahead(series: Series, now: datetime) -> tuple[MonthEnd, ...]:
    """The twelve months after the one of `now`, at the level of the last 28 days.

    Where 24 calendar months are known, each month also differs from that level as it did in the years before.
    No growth is assumed: a trend of weeks drawn out over a year is off by far more than it mends. Intervals are from
    how far 28 days' level was off as many months later in this series, beyond its length widened by the square root of
    time; with less than 79 days of history the bounds are None.

    Raises:
        ValueError: no value is known.

    """
    days = _days(series)
    known = [day for day in days[-_LEVEL_DAYS:] if day is not None] or [day for day in days if day is not None]
    if not known:
        raise ValueError("no whole day is known, so no year can be forecast")
    level, shape = fmean(known), _year_shape(series, days, now)
    if any(shape):
        ago = [_month_of(series.end - timedelta(days=number), now) for number in range(1, _LEVEL_DAYS + 1)]
        level -= fmean(shape[month % len(shape)] for month in ago)
    errors = [_month_errors(days, lead) for lead in range(12)]
    tried = sum(len(each) >= _ENOUGH for each in errors)
    warnings = [] if tried == 12 else [_short(len(days), tried)]  # noqa: PLR2004  months
    months = []
    for lead in range(12):
        begin, end = _month(now, lead + 1), _month(now, lead + 2)
        length = (end - begin).total_seconds() / DAY_SECONDS
        reach = None
        if tried:
            per_day = radius(errors[min(lead, tried - 1)])
            reach = None if per_day is None else longer(per_day, min(lead + 1, tried), lead + 1) * length
        expected = (level + shape[(lead + 1) % len(shape)]) * length
        if min(series.known) >= 0:
            expected = max(0.0, expected)
        lower = None if reach is None else expected - reach
        if lower is not None and min(series.known) >= 0:
            lower = max(lower, 0.0)
        months.append(
            MonthEnd(
                month=begin.astimezone(now.tzinfo),
                actual=Decimal("0.00"),
                missing_steps=0,
                expected=_cents(expected),
                lower=None if lower is None else _cents(lower),
                upper=None if reach is None else _cents(expected + reach),
                probability_over=None,
                method="28-day mean, season of the year" if any(shape) else "28-day mean",
                warnings=tuple(warnings),
            )
        )
    return tuple(months)


def _year_shape(series: Series, days: Sequence[float | None], now: datetime) -> list[float]:
    """Per day: how the months from that of `now` on differ from the usual; zeros without two whole years before it."""
    months: dict[int, list[float]] = {}
    lengths: dict[int, int] = {}
    for number, day in enumerate(reversed(days), start=1):
        month = _month_of(series.end - timedelta(days=number), now)
        lengths[month] = lengths.get(month, 0) + 1
        if day is not None:
            months.setdefault(month, []).append(day)
    # The oldest month may have begun before the series; one of which less than half was measured is not known.
    oldest = min(lengths, default=0)
    whole = range(oldest + (lengths.get(oldest, 0) < _SHORTEST_MONTH_DAYS), 0)
    usual = [fmean(months[each]) if 2 * len(months.get(each, ())) > lengths.get(each, 0) else None for each in whole]
    return profile(usual, _YEAR) if len(usual) >= 2 * _YEAR else [0.0]


def _month_of(day: datetime, now: datetime) -> int:
    """How many months after that of `now` a moment is, in its zone; negative before."""
    local = day.astimezone(now.tzinfo)
    return (local.year - now.year) * _YEAR + local.month - now.month


def _month(now: datetime, later: int) -> datetime:
    """When the month so many after that of `now` begins, in its zone, as UTC: only there do differences count hours."""
    month = now.month - 1 + later
    local = datetime(now.year + month // 12, month % 12 + 1, 1, tzinfo=now.tzinfo)
    return local.astimezone(UTC)


def _days(series: Series) -> list[float | None]:
    """Amounts of days, counted back from the end; a day of which less than half was measured is not known."""
    steps = max(1, round(DAY_SECONDS / series.step_seconds))
    length = max(1.0, series.step_seconds / DAY_SECONDS)
    days: list[float | None] = []
    for end in range(len(series.values), steps - 1, -steps):
        known = [value for value in series.values[end - steps : end] if value is not None]
        day = fmean(known) * steps / length if len(known) * 2 > steps else None
        days[:0] = [day] * round(length)
    return days


def _month_errors(days: Sequence[float | None], lead: int) -> list[float]:
    """Per day: how far the level of 28 days was off over thirty days, so many months later; a week between trials."""
    errors = []
    reach = (lead + 1) * _MONTH_DAYS
    for now in range(len(days) - reach, _LEVEL_DAYS - 1, -7):
        before = [day for day in days[now - _LEVEL_DAYS : now] if day is not None]
        after = [day for day in days[now + reach - _MONTH_DAYS : now + reach] if day is not None]
        if before and after:
            errors.append(fmean(after) - fmean(before))
    return errors


def _short(days: int, tried: int) -> str:
    return f"history of {days} days can try {tried} of 12 months ahead " + (
        "; later intervals are widened by the square root of time" if tried else "(79 days try the first): no intervals"
    )


def _cents(amount: float) -> Decimal:
    return Decimal(str(amount)).quantize(_CENT)
