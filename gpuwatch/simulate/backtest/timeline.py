"""A history in the bins of a chart: the fleet over time under a policy, and its gaps by their length."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from statistics import median

from gpuwatch.agent.devices.load_profile import Intervals
from gpuwatch.simulate.backtest.compare import Figures
from gpuwatch.simulate.backtest.gaps import History

_LEAST_SECONDS, _MOST_SECONDS = 10.0, 30 * 86400.0
_BINS_A_DECADE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How many nodes are so in each bin of time, on the mean. Who is silent is neither."""

    busy: Sequence[float]
    idle: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Gaps by length; a bin is from an edge to the next, and the outer ones take what lies beyond."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    hours: tuple[float, ...]


def fleet_of(history: History, bins: int) -> Fleet:
    """The fleet over time, whatever the policy."""
    horizon = history.horizon_seconds
    busy = (
        span
        for life in history.lives
        for span in Intervals(chain.from_iterable(each.busy(horizon) for each in dict.fromkeys(life.gpus)))
    )
    return Fleet(
        busy=_mean(busy, horizon, bins),
        idle=_mean(((gap.begin, gap.end) for gap in history.gaps), horizon, bins),
    )


def mean_stopped(history: History, figures: Figures, bins: int) -> list[float]:
    """How many nodes a policy has stopped in each bin of time, on the mean."""
    stopped = (
        (gap.begin + wait, gap.end) for gap, wait in zip(history.gaps, figures.waits, strict=True) if gap.seconds > wait
    )
    return _mean(stopped, history.horizon_seconds, bins)


def _mean(spans: Iterable[tuple[float, float]], horizon: float, bins: int) -> list[float]:
    """How many spans hold in each bin, on the mean; each costs the same however many bins it crosses."""
    width, parts, whole = horizon / bins, [0.0] * (bins + 1), [0] * (bins + 1)
    for begin, end in spans:
        for moment, sign in ((begin, 1), (end, -1)):
            at = min(moment, horizon) / width
            parts[int(at)] -= sign * (at - int(at))
            whole[int(at)] += sign
    return [max(0.0, part + full) for part, full in zip(parts[:bins], accumulate(whole), strict=False)]


def lengths_of(history: History) -> Lengths:
    """The gaps by length, on a logarithmic scale from the shortest to the longest."""
    seconds = [gap.seconds for gap in history.gaps]
    low = min(_MOST_SECONDS, max(_LEAST_SECONDS, min(seconds, default=_LEAST_SECONDS)))
    high = min(_MOST_SECONDS, max(low, max(seconds, default=low)))
    first = math.floor(math.log10(low) * _BINS_A_DECADE)
    last = max(first + 1, math.ceil(math.log10(high) * _BINS_A_DECADE))
    edges = tuple(10 ** (number / _BINS_A_DECADE) for number in range(first, last + 1))
    counts, hours = [0] * (len(edges) - 1), [0.0] * (len(edges) - 1)
    for each in seconds:
        number = min(max(bisect_right(edges, each) - 1, 0), len(counts) - 1)
        counts[number] += 1
        hours[number] += each / 3600
    return Lengths(edges=edges, counts=tuple(counts), hours=tuple(hours))


def usual_wait(history: History, figures: Figures) -> float | None:
    """The median wait of a policy's stops; None where it stops nothing."""
    waits = [wait for gap, wait in zip(history.gaps, figures.waits, strict=True) if gap.seconds > wait]
    return median(waits) if waits else None
