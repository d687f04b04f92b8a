"""The ways to forecast, each for itself."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.money.forecast.methods import METHODS, Past, since_shift
from gpuwatch.money.forecast.series import Rhythm

HOURS, DAYS = Rhythm.at_step(3600), Rhythm.at_step(86400)
WEEK = [10.0, 10.0, 10.0, 10.0, 10.0, 2.0, 1.0]

values_with_holes = st.lists(st.none() | st.integers(-1000, 1000).map(float), min_size=1, max_size=80).filter(
    lambda values: any(value is not None for value in values)
)
names = st.sampled_from(sorted(METHODS))


def forecast_by(
    name: str, values: Sequence[float | None], steps: int = 7, rhythm: Rhythm = DAYS, month: int = 10
) -> list[float]:
    """A method's forecast."""
    return METHODS[name](Past.from_values(values, rhythm, month), steps)


@given(names, values_with_holes, st.sampled_from([HOURS, DAYS]), st.integers(1, 50))
def test_every_step_is_told_whatever_the_holes(
    name: str, values: list[float | None], rhythm: Rhythm, steps: int
) -> None:
    """So many finite values as steps; one known value is enough."""
    means = forecast_by(name, values, steps, rhythm)

    assert len(means) == steps
    assert all(-1e9 < mean < 1e9 for mean in means)


@given(names, values_with_holes, st.integers(-1000, 1000), st.sampled_from([0.25, 1.0, 3.0, 1000.0]))
def test_a_shifted_and_stretched_past_has_a_shifted_and_stretched_future(
    name: str, values: list[float | None], shift: int, scale: float
) -> None:
    """Dollars or cents, with or without a fixed cost on top: the same forecast."""
    before = forecast_by(name, values)
    after = forecast_by(name, [None if value is None else value * scale + shift for value in values])

    assert after == pytest.approx([mean * scale + shift for mean in before], rel=1e-6, abs=1e-3 * max(1.0, scale))


@given(names, st.floats(-1e6, 1e6), st.integers(1, 60), st.sampled_from([HOURS, DAYS]))
def test_what_never_changed_will_not(name: str, value: float, length: int, rhythm: Rhythm) -> None:
    """A constant series is forecast as that constant."""
    assert forecast_by(name, [value] * length, 5, rhythm) == pytest.approx([value] * 5)


@pytest.mark.parametrize("name", ["blend", "smoothing", "theta", "fading", "seasonal naive (week)"])
def test_a_week_is_seen(name: str) -> None:
    """Eight equal weeks are followed by a ninth."""
    assert forecast_by(name, WEEK * 8) == pytest.approx(WEEK, abs=0.5)


@pytest.mark.parametrize("name", ["blend", "smoothing", "fading", "seasonal naive (day)"])
def test_a_day_of_hours_is_seen_with_a_hole_in_it(name: str) -> None:
    """A night that was not measured is no quiet night."""
    day = [1.0] * 8 + [9.0] * 10 + [1.0] * 6
    values: list[float | None] = [*day * 10]
    values[30:36] = [None] * 6

    assert forecast_by(name, values, 24, HOURS) == pytest.approx(day, abs=0.5)


def test_quiet_weekends_are_seen_in_hours() -> None:
    """On Friday night the blend of hours expects a quiet Saturday."""
    working, quiet = [1.0] * 8 + [9.0] * 10 + [1.0] * 6, [1.0] * 24
    weeks = (working * 5 + quiet * 2) * 6

    means = forecast_by("blend", [*weeks, *working * 5], 48, HOURS)

    assert max(means) < 5, "a Saturday like a working day would reach 9"


def test_chance_is_no_week() -> None:
    """A profile that two weeks happen to share in part is not taken for a season."""
    values = [5.0, 7.0, 4.0, 6.0, 5.0, 3.0, 5.0, 5.0, 4.0, 6.0, 6.0, 4.0, 5.0, 5.0]

    assert len(set(forecast_by("smoothing", values))) == 1


def test_each_simple_method_is_what_its_name_says() -> None:
    """Means, the last value, last week's, this month's."""
    values = [float(at) for at in range(20)]

    assert forecast_by("7-day mean", values, 2) == [16.0, 16.0]
    assert forecast_by("naive", values, 2) == [19.0, 19.0]
    assert forecast_by("seasonal naive (week)", values, 8) == [13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 13.0]
    assert forecast_by("run rate", values, 2, month=4) == [17.5, 17.5]
    assert forecast_by("run rate", values, 2, month=0) == [16.0, 16.0], "on the first of a month: of the last week"


def test_a_trend_goes_on_half_as_steep() -> None:
    """Theta is the method for growth."""
    means = forecast_by("theta", [2.0 * at for at in range(40)])

    assert [after - before for before, after in pairwise(means)] == pytest.approx([1.0] * 6)


def test_a_step_fades_towards_the_usual_level() -> None:
    """Between the last value and the median, nearer to the median the further ahead."""
    means = forecast_by("fading", [1.0, 2.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 9.0, 9.0, 9.0], 10)

    assert means == sorted(means, reverse=True)
    assert 9 > means[0] > means[-1] > 1


def test_a_burst_does_not_lift_what_is_usual() -> None:
    """Two days at 90 among four weeks at 2: the last season's median, fading and the blend still end at 2."""
    values = [2.0] * 20 + [90.0, 90.0] + [2.0] * 8

    for name in ("median", "fading", "blend"):
        assert forecast_by(name, values, 10)[-1] == pytest.approx(2.0, abs=1.0), name


def test_the_blend_is_the_middle_of_three() -> None:
    """Of smoothed level, fading and the median of the last two weeks: by hand for a rise on the last day."""
    values = [1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 12.0]
    past = Past.from_values(values, DAYS)
    fading = METHODS["fading"](past, 3)

    assert METHODS["blend"](past, 3) == [sorted((past.level, 2.0, each))[1] for each in fading]


@pytest.mark.parametrize(("season", "rhythm"), [(7, DAYS), (24, HOURS)])
def test_what_lay_before_a_shift_is_forgotten(season: int, rhythm: Rhythm) -> None:
    """A season that lies close together, far from the median of the season before: only that is left."""
    before = [50.0 + at % 3 for at in range(5 * season)]
    after = [20.0 + at % 2 / 10 for at in range(season)]

    assert [*since_shift([*before, *after], rhythm)] == after
    assert [*since_shift([*before, *after[:-1]], rhythm)] == [*before, *after[:-1]], "less than a season is too early"
    assert [*since_shift(before, rhythm)] == before
    assert [*since_shift([*before[:-1], 500.0, *before], rhythm)] == [*before[:-1], 500.0, *before], "one outlier"


def test_a_quiet_sunday_is_no_shift() -> None:
    """A day of zeros after a week's work is a shift only if there was none a week before."""
    week = [9.0 + at % 5 for at in range(6 * 24)] + [0.0] * 24

    assert [*since_shift(week * 2, HOURS)] == week * 2
    assert [*since_shift([9.0 + at % 5 for at in range(13 * 24)] + [0.0] * 24, HOURS)] == [0.0] * 24


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=80))
def test_only_a_beginning_is_ever_forgotten(values: list[float | None]) -> None:
    """What is left are the last values as they stand, a season of them at the least."""
    left = since_shift(values, DAYS)

    assert [*left] == values[len(values) - len(left) :]
    assert len(left) >= min(7, len(values))
