"""Idle gaps of made fleets whose load does what recordings seldom show: it changes, dies, comes monthly, or tricks.

Each family is a pool of nodes with busy spans, made from a seed: equal seeds make equal fleets. The waiting rule is
fitted on `FITTED` and on recordings alone, and judged on `JUDGED`, with other seeds.

- deadline: people train more and more often until a deadline, then hardly at all.
- nights: runners of CI that work in bursts at night, and seldom by day.
- heavy: pauses with a heavy tail; the mean hardly exists.
- bursts: inference on requests that come in clusters.
- dead: a third of the nodes is used for some days and never again.
- monthly: batches at the end of each month, and a test now and then.
- serving: two weeks of training, then the pool serves requests.
- trap: every pause ends shortly after a restart's cost, so that break-even's stop is regretted each time.
"""

import random
from collections.abc import Callable, Mapping

from benchmarks.recorded import DAY, Spans

Made = dict[str, Spans]

_MINUTE, _HOUR = 60.0, 3600.0


def _walk(chance: random.Random, end: float, work: Callable[[float], float], pause: Callable[[float], float]) -> Spans:
    """Spans of work up to an end; how long work and pauses last depends on the time."""
    at, spans = chance.uniform(0.0, _HOUR), list[tuple[float, float]]()
    while at < end:
        until = min(end, at + max(30.0, work(at)))
        spans.append((at, until))
        at = until + max(20.0, pause(until))
    return spans


def _around(chance: random.Random, middle: float, spread: float = 1.0) -> float:
    """A length around a middle, a few of them far longer."""
    return middle * chance.lognormvariate(0.0, spread)


def _deadline(chance: random.Random) -> Made:
    def pause(at: float) -> float:
        left = 21 * DAY - at
        middle = _HOUR * min(8.0, max(0.2, left / (3 * DAY))) if left > 0 else 30 * _HOUR
        night = at % DAY > 20 * _HOUR
        return _around(chance, middle) + (DAY * 0.4 if night else 0.0)

    def work(_: float) -> float:
        return _around(chance, 40 * _MINUTE)

    return {f"n{number}": _walk(chance, 28 * DAY, work, pause) for number in range(24)}


def _nights(chance: random.Random) -> Made:
    def pause(at: float) -> float:
        hour = at % DAY / _HOUR
        return _around(chance, (9 if hour < 6 else 150) * _MINUTE)

    def work(_: float) -> float:
        return _around(chance, 9 * _MINUTE, 0.6)

    return {f"n{number}": _walk(chance, 14 * DAY, work, pause) for number in range(20)}


def _heavy(chance: random.Random) -> Made:
    def pause(_: float) -> float:
        return 2 * _MINUTE * chance.paretovariate(0.7)

    def work(_: float) -> float:
        return _around(chance, 30 * _MINUTE)

    return {f"n{number}": _walk(chance, 21 * DAY, work, pause) for number in range(40)}


def _bursts(chance: random.Random) -> Made:
    def pause(at: float) -> float:
        night = at % DAY < 6 * _HOUR
        middle = 3 * _MINUTE if chance.random() < 0.75 else 40 * _MINUTE
        return _around(chance, middle * (4 if night else 1), 0.8)

    def work(_: float) -> float:
        return _around(chance, 2 * _MINUTE, 0.7)

    return {f"n{number}": _walk(chance, 14 * DAY, work, pause) for number in range(12)}


def _dead(chance: random.Random) -> Made:
    def pause(at: float) -> float:
        night = at % DAY > 18 * _HOUR
        return _around(chance, 50 * _MINUTE, 1.2) + (13 * _HOUR if night else 0.0)

    def work(_: float) -> float:
        return _around(chance, 90 * _MINUTE)

    lives = [chance.uniform(2, 9) * DAY if number % 3 == 0 else 21 * DAY for number in range(45)]
    return {f"n{number}": _walk(chance, end, work, pause) for number, end in enumerate(lives)}


def _monthly(chance: random.Random) -> Made:
    def pause(at: float) -> float:
        month = at % (30 * DAY)
        return _around(chance, 14 * _MINUTE if month > 27 * DAY else 3 * DAY)

    def work(_: float) -> float:
        return _around(chance, 50 * _MINUTE)

    return {f"n{number}": _walk(chance, 92 * DAY, work, pause) for number in range(20)}


def _serving(chance: random.Random) -> Made:
    def pause(at: float) -> float:
        if at < 14 * DAY:
            return _around(chance, 5 * _HOUR)
        return _around(chance, (12 if 7 * _HOUR < at % DAY < 22 * _HOUR else 90) * _MINUTE)

    def work(at: float) -> float:
        return _around(chance, 3 * _HOUR if at < 14 * DAY else 2 * _MINUTE)

    return {f"n{number}": _walk(chance, 28 * DAY, work, pause) for number in range(12)}


def _trap(chance: random.Random) -> Made:
    def pause(_: float) -> float:
        return 10.5 * _MINUTE + chance.uniform(0.0, 60.0)

    def work(_: float) -> float:
        return 20 * _MINUTE

    return {f"n{number}": _walk(chance, 14 * DAY, work, pause) for number in range(8)}


_FAMILIES: Mapping[str, Callable[[random.Random], Made]] = {
    "deadline": _deadline,
    "nights": _nights,
    "heavy": _heavy,
    "bursts": _bursts,
    "dead": _dead,
    "monthly": _monthly,
    "serving": _serving,
    "trap": _trap,
}
FITTED = ("deadline", "nights", "heavy", "bursts")
JUDGED = ("dead", "monthly", "serving", "trap")


def made(name: str, seed: int = 1) -> Made:
    """The busy spans of a family's nodes, by node."""
    return _FAMILIES[name](random.Random(f"{name} {seed}"))
