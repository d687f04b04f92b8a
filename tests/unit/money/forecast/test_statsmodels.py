"""ARIMA and ETS as further methods of a forecast: what holds whether or not statsmodels is installed."""

import importlib.util
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.money.forecast import statsmodels
from gpuwatch.money.forecast.methods import Past
from gpuwatch.money.forecast.series import DAY_SECONDS, Rhythm
from gpuwatch.runtime.installed import install_command

INSTALLED = importlib.util.find_spec("statsmodels") is not None
VALUES = [10 + 3 * math.sin(day) + (day * 7919 % 13) / 5 for day in range(60)]


def test_without_statsmodels_the_command_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 2 and the extra's name."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    path = tmp_path / "series.csv"
    path.write_text("time,value\n" + "\n".join(f"{day * 86400},{value}" for day, value in enumerate(VALUES)))
    done = CliRunner().invoke(commands, ["forecast", "--csv", str(path), "--models"])

    assert done.exit_code == 2
    assert done.stderr == f"ARIMA and ETS need statsmodels: {install_command('forecast')}\n"


@pytest.mark.parametrize("fitted", [lambda *_: [1.0], lambda *_: [math.nan] * 3, lambda *_: 1 / 0])
def test_a_model_that_gives_no_forecast_says_the_smoothed_level(fitted: object) -> None:
    """Too few values, one that is no number, or a fit that breaks off: nobody's forecast fails for it."""
    past = Past.from_values(VALUES, Rhythm.at_step(DAY_SECONDS))
    method = statsmodels._on_plain(fitted)  # type: ignore[arg-type]  # wrong on purpose

    assert method(past, 3) == [past.level + past.season(ahead) for ahead in range(3)]


def test_the_installed_models_forecast_a_noisy_level_near_it() -> None:
    """Where statsmodels is installed, both give as many finite values as asked for, near the series' level."""
    methods = statsmodels.models() if INSTALLED else {}
    past = Past.from_values(VALUES, Rhythm.at_step(DAY_SECONDS))
    found = {name: method(past, 7) for name, method in methods.items()}

    assert set(found) == ({"ARIMA(1,1,1)", "ETS"} if INSTALLED else set())
    assert all(len(values) == 7 and all(5 < value < 20 for value in values) for values in found.values())
