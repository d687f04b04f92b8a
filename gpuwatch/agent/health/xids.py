"""The XIDs of this host: counted once, whatever reported them, and kept until health has judged them.

Fed by the probe's messages and by the kernel log's thread, read by the core; a lock keeps them apart.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuwatch.agent.health.kernel_log import DriverLoaded, KernelEvent, KernelXid, PciAddress, pci_address
from gpuwatch.model.gpu import GpuInfo
from gpuwatch.model.health import XidEvent, XidSource
from gpuwatch.runtime.clock import Clock

_WITHIN_SECONDS = 5.0  # at most, between the two reports of one event
_MOST_RECENT = 64  # events of one kind that wait for their second witness
_MOST_KINDS = 64  # different XIDs of one GPU that get a series
_MOST_WAITING = 256  # events of a GPU that the driver has not listed yet, and events not judged yet


@dataclass(frozen=True, slots=True, kw_only=True)
class XidCount:
    """One XID of one GPU: how often since this boot, as far back as the kernel log reaches, and when last."""

    total: int
    last_at: datetime


Counts = Mapping[tuple[str, int], XidCount]


@dataclass(slots=True, kw_only=True)
class _Incident:
    """One event and its sources."""

    seconds: float
    witnesses: set[XidSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The events since health last asked; `reloaded`: the driver was loaded, and earlier events are left out."""

    events: Mapping[str, tuple[XidEvent, ...]] = field(default_factory=dict)
    reloaded: bool = False


class XidLog:
    """Counts by GPU and XID; `interval_seconds` is how late NVML's events are fetched."""

    def __init__(self, clock: Clock, *, interval_seconds: float = 1.0, judged_until_seconds: float = -1.0) -> None:
        """Events before `judged_until_seconds` on the monotonic clock are only counted: health knows them already."""
        self.kernel_log_up: bool | None = None  # None: the kernel log is not read
        self._clock = clock
        self._within_seconds = _WITHIN_SECONDS + interval_seconds
        self._past_seconds = judged_until_seconds  # earlier events are only counted
        self._lock = threading.Lock()
        self._counts: Counts = {}
        self._recent: dict[tuple[str, int], deque[_Incident]] = {}
        self._listed: dict[str, str | None] = {}  # the address of each GPU as the driver writes it
        self._uuids: dict[PciAddress, str] = {}
        self._strangers: deque[tuple[KernelXid, float]] = deque(maxlen=_MOST_WAITING)
        self._unjudged: deque[XidEvent] = deque(maxlen=_MOST_WAITING)
        self._reloaded = False

    @property
    def counts(self) -> Counts:
        """The counts; replaced as a whole, never changed."""
        return self._counts

    def know(self, gpus: Iterable[GpuInfo]) -> None:
        """Take the GPUs' addresses, and assign earlier events of the kernel log to their GPUs."""
        fresh = [gpu for gpu in gpus if self._listed.get(gpu.uuid) != gpu.pci_bus_id]
        if not fresh:  # nearly always
            return
        with self._lock:
            for gpu in fresh:
                address = None if gpu.pci_bus_id is None else pci_address(gpu.pci_bus_id)
                if address is None:
                    continue
                self._listed[gpu.uuid] = gpu.pci_bus_id
                self._uuids[address] = gpu.uuid
                waiting = [entry for entry in self._strangers if entry[0].address == address]
                for entry in waiting:
                    self._strangers.remove(entry)
                    self._take(self._identify_event(*entry, gpu.uuid))

    def from_nvml(self, uuid: str, xid: int) -> None:
        """Take an event that NVML reported just now."""
        now = self._clock.monotonic()
        event = XidEvent(uuid=uuid, xid=xid, at=self._clock.now(), monotonic_seconds=now, witness=XidSource.NVML)
        with self._lock:
            self._take(event)

    def hear(self, event: KernelEvent, monotonic_seconds: float) -> None:
        """Take an event of the kernel log."""
        with self._lock:
            if isinstance(event, DriverLoaded):
                if monotonic_seconds > self._past_seconds:
                    self._unjudged.clear()
                    self._past_seconds, self._reloaded = monotonic_seconds, True
            elif event.address in self._uuids:
                self._take(self._identify_event(event, monotonic_seconds, self._uuids[event.address]))
            else:
                self._strangers.append((event, monotonic_seconds))

    def news(self) -> News:
        """The events that health has not judged yet; each is given once."""
        if not self._unjudged and not self._reloaded:  # nearly always
            return News()
        with self._lock:
            events: dict[str, tuple[XidEvent, ...]] = {}
            for event in self._unjudged:
                events[event.uuid] = (*events.get(event.uuid, ()), event)
            self._unjudged.clear()
            reloaded, self._reloaded = self._reloaded, False
            return News(events=events, reloaded=reloaded)

    def _identify_event(self, logged: KernelXid, monotonic_seconds: float, uuid: str) -> XidEvent:
        """The entry of the kernel log as an event of a GPU."""
        ago = timedelta(seconds=self._clock.monotonic() - monotonic_seconds)
        return XidEvent(
            uuid=uuid,
            xid=logged.xid,
            at=self._clock.now() - ago,
            monotonic_seconds=monotonic_seconds,
            witness=logged.witness,
            fatal=logged.fatal,
            recovery_action=logged.recovery_action,
        )

    def _take(self, event: XidEvent) -> None:
        """Count it if it is new; health sees every witness, because some know more than others."""
        if event.monotonic_seconds > self._past_seconds:
            self._unjudged.append(event)
        key = (event.uuid, event.xid)
        known = self._counts.get(key)
        if known is None and sum(uuid == event.uuid for uuid, _ in self._counts) >= _MOST_KINDS:
            return
        recent = self._recent.setdefault(key, deque(maxlen=_MOST_RECENT))
        for incident in recent:
            if abs(event.monotonic_seconds - incident.seconds) > self._within_seconds:
                continue
            if event.witness not in incident.witnesses or event.witness is XidSource.BUS:
                incident.witnesses.add(event.witness)
                if event.witness is XidSource.BUS:
                    incident.seconds = max(incident.seconds, event.monotonic_seconds)
                return
        recent.append(_Incident(seconds=event.monotonic_seconds, witnesses={event.witness}))
        total = 1 if known is None else known.total + 1
        last_at = event.at if known is None else max(event.at, known.last_at)
        self._counts = {**self._counts, key: XidCount(total=total, last_at=last_at)}
