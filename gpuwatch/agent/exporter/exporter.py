"""The agent's snapshot as Prometheus or OpenMetrics text. It reads what the core keeps and never asks the driver."""

import gzip
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache, partial
from itertools import islice

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as SampleFamily
from prometheus_client.process_collector import ProcessCollector

from gpuwatch import __version__
from gpuwatch.agent.attribution.attribution import View
from gpuwatch.agent.evidence.snoozes import Snooze
from gpuwatch.agent.exporter.catalogue import FAMILIES, gpu_metric, mig_metric
from gpuwatch.agent.health.xids import Counts
from gpuwatch.agent.last_busy import signal_of
from gpuwatch.agent.metadata import metrics as instance_metrics
from gpuwatch.agent.metadata.watcher import InstanceStatus
from gpuwatch.agent.state import AgentCore, Interruption, Snapshot
from gpuwatch.model.fleet import Activity, Evidence, GpuVerdict, LastBusy, LocalDisks, State
from gpuwatch.model.gpu import CLOCK_EVENTS, GpuInfo, GpuProcess, GpuReading, metrics
from gpuwatch.model.health import Health
from gpuwatch.model.mig import MigInstance, mig_metrics
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.metrics.exposition import Exposition, Labels, Sample, renames, sample_family
from gpuwatch.runtime.metrics.family import CERTIFICATE

_FIELDS = tuple((field, gpu_metric(field), bool(metric.label)) for field, metric in metrics())
_MIG_FIELDS = tuple((field, mig_metric(field), bool(metric.label)) for field, metric in mig_metrics())
_INFO_FIELDS = tuple(field.name for field in fields(GpuInfo) if field.name not in {"uuid", "index"})

_SAYS = (State.BUSY, State.UNKNOWN, State.OCCUPIED, State.IDLE)
_MOST_SNOOZES = 64
_KEEP_PAGE_SECONDS = 1.0  # ages on it go on while no cycle comes
_MOST_PAGES = 4

_MOST_HOLDERS = 64

