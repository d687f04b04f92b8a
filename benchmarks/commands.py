"""Figures of the command line: what a person's command costs, in seconds of CPU, each beside a bare interpreter.

`status` makes its own round, of 1,000 machines of the tests' AWS whose agents give no answer.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
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
        command = (*_GPUWATCH, "--config", str(file), "status")
        environment = environment_of(site) | {"GPUWATCH_LEDGER__PATH": f"{folder}/ledger.db"}
        yield _figure(f"gpuwatch status, {_MACHINES:,} machines", command, "import boto3", environment, at_most=0.6)


def _figure(
    name: str, command: tuple[str, ...], floor: str, environment: Mapping[str, str], *, at_most: float
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
