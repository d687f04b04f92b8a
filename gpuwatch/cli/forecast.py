"""The command that forecasts any series of values."""

import json
import sys
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.base import above_zero, commands, json_option, say

if TYPE_CHECKING:
    from gpuwatch.money.forecast.evaluation import Score
    from gpuwatch.money.forecast.forecast import Forecast

_MOST_STEPS = 10_000


def _step(context: click.Context, param: click.Parameter, value: str) -> float | None:
    """Seconds, or None for what the samples suggest."""
    return None if value == "auto" else above_zero(context, param, value)


csv_option = click.option(
    "--csv",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Lines of time,value: ISO 8601 or seconds since 1970; plain or .gz. No value: a hole.",
)


@commands.command()
@csv_option
@click.option("--horizon", callback=above_zero, default="7d", show_default=True, help="How far ahead.")
@click.option(
    "--step", callback=_step, default="auto", show_default=True, help="1h, 1d, ...; auto: as measured, from 1h up."
)
@click.option("--models", "fitted", is_flag=True, help="Let ARIMA and ETS compete, too (extra `forecast`; slower).")
@json_option
def forecast(*, path: Path, horizon: float, step: float | None, fitted: bool, as_json: bool) -> None:
    """Forecast a series of values with 80 % intervals, by the method that was best on the series' own past."""
    from gpuwatch.money.forecast.csv import SeriesError, read_samples  # noqa: PLC0415  likewise
    from gpuwatch.money.forecast.forecast import forecast as told_of  # noqa: PLC0415  loaded by this command only
    from gpuwatch.money.forecast.methods import offered  # noqa: PLC0415  likewise
    from gpuwatch.money.forecast.series import Rhythm, natural_step, resample  # noqa: PLC0415  likewise
    from gpuwatch.money.forecast.statsmodels import MissingError, models  # noqa: PLC0415  likewise

    try:
        more = models() if fitted else {}
        samples = read_samples(path)
    except (SeriesError, MissingError) as error:
        say(error, err=True)
        sys.exit(2)
    seconds = step or natural_step(samples)
    steps = ceil(horizon / seconds - 1e-9)
    if steps > _MOST_STEPS:
        raise click.BadParameter(f"{steps} steps are too many; at most {_MOST_STEPS}, or a longer --step")
    try:
        told = told_of(resample(samples, seconds), steps, {**offered(Rhythm.of(seconds)), **more})
    except ValueError as error:
        say(f"{path}: {error}", err=True)
        sys.exit(2)
    say(json.dumps(_as_json(told)) if as_json else _as_text(told))


def _as_json(told: "Forecast") -> dict[str, Any]:
    return {
        "method": told.method,
        "backtest": None if told.score is None else _score(told.score),
        "methods": [{"method": each.method, **_score(each)} for each in told.methods],
        "step_seconds": told.step_seconds,
        "forecast": [
            {"time": step.time.isoformat(), "mean": step.mean, "lower": step.lower, "upper": step.upper}
            for step in told.steps
        ],
        "warnings": list(told.warnings),
    }


def _score(score: "Score") -> dict[str, float | None]:
    return {
        "mase": score.mase,
        "wape": score.wape,
        "total_error_ratio": score.total_error_ratio,
        "coverage": score.coverage,
        "origins": score.origins,
    }


def _as_text(told: "Forecast") -> str:
    lines = [f"{'from':<22}{'mean':>12}{'lower':>12}{'upper':>12}   80 % interval"]
    lines += [
        f"{step.time:%Y-%m-%d %H:%M}Z     {_number(step.mean):>12}{_number(step.lower):>12}{_number(step.upper):>12}"
        for step in told.steps
    ]
    if told.methods:
        lines += ["", f"{'method':<24}{'MASE':>8}{'WAPE':>8}{'total':>8}   backtested {told.methods[0].origins} times"]
    lines += [
        f"{each.method:<24}{_ratio(each.mase)}{_share(each.wape)}{_share(each.total_error_ratio)}"
        + ("   <- this one" if each.method == told.method else "")
        for each in told.methods
    ]
    if told.score is not None and told.score.coverage is not None:
        lines.append(f"Its 80 % intervals held {told.score.coverage:.0%} of what came.")
    return "\n".join([*lines, *(f"Warning: {warning}." for warning in told.warnings)])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 10000 else f"{value:,.0f}"  # noqa: PLR2004  digits


def _ratio(value: float | None) -> str:
    return f"{'-' if value is None else format(value, '.2f'):>8}"


def _share(value: float | None) -> str:
    return f"{'-' if value is None else format(value, '.0%'):>8}"
