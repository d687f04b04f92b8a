"""Forecasts real series of GPU demand from many moments of their past and prints how far off each method was.

`python -m benchmarks.forecast [DIRECTORY] [--every N]`. The recordings are not part of the repository; DIRECTORY is
$GPUWATCH_TRACES, else ../shared/traces. Series: GPUs in demand of Philly's virtual clusters (from its jobs, day 30 to
105) and nodes in use, GPUs in use in Earth's virtual clusters (days of it are too few; hours only), GPUs of openb's
last forty days, requests of two model services. At each moment the method sees what lay before it, nothing else.
MASE: the mean absolute error over that of the season before (7 days, 24 hours) in what lay before. The total's error:
that of the horizon's sum, as a share, the median series. Then commitments of one year, at an assumed discount of 30 %:
reserved by the first half of a series' hours, paid for over the second half; beside it what 70 % of the first half's
mean and of its peak would have saved against all on demand, and the best number in hindsight.
"""

import argparse
import csv
import gzip
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import fmean, geometric_mean, median

from benchmarks.figures import Figure, put, table
from gpuwatch.money.advice.commitment_plan import Terms, cheapest, plan, steady_plan
from gpuwatch.money.forecast.evaluation import bound_means, past
from gpuwatch.money.forecast.forecast import forecast
from gpuwatch.money.forecast.methods import CANDIDATES, METHODS
from gpuwatch.money.forecast.series import DAY_SECONDS, HOUR_SECONDS, Rhythm, Series

Levels = list[tuple[float, float]]

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "traces"
_MONDAY = datetime(2026, 6, 1, tzinfo=UTC)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        yield from csv.DictReader(lines)


def _levels(spans: Sequence[tuple[float, float, float]]) -> Levels:
    """What is in use from each moment on, of (begin, end, amount)."""
    changes: dict[float, float] = defaultdict(float)
    for begin, end, amount in spans:
        changes[begin] += amount
        changes[end] -= amount
    level, rows = 0.0, []
    for at in sorted(changes):
        level += changes[at]
        rows.append((at, level))
    return rows


def _philly(source: Path) -> dict[str, Levels]:
    jobs: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for row in _rows(source / "philly_jobs.csv.gz"):
        begin = float(row["arrive_s"])
        jobs[row["vc"]].append((begin, begin + float(row["duration_s"]), float(row["gpus"])))
    return {f"philly {vc}": _levels(rows) for vc, rows in jobs.items()}


def _nodes(source: Path) -> dict[str, Levels]:
    rows = _rows(source / "philly_active_nodes.csv.gz")
    return {"philly nodes": [(float(row["t_s"]), level) for row in rows if (level := float(row["active_nodes"]))]}


def _earth(source: Path) -> dict[str, Levels]:
    document: dict[str, Levels] = defaultdict(list)
    for row in _rows(source / "helios_earth_vc_occupancy.csv.gz"):
        document[f"earth {row['vc']}"].append((float(row["t_s"]), float(row["running_gpus"])))
    return document


def _openb(source: Path) -> dict[str, Levels]:
    rows = [row for row in _rows(source / "openb23_pods.csv.gz") if row["sched_s"]]
    spans = [
        (float(row["sched_s"]), float(row["delete_s"]), int(row["gpus"]) * int(row["gpu_milli"]) / 1000) for row in rows
    ]
    return {"openb": _levels(spans)}


def _requests(source: Path) -> dict[str, Levels]:
    rows = [
        (float(row["t_s"]), float(row["req_per_s"]))
        for row in _rows(source / "servegen_llm_rate.csv.gz")
        if row["model"] == "m-large"
    ]
    starts = [float(row["t_s"]) for row in _rows(source / "genai26_requests.csv.gz")]
    return {"servegen": rows, "genai": _levels([(at, at + HOUR_SECONDS, 1.0) for at in starts])}


_SOURCES: Sequence[tuple[Callable[[Path], dict[str, Levels]], float, float]] = (
    (_philly, 30, 105),
    (_nodes, 32, 69),
    (_earth, 0, 31),
    (_openb, 109, 149),
    (_requests, 1, 12),
)


def series_of(source: Path, step: float) -> dict[str, Series]:
    """The recordings as means of each step."""
    return {
        name: Series(start=_MONDAY, step_seconds=step, values=tuple(_means(levels, begin, end, step)))
        for read, begin, end in _SOURCES
        for name, levels in read(source).items()
    }


