"""Figures of the command line: what a person's command costs, in seconds of CPU, each beside a bare interpreter.

`status` shows 1,000 machines of the tests' AWS whose agents give no answer: a controller's last round, and a look
of its own.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

import yaml

from benchmarks.cloud_sites import FLEET, SITES, environment_of
from benchmarks.figures import Figure

_MACHINES, _RUNS = 1000, 5
_GPUWATCH = ("-m", "gpuwatch")


def measure() -> Iterator[Figure]:
    """All figures, by turns with their floors."""
    yield _figure("gpuwatch --help", (*_GPUWATCH, "--help"), "import click", os.environ, at_most=0.15)
    with TemporaryDirectory() as folder, SITES["aws"](Path(folder), _MACHINES) as site:
        file = Path(folder) / "gpuwatch.yaml"
        file.write_text(yaml.safe_dump({"fleet": FLEET, "cloud": dict(site.settings)}))
        command, name = (*_GPUWATCH, "--config", str(file), "status"), f"gpuwatch status, {_MACHINES:,} machines"
        environment = environment_of(site) | {
            "GPUWATCH_LEDGER__PATH": f"{folder}/ledger.db",
            "GPUWATCH_CONTROLLER__PORT": "0",
        }
        with _controller(file, environment):
            yield _figure(f"{name}, next to a controller", command, "import click", environment, at_most=0.6)
        yield _figure(f"{name}, by itself", command, "import boto3", environment)


@contextmanager
def _controller(file: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """One that has ended its first round."""
    words = (sys.executable, *_GPUWATCH, "--config", str(file), "controller")
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as running:
        try:
            next(line for line in running.stderr or () if "Round: " in line)
            threading.Thread(target=(running.stderr or sys.stdin).read, daemon=True).start()
            yield
        finally:
            running.terminate()


def _figure(
    name: str, command: tuple[str, ...], floor: str, environment: Mapping[str, str], *, at_most: float | None = None
) -> Figure:
    pairs = [(_cpu_seconds(command, environment), _cpu_seconds(("-c", floor), environment)) for _ in range(_RUNS + 1)]
    runs, floor_runs = zip(*pairs[1:], strict=True)  # the first compiles what it imports
    return Figure(
        name=name,
        unit="s of CPU",
        runs=runs,
        floor=f"python -c '{floor}'",
        floor_runs=floor_runs,
        at_most=at_most,
    )


def _cpu_seconds(arguments: tuple[str, ...], environment: Mapping[str, str]) -> float:
    """What a process of Python takes, user and system."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=False)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
