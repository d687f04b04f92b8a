"""ARIMA and exponential smoothing by statsmodels, as further methods of a forecast; only with the extra `forecast`.

They compete under the same rules as all others. Where one cannot be fitted to a past it says what the smoothed level
says, so that its errors there are those of somebody who knows no better.
"""

import importlib.util
import math
import warnings
from collections.abc import Callable, Mapping, Sequence

from gpuwatch.money.forecast.methods import LONGEST, Method, Past
from gpuwatch.runtime.installed import install_command

_LEAST_VALUES = 10
_ORDER = (1, 1, 1)


class MissingError(Exception):
    """The extra is not installed; the sentence says how to get it."""


def models() -> Mapping[str, Method]:
    """The methods by name.

    Raises:
        MissingError: statsmodels is not installed.

    """
    if importlib.util.find_spec("statsmodels") is None:
        raise MissingError(f"ARIMA and ETS need statsmodels: {install_command('forecast')}")
    return {"ARIMA(1,1,1)": _on_plain(_arima), "ETS": _on_plain(_ets)}


def _on_plain(fitted: Callable[[Sequence[float], int], Sequence[float]]) -> Method:
    """A model of the values without their season, which is added again."""

    def method(past: Past, steps: int) -> list[float]:
        values = past.plain[-LONGEST:]
        filled = [past.level if value is None else value for value in values]
        found: Sequence[float] = ()
        if len(filled) >= _LEAST_VALUES and max(filled) > min(filled):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of fits that do not converge: the backtest judges them
                try:
                    found = fitted(filled, steps)
                except (ValueError, ArithmeticError, IndexError):
                    found = ()
        if len(found) != steps or not all(map(math.isfinite, found)):
            found = [past.level] * steps
        return [float(value) + past.season(ahead) for ahead, value in enumerate(found)]

    return method


def _arima(values: Sequence[float], steps: int) -> Sequence[float]:
    from statsmodels.tsa.arima.model import ARIMA  # noqa: PLC0415  the extra `forecast`

    return list(ARIMA(values, order=_ORDER).fit().forecast(steps))


def _ets(values: Sequence[float], steps: int) -> Sequence[float]:
    """Additive errors, a damped additive trend."""
    from statsmodels.tsa.holtwinters import ExponentialSmoothing  # noqa: PLC0415  likewise

    return list(ExponentialSmoothing(values, trend="add", damped_trend=True).fit().forecast(steps))
