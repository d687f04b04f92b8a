"""Figures of real `gpuwatch agent` processes on the stub driver: memory, CPU, driver calls, scrapes, start-up."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Protocol

from benchmarks.figures import Figure
from benchmarks.processes import (
    PROMETHEUS,
    SLEEPER,
    WAKER,
    Started,
    cpu_seconds,
    free_port,
    get,
    pss_bytes,
    seconds_to_run,
)
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.nvml import StubDriver, build

_COUNTS = (1, 8, 16)
_USUAL = 8  # GPUs of the host that is hammered with scrapes
_COMPARED = (8, 16)  # GPUs of the hosts whose start-up is measured, and that the peer has to serve too
_WINDOWS = 3
_STARTS = 5
_SETTLE_SECONDS = 2.0
_CYCLES = 5
_CYCLE_SECONDS = 0.2  # the driver takes a sample each 0.167 s: like at 1 Hz, each cycle finds new ones
_MIB = 1024**2


class Exporter(Protocol):
    """An exporter to measure."""

    @property
    def good(self) -> str:
        """A line of /metrics that shows a GPU read, as a pattern."""
        ...

    def on(self, driver: StubDriver) -> Started:
        """Its process, once a second on that driver."""
        ...


class GpuwatchAgent:
    """Ours."""

    good = r"^gpuwatch_gpu_up\{.*\} 1(\.0)?$"

    def on(self, driver: StubDriver) -> Started:
        """With its defaults."""
        port = free_port()
        command = [sys.executable, "-m", "gpuwatch", "agent", "--listen", f"127.0.0.1:{port}", "--interval", "1s"]
        return Started(command=command, environment={**driver.environment, "GPUWATCH_AGENT__NODE_ID": "n"}, port=port)


@dataclass(frozen=True, slots=True)
class NvitopExporter:
    """The peer on PyPI, in a throwaway environment."""

    folder: Path
    good: str = r"^gpu_memory_total_MiB\{.*\} \d"

    def install(self) -> bool:
        """Get it; pip says on stderr why it could not."""
        subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)
        pip = [str(self.folder / "bin" / "pip"), "install", "--quiet", "nvitop-exporter"]
        return subprocess.run(pip, check=False).returncode == 0

    def on(self, driver: StubDriver) -> Started:
        """With its defaults."""
        port = free_port()
        command = [str(self.folder / "bin" / "nvitop-exporter"), "--port", str(port)]
        return Started(command=command, environment=driver.environment, port=port)


@dataclass(slots=True)
class Steady:
    """What an exporter that just runs costs, beside bare processes in the same windows."""

    page: bytes = b""
    pss: list[float] = field(default_factory=list)
    bare_pss: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    bare_cpu: list[float] = field(default_factory=list)
    scraped_cpu: list[float] = field(default_factory=list)
    bare_scraped_cpu: list[float] = field(default_factory=list)
    scrape: list[float] = field(default_factory=list)
    bare_scrape: list[float] = field(default_factory=list)


def measure(seconds: float, *, peer: bool) -> Iterator[Figure]:
    """All figures; `seconds` is the length of one measuring window."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        library = build(folder / "library")
        drivers = {count: StubDriver(folder / str(count), library, gpus=count) for count in _COUNTS}
        agent = GpuwatchAgent()
        steady = {count: _steady(agent, drivers[count], seconds) for count in _COUNTS}
        yield from _steady_figures(steady)
        for count in _COUNTS:
            yield Figure(name=f"NVML calls a cycle, {_gpus(count)}", unit="", runs=[_calls_per_cycle(drivers[count])])
        for count in _COUNTS:
            yield _page_figure(count, steady[count].page)
        with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as clients:
            yield from _scrape_figures(agent, drivers[_USUAL], clients, seconds, len(steady[_USUAL].page))
        starts = {count: _starts(agent, drivers[count]) for count in _COMPARED}
        for count, code in product(_COMPARED, ("pass", "import prometheus_client")):
            name = f"start to first good scrape, {_gpus(count)}"
            runs = [seconds_to_run(code) for _ in range(_STARTS)]
            yield Figure(name=name, unit="s", runs=starts[count], floor=f"python -c '{code}'", floor_runs=runs)
        if peer:
            other = NvitopExporter(folder / "peer")
            if other.install():
                for count in _COMPARED:
                    yield from _peer_figures(other, drivers[count], seconds, count, steady[count], starts[count])
            else:
                print("nvitop-exporter is left out: pip could not install it", file=sys.stderr)


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _steady(exporter: Exporter, driver: StubDriver, seconds: float) -> Steady:
    """Windows without a scrape, then windows with one a second, such as Prometheus makes."""
    seen = Steady()
    with ExitStack() as running:
        sleepers = [running.enter_context(Started.python(SLEEPER)) for _ in range(2)]
        waker = running.enter_context(Started.python(WAKER))
        started = running.enter_context(exporter.on(driver))
        started.seconds_until(exporter.good)
        connection = HTTPConnection("127.0.0.1", started.port)
        seen.page = get(connection)
        connection.close()  # a server hangs up on who asks nothing for long; each request connects where it must
        static = running.enter_context(Started.static(len(seen.page)))
        static.seconds_until("x")
        bare = HTTPConnection("127.0.0.1", static.port)
        SystemClock().sleep(_SETTLE_SECONDS)
        for _ in range(_WINDOWS):
            begin = time.perf_counter()
            before = _cpu(started), _cpu(waker)
            SystemClock().sleep(seconds)
            span = time.perf_counter() - begin
            seen.cpu.append((_cpu(started) - before[0]) / span)
            seen.bare_cpu.append((_cpu(waker) - before[1]) / span)
        for _ in range(_WINDOWS):
            begin = time.perf_counter()
            before = _cpu(started), _cpu(waker)
            while time.perf_counter() < begin + seconds:
                seen.scrape.append(_timed(connection, PROMETHEUS))
                seen.bare_scrape.append(_timed(bare, PROMETHEUS))
                SystemClock().sleep(1.0)
            span = time.perf_counter() - begin
            seen.scraped_cpu.append((_cpu(started) - before[0]) / span)
            seen.bare_scraped_cpu.append((_cpu(waker) - before[1]) / span)
            seen.pss.append(sum(map(pss_bytes, started.pids)))
            seen.bare_pss.append(sum(pss_bytes(sleeper.process.pid) for sleeper in sleepers))
        connection.close()
        bare.close()
    return seen


