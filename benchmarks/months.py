"""Forecasts where months end for made fleets and for recorded demand, with the blend of daily sums as what was before.

`python -m benchmarks.months [--page FILE]`. The fleets are made here, by seed: lasting changes of what runs, machines
that die one after another, batches at each month's end, weekends, inference that comes in bursts, jobs with heavy
tails. Each is asked about its month of thirty days on the 6th, 12th, 18th and 24th; the methods see what lay before.
Errors are of the month's whole total, as a share of the truth, the mean of all questions. Where $GPUWATCH_TRACES (else
../shared/traces) has recordings, their demand is played in machines of eight GPUs, with the median of its last seven
days; and anomalies are counted in them: each is a false alarm.
"""

import argparse
import math
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import fmean, median
from zoneinfo import ZoneInfo

from benchmarks.figures import Figure, put, table
from benchmarks.forecast import series_of
from gpuwatch.model.usage import AMOUNTS, HOUR_MS, USES, Terms, Use
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.forecast.evaluation import bound_means
from gpuwatch.money.forecast.machines import DAY, FleetDays, coming
from gpuwatch.money.forecast.methods import BLEND, METHODS, Past, since_shift
from gpuwatch.money.forecast.series import DAY_SECONDS, Rhythm
from gpuwatch.money.report.anomalies import find_anomalies

Counts = list[float]

_RECORDINGS = Path(os.environ.get("GPUWATCH_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces"))
_KIND = ("default", "", "us-east-1", "p5.48xlarge", "on_demand")
_BEGAN = datetime(2026, 6, 1, tzinfo=UTC)
_MONTH = 30
_DAYS = 4 * _MONTH
_ASKED = (6, 12, 18, 24)
_SEEDS = range(10)
_GPUS = 8


def _stepped(before: int, after: int) -> Callable[[random.Random, int], Counts]:
    """So many machines, and another number since three days before the question."""
    return lambda draw, asked: [
        max(0.0, (before if day < asked - 3 else after) * draw.gauss(1, 0.02)) for day in range(_DAYS)
    ]


def _regimes(draw: random.Random, _: int) -> Counts:
    """Another size every three weeks or so."""
    made, size = Counts(), draw.randint(2, 30)
    while len(made) < _DAYS:
        made += [float(size)] * draw.randint(10, 35)
        size = max(0, round(size * draw.choice((0.3, 0.5, 0.8, 1.2, 1.5, 2.0))))
    return made[:_DAYS]


def _dying(draw: random.Random, _: int) -> Counts:
    """Forty machines; one in ten days is lost for good, and one in fifteen comes."""
    made, size = Counts(), 40.0
    for _day in range(_DAYS):
        size = max(0.0, size - (draw.random() < 0.1) + (draw.random() < 1 / 15))
        made.append(size)
    return made


def _monthly(draw: random.Random, _: int) -> Counts:
    """Five machines, and forty more on the last days of each month."""
    return [5.0 + (draw.randint(38, 42) if day % _MONTH >= _MONTH - 4 else 0) for day in range(_DAYS)]


def _weekly(draw: random.Random, _: int) -> Counts:
    """Twenty from Monday to Friday, a few at weekends."""
    return [draw.randint(18, 22) if day % 7 < 5 else draw.randint(1, 4) for day in range(_DAYS)]


def _bursty(draw: random.Random, _: int) -> Counts:
    """Replicas that follow a load that fades and leaps."""
    made, level = Counts(), 0.0
    for _day in range(_DAYS):
        level = 0.8 * level + draw.gauss(0, 0.4)
        made.append(8 * math.exp(level) / math.exp(0.2))
    return made


def _heavy(draw: random.Random, _: int) -> Counts:
    """Jobs that arrive by chance and last for a day, or for many."""
    made = [0.0] * _DAYS
    for day in range(-_MONTH, _DAYS):
        for _job in range(draw.choice((0, 1, 2, 3))):
            last = day + min(60, round(draw.paretovariate(1.2)))
            for at in range(max(0, day), min(_DAYS, last)):
                made[at] += 2
    return made


_FAMILIES: dict[str, Callable[[random.Random, int], Counts]] = {
    **{
        f"{before} -> {after} three days ago": _stepped(before, after)
        for before, after in ((10, 20), (20, 10), (10, 2), (4, 10), (10, 12), (10, 0))
    },
    "another size every three weeks": _regimes,
    "machines die": _dying,
    "batch at month's end": _monthly,
    "weekends": _weekly,
    "bursts": _bursty,
    "heavy tails": _heavy,
}


def _fleet(counts: Sequence[float]) -> FleetDays:
    edge = int((_BEGAN + timedelta(days=len(counts))).timestamp())
    return FleetDays(edge=edge, machines={_KIND: tuple(counts)}, usd_per_hour={_KIND: 1 / 24})


def _before(counts: Sequence[float], ahead: int) -> float:
    """What the blend of daily sums expects."""
    rhythm = Rhythm.at_step(DAY_SECONDS)
    known = Past.from_values(since_shift(counts, rhythm), rhythm)
    return sum(bound_means(METHODS[BLEND](known, ahead), never_negative=True))