Rows = Iterator[Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One rendered page."""

    content_type: str
    body: bytes
    packed: Callable[[], bytes]  # the same, gzipped, once somebody asks for it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    """A rendered page and until when it may be served."""

    page: Page
    shown: tuple[int, bool, InstanceStatus | None]  # the snapshot's version, whether it was stale, the instance
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
    ) -> None:
        """`own_process` adds CPU and memory of the running process, which only a real agent has to itself.

        `snoozes` returns those of `gpuwatch snooze`, the longest first; `users` the owners of processes;
        `instance` the cloud's facts and notices; `certificates` their ends by setting; `logins` failed ones by result.
        `foreign` adds the metrics of other exporters to a page; `blind` are codes of what the agent cannot see.
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
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._exposition = Exposition(FAMILIES)
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
            shown = (snapshot.version, snapshot.stale, self._instance())
            if cached is not None and fresh and cached.shown == shown:
                return cached.page
            if renames(content_type):
                own = encoder(self._registry)
            else:
                own = self._exposition.page(self._rows(snapshot, now), openmetrics="openmetrics" in content_type)
            body = self._foreign(snapshot, own)
            packed = cache(partial(gzip.compress, body, compresslevel=1, mtime=0))
            page = Page(content_type=content_type, body=body, packed=packed)
            until = now + _KEEP_PAGE_SECONDS
            if len(self._cache) >= _MOST_PAGES:  # content types repeat the version that a client names
                self._cache.clear()
            self._cache[content_type] = _Cached(page=page, shown=shown, until=until)
            return page

    def collect(self) -> Iterable[SampleFamily]:
        """What prometheus-client renders: each family of the catalogue that has a sample now."""
        now = self._clock.monotonic()
        made = {name: sample_family(family) for name, family in FAMILIES.items()}
        for name, labels, value in self._rows(self._core.snapshot(now), now):
            family = FAMILIES[name]
            known = {key: label for key, label in zip(family.labels, labels, strict=True) if label is not None}
            made[name].add_sample(name, known, value)
        return [metric for metric in made.values() if metric.samples]

    def _rows(self, snapshot: Snapshot, now: float) -> Rows:
        """Every sample as name, label values, value."""
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
            yield "gpuwatch_agent_blind", (what,), 1
        if snapshot.verdict.local_disks is not None:
            yield "gpuwatch_node_local_disks_used", (), int(snapshot.verdict.local_disks is LocalDisks.USED)
        for snooze in islice(self._snoozes(), _MOST_SNOOZES):
            yield "gpuwatch_snooze_expiry_timestamp_seconds", (snooze.user,), round(snooze.expires_at.timestamp())
        for gpu in snapshot.verdict.gpus:
            yield from _activity_rows("gpuwatch_gpu", gpu.key, gpu.activity)
            yield from health_rows(gpu)
            if users is not None:
                yield from holder_rows(gpu.key, users)
        yield from xid_rows(snapshot.xids, snapshot.verdict.gpus)
        for down in snapshot.downs:
            key = down.info.key
            yield from _info_rows(down.info)
            yield "gpuwatch_gpu_up", key, 0
            yield "gpuwatch_gpu_down_info", (*key, down.cause.value), 1
        for reading in snapshot.readings:
            yield from self._reading_rows(reading, snapshot.active_seconds.get(reading.info.uuid), users)
        for metric in self._process.collect() if self._process is not None else ():
            yield from ((each.name, (), each.value) for each in metric.samples if each.name in FAMILIES)

    def _agent_rows(self, snapshot: Snapshot, now: float) -> Rows:
        """The samples about the agent and its probe."""
        statistics, trouble = snapshot.statistics, snapshot.trouble
        yield "gpuwatch_agent_info", (__version__,), 1
        yield "gpuwatch_agent_cycles_total", (), statistics.cycles
        if statistics.cycle_duration_seconds is not None:
            yield "gpuwatch_agent_cycle_duration_seconds", (), statistics.cycle_duration_seconds
        if statistics.complete_at is not None and statistics.complete_monotonic_seconds is not None:
            yield "gpuwatch_agent_last_cycle_timestamp_seconds", (), statistics.complete_at.timestamp()
            yield "gpuwatch_agent_last_cycle_age_seconds", (), now - statistics.complete_monotonic_seconds
        if snapshot.kernel_log_up is not None:
            yield "gpuwatch_agent_kernel_log_up", (), snapshot.kernel_log_up
        for cause in Interruption:
            yield "gpuwatch_probe_restarts_total", (cause.value,), statistics.interruptions.get(cause.value, 0)
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
        yield from _measured(reading, _FIELDS, key)
        for instance in reading.mig_instances or ():
            yield from _mig_rows(key, instance)
        if active_seconds is not None:
            yield "gpuwatch_gpu_active_seconds_total", key, active_seconds
        if reading.clock_events is not None:
            for event in CLOCK_EVENTS.values():
                yield "gpuwatch_gpu_clock_event_active", (*key, event), event in reading.clock_events
        if reading.processes is not None:
            yield from _process_rows(key, reading.processes, self._top_processes, users)


def _measured(reading: GpuReading | MigInstance, known: Iterable[tuple[str, str, bool]], key: Labels) -> Rows:
    """The measurements of a reading, those by label as one sample for each of its values."""
    for field, name, labelled in known:
        value = getattr(reading, field)
        if labelled and value is not None:
            for label, one in value.items():
                yield name, (*key, label), one
        elif value is not None:
            yield name, key, value


def _mig_rows(key: tuple[str, str | None], instance: MigInstance) -> Rows:
    """One GPU instance: its compute instances by name, its memory and activity once."""
    within = str(instance.id)
    for device in instance.devices:
        yield "gpuwatch_mig_info", (*key, within, str(device.compute_instance), device.uuid, device.profile), 1
    yield from _measured(instance, _MIG_FIELDS, (*key, within))


def _info_rows(info: GpuInfo) -> Rows:
    """The identity of a GPU."""
    facts = [getattr(info, field) for field in _INFO_FIELDS]
    yield "gpuwatch_gpu_info", (*info.key, *facts), 1


def _evidence_rows(host: Iterable[Evidence]) -> Rows:
    """The state of each signal of the host; of several findings, busy wins, then unknown, then occupied."""
    says: dict[str, set[State]] = {}
    for entry in host:
        says.setdefault(entry.name, set()).add(entry.says)
    for signal, found in says.items():
        shown = next(state for state in _SAYS if state in found)
        for state in _SAYS:
            yield "gpuwatch_node_evidence", (signal, state.value), state is shown


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


def _process_rows(key: tuple[str, str | None], processes: Iterable[GpuProcess], top: int, users: View | None) -> Rows:
    """The largest processes by themselves and the rest in one sum, so that the number of series is bounded."""
    sizes: dict[int, int | None] = {}
    for process in processes:  # one that computes and draws is listed twice
        known = sizes.get(process.pid)
        sizes[process.pid] = known if process.memory_bytes is None else max(known or 0, process.memory_bytes)
    yield "gpuwatch_gpu_processes", key, len(sizes)
    sized = sorted(
        ((pid, size) for pid, size in sizes.items() if size is not None), key=lambda item: (-item[1], item[0])
    )
    for pid, size in sized[:top]:
        yield "gpuwatch_process_memory_bytes", (*key, str(pid)), size
    yield "gpuwatch_process_memory_other_bytes", key, sum(size for _, size in sized[top:])
    if users is not None:
        unsized = [pid for pid, size in sizes.items() if size is None]
        yield from process_rows(key, sizes, [*(pid for pid, _ in sized), *unsized][:top], users)


def process_rows(
    key: tuple[str, str | None], sizes: Mapping[int, int | None], shown: Sequence[int], view: View
) -> Rows:
    """The owners of the processes of a GPU that are shown one by one, and the memory that dead ones among all hold."""
    for pid in shown:
        labels = _labels(pid, view)
        if any(labels):
            yield "gpuwatch_process_info", (*key, str(pid), *labels), 1
    if view.dead is not None:
        held = [size for pid, size in sizes.items() if pid in view.dead]
        known = [size for size in held if size is not None]
        if len(known) == len(held):
            yield "gpuwatch_gpu_dead_process_memory_bytes", key, sum(known)


def holder_rows(key: tuple[str, str | None], view: View) -> Rows:
    """The containers that the kubelet gave the GPU or a part of it, whether they use it or not."""
    for holder in view.held.get(key[0], ())[:_MOST_HOLDERS]:
        yield "gpuwatch_gpu_pod_info", (*key, holder.namespace, holder.pod, holder.container), 1


def _labels(pid: int, view: View) -> tuple[str | None, ...]:
    """The owner's labels, in the order of the catalogue."""
    owner, workload = view.owners.get(pid), view.workloads.get(pid)
    place = owner.placement if owner else None
    return (
        owner.user if owner else None,
        place.container_id if place else None,
        workload.container if workload else None,
        workload.pod if workload else None,
        workload.namespace if workload else None,
        place.pod_uid if place else None,
        place.slurm_job if place else None,
        place.systemd_unit if place else None,
    )


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


def xid_rows(counts: Counts, gpus: Sequence[GpuVerdict]) -> Rows:
    """Each XID of each GPU. They are history, so they stay while nothing can be read."""
    keys = {gpu.uuid: gpu.key for gpu in gpus}
    for (uuid, xid), count in counts.items():
        if uuid in keys:
            key = (*keys[uuid], str(xid))
            yield "gpuwatch_gpu_xid_errors_total", key, count.total
            yield "gpuwatch_gpu_xid_last_seen_timestamp_seconds", key, count.last_at.timestamp()
