"""Figures of the backtest's engine: node-hours that the real controller plays in a second of one processor."""

import csv
import gzip
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import cost, replays
from benchmarks.figures import Figure
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.backtest.compare import policy_of
from gpuwatch.simulate.backtest.gaps import History, history_of
from gpuwatch.simulate.backtest.safety_check import Bounds, check
from gpuwatch.simulate.fleet.options import Options

_NODES = 1000
_SEED = 7
_HOURS = 30 * 24.0
_RESTART = 600.0
_TRACES = Path(os.environ.get("GPUWATCH_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces"))
_PHILLY = "philly_node_busy_pack.csv.gz"
_SPREAD = "philly_node_busy_spread.csv.gz"
_DAILY = (8.0, 16.0)
# A made fleet's mean hours of work and of the gaps after it, and how many hours of it are played.
_FLEETS = {
    "quiet (a gap a week)": (160.0, 8.0, 72.0),
    "daily (a gap a day)": (*_DAILY, 48.0),
    "restless (four a day)": (2.0, 4.0, 6.0),
}


def measure() -> Iterator[Figure]:
    """Made fleets under a fixed wait, one under a learned one, and a real recording where there is one.

    Then what is measured elsewhere and belongs to it: metering, a whole comparison, the demo, a Prometheus.
    """
    with TemporaryDirectory() as made:
        folder = Path(made)
        for name, (work, gap, hours) in _FLEETS.items():
            history, options = _history(folder / "made.csv", _intervals(work, gap))
            goal = 3000.0 if name.startswith("daily") else None
            yield from _played(f"{_NODES} nodes, {name}, timeout=10m", "timeout=10m", history, options, hours, goal)
        history, options = _history(folder / "made.csv", _intervals(*_DAILY))
        learned = "timeout=learned"
        yield from _played(f"{_NODES} nodes, daily, {learned}", learned, history, options, 48.0, 1500.0)
        yield from replays.comparison(*_history(folder / "made.csv", _intervals(*_DAILY), hours=9 * 24.0))
        if (_TRACES / _PHILLY).exists():
            history, options = _history(folder / "philly.csv", _philly(_PHILLY))
            yield from _played("Philly, 240 nodes, timeout=10m", "timeout=10m", history, options, 500.0)
            _write(folder / "spread.csv", _philly(_SPREAD))
            yield from replays.demo(folder / "spread.csv")
        yield from cost.metering(folder)
    yield from replays.of_prometheus()


def _played(
    name: str, policy: str, history: History, options: Options, hours: float, goal: float | None = None
) -> Iterator[Figure]:
    """By CPU time: the begin, when all nodes work, has more stops than later days."""
    begin = time.process_time()
    checked = check(policy_of(policy), history, options, _RESTART, Bounds(hours=hours), SystemClock())
    seconds = time.process_time() - begin
    if checked.wrongly_stopped or checked.violations:
        raise RuntimeError(f"{name}: {checked.wrongly_stopped} wrong stops, {checked.violations[:3]}")
    rounds = checked.hours * 60
    yield Figure(
        name=f"{name}: {checked.hours / 24:.1f} days, {checked.stops} stops",
        unit="node-hours/s",
        runs=[checked.node_hours / seconds],
        at_least=goal,
        floor="a look at each node in each round",
        floor_runs=[checked.node_hours / _bare(len(history.lives), round(rounds))],
    )


def _bare(nodes: int, rounds: int) -> float:
    """The least that asking every node in every round costs."""
    known = dict.fromkeys(range(nodes))
    sample = min(rounds, 200)
    begin = time.process_time()
    for _ in range(sample):
        for node in known:
            known.get(node)
    return (time.process_time() - begin) * rounds / max(1, sample)


def _history(path: Path, rows: Iterable[tuple[object, ...]], hours: float | None = None) -> tuple[History, Options]:
    _write(path, rows)
    options = Options(trace=path, hours=hours)
    return history_of(options), options


def _write(path: Path, rows: Iterable[tuple[object, ...]]) -> None:
    with path.open("w", newline="", encoding="ascii") as lines:
        writer = csv.writer(lines)
        writer.writerow(("node", "busy_from_s", "busy_to_s"))
        writer.writerows(rows)


def _intervals(work_hours: float, gap_hours: float) -> Iterator[tuple[object, ...]]:
    """Busy intervals at random, the same at each run."""
    chance, end = random.Random(_SEED), _HOURS * 3600
    for number in range(_NODES):
        at = 0.0
        while at < end:
            until = min(end, at + 60 + chance.expovariate(1 / (work_hours * 3600)))
            yield f"node-{number:04}", f"{at:.1f}", f"{until:.1f}"
            at = until + 60 + chance.expovariate(1 / (gap_hours * 3600))


def _philly(name: str) -> Iterator[tuple[object, ...]]:
    """A node's name is vc/node."""
    with gzip.open(_TRACES / name, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            yield f"{row['vc']}/{row['node']}", row["busy_from_s"], row["busy_to_s"]
