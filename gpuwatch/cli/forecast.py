"""The command that forecasts any series of values."""

import sys
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import above_zero, commands, json_option, say
from gpuwatch.cli.json_output import json_text
from gpuwatch.cli.progress import progress
from gpuwatch.model.duration import format_time
from gpuwatch.runtime.table import aligned

if TYPE_CHECKING:
    from gpuwatch.money.forecast.forecast import Forecast

_MOST_STEPS = 10_000
_LEGEND = "The smallest error decides: that of the steps (MASE) and of their total. 1.00 of MASE: last season's values."


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
    from gpuwatch.money.forecast.forecast import as_object  # noqa: PLC0415  likewise
    from gpuwatch.money.forecast.forecast import forecast as make_forecast  # noqa: PLC0415  loaded by this command only
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
        with progress("trying the methods on the past") as advance:
            methods = {**offered(Rhythm.of(seconds)), **more}
            result = make_forecast(resample(samples, seconds), steps, methods, advance)
    except ValueError as error:
        say(f"{path}: {error}", err=True)
        sys.exit(2)
    say(json_text("forecast", as_object(result)) if as_json else _as_text(result))


def _as_text(forecast: "Forecast") -> str:
    steps = [
        (format_time(step.time), *map(_number, (step.mean, step.lower, step.upper)), "") for step in forecast.steps
    ]
    lines = aligned([("from", "mean", "lower", "upper", "80 % interval"), *steps], left={0, 4})
    if forecast.methods:
        heads = ("method", "error", "MASE", "WAPE", "total", f"backtested {forecast.methods[0].origins} times")
        methods = [
            (
                each.method,
                _fraction(each.error, ".2f"),
                _fraction(each.mase, ".2f"),
                _fraction(each.wape, ".0%"),
                _fraction(each.total_error_ratio, ".0%"),
                "<- this one" if each.method == forecast.method else "",
            )
            for each in forecast.methods
        ]
        lines += ["", *aligned([heads, *methods], left={0, 5}), _LEGEND]
    if forecast.score is not None and forecast.score.coverage is not None:
        lines.append(f"The 80 % intervals held {forecast.score.coverage:.0%} of what came.")
    return "\n".join([*lines, *(f"Warning: {warning}." for warning in forecast.warnings)])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 10000 else f"{value:,.0f}"  # noqa: PLR2004  digits


def _fraction(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
