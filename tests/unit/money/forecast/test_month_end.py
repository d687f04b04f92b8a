"""Where a month and a year will end."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.money.forecast.machines import FleetDays
from gpuwatch.money.forecast.month_end import MACHINES, MonthEnd, month_end, year_ahead
from gpuwatch.money.forecast.series import Series
from tests.support.nightly import examples

BERLIN = ZoneInfo("Europe/Berlin")
DAY, HOUR = 86400.0, 3600.0


def spend(begin: datetime, step: float, values: Sequence[float | None]) -> Series:
    """Dollars per step."""
    return Series(start=begin.astimezone(UTC), step_seconds=step, values=tuple(values))


def a_fleet(now: datetime, dollars: Sequence[float | None]) -> FleetDays:
    """Machines at $10 a day each that cost so much on each day up to now."""
    counts = tuple(None if usd is None else usd / 10 for usd in dollars)
    kind = ("default", "", "us-east-1", "g6.xlarge", "on_demand")
    return FleetDays(edge=int(now.timestamp()), machines={kind: counts}, usd_per_hour={kind: 10 / 24})


def of_month(now: datetime, dollars: Sequence[float | None], budget: Decimal | None = None) -> MonthEnd:
    """The month's end of such a fleet; what is spent are the days of the month."""
    begun = now.astimezone(now.tzinfo).day - 1
    spent = sum((Fraction(usd or 0) for usd in dollars[len(dollars) - begun :] if begun), Fraction(0))
    return month_end(a_fleet(now, dollars), spent, now, budget)


def test_a_steady_month_ends_where_its_days_lead() -> None:
    """$10 a day make $300 in June, whenever one asks, give or take one machine; a budget of $250 will not hold."""
    for day in (2, 10, 29):
        now = datetime(2026, 6, day, tzinfo=UTC)
        result = of_month(now, [10.0] * 60, Decimal(250))

        assert result.month == datetime(2026, 6, 1, tzinfo=UTC)
        assert result.actual == 10 * (day - 1)
        assert (result.expected, result.lower) == (Decimal(300), result.actual)
        assert result.upper == 300 + 10 * (31 - day)


@pytest.mark.parametrize("history", [16, 30, 60])
def test_a_growing_month_ends_where_its_growth_leads(history: int) -> None:
    """Days that cost $3 more than the day before go on so until the month's end: budgets and reports see it coming."""
    now = datetime(2026, 6, 20, tzinfo=UTC)
    costs = [100.0 + 3 * day for day in range(history + 11)]
    june = sum(costs[max(0, history - 19) :])

    spent = Fraction(sum(costs[max(0, history - 19) : history]))
    assert float(month_end(a_fleet(now, costs[:history]), spent, now).expected) == pytest.approx(june)


