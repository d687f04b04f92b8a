"""Exporters side by side on one host: they run at the same time, so that other work on the machine slows all alike."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from multiprocessing import get_context

from benchmarks.exporters import Asked, Driver, Exporter
from benchmarks.processes import PROMETHEUS, WAKER, Started, cpu_seconds, get, memory_bytes, pss_bytes
from gpuwatch.model.metric import SLOW_SECONDS
from gpuwatch.runtime.clock import SystemClock

CLIENTS = (1, 4)
PAGE = "constant page"
WAKES = "a Python that wakes at 1 Hz"
_WINDOWS = 3
_SETTLE_SECONDS = 3.0


@dataclass(slots=True)
class Seen:
    """What one of them costs, in seconds and bytes.

    There is one entry a window; in `scrape` one a scrape; in `burst` one list of scrapes a window, by clients; in
    `first`, `whole` and `start_cpu` one a start: until the first GPU is on the page, until all are, CPU time till then.
    """

    page: bytes = b""
    pss: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    scraped_cpu: list[float] = field(default_factory=list)
    scrape: list[float] = field(default_factory=list)
    burst: dict[int, list[list[float]]] = field(default_factory=lambda: {count: [] for count in CLIENTS})
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    start_cpu: list[float] = field(default_factory=list)
    asked: Asked | None = None  # of the driver in one cycle

    @property
    def series(self) -> int:
        """Of its page."""
        return sum(not line.startswith(b"#") for line in self.page.splitlines())


def contest(exporters: Sequence[Exporter], driver: Driver, gpus: int, seconds: float) -> dict[str, Seen]:
    """What each exporter, a constant page as long as the first one's, and a Python that only wakes cost.

    Windows without a scrape come first, then those with one a second, such as Prometheus makes, then as many as go. CPU
    is of windows that hold the agent's longest period whole: shorter ones have a costly read or none, by chance.
    """
    with ExitStack() as running:
        started = {exporter.name: running.enter_context(exporter.on(driver)) for exporter in exporters}
        seen = {name: Seen() for name in (*started, PAGE, WAKES)}
        for exporter in exporters:
            started[exporter.name].seconds_until(exporter.good, gpus)
            seen[exporter.name].page = _page(started[exporter.name])
        size = len(seen[exporters[0].name].page)
        started[PAGE] = running.enter_context(Started.static(size))
        started[PAGE].seconds_until("x")
        seen[PAGE].page = b"x" * size
        servers = dict(started)
        started[WAKES] = running.enter_context(Started.python(WAKER))
        SystemClock().sleep(_SETTLE_SECONDS)
        period = max(seconds, float(SLOW_SECONDS))
        for _ in range(_WINDOWS):
            for name, used in _window(started, {}, seen, period).items():
                seen[name].cpu.append(used)
        for _ in range(_WINDOWS):
            for name, used in _window(started, servers, seen, period).items():
                seen[name].scraped_cpu.append(used)
            for name, process in started.items():
                seen[name].pss.append(pss_bytes(process.pids))
                seen[name].memory.append(memory_bytes(process.pids))
        _bursts(servers, seen, seconds)
    return seen


def _page(started: Started) -> bytes:
    connection = HTTPConnection("127.0.0.1", started.port)
    try:
        return get(connection)
    finally:
        connection.close()


def _window(
    started: Mapping[str, Started], scraped: Mapping[str, Started], seen: Mapping[str, Seen], seconds: float
) -> dict[str, float]:
    """The CPU that each used a second, while those to be scraped are scraped once a second, one after the other."""
    pids = {name: process.pids for name, process in started.items()}
    connections = {name: HTTPConnection("127.0.0.1", process.port) for name, process in scraped.items()}
    begin = time.perf_counter()
    before = {name: cpu_seconds(found) for name, found in pids.items()}
    while time.perf_counter() < begin + seconds:
        for name, connection in connections.items():
            seen[name].scrape.append(_timed(connection, PROMETHEUS))
        SystemClock().sleep(1.0 if scraped else seconds)
    span = time.perf_counter() - begin
    used = {name: (cpu_seconds(found) - before[name]) / span for name, found in pids.items()}
    for connection in connections.values():
        connection.close()
    return used


def _timed(connection: HTTPConnection, headers: Mapping[str, str]) -> float:
    begin = time.perf_counter()
    get(connection, headers)
    return time.perf_counter() - begin


def _bursts(servers: Mapping[str, Started], seen: Mapping[str, Seen], seconds: float) -> None:
    """Scrapes as fast as they go, on the servers by turns; each client is a process of its own."""
    with ProcessPoolExecutor(max(CLIENTS), mp_context=get_context("spawn")) as clients:
        list(
            clients.map(_hammered, [servers[PAGE].port] * max(CLIENTS), [0.5] * max(CLIENTS))
        )  # they take time to start
        for count in CLIENTS:
            for _ in range(_WINDOWS):
                for name, server in servers.items():
                    answers = clients.map(_hammered, [server.port] * count, [seconds / 2] * count)
                    seen[name].burst[count].append([latency for each in answers for latency in each])


def _hammered(port: int, seconds: float) -> list[float]:
    """The latency of each of the scrapes that fit into that time, one after the other on one connection."""
    connection = HTTPConnection("127.0.0.1", port)
    until = time.perf_counter() + seconds
    latencies = []
    while time.perf_counter() < until:
        latencies.append(_timed(connection, {}))
    connection.close()
    return latencies
