"""Figures of Prometheus: what 10,000 GPUs cost it, beside the same GPUs under dcgm-exporter's default set.

The pages are those of a real agent behind the stand-in driver, one that was read, with the names of each of the 1,250
nodes put in; the controller's page is a real one of these nodes. Debian's Prometheus scrapes them all and evaluates
alerts/gpuwatch.yml; dcgm-exporter ships no rules.
"""

import asyncio
import gzip
import json
import re
import shutil
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import yaml

from benchmarks.exporters import GpuwatchAgent, working_host
from benchmarks.figures import Figure
from benchmarks.processes import PROMETHEUS, Started, cpu_seconds, free_port, get, memory_bytes
from benchmarks.targets import address
from gpuwatch.cli.controller import observers_of, one_round
from gpuwatch.config.settings import Settings
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import Desk
from tests.support.builders.served_page import populate
from tests.support.fakes.nvml import StubDriver, build
from tests.support.paths import ROOT

_GPUS, _NODES = 8, 1250
_EVERY_SECONDS, _SCRAPES, _PATIENCE_SECONDS = 30, 4, 180.0
_DEAREST = 3  # rules that are named
_MIB = 1024**2
_RULES = ROOT / "alerts" / "gpuwatch.yml"
_DCGM = {"GPUWATCH_AGENT__COMPAT": "dcgm", "GPUWATCH_AGENT__COMPAT_ONLY": "true"}
# What is enabled in etc/default-counters.csv of NVIDIA/dcgm-exporter 4.6 to 4.8.
_DEFAULT_SET = re.compile(
    r"DCGM_FI_(DEV_(SM_CLOCK|MEM_CLOCK|MEMORY_TEMP|GPU_TEMP|POWER_USAGE|TOTAL_ENERGY_CONSUMPTION|PCIE_REPLAY_COUNTER"
    r"|GPU_UTIL|MEM_COPY_UTIL|ENC_UTIL|DEC_UTIL|XID_ERRORS|FB_FREE|FB_USED|FB_RESERVED|UNCORRECTABLE_REMAPPED_ROWS"
    r"|CORRECTABLE_REMAPPED_ROWS|ROW_REMAP_FAILURE|NVLINK_BANDWIDTH_TOTAL|VGPU_LICENSE_STATUS)"
    r"|PROF_(GR_ENGINE_ACTIVE|PIPE_TENSOR_ACTIVE|DRAM_ACTIVE|PCIE_TX_BYTES|PCIE_RX_BYTES))[{ ]"
)
_CLOCK = SystemClock()
_UUID = re.compile(r"GPU-")
_NODE = re.compile(r'\b(node_id|Hostname)="[^"]*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """What a Prometheus had of one kind of page."""

    page: bytes
    series: float
    cpu_seconds: float  # a scrape of all
    bytes: float
    rules_seconds: Mapping[str, float]  # an evaluation, by rule


def measure() -> Iterator[Figure]:
    """All figures; none where there is no Prometheus."""
    if shutil.which("prometheus") is None:
        print("no prometheus (Debian: apt install prometheus): it is not measured", file=sys.stderr)
        return
    with TemporaryDirectory() as made:
        folder = Path(made)
        with working_host(folder / "host", build(folder / "library"), _GPUS) as driver:
            ours, theirs = _page(driver, {}), _only_default(_page(driver, _DCGM))
        controller = _controller_page()
        other = _cost(folder / "theirs", theirs, None)
        bare = _cost(folder / "bare", ours, controller, rules=False)
        seen = _cost(folder / "ours", ours, controller)
    what, floor = f"{_NODES * _GPUS:,} GPUs", "dcgm-exporter's default set"
    for name, unit, run, floor_run in (
        (f"{what}: series", "", seen.series, other.series),
        ("a scrape of a node of eight GPUs", "KiB", len(seen.page) / 1024, len(other.page) / 1024),
        ("the same in gzip", "KiB", len(gzip.compress(seen.page)) / 1024, len(gzip.compress(other.page)) / 1024),
        (f"{what}: CPU time for a scrape of all", "s", bare.cpu_seconds, other.cpu_seconds),
        (f"{what}: the same with the rules, once each", "s", seen.cpu_seconds, other.cpu_seconds),
        (f"{what}: memory with the rules", "MiB", seen.bytes / _MIB, other.bytes / _MIB),
    ):
        yield Figure(name=name, unit=unit, runs=[run], floor=floor, floor_runs=[floor_run])
    yield Figure(name=f"{what}: an evaluation of all rules takes", unit="s", runs=[sum(seen.rules_seconds.values())])
    for name in sorted(seen.rules_seconds, key=lambda name: -seen.rules_seconds[name])[:_DEAREST]:
        yield Figure(name=f"of that {name}", unit="s", runs=[seen.rules_seconds[name]])


def _page(driver: StubDriver, settings: Mapping[str, str]) -> bytes:
    """The page of an agent that has read all GPUs, as Prometheus asks for it."""
    agent = GpuwatchAgent(good=r"^(gpuwatch_gpu_up|DCGM_FI_DEV_GPU_TEMP)\{.*\} \d")
    with agent.on(_With(driver, settings)) as started:
        started.seconds_until(agent.good, _GPUS)
        _CLOCK.sleep(3.0)  # what is read every five seconds, and means, are there
        connection = HTTPConnection("127.0.0.1", started.port)
        return gzip.decompress(get(connection, PROMETHEUS))


@dataclass(frozen=True, slots=True)
class _With:
    """A driver, with settings of the agent in its environment."""

    driver: StubDriver
    settings: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Of the agent's process."""
        return self.driver.environment | dict(self.settings)


def _only_default(page: bytes) -> bytes:
    """The page without what is not enabled in dcgm-exporter's default set."""
    lines = page.decode().splitlines(keepends=True)
    kept = [line for line in lines if _DEFAULT_SET.match(line.removeprefix("# HELP ").removeprefix("# TYPE "))]
    return "".join([*kept, "# EOF\n"] if lines[-1] == "# EOF\n" else kept).encode()


def _controller_page() -> bytes:
    """The page of a controller that leads and has seen these nodes."""
    desk = Desk(clock=ManualClock(wall=_CLOCK.now()))
    populate(desk, _NODES, _GPUS)
    seen = observers_of(Settings(), desk.parts)
    one_round(desk.parts, seen)
    body: bytes = seen.metrics.page(PROMETHEUS["Accept"]).body
    return body


def _of_node(page: bytes, number: int) -> bytes:
    """The page of the node of that number, which is a node of the controller's page."""
    text = _NODE.sub(rf'\1="i-{number:08x}"', page.decode())
    return _UUID.sub(f"GPU-{number:05x}-", text).encode()


def _cost(folder: Path, page: bytes, controller: bytes | None, *, rules: bool = True) -> _Cost:
    """What it costs a new Prometheus, from its third scrape on."""
    folder.mkdir()
    port, own = free_port(), free_port()
    pages = {address(number): gzip.compress(_of_node(page, number), 1) for number in range(_NODES)}
    jobs = {"gpuwatch" if controller else "dcgm": [f"{host}:{port}" for host in pages]}
    if controller is not None:
        at = address(_NODES)
        pages[at], jobs["gpuwatch-controller"] = gzip.compress(controller, 1), [f"{at}:{port}"]
    file = folder / "prometheus.yml"
    every = f"{_EVERY_SECONDS}s"
    told = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(_RULES)] if rules and controller is not None else [],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
        ],
    }
    file.write_text(yaml.safe_dump(told))
    command = [
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    with _Served(pages, port) as served, Started(command=command, port=own) as started:
        started.seconds_until("^prometheus_ready 1$")
        _await(served, 2 * len(pages))
        before, scrapes = cpu_seconds(started.pids), served.scrapes
        _await(served, scrapes + _SCRAPES * len(pages))
        spent = cpu_seconds(started.pids) - before
        return _Cost(
            page=page,
            series=_head_series(own),
            cpu_seconds=spent * len(pages) / (served.scrapes - scrapes),
            bytes=memory_bytes(started.pids),
            rules_seconds=_rules(own),
        )


def _await(served: "_Served", scrapes: int) -> None:
    """Until so many pages have been scraped.

    Raises:
        TimeoutError: Prometheus does not come to it.

    """
    end = _CLOCK.monotonic() + _PATIENCE_SECONDS
    while served.scrapes < scrapes:
        if _CLOCK.monotonic() > end:
            raise TimeoutError(f"{served.scrapes} of {scrapes} pages were scraped in {_PATIENCE_SECONDS:g} s")
        _CLOCK.sleep(0.1)


def _head_series(port: int) -> float:
    """The series that a Prometheus keeps, those of its rules among them."""
    page = get(HTTPConnection("127.0.0.1", port)).decode()
    return float(next(line for line in page.splitlines() if line.startswith("prometheus_tsdb_head_series ")).split()[1])


def _rules(port: int) -> dict[str, float]:
    """Seconds of the last evaluation of each rule, by its name; alerts of one name together."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=30) as response:
        groups = json.load(response)["data"]["groups"]
    seconds: Counter[str] = Counter()
    for rule in (rule for group in groups for rule in group["rules"]):
        seconds[rule["name"]] += rule["evaluationTime"]
    return dict(seconds)


class _Served:
    """Pages by the address that they are asked at, in a thread of their own, while the block runs."""

    def __init__(self, pages: Mapping[str, bytes], port: int) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
        self._answers = {
            host: f"{head}Content-Encoding: gzip\r\nContent-Length: {len(page)}\r\n\r\n".encode() + page
            for host, page in pages.items()
        }
        self._port, self.scrapes = port, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        server = self._loop.create_server(lambda: _Target(self), list(self._answers), self._port)
        asyncio.run_coroutine_threadsafe(server, self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def answer(self, host: str) -> bytes:
        """One more scrape."""
        self.scrapes += 1
        return self._answers[host]


class _Target(asyncio.Protocol):
    """A connection of Prometheus'; it asks for nothing but the page."""

    def __init__(self, served: _Served) -> None:
        self._served, self._asked = served, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  what a server's protocol is given
        self._transport, self._host = transport, transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if self._asked.endswith(b"\r\n\r\n"):
            self._asked = b""
            self._transport.write(self._served.answer(self._host))
