"""Figures of the backtest's engine: node-hours of recorded history that the real controller plays in a second."""

import csv
import gzip
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.backtest.compare import policy_of
from gpuwatch.simulate.backtest.gaps import History, history_of
from gpuwatch.simulate.backtest.safety_check import Bounds, check
from gpuwatch.simulate.fleet.options import Options

_NODES = 1000
_SEED = 7
_HOURS = 30 * 24.0
_REAL_SECONDS = 8.0  # for each figure
_RESTART = 600.0
_TRACES = Path(os.environ.get("GPUWATCH_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces"))
_PHILLY = "philly_node_busy_pack.csv.gz"
# A made fleet's mean hours of work and of the gaps after it.
_FLEETS = {
    "quiet (a gap a week)": (160.0, 8.0),
    "daily (a gap a day)": (8.0, 16.0),
    "restless (four a day)": (2.0, 4.0),
}


def measure() -> Iterator[Figure]:
    """Made fleets under a fixed wait, one under a learned one, and a real recording where there is one."""
    with TemporaryDirectory() as made:
        for name, (work, gap) in _FLEETS.items():
            history, options = _history(Path(made) / "made.csv", _intervals(work, gap))
            goal = 3000.0 if name.startswith("daily") else None
            yield from _played(f"{_NODES} nodes, {name}, timeout=10m", "timeout=10m", history, options, goal)
        history, options = _history(Path(made) / "made.csv", _intervals(8.0, 16.0))
        yield from _played(f"{_NODES} nodes, daily, timeout=learned", "timeout=learned", history, options, 1500.0)
        if (_TRACES / _PHILLY).exists():
            history, options = _history(Path(made) / "philly.csv", _philly())
            yield from _played("Philly, 240 nodes, timeout=10m", "timeout=10m", history, options)


def _played(name: str, policy: str, history: History, options: Options, goal: float | None = None) -> Iterator[Figure]:
    begin = time.perf_counter()
    checked = check(policy_of(policy), history, options, _RESTART, Bounds(real_seconds=_REAL_SECONDS), SystemClock())
    seconds = time.perf_counter() - begin
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
    begin = time.perf_counter()
    for _ in range(sample):
        for node in known:
            known.get(node)
    return (time.perf_counter() - begin) * rounds / max(1, sample)


def _history(path: Path, rows: Iterable[tuple[object, ...]]) -> tuple[History, Options]:
    with path.open("w", newline="", encoding="ascii") as lines:
        writer = csv.writer(lines)
        writer.writerow(("node", "busy_from_s", "busy_to_s"))
        writer.writerows(rows)
    options = Options(trace=path)
    return history_of(options), options


def _intervals(work_hours: float, gap_hours: float) -> Iterator[tuple[object, ...]]:
    """Busy intervals at random, the same at each run."""
    chance, end = random.Random(_SEED), _HOURS * 3600
    for number in range(_NODES):
        at = 0.0
        while at < end:
            until = min(end, at + 60 + chance.expovariate(1 / (work_hours * 3600)))
            yield f"node-{number:04}", f"{at:.1f}", f"{until:.1f}"
            at = until + 60 + chance.expovariate(1 / (gap_hours * 3600))


def _philly() -> Iterator[tuple[object, ...]]:
    """A node's name is vc/node."""
    with gzip.open(_TRACES / _PHILLY, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            yield f"{row['vc']}/{row['node']}", row["busy_from_s"], row["busy_to_s"]