def _means(levels: Levels, begin: float, end: float, step: float) -> list[float]:
    begin, end = begin * DAY_SECONDS, end * DAY_SECONDS
    means = [0.0] * round((end - begin) / step)
    for (since, level), (until, _) in pairwise([*levels, (end, 0.0)]):
        at, stop = max(since, begin), min(until, end)
        while at < stop:
            place = int((at - begin) // step)
            after = min(stop, begin + (place + 1) * step)
            means[place] += level * (after - at) / step
            at = after
    return means


class _Tally:
    """Errors of one way to forecast, by series."""

    def __init__(self) -> None:
        self.scaled: dict[str, list[float]] = defaultdict(list)
        self.totals: dict[str, list[float]] = defaultdict(list)
        self.sums: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, means: Sequence[float], actual: Sequence[float], scale: float) -> None:
        self.scaled[name].append(fmean(abs(a - b) for a, b in zip(means, actual, strict=True)) / scale)
        self.totals[name].append(abs(sum(means) - sum(actual)))
        self.sums[name].append(sum(actual))

    def mase(self) -> list[float]:
        return [fmean(each) for each in self.scaled.values()]

    def total(self) -> float:
        return median(sum(each) / sum(self.sums[name]) for name, each in self.totals.items() if sum(self.sums[name]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One task: MASE (geometric mean of the series) of the default, the 7-day mean and the best; intervals held."""

    default: float
    seven_days: float
    held: float
    best: float  # of the candidates, for each series the one that would have been best all along


def compare(by_name: Mapping[str, Series], steps: int, least: int, every: int) -> Result:
    """A line for each method, and how often the default's intervals held."""
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    inside: dict[str, list[bool]] = defaultdict(list)
    chosen: dict[str, int] = defaultdict(int)
    for name, series in by_name.items():
        season = Rhythm.at_step(series.step_seconds).season
        values = [value for value in series.values if value is not None]
        for at in range(least, len(values) - steps + 1, every):
            scale = fmean(abs(now - then) for now, then in zip(values[season:at], values, strict=False))
            if scale == 0:
                continue
            actual = values[at : at + steps]
            for method, tell in METHODS.items():
                means = bound_means(tell(past(series, at), steps), never_negative=True)
                tallies[method].add(name, means, actual, scale)
            seen = Series(start=series.start, step_seconds=series.step_seconds, values=series.values[:at])
            default = forecast(seen, steps)
            tallies["DEFAULT"].add(name, [step.mean for step in default.steps], actual, scale)
            chosen[default.method] += 1
            inside[name] += [
                step.lower - 1e-9 <= value <= step.upper + 1e-9
                for step, value in zip(default.steps, actual, strict=True)
                if step.lower is not None and step.upper is not None
            ]
    print(f"{'method':22}{'MASE':>8}{'geo.':>8}{'worst/7d':>10}{'total':>8}")
    base = tallies["7-day mean"].mase()
    for method, tally in sorted(tallies.items(), key=lambda each: fmean(each[1].mase())):
        mase = tally.mase()
        geometric = geometric_mean(mase)
        worst = max(mine / other for mine, other in zip(mase, base, strict=True))
        print(f"{method:22}{fmean(mase):8.3f}{geometric:8.3f}{worst:10.2f}{tally.total():8.1%}")
    held = [fmean(each) for each in inside.values()]
    print(
        f"80 % intervals hold {fmean(held):.1%} (median series {median(held):.1%}, {min(held):.0%} to {max(held):.0%})"
    )
    print(
        "chosen: " + ", ".join(f"{name} {count}" for name, count in sorted(chosen.items(), key=lambda each: -each[1]))
    )
    best = [min(each) for each in zip(*(tallies[name].mase() for name in CANDIDATES), strict=True)]
    return Result(
        default=geometric_mean(tallies["DEFAULT"].mase()),
        seven_days=geometric_mean(base),
        held=fmean(held),
        best=geometric_mean(best),
    )


def shifted() -> float:
    """Days and hours of noise, then a level that stays flat: the default's error over naive's, the worst of them."""
    ratios = []
    for step, season, seed in ((HOUR_SECONDS, 24, 1), (HOUR_SECONDS, 24, 2), (DAY_SECONDS, 7, 1), (DAY_SECONDS, 7, 2)):
        draw = random.Random(seed)
        values = [draw.gauss(50, 10) for _ in range(10 * season)] + [draw.gauss(20, 0.1) for _ in range(8 * season)]
        off, naive = 0.0, 0.0
        for at in range(11 * season, 17 * season, season // 2):
            seen = Series(start=_MONDAY, step_seconds=step, values=tuple(values[:at]))
            actual = values[at : at + season]
            means = [each.mean for each in forecast(seen, season).steps]
            off += sum(abs(mean - value) for mean, value in zip(means, actual, strict=True))
            naive += sum(abs(values[at - 1] - value) for value in actual)
        ratios.append(off / naive)
    return max(ratios)


def commit(by_name: Mapping[str, Series]) -> Iterator[Figure]:
    """A line for each series: what reserving saved, of all on demand; then the figures that have goals."""
    terms = Terms(price_per_hour=Decimal(1), three_year=Decimal(0))
    rules = ("advised", "if it stays", "hindsight", "70% mean", "70% peak")
    print(f"{'series':18}{'mean':>8}{'peak':>8}" + "".join(f"{rule:>12}" for rule in rules))
    savings: dict[str, list[float]] = defaultdict(list)
    paid: dict[str, Decimal] = defaultdict(Decimal)
    for name, series in by_name.items():
        values = [value for value in series.values if value is not None]
        before, after = values[: len(values) // 2], values[len(values) // 2 :]
        if not sum(after):
            continue
        units = (
            steady_plan(before, terms).one_year_units,
            cheapest(before, terms, terms.one_year_price),
            cheapest(after, terms, terms.one_year_price),
            round(0.7 * fmean(before)),
            round(0.7 * max(before)),
        )
        nothing = plan(after, terms, 0, 0).usd_per_year
        costs = [plan(after, terms, each, 0).usd_per_year for each in units]
        saved = [float(1 - cost / nothing) for cost in costs]
        paid["on demand"] += nothing
        for rule, cost, each in zip(rules, costs, saved, strict=True):
            savings[rule].append(each)
            paid[rule] += cost
        cells = "".join(f"{each:>5} {share:6.1%}" for each, share in zip(units, saved, strict=True))
        print(f"{name:18}{fmean(after):8.1f}{max(after):8.1f}{cells}")
    print(f"{'all together':34}" + "".join(f"{float(1 - paid[rule] / paid['on demand']):12.1%}" for rule in rules))
    print(f"{'median':34}" + "".join(f"{median(each):12.1%}" for each in savings.values()))
    print(f"{'worst':34}" + "".join(f"{min(each):12.1%}" for each in savings.values()))
    lost = {rule: fmean(share < 0 for share in each) for rule, each in savings.items()}
    print(f"{'pools that lose':34}" + "".join(f"{share:12.1%}" for share in lost.values()))
    yield Figure(
        name="commitments: pools that lose",
        unit="",
        runs=[lost["advised"]],
        floor="if it stays",
        floor_runs=[lost["if it stays"]],
        ratio_at_most=0.5,
    )
    yield Figure(
        name="commitments: worst loss, of all on demand", unit="", runs=[-min(savings["advised"])], at_most=0.1
    )


def _goals(results: Mapping[str, Result]) -> Iterator[Figure]:
    """Each figure beside what it should be."""
    overall = geometric_mean(each.default for each in results.values())
    best = geometric_mean(each.best for each in results.values())
    yield Figure(
        name="MASE, geometric mean of the four tasks",
        unit="",
        runs=[overall],
        floor="the candidate that was best for each series",
        floor_runs=[best],
        at_most=0.86,
    )
    for task, each in results.items():
        yield Figure(
            name=f"MASE, {task}",
            unit="",
            runs=[each.default],
            floor="7-day mean",
            floor_runs=[each.seven_days],
            ratio_at_most=1.0,
        )
        off = abs(each.held - 0.8)
        yield Figure(name=f"80 % intervals of {task}: held less 80 %", unit="", runs=[off], at_most=0.05)
    yield Figure(name="flat after a shift, of naive's error", unit="", runs=[shifted()], at_most=1.1)


def main() -> int:
    """Forecast and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("GPUWATCH_TRACES", _DEFAULT))
    parser.add_argument("directory", type=Path, nargs="?", default=default, help="where the recordings are")
    parser.add_argument("--every", type=int, default=84, metavar="N", help="hours from one moment to the next (84)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the goals into their place in this page")
    arguments = parser.parse_args()
    if not arguments.directory.is_dir():
        print(f"no recordings in {arguments.directory}; name their directory, or set GPUWATCH_TRACES")
        return 0
    begun = time.perf_counter()
    days = {
        name: series for name, series in series_of(arguments.directory, DAY_SECONDS).items() if len(series.values) > 36
    }
    hours = series_of(arguments.directory, HOUR_SECONDS)
    results = {}
    for steps in (7, 14, 30):
        print(f"\n{len(days)} daily series, {steps} days ahead, from day 28 on, every 3 days")
        results[f"{steps} days"] = compare(days, steps, 28, 3)
    print(f"\n{len(hours)} hourly series, 24 hours ahead, from day 8 on, every {arguments.every} hours")
    results["24 hours"] = compare(hours, 24, 192, arguments.every)
    print()
    goals = list(_goals(results))
    print(table([("forecast", goals)]))
    print("\nunits reserved for a year at 30 % off, by the first half of the hours, and saved over the second half")
    figures = list(
        commit({name: series for name, series in hours.items() if not name.startswith(("servegen", "genai"))})
    )
    print(f"\n{table([('commitments', figures)])}")
    if arguments.page is not None:
        put(arguments.page, "forecast", table([("forecast", goals), ("commitments", figures)], goals_only=True))
    print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
