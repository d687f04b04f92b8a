"""The agent on this machine's own NVIDIA driver: what it costs, and how long the driver's calls take.

`make bench ARGS=driver` needs a GPU; nvitop-exporter is measured beside it where this Python can import it. `python -m
benchmarks.real_driver` prints the times of calls, as tests/support/fakes/nvml_stub/latencies.txt has them.
"""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median
from typing import Any

import pynvml

from benchmarks.agent import beside_floors, beside_peer
from benchmarks.contest import contest
from benchmarks.exporters import Exporter, GpuwatchAgent, NvitopExporter
from benchmarks.figures import Figure
from gpuwatch.agent.devices.nvml.buffers import ENTRY, FIELDS
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.runtime.clock import SystemClock

_CYCLES = 60


@dataclass(frozen=True, slots=True)
class RealDriver:
    """Where an exporter finds the driver of this machine: as any process does."""

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(slots=True)
class _Timed:
    """Times of every call of pynvml's, by function: seconds by the clock and of this thread's processor."""

    wall: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    found: Callable[[str], Any] = pynvml._nvmlGetFunctionPointer  # noqa: SLF001  the one place where all calls begin

    def pointer(self, name: str) -> Callable[..., Any]:
        """The function, timed."""
        function = self.found(name)

        def timed(*arguments: object) -> object:
            begin, used = time.perf_counter(), time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.cpu[name].append(time.thread_time() - used)
                self.wall[name].append(time.perf_counter() - begin)
                if name == FIELDS:
                    self._fields(arguments[2])

        return timed

    def _fields(self, buffer: Any) -> None:  # noqa: ANN401  ctypes'
        """The driver itself says how long each entry took, in whole microseconds."""
        for number, _, _, microseconds, *_ in ENTRY.iter_unpack(buffer.raw):
            self.cpu[f"field.{number}"].append(microseconds / 1e6)
            self.wall[f"field.{number}"].append(microseconds / 1e6)


def measure(seconds: float) -> Iterator[Figure]:
    """What the agent costs on this driver, beside a peer that is installed."""
    ours, driver = GpuwatchAgent(), RealDriver()
    peers: list[Exporter] = [NvitopExporter(None)] if find_spec("nvitop_exporter") else []
    pynvml.nvmlInit()
    gpus = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    seen = contest([ours, *peers], driver, gpus, seconds)
    yield from beside_floors(ours.name, seen, gpus)
    for peer in peers:
        yield from beside_peer(ours.name, peer.name, seen, gpus)


def calls(cycles: int = _CYCLES) -> Iterator[str]:
    """A row for each function: how often, and the microseconds of a call that it computes and that it waits."""
    times = _Timed()
    pynvml._nvmlGetFunctionPointer = times.pointer  # noqa: SLF001
    source, clock = NvmlSource(SystemClock()), SystemClock()
    whole = []
    for _ in range(cycles):
        begin = time.perf_counter()
        for gpu in source.gpus():
            source.read(gpu)
        whole.append(time.perf_counter() - begin)
        clock.sleep(max(0.0, 1.0 - whole[-1]))
    source.close()
    yield f"# {'function':43} {'busy':>8} {'wait':>8} {'most':>9} {'calls':>6}"
    for name, walls in sorted(times.wall.items(), key=lambda item: -sum(item[1])):
        busy = median(times.cpu[name]) * 1e6
        wait = max(0.0, median(walls) * 1e6 - busy)
        yield f"{name:45} {busy:8.0f} {wait:8.0f} {max(walls) * 1e6:9.0f} {len(walls):6d}"
    first, usual, longest = (seconds * 1e3 for seconds in (whole[0], median(whole), max(whole)))
    yield f"# cycles: the first {first:.2f} ms, median {usual:.2f} ms, longest {longest:.2f} ms"


if __name__ == "__main__":
    for row in calls(int(sys.argv[1]) if len(sys.argv) > 1 else _CYCLES):
        print(row)
