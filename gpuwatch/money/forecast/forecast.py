"""What comes next: each step's mean with an 80 % interval, by the blend of `methods`.

Further methods may compete with it; then the one with the smallest loss in the rolling backtest is taken
(`evaluation.scores`), of equal ones the blend. Intervals rest on how far off the forecast, or such a choice, was each
time. With less than two seasons of history nothing can be tried: then the mean of what there is stands in, and says so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.money.forecast.evaluation import (
    Errors,
    Score,
    Trial,
    bound_means,
    coverage,
    errors_of_choice,
    longer,
    moving,
    past,
    radius,
    scores,
    try_methods,
)
from gpuwatch.money.forecast.methods import BLEND, CANDIDATES, METHODS, SEVEN_DAY_MEAN, Method
from gpuwatch.money.forecast.series import DAY_SECONDS, MONTH_SECONDS, Rhythm, Series

_FEW_ORIGINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step to come; `lower` and `upper` are null where the past is too short for them."""

    time: datetime
    mean: float
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The coming steps, who says so, and how far they may be trusted."""

    method: str
    score: Score | None  # None: too short to try
    methods: tuple[Score, ...]
    step_seconds: float
    steps: tuple[Step, ...]
    total_errors: tuple[float, ...]  # how far totals over these steps may be off, as backtested: actual less forecast
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastDocument:
    """The coming steps. `backtest` is the score of the method that makes them, `methods` the scores of all.

    `backtest` is null where the past is too short to try any. The method with the smallest `error` is taken, and is
    the first of `methods`.
    """

    method: str
    backtest: Score | None
    methods: tuple[Score, ...]
    step_seconds: float
    forecast: tuple[Step, ...]
    warnings: tuple[str, ...]


def forecast(
    series: Series, steps: int, methods: Mapping[str, Method] | None = None, advance: Advance = no_advance
) -> Forecast:
    """The coming steps of a series.

    Args:
        series: its values so far.
        steps: how many to forecast, at least one.
        methods: those that compete; else `methods.CANDIDATES`.
        advance: gets how many of the moments in the past are tried, and of how many.

    Raises:
        ValueError: no value is known, or no step is asked for.

    """
    if not series.known:
        raise ValueError("no value is known, so nothing can be forecast")
    if steps < 1:
        raise ValueError(f"{steps} steps are no horizon; ask for one or more")
    rhythm = Rhythm.at_step(series.step_seconds)
    needed = 2 * max(rhythm.season, 2) + 2
    if len(series.known) < needed:
        return _simple(series, steps, needed)
    candidates = methods or CANDIDATES
    trial = try_methods(series, steps, candidates, advance)
    standing = BLEND if BLEND in candidates else next(iter(candidates))
    best, *others = scores(trial, standing)
    name, errors = best.method, errors_of_choice(trial, standing)
    score = replace(best, coverage=coverage(trial, errors))
    size = len(series.values)
    floor = 0.0 if min(series.known) >= 0 else -math.inf
    means = bound_means(candidates[name](past(series, size), steps), never_negative=floor == 0)
    moved = moving(series, size)
    reaches = [_reach(trial, errors, at, moved) for at in range(steps)]
    scale = steps / trial.steps
    return Forecast(
        method=name,
        score=score,
        methods=(score, *others),
        step_seconds=series.step_seconds,
        steps=tuple(
            _step(series, at, mean, reach, floor) for at, (mean, reach) in enumerate(zip(means, reaches, strict=True))
        ),
        total_errors=tuple(error * moved * scale for error in trial.total_units(errors)) if moved else (0.0,),
        warnings=(*series.notes, *_warnings(series, trial, steps)),
    )


def _reach(trial: Trial, errors: Errors, at: int, moved: float) -> float | None:
    """The radius of a step; beyond what could be tried it grows from the last one tried."""
    if moved == 0:
        return 0.0  # what never moved is held to be certain
    last = min(at, trial.steps - 1)
    reach, seen = radius(trial.units(errors, last)), [each for row in errors if (each := row[last]) is not None]
    if not seen:
        return None
    # Where nothing moved before a step, its error has no measure there; and none is above what was ever seen.
    most = max(map(abs, seen)) * (1 + 1 / len(seen))
    return longer(most if reach is None else min(reach * moved, most), last + 1, at + 1)


def _step(series: Series, at: int, mean: float, reach: float | None, floor: float = -math.inf) -> Step:
    return Step(
        time=series.time(len(series.values) + at),
        mean=mean,
        lower=None if reach is None else max(floor, mean - reach),
        upper=None if reach is None else mean + reach,
    )


def _simple(series: Series, steps: int, needed: int) -> Forecast:
    """The mean of what there is, without an interval, and why."""
    mean = METHODS[SEVEN_DAY_MEAN](past(series, len(series.values)), 1)[0]
    have = len(series.known)
    return Forecast(
        method=SEVEN_DAY_MEAN,
        score=None,
        methods=(),
        step_seconds=series.step_seconds,
        steps=tuple(_step(series, at, mean, None) for at in range(steps)),
        total_errors=(),
        warnings=(
            *series.notes,
            (
                f"history is too short: {have} known step{'s' * (have != 1)} of {_length(series.step_seconds)}, "
                f"{needed} are needed to try a method; this is the mean of the known values, without an interval"
            ),
        ),
    )


def _warnings(series: Series, trial: Trial, steps: int) -> list[str]:
    warnings = []
    holes = len(series.values) - len(series.known)
    if holes:
        warnings.append(f"{holes} of {len(series.values)} steps hold no value; they are left out, not taken for zero")
    if trial.steps < steps:
        warnings.append(
            f"history is short: it can try {trial.steps} steps ahead of the {steps} asked for; "
            "later intervals are widened by the square root of time"
        )
    if len(trial.origins) < _FEW_ORIGINS:
        warnings.append(f"intervals rest on {len(trial.origins)} backtests only")
    return warnings


def _length(seconds: float) -> str:
    if seconds == MONTH_SECONDS:
        return "a month"
    return f"{seconds / DAY_SECONDS:g} d" if seconds >= DAY_SECONDS else f"{seconds / 3600:g} h"
