"""What comes next: the choice of a method by the series' own past, intervals that hold, and words where it is short."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.money.forecast.evaluation import longer, movement, probability_above, radius
from gpuwatch.money.forecast.forecast import Forecast, forecast
from gpuwatch.money.forecast.methods import METHODS
from gpuwatch.money.forecast.series import Series

BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
DAY = 86400.0


def days(values: Sequence[float | None]) -> Series:
    """A series of days."""
    return Series(start=BEGIN, step_seconds=DAY, values=tuple(values))


def noise(length: int, seed: int, level: float = 100.0) -> list[float]:
    """Independent values about a level."""
    draw = random.Random(seed)
    return [draw.gauss(level, 10) for _ in range(length)]


def walk(length: int, seed: int) -> list[float]:
    """A random walk, which may go below zero."""
    draw, values = random.Random(seed), [0.0]
    for _ in range(length - 1):
        values.append(values[-1] + draw.gauss(0, 1))
    return values


def reaches(result: Forecast) -> list[float]:
    """From mean to upper bound, of each step."""
    return [step.upper - step.mean for step in result.steps if step.upper is not None]


# The choice


def test_the_blend_stands_where_nothing_is_better_by_more_than_chance() -> None:
    """On independent values the long mean is a little better; that alone replaces nothing without proof."""
    assert forecast(days(noise(40, 1)), 7).method == "blend"


def test_a_method_that_is_better_by_more_than_chance_is_taken() -> None:
    """Growth without a break, half of which theta follows and no other."""
    result = forecast(days([10.0 * at + value for at, value in enumerate(noise(120, 2, 0.0))]), 7)

    assert result.method == "theta"
    assert result.steps[6].mean > result.steps[0].mean


def test_with_less_than_eight_horizons_nothing_is_proven() -> None:
    """The same growth over eight weeks, which hold seven horizons to try, is forecast by the blend."""
    assert forecast(days([10.0 * at for at in range(56)]), 7).method == "blend"


def test_every_method_is_told_with_its_error_and_the_chosen_one_with_its_coverage() -> None:
    """The table compares like with like: the same origins for all."""
    result = forecast(days(noise(90, 3)), 7)

    assert {score.method for score in result.methods} == set(METHODS) - {"seasonal naive (day)"}
    assert len({score.origins for score in result.methods}) == 1
    assert [score.method for score in result.methods if score.coverage is not None] == [result.method]
    assert all(score.mase is not None and 0.5 < score.mase < 2 for score in result.methods)


def test_candidates_may_be_given() -> None:
    """Another's methods compete under the same rules."""
    result = forecast(days(noise(40, 1)), 7, {"oracle": lambda _, steps: [100.0] * steps, "blend": METHODS["blend"]})

    assert {score.method for score in result.methods} == {"oracle", "blend"}
    assert forecast(days(noise(40, 1)), 7, {"oracle": lambda _, steps: [100.0] * steps}).method == "oracle"


# Intervals


@given(
    st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=60).filter(
        lambda values: any(value is not None for value in values)
    ),
    st.integers(1, 20),
)
@settings(deadline=None, max_examples=40)
def test_intervals_are_ordered_whatever_the_past(values: list[float | None], steps: int) -> None:
    """Lower, mean, upper, and as many steps as asked for, one after another."""
    result = forecast(days(values), steps)

    assert [step.time for step in result.steps] == [BEGIN + timedelta(days=len(values) + at) for at in range(steps)]
    for step in result.steps:
        assert (step.lower is None) == (step.upper is None)
        if step.lower is not None and step.upper is not None:
            assert step.lower <= step.mean <= step.upper


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
@settings(deadline=None, max_examples=40)
def test_what_never_was_negative_will_not_be(values: list[float]) -> None:
    """GPUs and dollars have a floor at zero."""
    for step in forecast(days(values), 7).steps:
        assert step.mean >= 0
        assert step.lower is None or step.lower >= 0


@pytest.mark.parametrize("kind", [noise, walk])
def test_eighty_percent_intervals_hold_about_eighty_percent(kind: object) -> None:
    """On independent values and on random walks, over forty series each: between 74 and 88 %."""
    inside = of = 0
    for seed in range(40):
        values = noise(67, seed) if kind is noise else walk(67, seed)
        for step, actual in zip(forecast(days(values[:60]), 7).steps, values[60:], strict=True):
            assert step.lower is not None
            assert step.upper is not None
            of += 1
            inside += step.lower <= actual <= step.upper

    assert 0.74 < inside / of < 0.88, f"{inside} of {of}"


