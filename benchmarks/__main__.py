"""`python -m benchmarks`, from the root of the repository: measure and print one table. docs/benchmarks.md reads it."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

from benchmarks import (
    agent,
    backtest,
    clouds,
    commands,
    controller,
    cost,
    crowd,
    kubernetes,
    ledger,
    looks,
    page,
    prometheus,
    real_driver,
    scale,
    sick_gpu,
    signals,
    simulation,
    weeks,
)
from benchmarks.figures import Figure, has_place, put, table

# Of real recordings, with tables of their own; minutes more, and not in the repository.
_RECORDINGS = {
    "recordings": "benchmarks.traces",
    "timing": "benchmarks.timing",
    "forecast": "benchmarks.forecast",
    "months": "benchmarks.months",
    "people": "benchmarks.people",
    "spot": "benchmarks.spot",
}
_PAGED = frozenset({"timing", "forecast", "months", "people"})


def main() -> int:
    """Measure the sections asked for."""
    parser = _parser()
    arguments = parser.parse_args()
    # Installed programs find their bytecode on disk; a run that compiles each module anew measures the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sections: dict[str, Callable[[], Iterator[Figure]]] = {
        "agent": lambda: agent.measure(arguments.seconds, peer=arguments.peer, cycles=arguments.cycles),
        "controller": controller.measure,
        "clouds": clouds.measure,
        "commands": commands.measure,
        "signals": signals.measure,
        "ledger": ledger.measure,
        "scale": scale.measure,
        "cost": cost.measure,
        "simulation": lambda: simulation.measure(arguments.trace_hours),
        "backtest": backtest.measure,
        "page": page.measure,
        "prometheus": prometheus.measure,
        "weeks": weeks.measure,
        "crowd": crowd.measure,
        "looks": looks.measure,
        "kubernetes": kubernetes.measure,
        "driver": lambda: real_driver.measure(arguments.seconds),
        "sick": lambda: sick_gpu.measure(arguments.hang_seconds),
    }
    chosen = arguments.sections or [
        name for name in sections if name not in {"sick", "driver"}
    ]  # minutes more, and a GPU
    if "kubernetes" in chosen and not kubernetes.possible():
        how = "python3 tests/support/kubernetes_programs.py builds kube-apiserver and etcd"
        if arguments.sections:
            parser.error(f"section kubernetes needs a real API server: {how}")
        print(f"left out: kubernetes ({how})", file=sys.stderr)
        chosen.remove("kubernetes")
    for name in chosen:
        if name not in (*sections, *_RECORDINGS):
            parser.error(f"{name!r} is no section; there are {', '.join([*sections, *_RECORDINGS])}")
    if {"agent", "sick"} & set(chosen) and shutil.which("cc") is None:
        parser.error(
            "sections agent and sick compile a stand-in driver and need a C compiler; on Debian: apt install gcc"
        )
    _refuse_lost_tables(parser, arguments.page, chosen)
    began = os.getloadavg()[0]
    rows: list[tuple[str, list[Figure]]] = []
    for name, measure in sections.items():
        if name in chosen:
            print(f"measuring: {name} ...", file=sys.stderr)
            rows.append((name, []))
            for figure in measure():
                rows[-1][1].append(figure)
                print(f"  {figure.name}: {median(figure.runs):,.4g} {figure.unit}".rstrip(), file=sys.stderr)
    if arguments.json:
        print(json.dumps({name: [figure.as_object() for figure in figures] for name, figures in rows}))
    elif rows:
        machine = f"{os.cpu_count()} processors, Python {platform.python_version()}, load {began:.1f}"
        head = f"{machine} at the beginning and {os.getloadavg()[0]:.1f} at the end\n\n"
        print(head + table(rows))
        _put_tables(arguments.page, rows, head)
    played = [
        [module, *(["--page", str(arguments.page)] if arguments.page is not None and name in _PAGED else [])]
        for name, module in _RECORDINGS.items()
        if name in chosen
    ]
    return max((subprocess.run([sys.executable, "-m", *each], check=False).returncode for each in played), default=0)


def _refuse_lost_tables(parser: argparse.ArgumentParser, page: Path | None, chosen: Iterable[str]) -> None:
    """End if a page has no place for a section: now, and not after minutes of measuring."""
    for name in chosen:
        paged = name in _PAGED or name not in _RECORDINGS
        if page is not None and paged and not has_place(page, name):
            parser.error(f"{page} has no line <!-- measured: {name} -->: leave out --page or this section")


def _put_tables(page: Path | None, rows: Iterable[tuple[str, list[Figure]]], head: str) -> None:
    """Write each section's table into its place in the page, if there is one."""
    for name, figures in rows:
        if page is not None:
            put(page, name, head + table([(name, figures)], goals_only=True))


def _parser() -> argparse.ArgumentParser:
    names = (
        "agent",
        "controller",
        "clouds",
        "commands",
        "ledger",
        "scale",
        "cost",
        "signals",
        "simulation",
        "backtest",
        "page",
        "prometheus",
        "weeks",
        "crowd",
        "looks",
        "kubernetes",
        "driver",
        "sick",
        *_RECORDINGS,
    )
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure gpuwatch and print a table.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(names)} (all but the last eight)")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="length of a measuring window (5)")
    parser.add_argument("--trace-hours", type=float, default=24.0, metavar="H", help="length of the made trace (24)")
    parser.add_argument("--hang-seconds", type=float, default=60.0, metavar="S", help="sick: length of a hang (60)")
    parser.add_argument("--peer", action="store_true", help="also measure nvitop-exporter, fetched with pip")
    parser.add_argument("--cycles", type=int, default=200, metavar="N", help="cycles that memory is watched for (200)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the table into its place in this page")
    parser.add_argument("--json", action="store_true", help="one JSON object with every run instead of the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
