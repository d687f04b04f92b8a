"""How far a forecast may be off: from how far the same method was off when it was tried on the past.

The radius of an 80 % interval is the conformal quantile of the absolute errors: of n errors the ceil(0.8 (n + 1))-th,
which covers a further one with at least 80 % if it is like them (Vovk 2005; Lei et al. 2018). Errors are told in units
of how much the series moved shortly before they were made, so that calm times and wild ones do not share a radius.
"""

import math
from collections.abc import Sequence
from statistics import fmean

COVERAGE = 0.8
_CALM = 0.25  # a share of the whole past's movement, lest a flat fortnight promise a flat future


def movement(values: Sequence[float | None], window: int) -> float:
    """The mean distance from the mean lately, and a quarter of the same over everything."""
    told = [value for value in values if value is not None]
    recent = [value for value in values[-window:] if value is not None]
    return _distance(recent) + _CALM * _distance(told)


def radius(errors: Sequence[float]) -> float | None:
    """The conformal 80 % quantile of absolute errors; of fewer than four the largest, widened; None of none."""
    told = sorted(abs(error) for error in errors)
    if not told:
        return None
    rank = math.ceil(COVERAGE * (len(told) + 1))
    return told[rank - 1] if rank <= len(told) else told[-1] * (1 + 1 / len(told))


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