def _ask(counts: Sequence[float], now: int, end: int) -> tuple[float, float, float, bool, bool]:
    """The errors of now, of before and of the seven-day median, of the month's truth; whether the interval held.

    Last: whether it is wider than one machine, than which none is narrower.
    """
    truth = sum(counts[end - _MONTH : end])
    spent, rest = sum(counts[end - _MONTH : now]), sum(counts[now:end])
    ends = [int((_BEGAN + timedelta(days=end - number * _MONTH)).timestamp()) for number in range(1, 4)]
    found = coming(_fleet(counts[:now]), (end - now) * DAY, ends)
    others = (_before(counts[:now], end - now), median(counts[now - 7 : now]) * (end - now))
    errors = [abs(spent + usd - truth) / max(truth, 1e-9) for usd in (found.usd, *others)]
    radius = found.radius or 0.0
    return *errors, abs(found.usd - rest) <= radius + 1e-9, radius > (end - now) + 1e-9  # type: ignore[return-value]


def _families() -> Iterator[Figure]:
    held, wide = list[bool](), list[bool]()
    for name, make in _FAMILIES.items():
        asked = [
            _ask(make(random.Random(1000 * seed + day), 3 * _MONTH + day), 3 * _MONTH + day, _DAYS)
            for seed in _SEEDS
            for day in _ASKED
        ]
        stepped = "->" in name
        if not stepped:
            held += [each[3] for each in asked]
            wide += [each[3] for each in asked if each[4]]
        share = fmean(each[3] for each in asked)
        yield Figure(
            name=f"{name}: error, % (intervals held {share:.0%})",
            unit="",
            runs=[100 * fmean(each[0] for each in asked)],
            floor="sums",
            floor_runs=[100 * fmean(each[1] for each in asked)],
            at_most=3.0 if stepped else None,
        )
    yield Figure(name="80 % intervals, the last six together", unit="", runs=[fmean(held)], at_least=0.75)
    share = len(wide) / len(held)
    yield Figure(
        name=f"of these the {share:.0%} wider than one machine",
        unit="",
        runs=[fmean(wide)],
        at_least=0.75,
        at_most=0.85,
    )


def _recorded(directory: Path) -> Iterator[Figure]:
    """Demand: each series has months that end on its 58th day and later."""
    errors: list[tuple[float, float, float, bool, bool]] = []
    for series in series_of(directory, DAY_SECONDS).values():
        counts = [value / _GPUS for value in series.values if value is not None]
        for end in range(28 + _MONTH, len(counts) + 1, 7):
            errors += [_ask(counts, end - _MONTH + day, end) for day in _ASKED if sum(counts[end - _MONTH : end]) > 0]
    if not errors:
        return
    shares = [[100 * each[place] for each in errors] for place in range(3)]
    yield Figure(
        name=f"recorded demand: error, % (intervals held {fmean(each[3] for each in errors):.0%})",
        unit="",
        runs=[fmean(shares[0])],
        floor="7-day median",
        floor_runs=[fmean(shares[2])],
        ratio_at_most=1.0,
    )
    yield Figure(
        name="recorded demand: error, %", unit="", runs=[fmean(shares[0])], floor="sums", floor_runs=[fmean(shares[1])]
    )
    alarms, months = _alarms(directory)
    yield Figure(name="false alarms of anomalies a month, recordings", unit="", runs=[alarms / months], at_most=1.0)


def _alarms(directory: Path) -> tuple[int, float]:
    """Anomalies in the recordings, each group of them a fleet whose parts are owners; over how many months."""
    fleets: dict[str, dict[str, Counts]] = {}
    for name, series in series_of(directory, DAY_SECONDS).items():
        cluster, _, part = name.partition(" ")
        whole = f"{cluster} nodes" if part == "nodes" else cluster
        fleets.setdefault(whole, {})[part or cluster] = [value or 0.0 for value in series.values]
    calendar, alarms, months = Calendar(ZoneInfo("UTC")), 0, 0.0
    for cluster, owners in fleets.items():
        rows = [
            _billed(cluster, owner, hours * 24, calendar.midnight(_BEGAN.date() + timedelta(days=day)))
            for owner, days in owners.items()
            for day, hours in enumerate(days)
        ]
        length = max(map(len, owners.values()))
        for number in range(15, length):
            day: date = _BEGAN.date() + timedelta(days=number)
            seen = [row for row in rows if (row.begin or 0) <= calendar.midnight(day)]
            alarms += len(find_anomalies(day, seen, [], [], calendar, _BEGAN.date()))
        months += max(0, length - 15) / _MONTH
    return alarms, months


def _billed(pool: str, owner: str, hours: float, begin: int) -> Row:
    amounts = [0] * len(AMOUNTS)
    amounts[USES.index(Use.USEFUL)] = round(hours * HOUR_MS)
    terms = Terms(
        pool=pool,
        owner=owner,
        account=None,
        region="us-east-1",
        instance_type="p5.48xlarge",
        capacity_type="on_demand",
        gpus=1,
        usd_per_hour=Decimal("2.5"),
        price_as_of=None,
        price_source=None,
    )
    return replace(Row(terms=terms, amounts=amounts), begin=begin)


def main() -> int:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the table into its place in this page")
    arguments = parser.parse_args()
    figures = list(_families())
    if _RECORDINGS.is_dir():
        figures += _recorded(_RECORDINGS)
    print(table([("months", figures)]))
    if arguments.page is not None:
        put(arguments.page, "months", table([("months", figures)], goals_only=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
