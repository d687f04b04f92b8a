"""The agent's snapshot as Prometheus or OpenMetrics text. It reads what the core keeps and never asks the driver."""

import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING

from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.evidence.rdma_ports import RdmaPort
from gpuwatch.agent.evidence.snoozes import Snooze
from gpuwatch.agent.exporter import rdma
from gpuwatch.agent.exporter.catalogue import FAMILIES, gpu_metric, mig_metric
from gpuwatch.agent.exporter.processes import Rows, all_process_rows, holder_rows, pod_rows
from gpuwatch.agent.health.xids import Counts
from gpuwatch.agent.last_busy import signal_of
from gpuwatch.agent.metadata import metrics as instance_metrics
from gpuwatch.agent.metadata.watcher import InstanceStatus
from gpuwatch.agent.published import Snapshot
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.activity import Activity, Evidence, LastBusy, LocalDisks, State
from gpuwatch.model.gpu import CLOCK_EVENTS, GpuInfo, GpuReading, metrics
from gpuwatch.model.health import Health
from gpuwatch.model.metric import GROUP_NAMES, GroupName
from gpuwatch.model.mig import MigInstance, mig_metrics
from gpuwatch.model.verdict import GpuVerdict
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.metrics.exposition import (
    OPENMETRICS_END,
    Exposition,
    Labels,
    as_families,
    content_type_for,
    join_blocks,
    rename_page,
    renames,
)
from gpuwatch.runtime.metrics.family import CERTIFICATE, Histogram
from gpuwatch.runtime.metrics.process import ProcessFigures
from gpuwatch.runtime.program import build

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as SampleFamily

_Field = tuple[str, str, bool]  # of a reading, its metric, whether it maps labels
_FIELDS: tuple[_Field, ...] = tuple((field, gpu_metric(field), bool(metric.label)) for field, metric in metrics())
_MIG_FIELDS: tuple[_Field, ...] = tuple(
    (field, mig_metric(field), bool(metric.label)) for field, metric in mig_metrics()
)
_INFO_FIELDS = tuple(field.name for field in fields(GpuInfo) if field.name not in {"uuid", "index"})

_SAYS = (State.BUSY, State.UNKNOWN, State.OCCUPIED, State.IDLE)
_MOST_SNOOZES = 64
_KEEP_PAGE_SECONDS = 1.0  # ages on it go on while no cycle comes
_MOST_PAGES = 4
_MOST_PARTS = 8  # pages of some groups that are kept beside each of them
_SCRAPE_BOUNDS = (0.0025, 0.025)  # seconds
_BUILD = build()
_GZIP = zlib.MAX_WBITS + 16  # the format of gzip, without a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One rendered page of metrics."""

    content_type: str
    body: bytes
    packed: Callable[[], bytes]  # the same, gzipped, once somebody asks for it