@pytest.mark.parametrize(
    ("month", "days", "hours"), [(2, 28, 672), (3, 31, 743), (4, 30, 720), (10, 31, 745), (12, 31, 744)]
)
def test_a_month_has_the_hours_of_its_zone(month: int, days: int, hours: int) -> None:
    """In Berlin March is an hour short and October an hour long; a dollar an hour shows it."""
    now = datetime(2026, month, days // 2, tzinfo=BERLIN)
    begun = Fraction((now.astimezone(UTC) - now.replace(day=1).astimezone(UTC)) / timedelta(hours=1))
    result = month_end(a_fleet(now, [24.0] * 60), begun, now)

    assert result.expected == hours
    assert result.month == datetime(2026, month, 1, tzinfo=BERLIN)


@given(st.lists(st.floats(0, 1000), min_size=40, max_size=70), st.integers(1, 28), st.integers(0, 50000))
@settings(deadline=None, max_examples=examples(25))
def test_bounds_are_ordered_and_what_is_spent_stays_spent(values: list[float], day: int, budget: int) -> None:
    """Actual <= lower <= expected <= upper, and the probability of exceeding falls as the budget grows."""
    now = datetime(2026, 6, day, tzinfo=UTC)
    result, more = of_month(now, values, Decimal(budget)), of_month(now, values, Decimal(budget + 1000))

    assert result.lower is not None
    assert result.upper is not None
    assert result.actual <= result.lower <= result.expected <= result.upper
    assert result.probability_over is not None
    assert more.probability_over is not None
    assert more.probability_over <= result.probability_over


def test_a_budget_that_is_exceeded_is_exceeded_for_certain() -> None:
    """What is spent is no forecast; a budget far away is unlikely to be reached."""
    now = datetime(2026, 6, 20, tzinfo=UTC)
    days = [90.0, 110.0] * 30

    assert of_month(now, days, Decimal(1000)).probability_over == 1.0
    assert (of_month(now, days, Decimal(2700)).probability_over or 0) > 0.9
    assert (of_month(now, days, Decimal(3400)).probability_over or 1) < 0.1
    assert of_month(now, days).probability_over is None


def test_at_the_months_end_nothing_is_forecast() -> None:
    """Where the whole month is measured the total is that, to the cent."""
    now = datetime(2026, 6, 30, 23, 59, tzinfo=UTC)
    end = a_fleet(datetime(2026, 7, 1, tzinfo=UTC), [1.11] * 61)
    whole = month_end(end, Fraction("33.30"), now, Decimal("33.30"))

    assert (whole.method, whole.probability_over) == ("measured", 0.0)
    assert (whole.expected, whole.lower, whole.upper) == (Decimal("33.30"),) * 3
    assert of_month(now.replace(hour=1, minute=0), [1.11] * 61).method == MACHINES


def test_missing_days_of_the_month_are_counted_at_the_mean_of_the_others() -> None:
    """Not at zero, and said."""
    now = datetime(2026, 6, 21, tzinfo=UTC)
    values: list[float | None] = [10.0] * 60
    values[-5:-1] = [None] * 4
    result = of_month(now, values)

    assert (result.actual, result.expected, result.missing_steps) == (Decimal(160), Decimal(300), 4)
    assert any(warning.startswith("4 days of this month hold no value") for warning in result.warnings)


def test_a_short_history_gives_a_forecast_without_bounds() -> None:
    """Two days are a first guess, flagged, and no probability."""
    result = of_month(datetime(2026, 6, 3, tzinfo=UTC), [10.0, 10.0], Decimal(200))

    assert (result.expected, result.lower, result.upper, result.probability_over) == (Decimal(300), None, None, None)
    assert "history is too short" in result.warnings[0]


def test_a_year_is_twelve_months_at_the_last_level() -> None:
    """$10 a day: each month its days times ten, leap years included."""
    now = datetime(2027, 11, 20, tzinfo=UTC)
    rows = year_ahead(spend(now - timedelta(days=500), DAY, [10.0] * 500), now)

    assert [(month.month.month, int(month.expected)) for month in rows] == [
        (12, 310),
        (1, 310),
        (2, 290),
        (3, 310),
        (4, 300),
        (5, 310),
        (6, 300),
        (7, 310),
        (8, 310),
        (9, 300),
        (10, 310),
        (11, 300),
    ]
    assert all(month.lower == month.expected == month.upper and not month.warnings for month in rows)


def test_the_further_a_month_the_wider_its_interval() -> None:
    """Beyond what half a year of history could try, intervals grow with the square root of time, and say so."""
    now = datetime(2026, 6, 30, tzinfo=UTC)
    rows = year_ahead(spend(now - timedelta(days=180), DAY, [10.0 + at % 13 for at in range(180)]), now)
    widths = [month.upper - month.expected for month in rows if month.upper is not None]

    assert len(widths) == 12
    assert widths[-1] > 1.4 * float(widths[4]) > 0
    assert "can try" in rows[0].warnings[0]


def test_a_year_from_a_month_has_no_intervals() -> None:
    """Thirty days cannot say how far thirty days may be off."""
    now = datetime(2026, 6, 30, tzinfo=UTC)
    rows = year_ahead(spend(now - timedelta(days=30), DAY, [10.0] * 30), now)

    assert {month.lower for month in rows} == {None}
    assert "no intervals" in rows[0].warnings[0]
    with pytest.raises(ValueError, match="no whole day"):
        year_ahead(spend(now, DAY, [None]), now)


def test_hours_make_the_same_year_as_days() -> None:
    """24 hours of a dollar are a day of 24."""
    now = datetime(2026, 6, 30, tzinfo=UTC)
    by_hour = year_ahead(spend(now - timedelta(days=100), HOUR, [1.0] * 2400), now)
    by_day = year_ahead(spend(now - timedelta(days=100), DAY, [24.0] * 100), now)

    assert by_hour == by_day


def seasons(months: int, now: datetime) -> Series:
    """Whole months before the one of `now` at $10 a day, $30 in December; of that month no day."""
    first = now.year * 12 + now.month - 1 - months
    begin = datetime(first // 12, first % 12 + 1, 1, tzinfo=UTC)
    days = (now - begin).days
    return spend(begin, DAY, [30.0 if (begin + timedelta(days=at)).month == 12 else 10.0 for at in range(days)])


def test_with_two_years_known_a_year_has_its_season() -> None:
    """Every December cost three times as much; so does the next one. 23 months are too short."""
    now = datetime(2026, 7, 1, tzinfo=UTC)
    known, short = year_ahead(seasons(24, now), now), year_ahead(seasons(23, now), now)

    december = next(row for row in known if row.month.month == 12)
    assert float(december.expected) == pytest.approx(31 * 30.0, rel=0.02)
    assert float(known[0].expected) == pytest.approx(31 * 10.0, rel=0.02), "August"
    assert {row.method for row in known} == {"28-day mean, season of the year"}
    assert {float(row.expected) / 31 for row in short if row.month.month in {8, 10, 12}} == {10.0}
    assert {row.method for row in short} == {"28-day mean"}


def test_the_season_of_now_is_not_taken_for_the_level() -> None:
    """Asked on the first of January, after the dear December: the level is that of the other months."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    known = year_ahead(seasons(36, now), now)

    assert float(known[0].expected) == pytest.approx(28 * 10.0, rel=0.02), "February"
    assert float(known[10].expected) == pytest.approx(31 * 30.0, rel=0.02), "December"