def _cpu(started: Started) -> float:
    return sum(map(cpu_seconds, started.pids))


def _timed(connection: HTTPConnection, headers: Mapping[str, str]) -> float:
    begin = time.perf_counter()
    get(connection, headers)
    return time.perf_counter() - begin


def _scaled(runs: Sequence[float], factor: float) -> list[float]:
    return [run * factor for run in runs]


def _steady_figures(steady: dict[int, Steady]) -> Iterator[Figure]:
    for count, seen in steady.items():
        yield Figure(
            name=f"PSS of supervisor and probe, {_gpus(count)}",
            unit="MiB",
            runs=_scaled(seen.pss, 1 / _MIB),
            floor="two sleeping Pythons",
            floor_runs=_scaled(seen.bare_pss, 1 / _MIB),
        )
    for scraped in (False, True):
        for count, seen in steady.items():
            yield Figure(
                name=f"CPU at 1 Hz{', scraped at 1 Hz' if scraped else ''}, {_gpus(count)}",
                unit="ms/s",
                runs=_scaled(seen.scraped_cpu if scraped else seen.cpu, 1e3),
                floor="a Python that wakes at 1 Hz",
                floor_runs=_scaled(seen.bare_scraped_cpu if scraped else seen.bare_cpu, 1e3),
            )
    for count, seen in steady.items():
        yield Figure(
            name=f"scrape once a second, {_gpus(count)}",
            unit="ms",
            runs=_scaled(seen.scrape, 1e3),
            floor="static page of that size",
            floor_runs=_scaled(seen.bare_scrape, 1e3),
        )


