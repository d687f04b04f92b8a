"""Figures of real `gpuwatch agent` processes, and of a peer: memory, CPU, scrapes, start, series, driver calls.

The driver is a stand-in. Its calls take about a real one's time (tests/support/fakes/nvml_stub/latencies.txt).
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

from benchmarks.contest import CLIENTS, PAGE, WAKES, Seen, contest
from benchmarks.exporters import Exporter, GpuwatchAgent, NvitopExporter, start, working_host
from benchmarks.figures import Figure
from benchmarks.footprint import growth
from benchmarks.processes import seconds_to_run
from tests.support.fakes.nvml import StubDriver, build

_COUNTS = (8, 16)
_USUAL = 8  # GPUs of the host whose memory is watched over time
_STARTS = 7
_BARE = ("python -c 'pass'", "python -c 'import prometheus_client'")

# The goals, some by the number of GPUs; the first GPU is compared with all of the peer's.
_PSS_MB = {8: 30.0, 16: 33.0}
_SERIES = 60.0
_CPU_OF_PEER = {8: 0.28, 16: 0.25}
_START_OF_PEER = {8: 0.5, 16: 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One figure of an exporter: its unit, the floors that it is compared with, and its goal."""

    what: str
    unit: str
    of: Callable[[Seen], Sequence[float]]
    floors: Sequence[str] = ()
    of_the_peer: Callable[[Seen], Sequence[float]] | None = None  # what of a peer it is compared with, if not the same
    at_most: Mapping[int, float] = field(default_factory=dict)  # by the number of GPUs, as the next one
    of_peer: Mapping[int, float] = field(default_factory=dict)


def _burst(clients: int, percent: int) -> _Row:
    def milliseconds(seen: Seen) -> list[float]:
        return [quantiles(run, n=100)[percent - 1] * 1e3 for run in seen.burst[clients]]

    who = "1 client" if clients == 1 else f"{clients} clients"
    return _Row(what=f"scrape p{percent}, {who} without a pause", unit="ms", of=milliseconds, floors=[PAGE])


_ROWS = (
    _Row(what="PSS", unit="MB", of=lambda seen: _scaled(seen.pss, 1e-6), floors=[PAGE], at_most=_PSS_MB),
    _Row(what="PSS if no other Python ran", unit="MB", of=lambda seen: _scaled(seen.memory, 1e-6), floors=[PAGE]),
    _Row(what="CPU", unit="ms/s", of=lambda seen: _scaled(seen.cpu, 1e3), floors=[WAKES], of_peer=_CPU_OF_PEER),
    _Row(
        what="CPU, scraped at 1 Hz",
        unit="ms/s",
        of=lambda seen: _scaled(seen.scraped_cpu, 1e3),
        floors=[PAGE],
        of_peer=_CPU_OF_PEER,
    ),
    _Row(
        what="of that the driver's", unit="ms/s", of=lambda seen: [seen.asked.busy_seconds * 1e3] if seen.asked else []
    ),
    _Row(what="NVML calls a cycle", unit="", of=lambda seen: [seen.asked.calls] if seen.asked else []),
    _Row(what="scrape once a second", unit="ms", of=lambda seen: _scaled(seen.scrape, 1e3), floors=[PAGE]),
    *(_burst(clients, percent) for clients in CLIENTS for percent in (50, 99)),
    _Row(what="start to the first GPU", unit="s", of=lambda seen: seen.first, floors=_BARE),
    _Row(
        what="start to the first GPU, beside all of the peer",
        unit="s",
        of=lambda seen: seen.first,
        of_the_peer=lambda seen: seen.whole,
        of_peer=_START_OF_PEER,
    ),
    _Row(what="start to all GPUs", unit="s", of=lambda seen: seen.whole),
    _Row(what="CPU time until then", unit="s", of=lambda seen: seen.start_cpu),
    _Row(what="page", unit="KiB", of=lambda seen: [len(seen.page) / 1024]),
    _Row(what="series", unit="", of=lambda seen: [seen.series]),
)


