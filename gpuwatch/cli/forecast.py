"""The command that forecasts any series of values."""

import sys
from contextlib import closing
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import (
    above_zero,
    commands,
    config_option,
    explain_errors,
    json_option,
    print_text,
    progress,
    settings_of,
    show_money_as_in,
)
from gpuwatch.model.currency import display_currency
from gpuwatch.model.duration import format_time
from gpuwatch.model.money import money_head
from gpuwatch.runtime.json_document import fill_document, json_text
from gpuwatch.runtime.table import align_rows

if TYPE_CHECKING:
    from gpuwatch.money.forecast.forecast import Forecast
    from gpuwatch.money.forecast.series import Series

_MOST_STEPS = 10_000
_LEGEND = "The error is that of the steps (MASE; 1.00: last season's values), and of their total."
_CHOSEN = (
    "The smallest error decides. Errors of others than the blend count more the shorter the past is: luck must not "
    "choose."
)
_CONFIGURED = ""  # --ledger without a value
_DAY_SECONDS = 86400.0
_MONTH_SECONDS = 2629800.0  # as gpuwatch.money.forecast.series has it; only this command loads that


def _step(context: click.Context, param: click.Parameter, value: str) -> float | None:
    """Seconds, or None for what the samples suggest."""
    if value == "month":
        return _MONTH_SECONDS
    return None if value == "auto" else above_zero(context, param, value)


@commands.command(options_metavar="--csv FILE | --ledger [FILE] [OPTIONS]")
@click.option(
    "--csv",
    "csv_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Lines of time,value: ISO 8601 or seconds since 1970; plain or .gz. No value: a hole.",
)
@click.option(
    "--ledger",
    is_flag=False,
    flag_value=_CONFIGURED,
    metavar="[FILE]",
    help="US dollars that a ledger has metered; without FILE the one of --config.",
)
@click.option("--pool", help="Only this pool's, of --ledger.")
@config_option
@click.option("--horizon", callback=above_zero, default="7d", show_default=True, help="How far ahead.")
@click.option(
    "--step", callback=_step, default="auto", show_default=True, help="1h, 1d, month; auto: as measured, from 1h up."
)
@click.option("--models", "fitted", is_flag=True, help="Let ARIMA and ETS compete, too (extra `forecast`; slower).")
@json_option
def forecast(  # noqa: PLR0913  one argument for each option
    *,
    csv_path: Path | None,
    ledger: str | None,
    pool: str | None,
    path: Path | None,
    horizon: float,
    step: float | None,
    fitted: bool,
    as_json: bool,
) -> None:
    """Forecast a series of values with 80 % intervals, and say how good such forecasts of its past were."""
    from gpuwatch.money.forecast.csv import SeriesError
    from gpuwatch.money.forecast.forecast import ForecastDocument
    from gpuwatch.money.forecast.forecast import forecast as make_forecast
    from gpuwatch.money.forecast.methods import CANDIDATES
    from gpuwatch.money.forecast.statsmodels import MissingError, models

    if (csv_path is None) == (ledger is None):
        raise click.UsageError("give one of --csv FILE and --ledger [FILE]")
    if ledger is None and pool is not None:
        raise click.UsageError("--pool says nothing about --csv; leave it out")
    if step is not None:
        _steps(horizon, step)
    place = csv_path or ledger or "the ledger"
    try:
        more = models() if fitted else {}
        series = _of_ledger(str(ledger), path, step, pool) if csv_path is None else _of_file(csv_path, step)
    except (SeriesError, MissingError) as error:
        print_text(error, err=True)
        sys.exit(2)
    except ValueError as error:
        print_text(f"{place}: {error}", err=True)
        sys.exit(2)
    steps = _steps(horizon, series.step_seconds)
    try:
        with progress("trying the methods on the past") as advance:
            result = make_forecast(series, steps, {**CANDIDATES, **more}, advance)
    except ValueError as error:
        print_text(f"{place}: {error}", err=True)
        sys.exit(2)
    if as_json:
        document = fill_document(ForecastDocument, result, backtest=result.score, forecast=result.steps)
        print_text(json_text("forecast", document))
    else:
        print_text(_as_text(result, money=csv_path is None))


def _steps(horizon: float, seconds: float) -> int:
    steps = ceil(horizon / seconds - 1e-9)
    if steps > _MOST_STEPS:
        raise click.BadParameter(f"{steps} steps are too many; at most {_MOST_STEPS}, or a longer --step")
    return steps


def _of_file(path: Path, step: float | None) -> "Series":
    from gpuwatch.money.forecast.csv import read_samples
    from gpuwatch.money.forecast.series import natural_step, resample

    samples = read_samples(path)
    return resample(samples, step or natural_step(samples))


def _of_ledger(place: str, config: Path | None, step: float | None, pool: str | None) -> "Series":
    with explain_errors():
        from gpuwatch.ledger import Ledger, LedgerSettings
        from gpuwatch.money.accounting.store import SpendBook
        from gpuwatch.money.forecast.spending import spending

        show_money_as_in(config)
        settings = settings_of(config).ledger if place == _CONFIGURED else LedgerSettings(path=place)
        with closing(Ledger.connect(settings, read_only=True)) as ledger:
            return spending(SpendBook(ledger), step or _DAY_SECONDS, pool)


def _as_text(forecast: "Forecast", *, money: bool) -> str:
    """`money`: the values are US dollars, and are shown in the currency of the settings."""
    unit = float(display_currency().cent * 100) if money else 1.0
    steps = [
        (format_time(step.time), *(_number(value, unit) for value in (step.mean, step.lower, step.upper)), "")
        for step in forecast.steps
    ]
    lines = [f"In {money_head()}."] if money else []
    lines += align_rows([("from", "mean", "lower", "upper", "80 % interval"), *steps], left={0, 4})
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
        lines += ["", *align_rows([heads, *methods], left={0, 5}), _LEGEND, *([_CHOSEN] if methods[1:] else [])]
    if forecast.score is not None and forecast.score.coverage is not None:
        lines.append(f"The 80 % intervals held {forecast.score.coverage:.0%} of what came.")
    lines += filter(None, [display_currency().note if money else None])
    return "\n".join([*lines, *(f"Warning: {warning}." for warning in forecast.warnings)])


def _number(value: float | None, unit: float) -> str:
    """A value in units of `unit`."""
    if value is None:
        return "-"
    value /= unit
    return f"{value:,.4g}" if abs(value) < 10000 else f"{value:,.0f}"  # noqa: PLR2004  digits


def _fraction(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