def _calls_per_cycle(driver: StubDriver) -> float:
    """The difference of two runs of the probe, so that what it asks once does not count."""
    short, long = (_calls(driver, cycles) for cycles in (_CYCLES, 2 * _CYCLES))
    return (long - short) / _CYCLES


def _calls(driver: StubDriver, cycles: int) -> int:
    """All calls of a probe whose reader leaves after so many cycles; it ends then, and the stub writes its counts."""
    command = [sys.executable, "-m", "gpuwatch", "probe", "--interval", str(_CYCLE_SECONDS)]
    with subprocess.Popen(command, env=driver.environment, stdout=subprocess.PIPE) as probe:
        for line in probe.stdout or ():
            cycles -= b'"kind":"end"' in line
            if cycles == 0:
                break
    return sum(driver.calls().values())


def _page_figure(count: int, page: bytes) -> Figure:
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    return Figure(name=f"page of {series} series, {_gpus(count)}", unit="KiB", runs=[len(page) / 1024])


def _hammered(port: int, seconds: float) -> list[float]:
    """The latency of each of the scrapes that fit into that time, one after the other on one connection."""
    connection = HTTPConnection("127.0.0.1", port)
    until = time.perf_counter() + seconds
    latencies = []
    while time.perf_counter() < until:
        latencies.append(_timed(connection, {}))
    connection.close()
    return latencies


def _scrape_figures(
    exporter: Exporter, driver: StubDriver, clients: ProcessPoolExecutor, seconds: float, size: int
) -> Iterator[Figure]:
    """Scrapes as fast as they go: both servers by turns, each client a process of its own."""
    with exporter.on(driver) as started, Started.static(size) as static:
        started.seconds_until(exporter.good)
        static.seconds_until("x")
        list(clients.map(_hammered, [static.port] * 4, [0.5] * 4))  # the clients themselves take time to start
        for count, who in ((1, "1 client"), (4, "4 clients")):
            document: dict[int, list[list[float]]] = {started.port: [], static.port: []}
            for _ in range(_WINDOWS):
                for port, runs in document.items():
                    answers = clients.map(_hammered, [port] * count, [seconds / 2] * count)
                    runs.append([latency for each in answers for latency in each])
            for percent in (50, 99):
                ours, floor = (
                    [quantiles(run, n=100)[percent - 1] * 1e3 for run in document[port]]
                    for port in (started.port, static.port)
                )
                yield Figure(
                    name=f"scrape p{percent}, {_gpus(_USUAL)}, {who} without a pause",
                    unit="ms",
                    runs=ours,
                    floor="static page of that size",
                    floor_runs=floor,
                )


def _starts(exporter: Exporter, driver: StubDriver) -> list[float]:
    """From the start of the process to the first scrape that shows a GPU."""
    runs = []
    for _ in range(_STARTS):
        with exporter.on(driver) as started:
            runs.append(started.seconds_until(exporter.good))
    return runs


def _peer_figures(
    peer: Exporter, driver: StubDriver, seconds: float, count: int, ours: Steady, our_starts: Sequence[float]
) -> Iterator[Figure]:
    """The agent's figures again, compared with the peer's on the same driver."""
    theirs = _steady(peer, driver, seconds)
    pairs = (
        ("PSS", "MiB", 1 / _MIB, ours.pss, theirs.pss),
        ("CPU at 1 Hz", "ms/s", 1e3, ours.cpu, theirs.cpu),
        ("CPU at 1 Hz, scraped at 1 Hz", "ms/s", 1e3, ours.scraped_cpu, theirs.scraped_cpu),
        ("scrape once a second", "ms", 1e3, ours.scrape, theirs.scrape),
        ("page", "KiB", 1 / 1024, [len(ours.page)], [len(theirs.page)]),
        ("start to first good scrape", "s", 1.0, our_starts, _starts(peer, driver)),
    )
    for name, unit, factor, runs, others in pairs:
        yield Figure(
            name=f"{name}, {_gpus(count)}",
            unit=unit,
            runs=_scaled(runs, factor),
            floor="nvitop-exporter",
            floor_runs=_scaled(others, factor),
        )