def test_the_backtest_says_how_often_intervals_held() -> None:
    """Each origin's interval is judged by errors that were known then; on independent values four of five hold."""
    score = forecast(days(noise(120, 5)), 7).score

    assert score is not None
    assert score.coverage == pytest.approx(0.8, abs=0.1)


def test_intervals_widen_beyond_what_could_be_tried() -> None:
    """Thirty days can try ten ahead; the thirtieth is told with more room, and a warning."""
    result = forecast(days(walk(30, 1)), 30)

    assert reaches(result)[29] > 1.5 * reaches(result)[9]
    assert any("can try 10 steps ahead of the 30" in warning for warning in result.warnings)


def test_the_radius_is_the_conformal_quantile() -> None:
    """Of nine errors the eighth; of three the largest and a third; of none nothing."""
    assert radius([float(at) for at in range(-9, 0)]) == 8.0
    assert radius([1.0, -3.0, 2.0]) == pytest.approx(4.0)
    assert radius([]) is None


def test_a_wider_past_makes_a_wider_future() -> None:
    """Movement is that of lately, and a quarter of that of ever."""
    assert movement([0.0, 8.0, 4.0, 4.0], 2) == 0.5
    assert movement([4.0, 4.0, 0.0, 8.0], 2) == 4.5
    assert movement([None], 2) == 0.0
    assert longer(2.0, 4, 16) == 4.0


def test_a_probability_is_never_certain() -> None:
    """Nine backtests that held do not promise the tenth."""
    assert probability_above([0.0] * 9, 1.0) == 0.05
    assert probability_above([2.0] * 9, 1.0) == 0.95
    assert probability_above([], 1.0) is None


# Pasts with trouble


def test_a_single_value_is_told_as_what_it_is() -> None:
    """A mean without an interval, and what is needed."""
    result = forecast(days([42.0]), 3)

    assert [(step.mean, step.lower, step.upper) for step in result.steps] == [(42.0, None, None)] * 3
    assert (result.method, result.score, result.methods) == ("7-day mean", None, ())
    assert "history is too short: 1 known step of 1 d, 16 are needed" in result.warnings[0]


def test_nothing_known_is_an_error() -> None:
    """Not a forecast of zero."""
    with pytest.raises(ValueError, match="no value is known"):
        forecast(days([None, None]), 3)
    with pytest.raises(ValueError, match="0 steps"):
        forecast(days([1.0]), 0)


def test_missing_days_are_left_out() -> None:
    """A hole in every week leaves a constant a constant; zeros would pull it down."""
    result = forecast(days([None if day % 7 == 3 else 50.0 for day in range(50)]), 7)

    assert {step.mean for step in result.steps} == {50.0}
    assert "7 of 50 steps hold no value; they are left out, not taken for zero" in result.warnings


def test_what_never_moved_is_told_without_doubt() -> None:
    """A constant has intervals of no width, and no MASE, whose denominator would be zero."""
    result = forecast(days([8.0] * 40), 7)

    assert {(step.mean, step.lower, step.upper) for step in result.steps} == {(8.0, 8.0, 8.0)}
    assert result.score is not None
    assert result.score.mase is None
    assert result.score.wape == 0.0


def test_a_new_level_is_taken_within_a_week() -> None:
    """A fleet that doubled eight days ago is forecast doubled, not at the mean of both."""
    result = forecast(days([*noise(50, 4), *noise(8, 5, 200.0)]), 7)

    assert all(step.mean > 175 for step in result.steps)


def test_negative_values_are_forecast() -> None:
    """Credits are a cost below zero."""
    result = forecast(days([-value for value in noise(50, 6)]), 7)

    assert all(-120 < step.mean < -80 and step.lower is not None and step.lower < -100 for step in result.steps)


def test_old_holes_do_not_hide_what_is_known_now() -> None:
    """A series that begins with a long hole is tried from its first value on."""
    result = forecast(days([*[None] * 30, *noise(40, 7)]), 7)

    assert result.score is not None
    assert all(80 < step.mean < 120 for step in result.steps)


def test_a_long_hole_is_bridged() -> None:
    """Half a year of hours without a value, longer than any method looks back, is no reason to fail."""
    values = [5.0 + at % 3 for at in range(300)]
    result = forecast(Series(start=BEGIN, step_seconds=3600.0, values=(*values, *[None] * 4000, *values)), 24)

    assert all(5 <= step.mean <= 7 for step in result.steps)
