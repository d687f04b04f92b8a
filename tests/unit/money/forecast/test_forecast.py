"""What comes next: the choice of a method by the series' own past, intervals that hold, and words where it is short."""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.money.forecast.evaluation import Trial, longer, movement, probability_above, radius, scores
from gpuwatch.money.forecast.forecast import Forecast, forecast
from gpuwatch.money.forecast.methods import CANDIDATES, METHODS
from gpuwatch.money.forecast.series import Series
from tests.support.nightly import examples

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


@given(st.lists(st.none() | st.integers(0, 1000), min_size=20, max_size=70), st.integers(1, 10))
@settings(deadline=None, max_examples=examples(60))
def test_the_method_with_the_smallest_error_it_shows_makes_the_forecast(values: list[float | None], steps: int) -> None:
    """Whatever the past: no method of the table did better than the one that is taken, and it is the table's first."""
    if all(value is None for value in values):
        values[0] = 1.0
    result = forecast(days(values), steps)
    shown = [score.error for score in result.methods if score.error is not None]

    assert shown == sorted(shown)
    assert result.score is None or result.methods[0].method == result.method
    assert result.score is None or result.methods[0] == result.score


def test_of_equal_methods_the_blend_is_taken() -> None:
    """On a constant none is better than another."""
    assert forecast(days([8.0] * 40), 7).method == "blend"


@given(st.integers(16, 70), st.floats(0, 1e4), st.floats(0.5, 1e3), st.booleans())
@settings(deadline=None, max_examples=examples(60))
def test_a_line_is_followed(length: int, level: float, slope: float, falls: bool) -> None:
    """What grew by as much each day goes on growing so, and what fell goes on falling; from sixteen days on."""
    line = [level + slope * at for at in range(length + 7)]
    line = line[::-1] if falls else line
    result = forecast(days(line[:length]), 7)

    assert [step.mean for step in result.steps] == pytest.approx(line[length:], rel=1e-6, abs=slope / 1000)


@pytest.mark.parametrize("length", [25, 40, 80])
def test_a_trend_is_followed_through_noise(length: int) -> None:
    """Costs that grow by 3 dollars a day, give or take 3, are forecast higher for the coming week than they are."""
    for seed in range(10):
        values = [100 + 3 * at + value * 0.3 for at, value in enumerate(noise(length, seed, 0.0))]
        means = [step.mean for step in forecast(days(values), 7).steps]
        assert means[6] - means[0] == pytest.approx(18, abs=9)
        assert means[6] == pytest.approx(100 + 3 * (length + 6), abs=15)


def test_independent_values_have_no_trend() -> None:
    """Chance is seldom drawn out into the future: of twenty such series two at most are given a slope."""
    found = [forecast(days(noise(40, seed)), 7).method for seed in range(20)]

    assert sum(name in {"trend", "theta"} for name in found) <= 2


def test_a_line_without_noise_is_told_without_doubt() -> None:
    """Sixty days that grew by 3 each leave nothing open: once it was known it was right."""
    assert reaches(forecast(days([100.0 + 3 * at for at in range(60)]), 7)) == pytest.approx([0.0] * 7, abs=1e-6)


def trended(length: int, seed: int) -> list[float]:
    """A line with noise about it."""
    return [100 + 3 * at + value for at, value in enumerate(noise(length, seed, 0.0))]


def test_every_method_is_told_with_its_error_and_the_chosen_one_with_its_coverage() -> None:
    """The table compares like with like: the same origins for all."""
    result = forecast(days(noise(90, 3)), 7)

    assert {score.method for score in result.methods} == set(CANDIDATES)
    assert len({score.origins for score in result.methods}) == 1
    assert [score.method for score in result.methods if score.coverage is not None] == [result.method]
    assert all(score.mase is not None and 0.5 < score.mase < 2 for score in result.methods)


def test_candidates_may_be_given() -> None:
    """Another's methods compete under the same rules."""
    result = forecast(days(noise(40, 1)), 7, {"oracle": lambda _, steps: [100.0] * steps, "blend": METHODS["blend"]})

    assert {score.method for score in result.methods} == {"oracle", "blend"}
    assert forecast(days(noise(40, 1)), 7, {"oracle": lambda _, steps: [100.0] * steps}).method == "oracle"


def test_luck_over_few_horizons_chooses_nobody() -> None:
    """Errors of others than the blend count 1 + 3 / n times, n horizons that do not overlap: 14 days hold few weeks."""
    trial = Trial(
        steps=7,
        origins=(20, 27, 34),
        movements=(1.0,) * 3,
        actuals=((10.0,) * 7,) * 3,
        errors={"blend": ((3.0,) * 7,) * 3, "lucky": ((1.6,) * 7,) * 3, "right": ((1.4,) * 7,) * 3},
        usual_change=4.0,
    )

    shown = {score.method: [score.error, score.mase] for score in scores(trial, "blend")}

    assert [score.method for score in scores(trial, "blend")] == ["right", "blend", "lucky"]
    assert shown["blend"] == pytest.approx([(3.0 + 3.0) / 4, 3.0 / 4])
    assert shown["lucky"] == pytest.approx([(1.6 + 1.6) * (1 + 3 / 3) / 4, 1.6 / 4])


