"""systemd's own word on its timers: `systemctl show`, which any user may ask."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpuwatch.agent.evidence.base import Roots, UnseenError, run
from gpuwatch.agent.evidence.files import fields, read_small, status_of
from gpuwatch.agent.evidence.scheduled.found import Zones
from gpuwatch.agent.evidence.scheduled.planned import Planned
from gpuwatch.agent.evidence.scheduled.systemd_times import parse_span
from gpuwatch.agent.evidence.scheduled.timer_units import calendar_run
from gpuwatch.runtime.printable import legible

_PROPERTIES = (
    "Id,Unit,FragmentPath,Transient,SubState,NextElapseUSecRealtime,NextElapseUSecMonotonic,"
    "TimersCalendar,TimersMonotonic,LastTriggerUSec"
)
# Of packages, and of generators (systemd-cron makes timers from crontabs, which are read themselves).
_SHIPPED = re.compile(r"(/usr)?/lib/systemd/.*|/run/systemd/generator[^/]*/.*")
_OF_PACKAGES = ("/usr/lib/systemd/", "/lib/systemd/")
_FRAGMENT = re.compile(r"^FragmentPath=(/.+)$", re.MULTILINE)
_TIME = re.compile(r"\w+ (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? UTC")
_CALENDAR = re.compile(r"\{ OnCalendar=(.*?) ; next_elapse=.* \}")
_MONOTONIC = re.compile(r"\{ (On\w+)USec=(.*?) ; next_elapse=.* \}")
_REPEATING = frozenset({"OnUnitActive", "OnUnitInactive"})
_NONE = frozenset({"", "0", "n/a", "infinity"})
_STALE = timedelta(minutes=5)
_MOST_SECONDS = 10 * 365 * 86400.0


@dataclass(slots=True, kw_only=True)
class ManagerTimer:
    """A waiting timer that no package shipped, as the manager shows it. `monotonic_seconds` is since the boot."""

    name: str
    unit: str
    fragment: str
    transient: bool
    triggered: bool  # it has run before
    realtime: datetime | None
    monotonic_seconds: float | None
    calendars: list[str] = field(default_factory=list)
    starts: bool = False  # it has a start of its own besides its repetition
    repeats: list[float] = field(default_factory=list)


def ask_timers(
    systemctl: str, deadline_seconds: float, somebodys: Callable[[Collection[str]], Collection[str]]
) -> tuple[ManagerTimer, ...]:
    """The timers of the system's manager that wait, without those of packages.

    `somebodys` returns those files of packages' timers that are somebody's all the same.

    Raises:
        UnseenError: it cannot be asked, or its answer is not understood.

    """
    # In UTC and without a locale: every release then writes the same times.
    argv = ("env", "TZ=UTC", "LC_ALL=C", systemctl, "show", "*.timer", f"--property={_PROPERTIES}", "--no-pager")
    ended = run(argv, deadline_seconds)
    if ended.status != 0:
        raise UnseenError(f"systemctl failed with status {ended.status}")
    return parse_timers(ended.output.decode("utf-8", "replace"), somebodys)


def parse_timers(
    text: str, somebodys: Callable[[Collection[str]], Collection[str]] = lambda _: ()
) -> tuple[ManagerTimer, ...]:
    """Its answer: blocks of properties, with an empty line between them.

    Raises:
        UnseenError: a block is not that of a timer.

    """
    kept = somebodys([path for path in _FRAGMENT.findall(text) if path.startswith(_OF_PACKAGES)])
    timers = [_timer(block, kept) for block in text.split("\n\n") if block.strip()]
    return tuple(timer for timer in timers if timer is not None)


def _timer(block: str, kept: Collection[str]) -> ManagerTimer | None:
    """One timer; None for one that does not wait, or that a package shipped."""
    lines = [line.partition("=") for line in block.splitlines()]
    shown = {key: value for key, _, value in lines}
    if not {"Id", "SubState", "NextElapseUSecRealtime", "NextElapseUSecMonotonic"} <= shown.keys():
        raise UnseenError("systemctl does not show its timers as expected")
    fragment = shown.get("FragmentPath", "")
    # "running": what it starts is alive and seen by its processes; "elapsed", "dead": it waits for nothing.
    if shown["SubState"] != "waiting" or (_SHIPPED.fullmatch(fragment) and fragment not in kept):
        return None
    try:
        timer = ManagerTimer(
            name=shown["Id"],
            unit=shown.get("Unit", ""),
            fragment=fragment,
            transient=shown.get("Transient") == "yes",
            triggered=shown.get("LastTriggerUSec", "") not in _NONE,
            realtime=_time(shown["NextElapseUSecRealtime"]),
            monotonic_seconds=_span(shown["NextElapseUSecMonotonic"]),
        )
        for key, _, value in lines:
            if key == "TimersCalendar" and (found := _CALENDAR.fullmatch(value)):
                timer.calendars.append(found[1])
            elif key == "TimersMonotonic" and (found := _MONOTONIC.fullmatch(value)):
                if found[1] in _REPEATING:
                    timer.repeats.append(parse_span(found[2]))
                else:
                    timer.starts = True
    except ValueError as error:
        raise UnseenError(f"systemctl does not show its timers as expected: {error}") from None
    return timer


def _time(text: str) -> datetime | None:
    if text in _NONE:
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("a time of another form")
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC)


def _span(text: str) -> float | None:
    return None if text in _NONE else parse_span(text)


def planned_by_manager(
    timer: ManagerTimer, now: datetime, uptime_seconds: float, zones: Zones, roots: Roots
) -> list[Planned]:
    """What the timer starts next, by its wall-clock rules and by its time spans; empty if it waits for nothing."""
    kind = "systemd-run" if timer.transient else "timer"
    what = f"{kind} {legible(timer.name, 80)}"
    user = _user(timer, roots)
    mark = _mark(timer, roots)
    runs: list[tuple[datetime, float | None]] = []
    if timer.realtime is not None:
        runs.append((timer.realtime, _calendar_period(timer, now, zones)))
    if timer.monotonic_seconds is not None:
        ahead = min(timer.monotonic_seconds - uptime_seconds, _MOST_SECONDS)
        first = timer.transient and timer.starts and not timer.triggered
        period = None if first else min(timer.repeats, default=None if timer.transient else float("inf"))
        runs.append((now + timedelta(seconds=ahead), period))
    ahead_of_now = [ran for ran in runs if ran[0] > now - _STALE]  # the rule that is not next keeps its last time
    return [
        Planned(
            what=what,
            user=user,
            unit=legible(timer.name, 80),
            starts=timer.unit or None,
            due=due,
            period_seconds=period,
            mark=mark,
        )
        for due, period in ahead_of_now or runs
    ]


def _calendar_period(timer: ManagerTimer, now: datetime, zones: Zones) -> float | None:
    """The shortest period of its calendar expressions; None: it runs once.

    An expression that cannot be read counts as a rare one: the manager knows when it is due.
    """
    periods: list[float | None] = []
    for text in timer.calendars:
        try:
            ran = calendar_run(text, now, zones, 0.0, once=timer.transient)
        except UnseenError:
            periods.append(None if timer.transient else float("inf"))
        else:
            periods += [] if ran is None else [ran[1]]
    recurring = [period for period in periods if period is not None]
    if recurring:
        return min(recurring)
    return None if None in periods or timer.transient else float("inf")


def _started_file(timer: ManagerTimer, roots: Roots) -> Path | None:
    """The file of the unit that it starts, if that lies next to the timer's."""
    places = {"/run/": roots.run, "/etc/": roots.etc, "/usr/": roots.usr}
    for begin, root in places.items():
        if timer.fragment.startswith(begin) and "/" not in timer.unit and timer.unit:
            return root / Path(timer.fragment.removeprefix(begin)).with_name(timer.unit)
    return None


def _mark(timer: ManagerTimer, roots: Roots) -> str | None:
    """What the timer is over restarts, by the files of its unit and itself; None: they are not to be seen."""
    path = None if timer.transient else _started_file(timer, roots)
    try:
        times = () if path is None else [status_of(each).st_mtime_ns for each in (path, path.with_name(timer.name))]
    except OSError:
        return None
    return f"{legible(timer.name, 80)} {max(times)}" if times else None


def _user(timer: ManagerTimer, roots: Roots) -> str | None:
    """The `User=` of the unit that it starts, if its file lies next to the timer's; None if it is not to be seen."""
    path = _started_file(timer, roots)
    try:
        user = None if path is None else fields(read_small(path).text).get("User")
    except (OSError, UnseenError):
        return None
    return None if user is None else legible(user, 32)
