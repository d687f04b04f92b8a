"""PURE: from readings and the driver's events to a verdict on each GPU, with what to do about it.

Rules, all of them:

1. Each cause is a row of a table: what can be seen (causes.LEVELS, causes.DOWN), what the driver reported
   (model.xid.XIDS), what it asks for (causes.RECOVERY). A GPU is as well as its worst cause; with none it is healthy.
2. What the driver asks for outranks guesses: its finding comes first, whatever else was found.
3. A cause is forgotten once the GPU was read for `recover_after` without it, never sooner but by rule 4. An XID that
   asks for a reset or more is not forgotten at all, unless the driver says that it asks for nothing.
4. A GPU that was reset, or whose driver was reloaded (its energy counter starts again, or the kernel log says so), is
   rid of all that a reset mends; what still holds is seen again at once. A reboot ends all memory.
5. No reading and no cause is unknown, never healthy; so is a reading that tells nothing a cause could be seen by, and
   neither heals. A driver that is not there accuses no GPU, a hang does so only
   once it has lasted.
6. An XID that is a program's fault, or that is not in the table, says nothing about the GPU.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuwatch.agent.health.causes import DOWN, LEVELS, RECOVERY, tells, xid_finding
from gpuwatch.agent.health.counters import Figures
from gpuwatch.agent.health.settings import BLIND_SECONDS, HealthRules
from gpuwatch.model.gpu import RECOVERY_ACTIONS, GpuDown, GpuReading
from gpuwatch.model.health import Finding, GpuHealth, Health, Remedy
from gpuwatch.model.xid import NVLINK_5, XidEvent

__all__ = ["Cause", "HealthRules", "Look", "Record", "fold"]

_RANK = {health: rank for rank, health in enumerate((Health.HEALTHY, Health.DEGRADED, Health.FAILING))}
_REMEDY_RANK = {remedy: rank for rank, remedy in enumerate(Remedy)}
_MUTE = "nothing that it could be judged by is supported or could be read"
_MENDED_BY_RESET = {Remedy.NOTHING, Remedy.DRAIN, Remedy.RESET}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One GPU in one cycle: a reading or why there is none, and the XIDs that came since the last one."""

    at: datetime
    monotonic_seconds: float
    entry: GpuReading | GpuDown
    xids: tuple[XidEvent, ...] = ()
    reloaded: bool = False  # the kernel log says that the driver was loaded since


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Something that was found: when first and last, on the monotonic clock. `lasting` ones wait for their remedy."""

    finding: Finding
    first_seconds: float
    last_seconds: float
    after_seconds: float = 0.0  # it counts only once it has held for this long
    lasting: bool = False

    @property
    def counts(self) -> bool:
        """Whether it has held for long enough."""
        return self.last_seconds - self.first_seconds >= self.after_seconds

    def later(self, seconds: float) -> "Cause":
        """The same, as if it had come so much later."""
        if seconds <= 0:
            return self
        return replace(self, first_seconds=self.first_seconds + seconds, last_seconds=self.last_seconds + seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that is remembered of one GPU between cycles."""

    verdict: GpuHealth = field(
        default_factory=lambda: GpuHealth(state=Health.UNKNOWN, since=None, doubt="not read yet")
    )
    causes: Mapping[str, Cause] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    looked_seconds: float | None = None
    told_action: int | None = None  # recovery action by the kernel log, for drivers without the field


