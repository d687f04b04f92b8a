"""Figures of large histories: five policies compared, the headless demo, and a real Prometheus as the source.

The comparison is of a tenth of the time: 9 days of 1,000 nodes with a gap a day, checked for a tenth of a minute. Both
grow with the number of gaps. The demo plays a week of Philly's nodes where that recording is (`benchmarks.timing`). The
Prometheus is filled by promtool: 100 nodes of 8 GPUs, scraped once a minute for 7 days, at work for two of three hours.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from gpuwatch.controller.observe.prometheus_api import PromApi
from gpuwatch.controller.observe.settings import PromqlSettings
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.backtest.compare import Terms, policy_of
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.report import backtest
from gpuwatch.simulate.backtest.safety_check import Bounds
from gpuwatch.simulate.backtest.sources.prometheus import PrometheusRange
from gpuwatch.simulate.backtest.sources.window import Window
from gpuwatch.simulate.demo import run_headless
from gpuwatch.simulate.fleet.options import Options
from tests.support.real.tsdb import History as NoSeries
from tests.support.real.tsdb import prometheus

_COMPARED = ("timeout=5m", "timeout=30m", "timeout=break_even", "timeout=learned", "never")
_COMPARISON_SECONDS = 600.0  # the goal for 90 days
_PART = 10  # of that is measured
_CHECK_SECONDS = 60.0
_DEMO_NODE_HOURS = 345_600 / 120  # a second: the goal is two minutes for 192 nodes and 75 days
_DEMO_HOURS = 168.0
_NODES, _DAYS, _GPUS = 100, 7, 8
_SCRAPE_SECONDS = 60
_CYCLE_SECONDS = 3 * 3600  # two hours of work, then one without


def comparison(history: History, options: Options) -> Iterator[Figure]:
    """The default comparison of `gpuwatch backtest`, in as many processes as there are processors."""
    jobs, begin, spent = os.cpu_count() or 1, time.perf_counter(), _of_processes()
    named, bounds = [policy_of(name) for name in _COMPARED], Bounds(real_seconds=_CHECK_SECONDS / _PART)
    result = backtest("made", history, options, named, Terms(), bounds, SystemClock(), jobs=jobs)
    if not result.sound:
        raise RuntimeError("the comparison saw a wrong stop or a violation")
    days = history.horizon_seconds / 86400
    yield Figure(
        name=f"five policies, {len(history.lives)} nodes, {days:.0f} of 90 days, {jobs} processes",
        unit="s",
        runs=[time.perf_counter() - begin],
        at_most=_COMPARISON_SECONDS / _PART,
    )
    yield Figure(name="the same, CPU time of its processes", unit="s", runs=[_of_processes() - spent])


def _of_processes() -> float:
    """The CPU seconds of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def demo(trace: Path) -> Iterator[Figure]:
    """The headless demo's speed, by CPU time."""
    begin = time.process_time()
    figures = run_headless(Options(trace=trace, hours=_DEMO_HOURS))
    node_hours = float(figures.nodes) * float(figures.hours)
    yield Figure(
        name=f"headless demo, Philly, {figures.nodes} nodes, a week",
        unit="node-hours/s",
        runs=[node_hours / (time.process_time() - begin)],
        at_least=_DEMO_NODE_HOURS,
    )