def measure(seconds: float, *, peer: bool, cycles: int) -> Iterator[Figure]:
    """All figures; `seconds` is the length of one measuring window, `cycles` how many memory is watched for."""
    with TemporaryDirectory() as made, ExitStack() as hosts:
        folder = Path(made)
        library = build(folder / "library")
        ours = GpuwatchAgent()
        peers = list(_peers(folder)) if peer else []
        drivers = {count: hosts.enter_context(working_host(folder / str(count), library, count)) for count in _COUNTS}
        seen = {count: _seen([ours, *peers], driver, count, seconds) for count, driver in drivers.items()}
        for count, host in seen.items():
            yield from beside_floors(ours.name, host, count)
        yield _series_a_gpu(ours.name, seen, at_most=_SERIES)
        yield from growth(drivers[_USUAL], _USUAL, cycles)
        for other in peers:
            for count, host in seen.items():
                yield from beside_peer(ours.name, other.name, host, count)
            yield _series_a_gpu(other.name, seen)


def _peers(folder: Path) -> Iterator[Exporter]:
    peer = NvitopExporter(folder / "peer")
    if peer.install():
        yield peer
    else:
        print("nvitop-exporter is left out: pip could not install it", file=sys.stderr)


def _seen(exporters: Sequence[Exporter], driver: StubDriver, gpus: int, seconds: float) -> dict[str, Seen]:
    """All that is measured on one host, by name."""
    seen = contest(exporters, driver, gpus, seconds)
    for exporter in exporters[1:]:
        unread = [line for line in seen[exporter.name].page.decode().splitlines() if line.endswith(" NaN")]
        if unread:
            print(f"{exporter.name} could not read {len(unread)} values, such as {unread[0]}", file=sys.stderr)
    seen.update({bare: Seen() for bare in _BARE})
    for _ in range(_STARTS):  # by turns
        for exporter in exporters:
            first, whole, cpu = start(exporter, driver, gpus)
            seen[exporter.name].first.append(first)
            seen[exporter.name].whole.append(whole)
            seen[exporter.name].start_cpu.append(cpu)
        for bare in _BARE:
            seen[bare].first.append(seconds_to_run(bare.split("'")[1]))
    for exporter in exporters:
        seen[exporter.name].asked = exporter.asks(driver, gpus)
    return seen


def _scaled(runs: Sequence[float], factor: float) -> list[float]:
    return [run * factor for run in runs]


def beside_floors(name: str, seen: dict[str, Seen], gpus: int) -> Iterator[Figure]:
    """Ours, compared with what does nothing."""
    for row in _ROWS:
        if row.of_the_peer is not None:
            continue
        for floor in row.floors or [""]:
            yield Figure(
                name=f"{row.what}, {gpus} GPUs",
                unit=row.unit,
                runs=row.of(seen[name]),
                floor=floor,
                floor_runs=row.of(seen[floor]) if floor else (),
                at_most=row.at_most.get(gpus),
            )


def beside_peer(name: str, peer: str, seen: dict[str, Seen], gpus: int) -> Iterator[Figure]:
    """Ours, compared with the peer's of the same windows."""
    for row in _ROWS:
        yield Figure(
            name=f"{row.what}, {gpus} GPUs",
            unit=row.unit,
            runs=row.of(seen[name]),
            floor=peer,
            floor_runs=(row.of_the_peer or row.of)(seen[peer]),
            ratio_at_most=row.of_peer.get(gpus),
        )


def _series_a_gpu(name: str, seen: dict[int, dict[str, Seen]], *, at_most: float | None = None) -> Figure:
    """All of the page of the smaller host, divided by its GPUs, with 18 NVLinks and one process each."""
    few = min(seen)
    return Figure(name=f"series a GPU of {name}", unit="", runs=[seen[few][name].series / few], at_most=at_most)
