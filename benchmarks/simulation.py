"""Figures of the headless demo: how fast simulated time goes by."""

import csv
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from gpuwatch.simulate.demo import DemoDocument, run_headless
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.fleet import a_node

_RUNS = 3
_NODES = 100
_SEED = 7
_BUSY_SECONDS = 2 * 3600.0  # on average
_GAP_SECONDS = 4 * 3600.0  # likewise


def measure(trace_hours: float) -> Iterator[Figure]:
    """The demo's day several times, and a recording of 100 nodes of one GPU for so many hours once."""
    yield from _played("the demo's 24 h", Options(seed=_SEED, hours=24.0), _RUNS)
    with TemporaryDirectory() as made:
        trace = Path(made) / "intervals.csv"
        _write(trace, trace_hours)
        yield from _played(f"a trace of {_NODES} nodes and {trace_hours:g} h", Options(trace=trace), 1)


def _played(name: str, options: Options, runs: int) -> Iterator[Figure]:
    times, bare = [], []
    figures: DemoDocument
    for _ in range(runs):
        begin = time.perf_counter()
        figures = run_headless(options)
        times.append(time.perf_counter() - begin)
        bare.append(_bare(int(figures.nodes) * int(figures.rounds)))
    size = f"{figures.nodes} nodes, {figures.gpus} GPUs, {figures.rounds:,} rounds"
    yield Figure(
        name=f"{name} ({size})",
        unit="s",
        runs=times,
        floor="one node replaced, per node and round",
        floor_runs=bare,
    )
    node_hours = float(figures.nodes) * float(figures.hours)
    yield Figure(name=f"speed of {name}", unit="node-hours/s", runs=[node_hours / seconds for seconds in times])


def _bare(count: int) -> float:
    """The least that a fleet of frozen values costs: each node made anew for each round."""
    node = a_node()
    begin = time.perf_counter()
    for _ in range(count):
        node = replace(node, name="n")
    return time.perf_counter() - begin


def _write(path: Path, hours: float) -> None:
    """Busy intervals at random, the same at each run."""
    chance = random.Random(_SEED)
    end = hours * 3600
    with path.open("w", newline="", encoding="ascii") as lines:
        rows = csv.writer(lines)
        rows.writerow(("node", "busy_from_s", "busy_to_s"))
        for number in range(_NODES):
            at = chance.expovariate(1 / _GAP_SECONDS)
            while at < end:
                until = min(end, at + 60 + chance.expovariate(1 / _BUSY_SECONDS))
                rows.writerow((f"node-{number:03}", f"{at:.1f}", f"{until:.1f}"))
                at = until + 60 + chance.expovariate(1 / _GAP_SECONDS)
