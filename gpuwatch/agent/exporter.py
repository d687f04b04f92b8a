"""The agent's snapshot as Prometheus or OpenMetrics text. It reads what the core keeps and never asks the driver."""

import gzip
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as SampleFamily
from prometheus_client.process_collector import ProcessCollector

from gpuwatch import __version__
from gpuwatch.agent.catalogue import FAMILIES, INFO, Family, gpu_metric
from gpuwatch.agent.core import AgentCore, Interruption, Snapshot
from gpuwatch.clock import Clock
from gpuwatch.model.fleet import Activity, State
from gpuwatch.model.gpu import CLOCK_EVENTS, GpuInfo, GpuProcess, GpuReading, Kind, metrics

_FIELDS = tuple((field, gpu_metric(field)) for field, _ in metrics())
_INFO_FIELDS = tuple(field.name for field in fields(GpuInfo) if field.name not in {"uuid", "index"})

_KEEP_PAGE_SECONDS = 1.0  # ages on it go on while no cycle comes

Labels = tuple[str | None, ...]
Rows = Iterator[tuple[str, Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One rendered page."""

    content_type: str
    body: bytes
    packed: bytes  # the same, gzipped


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    """A page and how long it is true."""

    page: Page
    version: int
    stale: bool
    until: float


class Exporter:
    """Renders one core's snapshot. A page is made once per cycle and format, and again when its ages have grown old."""

    def __init__(
        self, core: AgentCore, clock: Clock, *, node_id: str, top_processes: int, own_process: bool = True
    ) -> None:
        """`own_process` adds CPU and memory of the running process, which only a real agent has to itself."""
        self._core = core
        self._clock = clock
        self._node_id = node_id
        self._top_processes = top_processes
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._process = ProcessCollector(registry=None) if own_process else None
        self._cache: dict[str, _Cached] = {}
        self._rendering = threading.Lock()

    def page(self, accept: str) -> Page:
        """The page in the format that an Accept header asks for; the same one for up to a second within a cycle."""
        encoder, content_type = choose_encoder(accept)
        with self._rendering:  # a second scraper waits for the first one's page rather than making its own
            now = self._clock.monotonic()
            snapshot = self._core.snapshot(now)
            cached = self._cache.get(content_type)
            fresh = cached is not None and now < cached.until
            if cached is not None and fresh and (cached.version, cached.stale) == (snapshot.version, snapshot.stale):
                return cached.page
            body = encoder(self._registry)
            page = Page(content_type=content_type, body=body, packed=gzip.compress(body, compresslevel=1, mtime=0))
            until = now + _KEEP_PAGE_SECONDS
            self._cache[content_type] = _Cached(page=page, version=snapshot.version, stale=snapshot.stale, until=until)
            return page

    def collect(self) -> Iterable[SampleFamily]:
        """What prometheus-client renders: each family of the catalogue that has a sample now."""
        now = self._clock.monotonic()
        made = {name: _family(family) for name, family in FAMILIES.items()}
        for name, labels, value in self._rows(self._core.snapshot(now), now):
            family = FAMILIES[name]
            known = {key: label for key, label in zip(family.labels, labels, strict=True) if label is not None}
            made[name].add_sample(name, known, value)
        for metric in self._process.collect() if self._process is not None else ():
            for sample in metric.samples:
                if sample.name in FAMILIES:
                    made[sample.name].add_sample(sample.name, sample.labels, sample.value)
        return [metric for metric in made.values() if metric.samples]

    def _rows(self, snapshot: Snapshot, now: float) -> Rows:
        """Every sample as name, label values, value."""
        yield from self._agent_rows(snapshot, now)
        yield "gpuwatch_node_info", (self._node_id,), 1
        yield from _activity_rows("gpuwatch_node", (), snapshot.verdict.activity)
        for gpu in snapshot.verdict.gpus:
            yield from _activity_rows("gpuwatch_gpu", (gpu.uuid, str(gpu.index)), gpu.activity)
        for down in snapshot.downs:
            key = (down.info.uuid, str(down.info.index))
            yield from _info_rows(down.info)
            yield "gpuwatch_gpu_up", key, 0
            yield "gpuwatch_gpu_down_info", (*key, down.cause.value), 1
        for reading in snapshot.readings:
            yield from self._reading_rows(reading, snapshot.active_seconds.get(reading.info.uuid))

    def _agent_rows(self, snapshot: Snapshot, now: float) -> Rows:
        """The agent on itself and its probe."""
        statistics, trouble = snapshot.statistics, snapshot.trouble
        yield "gpuwatch_agent_info", (__version__,), 1
        yield "gpuwatch_agent_cycles_total", (), statistics.cycles
        if statistics.cycle_duration_seconds is not None:
            yield "gpuwatch_agent_cycle_duration_seconds", (), statistics.cycle_duration_seconds
        if statistics.complete_at is not None and statistics.complete_monotonic_seconds is not None:
            yield "gpuwatch_agent_last_cycle_timestamp_seconds", (), statistics.complete_at.timestamp()
            yield "gpuwatch_agent_last_cycle_age_seconds", (), now - statistics.complete_monotonic_seconds
        for cause in Interruption:
            yield "gpuwatch_probe_restarts_total", (cause.value,), statistics.interruptions.get(cause.value, 0)
        silent = "silent" if snapshot.stale else "starting" if snapshot.version == 0 else None
        cause_now = trouble.cause if trouble is not None else silent
        yield "gpuwatch_probe_up", (), 0 if cause_now is not None else 1
        if cause_now is not None:
            yield "gpuwatch_probe_down_info", (cause_now,), 1

    def _reading_rows(self, reading: GpuReading, active_seconds: float | None) -> Rows:
        """One GPU that was read."""
        key = (reading.info.uuid, str(reading.info.index))
        yield from _info_rows(reading.info)
        yield "gpuwatch_gpu_up", key, 1
        for field, name in _FIELDS:
            value = getattr(reading, field)
            if value is not None:
                yield name, key, value
        if active_seconds is not None:
            yield "gpuwatch_gpu_active_seconds_total", key, active_seconds
        if reading.clock_events is not None:
            for event in CLOCK_EVENTS.values():
                yield "gpuwatch_gpu_clock_event_active", (*key, event), event in reading.clock_events
        if reading.processes is not None:
            yield from _process_rows(key, reading.processes, self._top_processes)


def _family(family: Family) -> SampleFamily:
    """An empty family as prometheus-client wants it: without the suffix that the type adds."""
    name = family.name.removesuffix("_total" if family.kind == Kind.COUNTER else f"_{INFO}")
    return SampleFamily(name, family.help, family.kind, family.unit)


def _info_rows(info: GpuInfo) -> Rows:
    """Who a GPU is."""
    facts = [getattr(info, field) for field in _INFO_FIELDS]
    yield "gpuwatch_gpu_info", (info.uuid, str(info.index), *facts), 1


def _activity_rows(prefix: str, key: tuple[str, ...], activity: Activity) -> Rows:
    """A verdict as a set of states and an idle time."""
    for state in State:
        yield f"{prefix}_activity", (*key, state.value), state is activity.state
    if activity.state is not State.UNKNOWN:
        yield f"{prefix}_idle_seconds", key, activity.held_seconds if activity.state is State.IDLE else 0


def _process_rows(key: tuple[str, str], processes: Iterable[GpuProcess], top: int) -> Rows:
    """The largest processes by themselves and the rest in one sum, so that the number of series is bounded."""
    sizes: dict[int, int | None] = {}
    for process in processes:  # one that computes and draws is listed twice
        known = sizes.get(process.pid)
        sizes[process.pid] = known if process.memory_bytes is None else max(known or 0, process.memory_bytes)
    yield "gpuwatch_gpu_processes", key, len(sizes)
    told = sorted(
        ((pid, size) for pid, size in sizes.items() if size is not None), key=lambda item: (-item[1], item[0])
    )
    for pid, size in told[:top]:
        yield "gpuwatch_process_memory_bytes", (*key, str(pid)), size
    yield "gpuwatch_process_memory_remainder_bytes", key, sum(size for _, size in told[top:])