def of_prometheus(days: float = _DAYS) -> Iterator[Figure]:
    """A range of a real Prometheus as a history: all of it, and what of that is gpuwatch's own CPU time."""
    if shutil.which("promtool") is None or shutil.which("prometheus") is None:
        print("left out: a Prometheus as the source (apt install prometheus)", file=sys.stderr)
        return
    end = SystemClock().now().timestamp() // 3600 * 3600
    begin = end - days * 86400
    with TemporaryDirectory() as folder:
        _write(Path(folder) / "fleet", begin, end)
        with prometheus(Path(folder) / "fleet", NoSeries()) as url:
            for step in (60.0, 300.0):
                settings = PromqlSettings(url=url, dialect="gpuwatch", timeout=600.0)
                api = PromApi(settings=settings, clock=SystemClock(), most_skew_seconds=inf)
                window = Window(begin=datetime.fromtimestamp(begin, UTC), end=datetime.fromtimestamp(end, UTC))
                wall, cpu = time.perf_counter(), time.process_time()
                history = PrometheusRange(api=api, window=window, step=step).history(Options())
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                _check(history, days)
                name = f"history of {_NODES} nodes and {days:g} days from a Prometheus, step {step / 60:g}m"
                yield Figure(name=name, unit="s", runs=[wall])
                yield Figure(name="the same, gpuwatch's CPU time", unit="s", runs=[cpu])


def _check(history: History, days: float) -> None:
    """Each node must have been idle once in each cycle."""
    gaps, expected = len(history.gaps), _NODES * days * 86400 / _CYCLE_SECONDS
    if len(history.lives) != _NODES or abs(gaps - expected) > _NODES:
        raise RuntimeError(f"{len(history.lives)} nodes and {gaps} gaps came back, not {_NODES} and {expected:.0f}")


def _write(folder: Path, begin: float, end: float) -> None:
    """All series as blocks; text first, family by family, as promtool wants it."""
    folder.mkdir()
    text = folder / "series.txt"
    with text.open("w", encoding="ascii") as file:
        for name, kind, lines in _families(begin, end):
            file.write(f"# TYPE {name.removesuffix('_count')} {kind}\n")
            file.writelines(lines)
        file.write("# EOF\n")
    # It reads the whole text again for each block: with blocks of two hours 84 times.
    made = ["create-blocks-from", "--max-block-duration=486h", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(
        ["promtool", "tsdb", *made], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "GOMEMLIMIT": "3GiB"}
    )
    text.unlink()


def _families(begin: float, end: float) -> Iterator[tuple[str, str, Iterable[str]]]:
    """What is asked for, and the labels that tell who a target is."""
    moments = range(int(begin), int(end) + 1, _SCRAPE_SECONDS)
    targets = [(number, f'instance="10.0.0.{number}:9460",job="gpuwatch",pool="train"') for number in range(_NODES)]

    def idle(number: int, at: int) -> int:
        """For how long it has been idle; nodes do not begin together."""
        return max(0, (at + 97 * number) % _CYCLE_SECONDS - _CYCLE_SECONDS * 2 // 3)

    yield (
        "gpuwatch_node_activity",
        "gauge",
        (
            f'gpuwatch_node_activity{{{of},state="{state}"}} {int(is_idle == (idle(number, at) > 0))} {at}\n'
            for number, of in targets
            for state, is_idle in ((State.BUSY, False), (State.IDLE, True))
            for at in moments
        ),
    )
    values: dict[str, Callable[[int, int], int]] = {
        "gpuwatch_node_idle_seconds": idle,
        "gpuwatch_agent_last_cycle_timestamp_seconds": lambda _number, at: at - 1,
        "gpuwatch_agent_cycle_duration_seconds_count": lambda _number, at: at - int(begin) + 1,
    }
    for name, value in values.items():
        yield (
            name,
            "summary" if name.endswith("_count") else "gauge",
            (f"{name}{{{of}}} {value(number, at)} {at}\n" for number, of in targets for at in moments),
        )
    for name, label in (
        ("gpuwatch_node_info", "node_id"),
        ("gpuwatch_instance_info", "instance_type"),
    ):
        yield (
            name,
            "gauge",
            (
                f'{name}{{{of},{label}="{f"i-{number}" if label == "node_id" else "p5.48xlarge"}"}} 1 {at}\n'
                for number, of in targets
                for at in moments
            ),
        )
    yield (
        "gpuwatch_gpu_up",
        "gauge",
        (
            f'gpuwatch_gpu_up{{{of},gpu="{gpu}"}} 1 {at}\n'
            for number, of in targets
            for gpu in range(_GPUS)
            for at in moments
        ),
    )
