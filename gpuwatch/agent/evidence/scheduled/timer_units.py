"""systemd's timer units as files: of the administrator, of users, and transient ones of systemd-run.

The manager knows best when a timer is due; the files are read where it cannot be asked: users' own managers always, the
system's where systemctl is missing or fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.files import list_paths, read_small
from gpuwatch.agent.evidence.scheduled.found import Zones
from gpuwatch.agent.evidence.scheduled.planned import Planned
from gpuwatch.agent.evidence.scheduled.recurrence import next_run
from gpuwatch.agent.evidence.scheduled.systemd_times import parse_calendar, parse_span

_ACCURACY_SECONDS = 60.0  # AccuracySec= as it comes
_OF_BOOT = ("OnBootSec", "OnStartupSec")
_OF_ACTIVATION = ("OnActiveSec",)
_REPEATING = ("OnUnitActiveSec", "OnUnitInactiveSec")
_LATE = ("AccuracySec", "RandomizedDelaySec")
_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What a timer's unit says: calendar expressions, time spans in seconds, how late it may be."""

    calendars: tuple[str, ...]
    boot: tuple[float, ...] = ()
    activation: tuple[float, ...] = ()
    repeats: tuple[float, ...] = ()
    late_seconds: float = _ACCURACY_SECONDS

    def period(self) -> float | None:
        """Seconds between its runs by time spans; None if these do not repeat."""
        return min(self.repeats, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFile:
    """A timer by its file: `activated` is when it was started, as far as that is known; `boot` when the host was."""

    name: str
    what: str
    user: str | None
    transient: bool
    timing: Timing
    activated: datetime
    boot: datetime


def parse_timer(text: str) -> Timing:
    """The `[Timer]` section of a unit, drop-ins appended.

    Raises:
        UnseenError: a time span cannot be read.

    """
    values: dict[str, list[str]] = {}
    for key, value in _assignments(text):
        if value:
            values.setdefault(key, []).append(value)
        else:
            values.pop(key, None)  # an empty value drops those before it

    def spans(keys: tuple[str, ...]) -> tuple[float, ...]:
        return tuple(parse_span(value) for key in keys for value in values.get(key, ()))

    try:
        late = {
            "AccuracySec": _ACCURACY_SECONDS,
            **{key: parse_span(values[key][-1]) for key in _LATE if key in values},
        }
        return Timing(
            calendars=tuple(values.get("OnCalendar", ())),
            boot=spans(_OF_BOOT),
            activation=spans(_OF_ACTIVATION),
            repeats=spans(_REPEATING),
            late_seconds=min(sum(late.values()), 7 * 86400.0),
        )
    except ValueError as error:
        raise UnseenError(str(error)) from None


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for raw in text.replace("\\\n", " ").splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line
        elif section == "[Timer]" and not line.startswith(("#", ";")):
            key, assigned, value = line.partition("=")
            if assigned:
                yield key.strip(), value.strip()


def with_drop_ins(path: Path) -> str:
    """A unit's text and that of its drop-ins next to it.

    Raises:
        OSError: one of them cannot be read.
        UnseenError: one of them is not a regular file.

    """
    texts = [read_small(path).text]
    try:
        drop_ins = list_paths(path.with_name(f"{path.name}.d"))
    except FileNotFoundError:
        drop_ins = []
    texts += [read_small(each).text for each in drop_ins if each.name.endswith(".conf")]
    return "\n".join(texts)


def plan_starts(timer: TimerFile, now: datetime, zones: Zones) -> list[Planned]:
    """What the timer starts next, once for each of its rules.

    Raises:
        UnseenError: a calendar expression cannot be read, or the file alone does not say when a rare timer is due.
        OSError: the host's time zone cannot be read.

    """
    timing = timer.timing
    runs: list[tuple[datetime | None, float | None]] = []
    for text in timing.calendars:
        run = calendar_run(text, now, zones, timing.late_seconds, once=timer.transient)
        runs += [] if run is None else [run]
    period = timing.period()
    starts = [timer.activated + _span(each) for each in timing.activation] + [
        timer.boot + _span(each) for each in timing.boot
    ]
    ahead = [start for start in starts if start + _span(timing.late_seconds) > now]
    runs += [(start, None if timer.transient else period or _NEVER) for start in ahead]
    if not ahead and (period is not None or (timer.transient and starts)):
        # A transient timer's file goes when it has elapsed: a clock that was set made its start seem past.
        runs.append((None, period))
    return [
        Planned(
            what=timer.what,
            user=timer.user,
            unit=timer.name,
            due=due,
            period_seconds=seconds,
            persons=timer.user is not None,
        )
        for due, seconds in runs
    ]


def calendar_run(
    text: str, now: datetime, zones: Zones, late_seconds: float, *, once: bool
) -> tuple[datetime, float | None] | None:
    """The next run of a calendar expression and its period; `once`: one without a further run is work that runs once.

    Raises:
        UnseenError: the expression cannot be read.
        OSError: the host's time zone cannot be read.

    """
    try:
        recurrence, named = parse_calendar(text)
    except ValueError:
        raise UnseenError("its OnCalendar= cannot be read") from None
    zone = zones.local() if named is None else zones.zone_named(named)
    try:
        due, period = next_run(recurrence, now, zone, timedelta(seconds=late_seconds))
    except LookupError:
        return None
    dated = recurrence.years is not None and period == _NEVER
    return due, None if dated or (once and period == _NEVER) else period


def _span(seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds, 10 * 365 * 86400.0))
