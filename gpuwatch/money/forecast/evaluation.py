"""The rolling backtest: every method forecasts from many moments of the past, and what came after judges it.

The radius of an 80 % interval is the conformal quantile of the absolute errors: of n errors the ceil(0.8 (n + 1))-th,
which covers a further one with at least 80 % if it is like them (Vovk 2005; Lei et al. 2018). Errors are measured in
units of how much the series moved shortly before, so that calm times and wild ones do not share a radius.

The method with the smallest loss looks better than it is, the more so the fewer horizons judged it that do not overlap.
So the errors of all but the standing method count 1 + 3 / horizons times, and intervals rest on the errors of the
choice: at each moment those of the method that did best at the moments apart from it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.money.forecast.methods import LONGEST, Method, Past, since_change, window
from gpuwatch.money.forecast.series import Rhythm, Series

MOST_ORIGINS = 60
COVERAGE = 0.8
_CALM = 0.25  # a share of the whole past's movement, lest a flat fortnight promise a flat future
_FEW = 4  # errors: of fewer, an interval says little
_LUCK = 3.0  # errors of others than the standing method count 1 + this / horizons times
_LOOKED_AT = 50  # steps of a long horizon are enough to see how often intervals held


Errors = tuple[tuple[float | None, ...], ...]  # of each origin, of each step ahead: actual less forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How a method did in `origins` tries. Errors are 0 at best, and null where there is nothing to divide by.

    `mase` is the mean absolute error over that of last season's value, `wape` the sum of absolute errors over that of
    absolute values, and `total_error_ratio` the same of the horizon's totals. `error` decides: `mase`, that of the
    horizon's mean in the same unit, and luck. `coverage` is the share of the 80 % intervals that held.
    """

    method: str
    origins: int
    error: float | None
    mase: float | None
    wape: float | None
    total_error_ratio: float | None
    coverage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the backtest saw: per method and origin the errors (actual less forecast), None at a hole."""

    steps: int  # ahead, that could be tried
    origins: tuple[int, ...]
    movements: tuple[float, ...]
    actuals: tuple[tuple[float | None, ...], ...]
    errors: Mapping[str, Errors]
    usual_change: float  # the mean absolute change from season to season

    def handicap(self, method: str, standing: str) -> float:
        """What a method's losses are multiplied by, so that luck over few horizons does not choose."""
        horizons = (self.origins[-1] - self.origins[0]) / self.steps + 1
        return 1.0 if method == standing else 1 + _LUCK / horizons

    def units(self, errors_of: Errors, ahead: int) -> list[float]:
        """Errors of one step ahead, in movements."""
        pairs = zip(errors_of, self.movements, strict=True)
        return [error / moved for errors, moved in pairs if (error := errors[ahead]) is not None and moved > 0]

    def total_units(self, errors_of: Errors) -> list[float]:
        """Errors of the totals of all steps ahead, in movements; a hole counts as the mean of the other errors."""
        pairs = zip(errors_of, self.movements, strict=True)
        return [_mean_error(errors) * self.steps / moved for errors, moved in pairs if moved > 0 and _any(errors)]


def past(series: Series, begin: int) -> Past:
    """What is known as of a step."""
    moment = series.time(begin)
    month = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    rhythm, recent = Rhythm.at_step(series.step_seconds), series.values[max(0, begin - LONGEST) : begin]
    return Past.from_values(
        since_change(recent, rhythm) if _any(recent) else series.values[:begin],
        rhythm,
        round((moment - month).total_seconds() / series.step_seconds),
    )


def bound_means(means: Sequence[float], *, never_negative: bool) -> list[float]:
    """A forecast that does not leave what is possible."""
    return [max(0.0, mean) for mean in means] if never_negative else list(means)


