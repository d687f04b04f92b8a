"""PURE: from readings and the driver's events to a verdict on each GPU, with what to do about it.

Rules, all of them:

1. Each cause is a row of a table: what can be seen (causes.LEVELS, causes.DOWN), what the driver reported
   (model.xid.XIDS), what it asks for (causes.RECOVERY). A GPU is as well as its worst cause; with none it is healthy.
2. What the driver asks for outranks guesses: its finding comes first, whatever else was found.
3. A cause is forgotten once the GPU was read for `recover_after` without it, never sooner but by rule 4; a reading
   that could not have shown it does not count. What the driver asks for takes the place of what it asked for before. An
   XID that asks for a reset or more is not forgotten at all, unless the driver says that it asks for nothing. A cause
   that comes back within a day must be away twice as long as before, a day at most: what flaps is reported once, not
   each time.
4. A reset of the GPU and a reload of its driver (its energy counter starts again, or the kernel log says so) remove
   the causes that a reset removes; a cause that still holds is seen again at once. A reboot ends all records.
5. No reading and no cause is unknown, never healthy; so is a reading without any value that could show a cause, and
   neither ends a cause. A missing driver is not a fault of a GPU; a hang is one only once it has lasted.
6. An XID that is a program's fault, or that is not in the table, says nothing about the GPU.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuwatch.agent.health.causes import DOWN, LEVELS, RECOVERY, has_evidence, xid_finding
from gpuwatch.agent.health.counters import Figures
from gpuwatch.agent.health.settings import BLIND_SECONDS, HealthRules
from gpuwatch.model.gpu import RECOVERY_ACTIONS, GpuDown, GpuReading
from gpuwatch.model.health import NVLINK_5, Finding, GpuHealth, Health, Remedy, XidEvent

__all__ = ["Cause", "HealthRules", "Look", "Record", "fold"]

_RANK = {health: rank for rank, health in enumerate((Health.HEALTHY, Health.DEGRADED, Health.FAILING))}
_REMEDY_RANK = {remedy: rank for rank, remedy in enumerate(Remedy)}
_MUTE = "no value that shows its health is supported or could be read"
_DAY_SECONDS = 86400.0
_ASKS = {finding.code for finding in RECOVERY.values()}  # the driver asks for one thing at a time
_SHOWS = {level.finding.code: level.shows for level in LEVELS}
_MENDED_BY_RESET = {Remedy.NOTHING, Remedy.DRAIN, Remedy.RESET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One GPU in one cycle: a reading or why it is missing, and the XIDs since the last cycle."""

    at: datetime
    monotonic_seconds: float
    entry: GpuReading | GpuDown
    xids: tuple[XidEvent, ...] = ()
    reloaded: bool = False  # the kernel log says that the driver was loaded since


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A finding with its first and last time on the monotonic clock. `lasting` ones stay until their remedy."""

    finding: Finding
    first_seconds: float
    last_seconds: float
    after_seconds: float = 0.0  # it counts only once it has held for this long
    lasting: bool = False
    patience: float = 1.0  # it must be away for so many times `recover_after`

    @property
    def counts(self) -> bool:
        """Whether it has lasted for long enough."""
        return self.last_seconds - self.first_seconds >= self.after_seconds

    def later(self, seconds: float) -> "Cause":
        """This cause, moved later by so many seconds."""
        if seconds <= 0:
            return self
        return replace(self, first_seconds=self.first_seconds + seconds, last_seconds=self.last_seconds + seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A cause that is over, and when."""

    over_seconds: float
    patience: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of one GPU between cycles."""

    verdict: GpuHealth = field(
        default_factory=lambda: GpuHealth(state=Health.UNKNOWN, since=None, doubt="not read yet")
    )
    causes: Mapping[str, Cause] = field(default_factory=dict)
    past: Mapping[str, Past] = field(default_factory=dict)  # causes that ended within a day
    figures: Figures = field(default_factory=Figures)
    looked_seconds: float | None = None
    reported_action: int | None = None  # recovery action by the kernel log, for drivers without the field


def fold(record: Record, look: Look, rules: HealthRules) -> Record:
    """The record after one more look. Cost: O(rules)."""
    now = look.monotonic_seconds
    gap = 0.0 if record.looked_seconds is None else max(0.0, now - record.looked_seconds)
    reading = look.entry if isinstance(look.entry, GpuReading) else None
    renewed = look.reloaded or (reading is not None and record.figures.has_restarted(reading))
    reported = None if renewed else record.reported_action
    reported = next((event.recovery_action for event in look.xids[::-1] if event.recovery_action is not None), reported)
    action = reported if reading is None or reading.recovery_action is None else reading.recovery_action
    figures = record.figures if reading is None else record.figures.after_reading(reading, now, rules)
    record = replace(record, figures=figures, looked_seconds=now, reported_action=reported)

    present = {finding.code: (finding, after) for finding, after in _present(look.entry, figures, action, rules)}
    if record.causes or present or look.xids:
        said = None if reading is None or not has_evidence(reading) else reading
        gone = gap > BLIND_SECONDS  # time without readings does not count as recovery
        causes = {
            code: cause if code in present or (_could_show(code, said, action) and not gone) else cause.later(gap)
            for code, cause in record.causes.items()
            if (cause.counts or gap <= BLIND_SECONDS) and not (renewed and cause.finding.remedy in _MENDED_BY_RESET)
        }
        for cause in _accusations(look.xids):
            _add_cause(causes, cause)
        for finding, after in present.values():
            _add_cause(causes, Cause(finding=finding, first_seconds=now, last_seconds=now, after_seconds=after))
        for code in causes.keys() - record.causes.keys():
            causes[code] = replace(causes[code], patience=_patience(record.past.get(code), now, rules))
        asks = _ASKS & present.keys()
        kept = {
            code: cause
            for code, cause in causes.items()
            if code in present
            or (
                not (asks and code in _ASKS)
                and cause.counts
                and ((cause.lasting and action != 0) or now - cause.last_seconds < rules.recover_after * cause.patience)
            )
        }
        record = replace(record, causes=kept, past=_past(record, kept, now))
    verdict = _verdict(record, look)
    return record if verdict is record.verdict else replace(record, verdict=verdict)


def _could_show(code: str, reading: GpuReading | None, action: int | None) -> bool:
    """Whether the reading could have shown this cause, so that its absence says something."""
    if reading is None or (code in _ASKS and action is None):
        return False
    return code not in _SHOWS or _SHOWS[code](reading)


def _patience(past: Past | None, now: float, rules: HealthRules) -> float:
    """How many times as long as at first a cause that is new again must be away."""
    if past is None or now - past.over_seconds >= _DAY_SECONDS:
        return 1.0
    most = max(1.0, _DAY_SECONDS / rules.recover_after) if rules.recover_after > 0 else 1.0
    return min(2 * past.patience, most)


def _past(record: Record, kept: Mapping[str, Cause], now: float) -> dict[str, Past]:
    """The causes that ended within a day, with those that ended now."""
    ended = {
        code: Past(over_seconds=now, patience=cause.patience)
        for code, cause in record.causes.items()
        if code not in kept and cause.counts
    }
    return {code: past for code, past in record.past.items() if now - past.over_seconds < _DAY_SECONDS} | ended


def _accusations(events: tuple[XidEvent, ...]) -> Iterator[Cause]:
    """The causes that XIDs show."""
    for event in events:
        finding = xid_finding(event.xid)
        if finding is not None and (event.xid not in NVLINK_5 or event.fatal is True):
            at = event.monotonic_seconds
            lasting = finding.remedy not in {Remedy.NOTHING, Remedy.DRAIN}
            yield Cause(finding=finding, first_seconds=at, last_seconds=at, lasting=lasting)


def _add_cause(causes: dict[str, Cause], cause: Cause) -> None:
    """Add a cause, or renew it."""
    known = causes.get(cause.finding.code)
    first = cause.first_seconds if known is None else min(known.first_seconds, cause.first_seconds)
    last = cause.last_seconds if known is None else max(known.last_seconds, cause.last_seconds)
    patience = cause.patience if known is None else known.patience
    causes[cause.finding.code] = replace(cause, first_seconds=first, last_seconds=last, patience=patience)


def _present(
    entry: GpuReading | GpuDown, figures: Figures, action: int | None, rules: HealthRules
) -> list[tuple[Finding, float]]:
    """The findings of this look, each with the time that it must last to count."""
    present: list[tuple[Finding, float]] = []
    if action:
        name = RECOVERY_ACTIONS[action] if 0 < action < len(RECOVERY_ACTIONS) else "unknown"
        present.append((RECOVERY[name], 0.0))
    if isinstance(entry, GpuDown):
        return [*present, DOWN[entry.cause]] if entry.cause in DOWN else present
    return present + [(level.finding, level.after(rules)) for level in LEVELS if level.holds(entry, figures, rules)]


def _verdict(record: Record, look: Look) -> GpuHealth:
    """The verdict: the worst of the causes, first those that the driver asks to act on."""
    before, causes = record.verdict, record.causes
    readable = isinstance(look.entry, GpuReading) and has_evidence(look.entry)
    if not causes and before.state is Health.HEALTHY and readable:
        return before
    findings = sorted(
        (cause.finding for cause in causes.values() if cause.counts),
        key=lambda each: (each.code not in _ASKS, -_RANK[each.health], -_REMEDY_RANK[each.remedy], each.code),
    )
    doubt = None
    if findings:
        state = max((finding.health for finding in findings), key=_RANK.__getitem__)
    elif readable:
        state = Health.HEALTHY
    else:
        state = Health.UNKNOWN
        doubt = _MUTE if isinstance(look.entry, GpuReading) else f"{look.entry.cause.value}: {look.entry.detail}"
    since = before.since if state is before.state and before.since is not None else look.at
    verdict = GpuHealth(state=state, since=since, findings=tuple(findings), doubt=doubt)
    return before if verdict == before else verdict
