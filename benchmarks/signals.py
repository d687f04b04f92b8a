"""Figures of one round's observation by a real Prometheus: 1,250 and 12,500 nodes of 8 GPUs, written by promtool.

Prometheus works for as long as its queries take; what is the controller's own is the CPU time of its process: reading
the answers and making verdicts of them. Our agents' series are as scraped (the newest ones: the answers are as long
as with a history), another exporter's as alerts/recording.yml records them.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.processes import peak_rss_bytes
from gpuwatch.controller.observe.exporters import DIALECTS, name_of_rule
from gpuwatch.controller.observe.prometheus_api import PromApi
from gpuwatch.controller.observe.promql import PromqlSource
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import a_node
from tests.support.real.tsdb import History, prometheus

_COUNTS = (1_250, 12_500)
_GPUS = 8
_RUNS = 3
_MIB = 1024**2
_IDLE_EVERY = 10
_STRETCHES = 14  # of five minutes, an hour and what lies around it
_DIALECTS = {"gpuwatch": "our agents' series", "dcgm": "dcgm-exporter's, recorded"}


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What a process saw that observed one size of fleet."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    bare_rss: int
    peak_rss: int = 0


def measure() -> Iterator[Figure]:
    """All figures."""
    if shutil.which("promtool") is None or shutil.which("prometheus") is None:
        raise SystemExit("the section signals runs a Prometheus; on Debian: apt install prometheus")
    at = float(int(SystemClock().now().timestamp()))
    seen: dict[tuple[str, int], _Seen] = {}
    for count in _COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder) / "fleet", at, count)
            with prometheus(Path(folder) / "fleet", History()) as url:
                for dialect in _DIALECTS:  # each in a fresh process, for its memory
                    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                        seen[dialect, count] = process.submit(_observe, url, dialect, count, at).result()
    small, large = _COUNTS
    for dialect, text in _DIALECTS.items():
        few, many = seen[dialect, small], seen[dialect, large]
        yield Figure(
            name=f"observing {large:,} nodes by {text}, without the queries",
            unit="s",
            runs=many.cpu,
            floor=f"{small:,} nodes; {large // small}x is linear",
            floor_runs=few.cpu,
        )
        yield Figure(name="the same, with the queries", unit="s", runs=many.wall)
        yield Figure(
            name="the same, peak RSS",
            unit="MiB",
            runs=[many.peak_rss / _MIB],
            floor="the same imports without a fleet",
            floor_runs=[many.bare_rss / _MIB],
        )


def _observe(url: str, dialect: str, count: int, at: float) -> _Seen:
    """Several rounds' observations of so many nodes; the first is not measured."""
    seen = _Seen(bare_rss=peak_rss_bytes())
    clock = ManualClock(wall=datetime.fromtimestamp(at, UTC))
    promql = PromqlSettings(url=url, dialect=dialect, lookback=3600.0, rules=True, timeout=120.0)  # type: ignore[arg-type]  # a name of the table above
    settings = ObserveSettings(source="promql", promql=promql)
    api = PromApi(settings=promql, clock=clock, most_skew_seconds=86400.0)
    agents = ScrapeSource(settings=settings, clock=clock, max_age_seconds=40.0)
    source = PromqlSource(settings=settings, clock=clock, max_age_seconds=40.0, api=api, agents=agents)
    nodes = [a_node(f"i-{number}", address=_address(number), gpu_count=_GPUS) for number in range(count)]
    for run in range(_RUNS + 1):
        begin, cpu = time.perf_counter(), time.process_time()
        fleet = source.observe(nodes)
        if run > 0:
            seen.wall.append(time.perf_counter() - begin)
            seen.cpu.append(time.process_time() - cpu)
        _check(fleet)
        del fleet
    seen.peak_rss = peak_rss_bytes()
    return seen


def _check(fleet: Fleet) -> None:
    """Each node must have been seen as it is."""
    for number, node in enumerate(fleet.nodes):
        if node.activity.state is not _state(number) or node.verdict is None or len(node.verdict.gpus) != _GPUS:
            raise RuntimeError(f"node {number} was seen as {node.activity}")


def _address(number: int) -> str:
    return f"127.{1 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def _state(number: int) -> State:
    return State.IDLE if number % _IDLE_EVERY == 0 else State.BUSY


def _write(folder: Path, at: float, count: int) -> None:
    """All series as blocks; text first, family by family, as promtool wants it."""
    folder.mkdir()
    text = folder / "history.txt"
    with text.open("w") as file:
        for name, lines in _families(at, count):
            file.write(f"# TYPE {name} gauge\n")
            file.writelines(f"{name}{{{labels}}} {value} {moment:.0f}\n" for labels, value, moment in lines)
        file.write("# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "GOMEMLIMIT": "4GiB"})
    text.unlink()


_Lines = Iterable[tuple[str, float, float]]  # labels, value, moment


def _families(at: float, count: int) -> Iterator[tuple[str, _Lines]]:
    """What is stored of so many nodes."""
    targets = [(number, f'instance="{_address(number)}:9460",job="gpuwatch"') for number in range(count)]
    new = at - 3
    yield "gpuwatch_node_info", ((f'{of},node_id="i-{number}"', 1, new) for number, of in targets)
    yield (
        "gpuwatch_node_activity",
        (
            (f'{of},state="{state}"', int(state is _state(number)), moment)
            for number, of in targets
            for state in State
            for moment in (new - 15, new)
        ),
    )
    idle = ((number, of, 7200.0 if _state(number) is State.IDLE else 0.0) for number, of in targets)
    yield "gpuwatch_node_idle_seconds", ((of, held, new) for _, of, held in idle)
    yield "gpuwatch_agent_last_cycle_age_seconds", ((of, 0.5, new) for _, of in targets)
    yield (
        "gpuwatch:node_gpus",
        (
            (f'{of},state="{state}"', _GPUS * (state is _state(number)), new)
            for number, of in targets
            for state in [_state(number)]
        ),
    )
    dialect = DIALECTS["dcgm"]
    for sign in dialect.signs:
        moments = [new - 300 * step for step in reversed(range(_STRETCHES))]
        work = sign.limit if sign.name == "utilization" else 0.0
        busy = {number: 0.0 if _state(number) is State.IDLE else work for number, _ in targets}
        yield (
            name_of_rule(dialect, sign, "max"),
            ((of, busy[number], moment) for number, of in targets for moment in moments),
        )
        if sign.required:
            parts = {"samples": 40, "gpus": _GPUS, "at": new}
            for part, value in parts.items():
                yield (
                    name_of_rule(dialect, sign, part),
                    ((of, value, moment) for _, of in targets for moment in moments),
                )
    yield dialect.signs[0].metric, ((f'{of},UUID="GPU-0"', 0, new) for _, of in targets[:1])