@dataclass(frozen=True, slots=True, eq=False)
class _Only:
    """One family, as prometheus-client's encoders ask for it."""

    metric: "SampleFamily"

    def collect(self) -> "tuple[SampleFamily]":
        """Return the samples of that family alone."""
        return (self.metric,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    """A rendered page and until when it may be served."""

    page: Page
    blocks: Mapping[str, str]  # by family, where a part is cut out of it
    parts: dict[frozenset[str], Page]
    shown: tuple[int, int, bool, InstanceStatus | None]  # the snapshot's version, its GPUs, whether stale, the instance
    until: float


class Exporter:
    """Renders one core's snapshot. A page is made once per cycle and format, and again when its ages have grown old."""

    def __init__(  # noqa: PLR0913  each one is another part of the agent
        self,
        core: AgentCore,
        clock: Clock,
        *,
        node_id: str,
        top_processes: int,
        own_process: bool = True,
        snoozes: Callable[[], Iterable[Snooze]] = tuple,
        users: Callable[[], View | None] = lambda: None,
        instance: Callable[[], InstanceStatus | None] = lambda: None,
        certificates: Callable[[], Iterable[tuple[str, datetime]]] = tuple,
        logins: Callable[[], Mapping[str, int]] = dict,
        foreign: Callable[[Snapshot, bytes], bytes] = lambda _, page: page,
        blind: Callable[[], Iterable[str]] = tuple,
        rdma_ports: Callable[[], Iterable[RdmaPort]] = tuple,
        strangers: Callable[[], Mapping[str, float]] = dict,
        groups: Collection[GroupName] = GROUP_NAMES,
    ) -> None:
        """`own_process` adds CPU and memory of the running process, which only a real agent has to itself.

        `snoozes` returns those of `gpuwatch snooze`, the longest first; `users` the owners of processes;
        `instance` the cloud's facts and notices; `certificates` their ends by setting; `logins` failed ones by result.
        `foreign` adds the metrics of other exporters to a page; `blind` are codes of what the agent cannot see;
        `rdma_ports` are the host's, `strangers` the CPU cores of strange programs, `groups` the groups on the page.
        """
        self._core = core
        self._clock = clock
        self.node_id = node_id
        self._top_processes = top_processes
        self._snoozes = snoozes
        self._users = users
        self._instance = instance
        self._certificates = certificates
        self._logins = logins
        self._foreign = foreign
        self._blind = blind
        self._rdma_ports = rdma_ports
        self._strangers = strangers
        self.groups = frozenset(groups)
        self._families = {name: family for name, family in FAMILIES.items() if family.group in self.groups}
        self._series = frozenset(series for family in self._families.values() for series in family.series)
        self._fields = tuple(each for each in _FIELDS if each[1] in self._families)
        self._mig_fields = tuple(each for each in _MIG_FIELDS if each[1] in self._families)
        self._exposition = Exposition(self._families)
        self._process = ProcessFigures() if own_process else None
        self._scrapes = Histogram(_SCRAPE_BOUNDS)
        self._cache: dict[str, _Cached] = {}
        self._rendering = threading.Lock()

    def page(self, accept: str, groups: frozenset[str] | None = None) -> Page:
        """The page in the format that an Accept header asks for; the same one for up to a second within a cycle.

        With `groups` it is those families of the same page that are theirs, without other exporters' names.
        """
        with self._scrapes.time_body(self._clock), self._rendering:  # a second scraper waits for the first one's page
            cached = self._whole(accept)
            return cached.page if groups is None else self._part(cached, groups)

    def _whole(self, accept: str) -> _Cached:
        """A page that is fresh, or a new one."""
        content_type = content_type_for(accept)
        now = self._clock.monotonic()
        snapshot = self._core.snapshot(now)
        cached = self._cache.get(content_type)
        fresh = cached is not None and now < cached.until
        shown = (snapshot.version, len(snapshot.readings), snapshot.stale, self._instance())
        if cached is not None and fresh and cached.shown == shown:
            return cached
        blocks = self._blocks(snapshot, now, accept, content_type)
        own = join_blocks(blocks.values(), openmetrics=_is_openmetrics(content_type))
        page = _page(content_type, self._foreign(snapshot, own))
        until = now + _KEEP_PAGE_SECONDS
        if len(self._cache) >= _MOST_PAGES:  # content types repeat the version that a client names
            self._cache.clear()
        cached = _Cached(page=page, blocks=blocks, parts={}, shown=shown, until=until)
        self._cache[content_type] = cached
        return cached

    def collect(self) -> Iterable["SampleFamily"]:
        """Each family that has a sample now, as prometheus-client has them."""
        now = self._clock.monotonic()
        return list(as_families(self._families, self._rows(self._core.snapshot(now), now)).values())

    def _blocks(self, snapshot: Snapshot, now: float, accept: str, content_type: str) -> Mapping[str, str]:
        """The text of each family that has a sample."""
        rows = self._rows(snapshot, now)
        if not renames(content_type):
            return self._exposition.blocks(rows, openmetrics=_is_openmetrics(content_type))
        made = as_families(self._families, rows)
        texts = {name: rename_page(accept, _Only(family)).decode() for name, family in made.items()}
        return {name: text.removesuffix(OPENMETRICS_END) for name, text in texts.items()}

    def _part(self, cached: _Cached, groups: frozenset[str]) -> Page:
        """The families of these groups alone, cut out of a page."""
        page = cached.parts.get(groups)
        if page is None:
            content_type = cached.page.content_type
            chosen = (text for name, text in cached.blocks.items() if self._families[name].group in groups)
            page = _page(content_type, join_blocks(chosen, openmetrics=_is_openmetrics(content_type)))
            if len(cached.parts) >= _MOST_PARTS:
                cached.parts.clear()
            cached.parts[groups] = page
        return page

    def _rows(self, snapshot: Snapshot, now: float) -> Rows:
        """Every sample of the exported groups as name, label values, value."""
        return (row for row in self._all_rows(snapshot, now) if row[0] in self._series)

    def _all_rows(self, snapshot: Snapshot, now: float) -> Rows:
        """The samples of all groups."""
        users = self._users()
        yield from self._agent_rows(snapshot, now)
        for setting, end in self._certificates():
            yield CERTIFICATE, (setting,), round(end.timestamp())
        for result, count in self._logins().items():
            yield "gpuwatch_agent_login_failures_total", (result,), count
        yield "gpuwatch_node_info", (self.node_id,), 1
        yield from instance_metrics.rows(self._instance())
        yield from _activity_rows("gpuwatch_node", (), snapshot.verdict.activity)
        yield from _evidence_rows(snapshot.host)
        yield from _last_busy_rows(snapshot.verdict.last_busy)
        for what in self._blind():
            yield "gpuwatch_agent_blind_info", (what,), 1
        yield from [("gpuwatch_host_stranger_cpu_cores", (mark,), used) for mark, used in self._strangers().items()]
        if snapshot.verdict.local_disks is not None:
            yield "gpuwatch_node_local_disks_used", (), int(snapshot.verdict.local_disks is LocalDisks.USED)
        if snapshot.verdict.cpu_utilization_ratio is not None:
            yield "gpuwatch_host_cpu_utilization_ratio", (), snapshot.verdict.cpu_utilization_ratio
        yield from rdma.rows(self._rdma_ports())
        yield from pod_rows(snapshot.verdict.pods)
        for snooze in islice(self._snoozes(), _MOST_SNOOZES):
            yield "gpuwatch_snooze_expiry_timestamp_seconds", (snooze.user,), round(snooze.expires_at.timestamp())
        for gpu in snapshot.verdict.gpus:
            yield from _activity_rows("gpuwatch_gpu", gpu.key, gpu.activity)
            yield from health_rows(gpu)
            if users is not None:
                yield from holder_rows(gpu.key, users)
        yield from implausible_rows(snapshot.statistics.implausible, snapshot.verdict.gpus)
        yield from xid_rows(snapshot.xids, snapshot.verdict.gpus)
        for down in snapshot.downs:
            key = down.info.key
            yield from _info_rows(down.info)
            yield "gpuwatch_gpu_up", key, 0
            yield "gpuwatch_gpu_down_info", (*key, down.cause.value), 1
        for reading in snapshot.readings:
            yield from self._reading_rows(reading, snapshot.active_seconds.get(reading.info.uuid), users)
        if self._process is not None:
            yield from self._process.samples()

    def _agent_rows(self, snapshot: Snapshot, now: float) -> Rows:
        """The samples about the agent and its probe."""
        statistics, trouble = snapshot.statistics, snapshot.trouble
        yield "gpuwatch_agent_build_info", _BUILD, 1
        yield from self._core.cycle_durations.samples("gpuwatch_agent_cycle_duration_seconds")
        yield from self._scrapes.samples("gpuwatch_agent_scrape_duration_seconds")
        if statistics.complete_at is not None and statistics.complete_monotonic_seconds is not None:
            yield "gpuwatch_agent_last_cycle_timestamp_seconds", (), statistics.complete_at.timestamp()
            yield "gpuwatch_agent_last_cycle_age_seconds", (), now - statistics.complete_monotonic_seconds
        if snapshot.kernel_log_up is not None:
            yield "gpuwatch_agent_kernel_log_up", (), snapshot.kernel_log_up
        for cause in Interruption:
            yield "gpuwatch_probe_restarts_total", (cause.value,), statistics.interruptions.get(cause.value, 0)
        yield "gpuwatch_probe_abandoned", (), statistics.abandoned
        silent = "silent" if snapshot.stale else "starting" if snapshot.version == 0 else None
        cause_now = trouble.cause if trouble is not None else silent
        yield "gpuwatch_probe_up", (), 0 if cause_now is not None else 1
        if cause_now is not None:
            yield "gpuwatch_probe_down_info", (cause_now,), 1

    def _reading_rows(self, reading: GpuReading, active_seconds: float | None, users: View | None) -> Rows:
        """The samples of one GPU that was read."""
        key = reading.info.key
        yield from _info_rows(reading.info)
        yield "gpuwatch_gpu_up", key, 1
        yield from _measured_rows(reading, self._fields, key)
        for instance in reading.mig_instances or ():
            yield from _mig_rows(key, instance, self._mig_fields)
        if active_seconds is not None:
            yield "gpuwatch_gpu_active_seconds_total", key, active_seconds
        if reading.clock_events is not None:
            for event in CLOCK_EVENTS.values():
                yield "gpuwatch_gpu_clock_event_active", (*key, event), event in reading.clock_events
            yield "gpuwatch_gpu_hardware_slowdown", key, "hw_slowdown" in reading.clock_events
        if reading.processes is not None:
            yield from all_process_rows(key, reading.processes, self._top_processes, users)


def _page(content_type: str, body: bytes) -> Page:
    """A page that is packed when somebody asks for that."""
    packed = cache(partial(zlib.compress, body, level=1, wbits=_GZIP))
    return Page(content_type=content_type, body=body, packed=packed)


def _is_openmetrics(content_type: str) -> bool:
    return "openmetrics" in content_type


def _measured_rows(reading: GpuReading | MigInstance, known: Iterable[_Field], key: Labels) -> Rows:
    """The measurements of a reading, those by label as one sample for each of its values."""
    for field, name, labelled in known:
        value = getattr(reading, field)
        if labelled and value is not None:
            for label, one in value.items():
                yield name, (*key, label), one
        elif value is not None:
            yield name, key, value


def _mig_rows(key: tuple[str, str | None], instance: MigInstance, known: Iterable[_Field]) -> Rows:
    """One GPU instance: its compute instances by name, its memory and activity once."""
    within = str(instance.id)
    for device in instance.devices:
        yield "gpuwatch_mig_info", (*key, within, str(device.compute_instance), device.uuid, device.profile), 1
    yield from _measured_rows(instance, known, (*key, within))


def _info_rows(info: GpuInfo) -> Rows:
    """The identity of a GPU."""
    facts = [getattr(info, field) for field in _INFO_FIELDS]
    yield "gpuwatch_gpu_info", (*info.key, *facts), 1


def _evidence_rows(host: Iterable[Evidence]) -> Rows:
    """What each signal of the host says; of several findings, busy wins, then unknown, then occupied."""
    says: dict[str, set[State]] = {}
    for entry in host:
        says.setdefault(entry.name, set()).add(entry.says)
    for signal, found in says.items():
        yield "gpuwatch_node_evidence", (signal, next(state for state in _SAYS if state in found).value), 1


def _last_busy_rows(last_busy: Iterable[LastBusy]) -> Rows:
    """When each signal was busy last. It is history, so it stays while nothing can be read."""
    for entry in last_busy:
        if entry.evidence.says is State.BUSY:
            signal = signal_of(entry.evidence.name)
            yield "gpuwatch_node_last_busy_timestamp_seconds", (signal,), round(entry.at.timestamp())


def _activity_rows(prefix: str, key: Labels, activity: Activity) -> Rows:
    """A verdict as a set of states and an idle time."""
    for state in State:
        if key and state is State.OCCUPIED:
            continue  # a GPU is never occupied: that is about the host's programs
        yield f"{prefix}_activity", (*key, state.value), state is activity.state
    if activity.state is not State.UNKNOWN:
        yield f"{prefix}_idle_seconds", key, activity.held_seconds if activity.state is State.IDLE else 0


def health_rows(gpu: GpuVerdict) -> Rows:
    """One GPU's verdict as a set of states, with each cause and its remedy."""
    if gpu.health is None:
        return
    key = gpu.key
    for state in Health:
        yield "gpuwatch_gpu_health", (*key, state.value), state is gpu.health.state
    for finding in gpu.health.findings:
        yield "gpuwatch_gpu_health_cause_info", (*key, finding.code, finding.remedy.value), 1
    if gpu.health.since is not None:
        yield "gpuwatch_gpu_health_since_timestamp_seconds", key, gpu.health.since.timestamp()


def implausible_rows(counts: Mapping[tuple[str, str], int], gpus: Sequence[GpuVerdict]) -> Rows:
    """Each field of a GPU that ever had a value which could not be true."""
    keys = {gpu.uuid: gpu.key for gpu in gpus}
    for (uuid, name), count in counts.items():
        if uuid in keys:
            yield "gpuwatch_gpu_implausible_values_total", (*keys[uuid], name), count


def xid_rows(counts: Counts, gpus: Sequence[GpuVerdict]) -> Rows:
    """Each XID of each GPU. They are history, so they stay while nothing can be read."""
    keys = {gpu.uuid: gpu.key for gpu in gpus}
    for (uuid, xid), count in counts.items():
        if uuid in keys:
            key = (*keys[uuid], str(xid))
            yield "gpuwatch_gpu_xid_errors_total", key, count.total
            yield "gpuwatch_gpu_xid_last_seen_timestamp_seconds", key, count.last_at.timestamp()