@pytest.mark.parametrize(("season", "step"), [(7, DAY), (24, 3600.0)])
@pytest.mark.parametrize("noisy", [0.0, 0.1, 1.0])
def test_a_shifted_level_does_not_poison_what_comes_after(season: int, step: float, noisy: float) -> None:
    """From a season after a shift on, a flat series is forecast as well as by its last value, give or take 10 %."""
    draw = random.Random(season)
    values = [draw.gauss(50, 10) for _ in range(9 * season)] + [draw.gauss(20, noisy) for _ in range(4 * season)]
    off = naive = 0.0
    for at in range(10 * season, 12 * season + 1, season // 2):
        seen = Series(start=BEGIN, step_seconds=step, values=tuple(values[:at]))
        for each, actual in zip(forecast(seen, season).steps, values[at:], strict=False):
            off += abs(each.mean - actual)
            naive += abs(values[at - 1] - actual)

    assert off <= 1.1 * naive + 1e-9


@given(
    seed=st.integers(0, 10**6),
    rhythm=st.sampled_from([(7, DAY), (24, 3600.0)]),
    shift=st.floats(5, 9) | st.floats(-9, -5),
    noisy=st.sampled_from([0.0, 0.05, 0.1]),
)
@settings(deadline=None, max_examples=examples(10), derandomize=True)
def test_whatever_the_shift_a_flat_series_after_it_is_forecast_as_by_its_last_value(
    seed: int, rhythm: tuple[int, float], shift: float, noisy: float
) -> None:
    """By at least five times the noise before, up or down: within 10 % of naive's error, from a season after it on."""
    (season, step), draw = rhythm, random.Random(seed)
    values = [draw.gauss(200, 10) for _ in range(9 * season)]
    values += [draw.gauss(200 + shift * 10, noisy) for _ in range(3 * season)]
    off = naive = 0.0
    for at in range(10 * season, 11 * season + 1, season):
        seen = Series(start=BEGIN, step_seconds=step, values=tuple(values[:at]))
        for each, actual in zip(forecast(seen, season).steps, values[at:], strict=False):
            off += abs(each.mean - actual)
            naive += abs(values[at - 1] - actual)

    assert off <= 1.1 * naive + 1e-6


# Intervals


@given(
    st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=60).filter(
        lambda values: any(value is not None for value in values)
    ),
    st.integers(1, 20),
)
@settings(deadline=None, max_examples=examples(40))
def test_intervals_are_ordered_whatever_the_past(values: list[float | None], steps: int) -> None:
    """Lower, mean, upper, and as many steps as asked for, one after another."""
    result = forecast(days(values), steps)

    assert [step.time for step in result.steps] == [BEGIN + timedelta(days=len(values) + at) for at in range(steps)]
    for step in result.steps:
        assert (step.lower is None) == (step.upper is None)
        if step.lower is not None and step.upper is not None:
            assert step.lower <= step.mean <= step.upper


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
@settings(deadline=None, max_examples=examples(40))
def test_what_never_was_negative_will_not_be(values: list[float]) -> None:
    """GPUs and dollars have a floor at zero."""
    for step in forecast(days(values), 7).steps:
        assert step.mean >= 0
        assert step.lower is None or step.lower >= 0


@pytest.mark.parametrize("kind", [noise, walk])
def test_eighty_percent_intervals_hold_about_eighty_percent(kind: Callable[[int, int], list[float]]) -> None:
    """On independent values and on random walks, over forty series each: between 74 and 88 %."""
    inside = of = 0
    for seed in range(40):
        values = kind(67, seed)
        for step, actual in zip(forecast(days(values[:60]), 7).steps, values[60:], strict=True):
            assert step.lower is not None
            assert step.upper is not None
            of += 1
            inside += step.lower <= actual <= step.upper

    assert 0.74 < inside / of < 0.88, f"{inside} of {of}"


@pytest.mark.parametrize("kind", [noise, walk, trended])
@pytest.mark.parametrize("length", [24, 40])
def test_intervals_hold_though_the_best_of_many_methods_is_taken(
    kind: Callable[[int, int], list[float]], length: int
) -> None:
    """The luck of the method with the smallest error is not taken for precision: a short past promises no less."""
    inside = of = 0
    for seed in range(60):
        values = kind(length + 7, seed)
        for step, actual in zip(forecast(days(values[:length]), 7).steps, values[length:], strict=True):
            of += 1
            inside += step.lower is not None and step.upper is not None and step.lower <= actual <= step.upper

    assert inside / of > 0.74, f"{inside} of {of}"


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


def test_after_a_step_of_days_what_came_before_says_nothing() -> None:
    """A launch, a level that trebled, a fleet that is off for four days, a level that rose ten days ago.

    The forecast stays at the new level for a month, its interval holds what is now, and no bound lies far above all
    that ever was.
    """
    draw = random.Random(1)
    cases = [
        ([0.0] * 40 + [100.0] * 5, 100.0),
        ([draw.gauss(100, 8) for _ in range(57)] + [300.0] * 3, 300.0),
        ([draw.gauss(475, 20) for _ in range(56)] + [0.0] * 4, 0.0),
        ([draw.gauss(20, 0.5) for _ in range(50)] + [297.0] * 10, 297.0),
    ]
    for values, level in cases:
        result = forecast(days(values), 30)

        assert [step.mean for step in result.steps] == pytest.approx([level] * 30, rel=0.03, abs=1e-6)
        for step in result.steps[:7]:
            assert step.lower is not None
            assert step.upper is not None
            assert step.lower - 1e-6 <= level <= step.upper + 1e-6
            assert step.upper <= 1.5 * max(values)
