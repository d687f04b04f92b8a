"""How samples become a series of equal steps in which a hole stays a hole."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.money.forecast.forecast import forecast
from gpuwatch.money.forecast.methods import METHODS
from gpuwatch.money.forecast.series import (
    DAY_SECONDS,
    HOUR_SECONDS,
    MONTH_SECONDS,
    Rhythm,
    Sample,
    natural_step,
    resample,
)

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)


def samples(seconds: float, values: list[float], begin: datetime = BEGIN) -> list[Sample]:
    """One value after another, so far apart."""
    return [Sample(time=begin + timedelta(seconds=seconds * at), value=each) for at, each in enumerate(values)]


@pytest.mark.parametrize(
    ("apart", "step"),
    [
        (57, 3600),
        (3600, 3600),
        (7200, 7200),
        (20000, 21600),
        (86400, 86400),
        (31 * 86400, MONTH_SECONDS),
        (40 * 86400, 40 * 86400),
    ],
)
def test_the_step_is_the_shortest_that_the_samples_fill(apart: float, step: float) -> None:
    """An hour at least; then usual parts of a day, a day, a week, whole days."""
    assert natural_step(samples(apart, [1.0] * 5)) == step


def test_a_step_is_the_mean_of_its_samples() -> None:
    """Six samples of ten minutes make an hour."""
    series = resample(samples(600, [1, 2, 3, 4, 5, 6, 10, 10, 10, 10, 10, 10]), HOUR_SECONDS)

    assert series.values == (3.5, 10.0)


def test_a_hole_is_a_hole() -> None:
    """Hours without samples, or with fewer than half of the usual ones, are not known; never zero."""
    rows = [
        each
        for each in samples(600, [1.0] * 24)
        if each.time.hour != 1 and (each.time.hour, each.time.minute) not in {(2, 0), (2, 10), (2, 20), (2, 30)}
    ]

    assert resample(rows, HOUR_SECONDS).values == (1.0, None, None, 1.0)


def test_a_step_that_is_not_over_is_left_out() -> None:
    """Three of a day's hours say nothing of the day; the forecast begins with that day."""
    series = resample(samples(3600, [1.0] * 24 + [9.0] * 3), DAY_SECONDS)

    assert series.values == (1.0,)
    assert series.end == BEGIN + timedelta(days=1)
    assert "2026-03-03 00:00 UTC" in series.notes[0]


def test_a_first_step_of_which_a_part_was_measured_is_left_out() -> None:
    """A history that begins in the afternoon begins with the next day."""
    series = resample(samples(3600, [9.0] * 6 + [1.0] * 24, BEGIN + timedelta(hours=18)), DAY_SECONDS)

    assert (series.start, series.values) == (BEGIN + timedelta(days=1), (1.0,))


@pytest.mark.parametrize("begin", [datetime(2026, 3, 20), datetime(2026, 10, 15)])  # noqa: DTZ001  wall clock times
def test_a_clock_change_moves_no_day(begin: datetime) -> None:
    """Values told at each local midnight stay one a day over a day of 23 or 25 hours."""
    zone = ZoneInfo("Europe/Berlin")
    rows = [
        Sample(time=(begin + timedelta(days=day)).replace(tzinfo=zone).astimezone(UTC), value=float(day))
        for day in range(20)
    ]

    assert resample(rows, natural_step(rows)).values == tuple(map(float, range(20)))


def test_order_does_not_matter_and_repeats_are_told() -> None:
    """Samples of one time are averaged, and the series says so."""
    rows = [*reversed(samples(3600, [1, 2, 3])), Sample(time=BEGIN, value=3.0)]
    series = resample(rows, HOUR_SECONDS)

    assert series.values == (2.0, 2.0, 3.0)
    assert series.notes == ("1 of 4 samples repeat a time; their mean is taken",)


def test_times_that_cannot_be_meant_are_refused() -> None:
    """A zero among the times does not become half a million hours of holes."""
    rows = [Sample(time=datetime(1970, 1, 1, tzinfo=UTC), value=1.0), *samples(3600, [1.0, 2.0, 3.0])]
    with pytest.raises(ValueError, match=r"1970.*steps of 3600 s; at most 200000"):
        resample(rows, HOUR_SECONDS)