def fold(record: Record, look: Look, rules: HealthRules) -> Record:
    """The record after one more look. Cost: O(rules)."""
    now = look.monotonic_seconds
    gap = 0.0 if record.looked_seconds is None else max(0.0, now - record.looked_seconds)
    reading = look.entry if isinstance(look.entry, GpuReading) else None
    renewed = look.reloaded or (reading is not None and record.figures.restarted(reading))
    told = None if renewed else record.told_action
    told = next((event.recovery_action for event in look.xids[::-1] if event.recovery_action is not None), told)
    action = told if reading is None or reading.recovery_action is None else reading.recovery_action
    figures = record.figures if reading is None else record.figures.after(reading, now, rules)
    record = replace(record, figures=figures, looked_seconds=now, told_action=told)

    present = {finding.code: (finding, after) for finding, after in _present(look.entry, figures, action, rules)}
    if record.causes or present or look.xids:
        unseen = reading is None or not tells(reading)
        blind = gap if unseen or gap > BLIND_SECONDS else 0.0  # nothing gets better unseen
        causes = {
            code: cause if code in present else cause.later(blind)
            for code, cause in record.causes.items()
            if (cause.counts or gap <= BLIND_SECONDS) and not (renewed and cause.finding.remedy in _MENDED_BY_RESET)
        }
        for cause in _accusations(look.xids):
            _see(causes, cause)
        for finding, after in present.values():
            _see(causes, Cause(finding=finding, first_seconds=now, last_seconds=now, after_seconds=after))
        kept = {
            code: cause
            for code, cause in causes.items()
            if code in present
            or (cause.counts and ((cause.lasting and action != 0) or now - cause.last_seconds < rules.recover_after))
        }
        record = replace(record, causes=kept)
    verdict = _verdict(record, look)
    return record if verdict is record.verdict else replace(record, verdict=verdict)


def _accusations(events: tuple[XidEvent, ...]) -> Iterator[Cause]:
    """What XIDs say of the GPU."""
    for event in events:
        finding = xid_finding(event.xid)
        if finding is not None and (event.xid not in NVLINK_5 or event.fatal is True):
            at = event.monotonic_seconds
            lasting = finding.remedy not in {Remedy.NOTHING, Remedy.DRAIN}
            yield Cause(finding=finding, first_seconds=at, last_seconds=at, lasting=lasting)


def _see(causes: dict[str, Cause], cause: Cause) -> None:
    """A cause came up, or again."""
    known = causes.get(cause.finding.code)
    first = cause.first_seconds if known is None else min(known.first_seconds, cause.first_seconds)
    last = cause.last_seconds if known is None else max(known.last_seconds, cause.last_seconds)
    causes[cause.finding.code] = replace(cause, first_seconds=first, last_seconds=last)


def _present(
    entry: GpuReading | GpuDown, figures: Figures, action: int | None, rules: HealthRules
) -> list[tuple[Finding, float]]:
    """What holds at this look, with how long it must have held to count."""
    present: list[tuple[Finding, float]] = []
    name = RECOVERY_ACTIONS[action] if action is not None and 0 <= action < len(RECOVERY_ACTIONS) else "none"
    if name in RECOVERY:
        present.append((RECOVERY[name], 0.0))
    if isinstance(entry, GpuDown):
        return [*present, DOWN[entry.cause]] if entry.cause in DOWN else present
    return present + [(level.finding, level.after(rules)) for level in LEVELS if level.holds(entry, figures, rules)]


def _verdict(record: Record, look: Look) -> GpuHealth:
    """The worst of the causes; what the driver asks for comes first among them."""
    before, causes = record.verdict, record.causes
    told = isinstance(look.entry, GpuReading) and tells(look.entry)
    if not causes and before.state is Health.HEALTHY and told:
        return before
    asked = {finding.code for finding in RECOVERY.values()}
    findings = sorted(
        (cause.finding for cause in causes.values() if cause.counts),
        key=lambda each: (each.code not in asked, -_RANK[each.health], -_REMEDY_RANK[each.remedy], each.code),
    )
    doubt = None
    if findings:
        state = max((finding.health for finding in findings), key=_RANK.__getitem__)
    elif told:
        state = Health.HEALTHY
    else:
        state = Health.UNKNOWN
        doubt = _MUTE if isinstance(look.entry, GpuReading) else f"{look.entry.cause.value}: {look.entry.detail}"
    since = before.since if state is before.state and before.since is not None else look.at
    verdict = GpuHealth(state=state, since=since, findings=tuple(findings), doubt=doubt)
    return before if verdict == before else verdict
