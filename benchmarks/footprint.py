"""Whether the agent's memory grows: ten cycles a second instead of one, scraped all the while."""

import time
from collections.abc import Iterator
from http.client import HTTPConnection
from statistics import linear_regression, median

from benchmarks.exporters import GpuwatchAgent
from benchmarks.figures import Figure
from benchmarks.processes import PROMETHEUS, get, memory_bytes
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.nvml import StubDriver

_HERTZ = 10
_WARM_SECONDS = 5.0  # buffers fill, and each path of the code runs once
_MIB = 1024**2
_LEAST = 4  # samples for a slope


def growth(driver: StubDriver, gpus: int, cycles: int) -> Iterator[Figure]:
    """Its memory after some cycles and at the end, and the slope of the second half: the first warms up."""
    fast = GpuwatchAgent(interval=f"{1 / _HERTZ}s")
    samples = list[tuple[float, float]]()
    with fast.on(driver) as started:
        started.seconds_until(fast.good, gpus)
        connection = HTTPConnection("127.0.0.1", started.port)
        begin = time.perf_counter()
        while time.perf_counter() < begin + _WARM_SECONDS + cycles / _HERTZ:
            get(connection, PROMETHEUS)
            at = time.perf_counter() - begin
            if at >= _WARM_SECONDS:
                samples.append((at * _HERTZ, memory_bytes(started.pids)))
            SystemClock().sleep(1.0)
        connection.close()
    quarter = max(1, len(samples) // 4)
    first, last = ([memory / _MIB for _, memory in part] for part in (samples[:quarter], samples[-quarter:]))
    yield Figure(
        name=f"memory after {samples[-1][0]:,.0f} cycles, {gpus} GPUs",
        unit="MiB",
        runs=last,
        floor=f"after {median(cycle for cycle, _ in samples[:quarter]):,.0f} cycles",
        floor_runs=first,
    )
    late = samples[len(samples) // 2 :]
    if len(late) >= _LEAST:
        slope = linear_regression([cycle / 1e3 for cycle, _ in late], [memory / 1024 for _, memory in late]).slope
        yield Figure(name=f"its growth in 1,000 cycles, by the second half, {gpus} GPUs", unit="KiB", runs=[slope])