def test_nothing_is_no_series() -> None:
    """An error, not an empty series."""
    with pytest.raises(ValueError, match="no values"):
        resample([], HOUR_SECONDS)


def test_a_single_sample_is_a_series_of_one() -> None:
    """A day is its step where none can be seen."""
    series = resample(samples(1, [7.0]), natural_step(samples(1, [7.0])))

    assert (series.values, series.step_seconds, series.start) == ((7.0,), DAY_SECONDS, BEGIN)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.sampled_from([HOUR_SECONDS, DAY_SECONDS]))
def test_samples_on_the_grid_are_the_series(values: list[float], step: float) -> None:
    """Samples a step apart are kept as they are, whatever time of day they begin at."""
    begin = BEGIN + timedelta(hours=7, minutes=13)

    series = resample(samples(step, values, begin), step)

    assert series.values == tuple(values)
    assert series.start == begin


@pytest.mark.parametrize(
    ("step", "season", "memory", "week"),
    [(3600, 24, 168, 168), (86400, 7, 28, 7), (21600, 4, 28, 28), (604800, 1, 12, 1), (5000, 1, 12, 121)],
)
def test_a_day_and_a_week_in_steps(step: float, season: int, memory: int, week: int) -> None:
    """Hours repeat daily, days weekly; what divides no day repeats never."""
    assert Rhythm.at_step(step) == Rhythm(season=season, memory=memory, week=week)


# Calendar months


def monthly(count: int, value: Callable[[int], float] = float) -> list[Sample]:
    """One sample on the first of each month from January 2024 on."""
    return [Sample(time=datetime(2024 + at // 12, at % 12 + 1, 1, tzinfo=UTC), value=value(at)) for at in range(count)]


def test_samples_a_month_apart_are_calendar_months() -> None:
    """28 to 31 days apart: each step begins on the first, also those to come."""
    samples = monthly(14)
    series = resample(samples, natural_step(samples))

    assert series.step_seconds == MONTH_SECONDS
    assert series.values == tuple(range(14))
    assert [series.time(at) for at in (0, 1, 2, 14)] == [
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 1, tzinfo=UTC),
        datetime(2024, 3, 1, tzinfo=UTC),
        datetime(2025, 3, 1, tzinfo=UTC),
    ]


def test_days_become_calendar_months_and_parts_of_months_are_left_out() -> None:
    """From 20 January to 10 April: February (29 days of 2) and March (31 of 3) are whole."""
    begin = datetime(2024, 1, 20, tzinfo=UTC)
    times = [begin + timedelta(days=at) for at in range(82)]
    series = resample([Sample(time=time, value=float(time.month)) for time in times], MONTH_SECONDS)

    assert (series.start, series.values) == (datetime(2024, 2, 1, tzinfo=UTC), (2.0, 3.0))
    assert series.notes == ("the month 2024-04 is not over and left out",)


def test_a_month_without_samples_is_a_hole() -> None:
    """It is not known, and no zero."""
    samples = [sample for sample in monthly(6) if sample.time.month != 3]

    assert resample(samples, MONTH_SECONDS).values == (0.0, 1.0, None, 3.0, 4.0, 5.0)


def test_a_year_is_seen_in_two() -> None:
    """Of 24 months with a busy December and a quiet August the blend expects both again; of 23 it does not."""
    wave = {7: 40.0, 11: 200.0}

    def coming(count: int) -> dict[int, float]:
        series = resample(monthly(count, lambda at: wave.get(at % 12, 100.0)), MONTH_SECONDS)
        made = forecast(series, 12, {"blend": METHODS["blend"]})
        return {step.time.month: step.mean for step in made.steps}

    assert coming(24)[12] == pytest.approx(200.0, abs=1)
    assert coming(24)[8] == pytest.approx(40.0, abs=1)
    assert coming(24)[3] == pytest.approx(100.0, abs=1)
    assert len(set(coming(23).values())) <= 12
    assert coming(23)[12] < 150
