"""Health over time: hands each cycle to `verdict`, and keeps its records, also for the next agent.

What is remembered goes to a small file, so that a restart of the agent heals no GPU. The file names the boot it was
written in; after a reboot, and if it cannot be read or written, health starts again.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from gpuwatch.agent.health.verdict import HealthRules, Look, Record, fold
from gpuwatch.agent.health.xids import XidLog
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.model.health import GpuHealth
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_SAVE_SECONDS = 60.0  # if nothing has changed except the time since causes were last seen
_SCHEMA = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The content of the file."""

    schema: int = _SCHEMA
    boot_id: str
    monotonic_seconds: float = -1.0
    records: Mapping[str, Record] = field(default_factory=dict)


class HealthFile:
    """The file between two agents of the same boot."""

    def __init__(self, path: Path, boot_id: str | None = None) -> None:
        """`boot_id` replaces the kernel's."""
        self._path = path
        self._boot_id = _read_boot_id() if boot_id is None else boot_id
        self._logged = False

    def load(self, now_monotonic: float) -> Saved:
        """The content that an earlier agent of this boot wrote; empty without one."""
        nothing = Saved(boot_id=self._boot_id)
        try:
            saved = msgspec.json.decode(self._path.read_bytes(), type=Saved)
        except FileNotFoundError:
            return nothing
        except (OSError, msgspec.MsgspecError) as error:
            _LOG.warning("the stored health of the GPUs is lost: %s cannot be read: %s", self._path, error)
            return nothing
        same_boot = saved.boot_id == self._boot_id != "" and saved.monotonic_seconds <= now_monotonic
        return saved if same_boot and saved.schema == _SCHEMA else nothing

    def save(self, now_monotonic: float, records: Mapping[str, Record]) -> None:
        """Replace the file; a failure is logged once."""
        saved = Saved(boot_id=self._boot_id, monotonic_seconds=now_monotonic, records=records)
        fresh = self._path.with_suffix(".new")
        try:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode(saved))
            fresh.replace(self._path)
        except OSError as error:
            if not self._logged:
                _LOG.warning(
                    "the GPUs' health will not outlive this agent: %s cannot be written (%s); see agent.health_file",
                    self._path,
                    error.strerror,
                )
            self._logged = True


class HealthWatch:
    """One node's GPUs. Used by the thread that feeds the core."""

    def __init__(
        self,
        clock: Clock,
        rules: HealthRules | None = None,
        *,
        interval_seconds: float = 1.0,
        file: HealthFile | None = None,
    ) -> None:
        """Begin with the content of the file."""
        self._rules = rules or HealthRules()
        self._file = file
        saved = Saved(boot_id="") if file is None else file.load(clock.monotonic())
        self._records = dict(saved.records)
        self._saved_seconds = saved.monotonic_seconds
        self.xids = XidLog(clock, interval_seconds=interval_seconds, judged_until_seconds=saved.monotonic_seconds)

    def judge_cycle(
        self,
        at: datetime,
        monotonic_seconds: float,
        readings: tuple[GpuReading, ...],
        downs: tuple[GpuDown, ...],
    ) -> dict[str, GpuHealth]:
        """The verdict on each GPU after one more cycle."""
        news = self.xids.news()
        verdicts: dict[str, GpuHealth] = {}
        changed = False
        entries: tuple[GpuReading | GpuDown, ...] = (*readings, *downs)
        for entry in entries:
            uuid = entry.info.uuid
            look = Look(
                at=at,
                monotonic_seconds=monotonic_seconds,
                entry=entry,
                xids=news.events.get(uuid, ()),
                reloaded=news.reloaded,
            )
            before = self._records.get(uuid) or Record()
            after = fold(before, look, self._rules)
            self._records[uuid] = after
            changed = changed or after.causes.keys() != before.causes.keys()
            verdicts[uuid] = after.verdict
        if self._file is not None and (changed or monotonic_seconds - self._saved_seconds >= _SAVE_SECONDS):
            self._saved_seconds = monotonic_seconds
            self._file.save(monotonic_seconds, self._records)
        return verdicts


def _read_boot_id() -> str:
    """The kernel's id of this boot; without one, another agent's file is ignored."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