def try_methods(series: Series, steps: int, methods: Mapping[str, Method], advance: Advance = no_advance) -> Trial:
    """Every method from at most 60 origins, each with all of its past and a full horizon of what came after.

    Where the history does not hold two horizons, a shorter one is tried.
    """
    rhythm = Rhythm.at_step(series.step_seconds)
    size = len(series.values)
    first = rhythm.season + 3 + next(at for at, value in enumerate(series.values) if value is not None)
    held = max(1, min(steps, (size - first) // 2))
    latest = size - held
    stride = max(1, math.ceil((latest - first + 1) / MOST_ORIGINS))
    origins = tuple(at for at in range(latest, first - 1, -stride) if _any(series.values[at : at + held]))[::-1]
    actuals = tuple(series.values[at : at + held] for at in origins)
    seasons = [
        abs(now - then)
        for now, then in zip(series.values[rhythm.season :], series.values, strict=False)
        if now is not None and then is not None
    ]
    never_negative = min(series.known) >= 0
    errors: dict[str, list[tuple[float | None, ...]]] = {name: [] for name in methods}
    for done, (origin, actual) in enumerate(zip(origins, actuals, strict=True)):
        advance(done, len(origins))
        now = past(series, origin)
        for name, method in methods.items():
            means = bound_means(method(now, held), never_negative=never_negative)
            errors[name].append(
                tuple(None if value is None else value - mean for value, mean in zip(actual, means, strict=True))
            )
    return Trial(
        steps=held,
        origins=origins,
        movements=tuple(moving(series, origin) for origin in origins),
        actuals=actuals,
        errors={name: tuple(each) for name, each in errors.items()},
        usual_change=fmean(seasons) if seasons else 0.0,
    )


def moving(series: Series, begin: int) -> float:
    """How much the series moved before a step: the unit of errors."""
    recent = 2 * window(Rhythm.at_step(series.step_seconds))
    return movement(series.values[max(0, begin - LONGEST) : begin], recent)


def scores(trial: Trial, standing: str) -> tuple[Score, ...]:
    """Each method's, the smallest loss first; of equal ones the standing method's."""
    losses = _losses(trial, standing)
    ordered = sorted(losses, key=lambda name: (sum(losses[name]), name != standing))
    return tuple(_score(trial, name, losses[name]) for name in ordered)


def errors_of_choice(trial: Trial, standing: str) -> Errors:
    """The errors of the choice: at each origin those of the method with the smallest loss at the other origins.

    Origins count if their horizons do not overlap its own. Without any the standing method is taken.
    """
    losses = _losses(trial, standing)
    made = []
    for place, origin in enumerate(trial.origins):
        apart = [number for number, at in enumerate(trial.origins) if abs(at - origin) >= trial.steps]
        sums = {name: sum(each[number] for number in apart) for name, each in losses.items()}
        best = min(sums, key=lambda name: (sums[name], name != standing))
        made.append(trial.errors[best][place])
    return tuple(made)


def coverage(trial: Trial, errors_of: Errors) -> float | None:
    """The share of values inside the intervals that each origin would have given; None where it had none."""
    inside = of = 0
    for step in range(0, trial.steps, math.ceil(trial.steps / _LOOKED_AT)):
        for number, errors in enumerate(errors_of):
            error, moved = errors[step], trial.movements[number]
            # An origin knows only errors of horizons that were over before it.
            known = [
                known_error / scale
                for at, each, scale in zip(trial.origins, errors_of, trial.movements, strict=True)
                if at + trial.steps <= trial.origins[number] and (known_error := each[step]) is not None and scale > 0
            ]
            reach = radius(known)
            if error is not None and reach is not None and len(known) >= _FEW:
                of += 1
                inside += abs(error) <= reach * moved
    return inside / of if of else None


def _losses(trial: Trial, standing: str) -> dict[str, list[float]]:
    """Of each method and origin: the mean absolute error, and that of the total per step; with the handicap."""
    return {
        name: [
            trial.handicap(name, standing)
            * (fmean(abs(error) for error in errors if error is not None) + abs(_mean_error(errors)))
            for errors in each
        ]
        for name, each in trial.errors.items()
    }


def _score(trial: Trial, method: str, losses: Sequence[float]) -> Score:
    errors = [abs(error) for each in trial.errors[method] for error in each if error is not None]
    sizes = [abs(value) for each in trial.actuals for value in each if value is not None]
    totals = [abs(_mean_error(each)) for each in trial.errors[method]]
    whole = [abs(_mean_error(each)) for each in trial.actuals]
    change = trial.usual_change
    return Score(
        method=method,
        origins=len(trial.origins),
        error=fmean(losses) / change if losses and change > 0 else None,
        mase=fmean(errors) / change if errors and change > 0 else None,
        wape=sum(errors) / sum(sizes) if sum(sizes) > 0 else None,
        total_error_ratio=sum(totals) / sum(whole) if sum(whole) > 0 else None,
    )


def _any(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _mean_error(errors: Sequence[float | None]) -> float:
    return fmean(error for error in errors if error is not None)


def movement(values: Sequence[float | None], window: int) -> float:
    """The mean distance from the mean lately, and a quarter of the same over everything."""
    known = [value for value in values if value is not None]
    recent = [value for value in values[-window:] if value is not None]
    return _distance(recent) + _CALM * _distance(known)


def radius(errors: Sequence[float]) -> float | None:
    """The conformal 80 % quantile of absolute errors; of fewer than four the largest, widened; None of none."""
    sizes = sorted(abs(error) for error in errors)
    if not sizes:
        return None
    rank = math.ceil(COVERAGE * (len(sizes) + 1))
    return sizes[rank - 1] if rank <= len(sizes) else sizes[-1] * (1 + 1 / len(sizes))


def longer(radius_known: float, steps_known: float, steps: float) -> float:
    """A radius beyond the steps that could be tried: it grows as a random walk's does."""
    return radius_known * math.sqrt(steps / steps_known)


def probability_above(errors: Sequence[float], distance: float) -> float | None:
    """The share of errors (actual less forecast) above a distance, never quite 0 or 1; None without errors."""
    if not errors:
        return None
    above = sum(error > distance for error in errors) + 0.5 * sum(error == distance for error in errors)
    return (above + 0.5) / (len(errors) + 1)


def _distance(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    mean = fmean(values)
    return fmean(abs(value - mean) for value in values)
