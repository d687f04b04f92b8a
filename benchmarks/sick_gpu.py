"""How fresh the other GPUs stay while one hangs: a real agent on the stub driver, scraped once a second.

The GPU blocks every call about it in every process, as after a time-out of its GSP; it recovers, is taken back, and
hangs again. A GPU is fresh in a scrape that shows it up, with a cycle younger than two and a half seconds.

`python -m benchmarks.sick_gpu --seconds 60` prints each GPU's share.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.exporters import GpuwatchAgent
from benchmarks.figures import Figure
from benchmarks.processes import Started, get
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.nvml import StubDriver, build

_GPUS = 8
_SICK = 1
_FRESH_SECONDS = 2.5
_RETRY = "5s"  # so that a GPU that is well again is taken back soon; the default is a minute
_AGE = re.compile(rb"^gpuwatch_agent_last_cycle_age_seconds (\S+)$", re.MULTILINE)
_UP = re.compile(rb'^gpuwatch_gpu_up\{[^}]*gpu="(\d+)"[^}]*\} 1(?:\.0)?$', re.MULTILINE)
_PATIENCE_SECONDS = 300.0


@dataclass(slots=True)
class Watch:
    """The scrapes of one hang: how many there were, and in how many each GPU was fresh."""

    scrapes: int = 0
    fresh: Counter[int] = field(default_factory=Counter)

    def share(self, gpu: int) -> float:
        """Of the scrapes, in percent."""
        return 100.0 * self.fresh[gpu] / self.scrapes

    @property
    def worst(self) -> float:
        """The lowest share of the GPUs that are well."""
        return min(self.share(gpu) for gpu in range(_GPUS) if gpu != _SICK)


def measure(seconds: float = 60.0) -> Iterator[Figure]:
    """The share of fresh scrapes in two hangs of so many seconds each."""
    for number, watch in enumerate(hangs(seconds), start=1):
        name = f"others fresh while GPU {_SICK} of {_GPUS} hangs, hang {number} of {seconds:.0f} s"
        yield Figure(name=name, unit="%", runs=[watch.worst])


def hangs(seconds: float, times: int = 2) -> Iterator[Watch]:
    """Each hang as scrapes show it."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        driver = StubDriver(folder / "driver", build(folder / "library"), gpus=_GPUS)
        agent = GpuwatchAgent()
        started = agent.on(driver)
        started.environment = {**(started.environment or {}), "GPUWATCH_AGENT__HUNG_RETRY": _RETRY}
        with started:
            started.seconds_until(agent.good)
            for _ in range(times):
                _until_all_up(started)
                driver.gpu(_SICK).block()
                yield _watched(started, seconds)
                driver.find(_SICK)


def _watched(started: Started, seconds: float) -> Watch:
    clock, watch = SystemClock(), Watch()
    begin = clock.monotonic()
    while (due := begin + watch.scrapes) < begin + seconds:
        clock.sleep(due - clock.monotonic())
        watch.scrapes += 1
        watch.fresh.update(_fresh(started))
    return watch


def _fresh(started: Started) -> set[int]:
    """The GPUs that are fresh in a scrape now."""
    connection = HTTPConnection("127.0.0.1", started.port, timeout=1.0)
    try:
        page = get(connection)
    except OSError:
        return set()
    finally:
        connection.close()
    age = _AGE.search(page)
    if age is None or float(age[1]) >= _FRESH_SECONDS:
        return set()
    return {int(gpu) for gpu in _UP.findall(page)}


def _until_all_up(started: Started) -> None:
    clock = SystemClock()
    until = clock.monotonic() + _PATIENCE_SECONDS
    while len(_fresh(started)) < _GPUS:
        if clock.monotonic() > until:
            raise TimeoutError(f"not all GPUs were up within {_PATIENCE_SECONDS:.0f} s")
        clock.sleep(0.5)


def main() -> int:
    """Print the share of each GPU in each hang."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sick_gpu", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long each hang lasts (60)")
    arguments = parser.parse_args()
    for number, watch in enumerate(hangs(arguments.seconds), start=1):
        shares = "  ".join(f"GPU {gpu} {watch.share(gpu):5.1f} %" for gpu in range(_GPUS))
        print(f"hang {number}, {watch.scrapes} scrapes: {shares}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
