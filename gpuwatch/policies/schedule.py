"""PURE: floors and ceilings by the wall clock of a place.

Rules, all of them:

1. A window is in force whenever a wall clock in its zone shows a time within its hours, on its days, within its dates,
   and not on one of its exceptions. An hour that the clock skips in spring is not there. An hour that it shows twice in
   autumn is one hour of twice the length: a window begins there at the first showing of its begin, and ends at the
   second of its end. So each begins once and ends once, and nothing is started, stopped and started again.
2. Hours that cross midnight belong to the day they begin on.
3. Of several windows in force the largest floor and the smallest ceiling hold; a floor above a ceiling wins.
4. A floor adds nodes. A ceiling only keeps nodes from being added: no node is removed because of the time of day.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo, available_timezones

from annotated_types import Ge, Gt, MinLen

from gpuwatch.model.decision import Observation, Proposal, Reason
from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Floor, Setting

POLICY = "schedule"
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = r"([01]\d|2[0-3]):([0-5]\d)"
_HOURS = re.compile(rf"{_CLOCK}-(?:{_CLOCK}|24:00)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATE_RIGHT = "a date such as 2026-12-24, or a range such as 2026-12-24/2027-01-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of the week, and the bounds that hold in it."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    days: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting("Days on which it begins: names and ranges, such as mon-fri or sat."),
    ] = ("mon-sun",)
    hours: Annotated[
        str, Setting("From and to by the local clock, such as 08:00-18:00; 22:00-06:00 crosses midnight.")
    ] = "00:00-24:00"
    zone: Annotated[str, Setting("The IANA time zone of hours, days and dates, such as Europe/Berlin.")] = "UTC"
    first_day: Annotated[str | None, Setting("It does not begin before this date, such as 2026-12-24.")] = None
    last_day: Annotated[str | None, Setting("It does not begin after this date.")] = None
    except_on: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting("Days on which it does not begin: dates, ranges such as 2026-12-24/2027-01-01, or names of calendars."),
    ] = ()
    min_nodes: Annotated[Annotated[int, Ge(0)] | None, Setting("So many nodes at least; missing ones are added.")] = (
        None
    )
    max_nodes: Annotated[
        Annotated[int, Ge(0)] | None, Setting("Nodes are added up to this number only; none is removed for it.")
    ] = None
    min_gpus: Annotated[
        Annotated[int, Ge(0)] | None, Setting("So many GPUs at least, where the pool's unit is gpus.")
    ] = None
    max_gpus: Annotated[
        Annotated[int, Ge(0)] | None, Setting("GPUs are added up to this number only, where the pool's unit is gpus.")
    ] = None
    idle_timeout: Annotated[
        Annotated[Seconds, Gt(0)] | None,
        Floor(300),
        Setting("Takes the place of the pool's idle.timeout while the window is in force."),
    ] = None

    @property
    def floor(self) -> int | None:
        """The least in what the pool counts: a window has bounds in one of the two."""
        return self.min_nodes if self.min_gpus is None else self.min_gpus

    @property
    def ceiling(self) -> int | None:
        """The most in what the pool counts."""
        return self.max_nodes if self.max_gpus is None else self.max_gpus


def propose(observation: Observation, pool: str, windows: Mapping[str, Window]) -> Proposal:
    """The bounds of all windows in force now."""
    forced = dict(_in_force(windows, observation.now))
    floor = max((each.floor for each in forced.values() if each.floor is not None), default=None)
    ceiling = min((each.ceiling for each in forced.values() if each.ceiling is not None), default=None)
    said = [_window_words(name, window, observation.now) for name, window in forced.items()]
    if floor is not None and ceiling is not None and floor > ceiling:
        said.append(f"a floor of {floor} is above a ceiling of {ceiling}: the floor wins")
        ceiling = floor
    sentence = f"{'; '.join(said) or f'None of {len(windows)} windows is in force'}."
    return Proposal(
        policy=POLICY,
        pool=pool,
        reason=Reason(code="in_force" if forced else "no_window", sentence=sentence),
        min_nodes=floor,
        max_nodes=ceiling,
        grows=floor is not None,
    )


def in_force(windows: Mapping[str, Window], now: datetime) -> tuple[Window, ...]:
    """The windows that are in force at a time."""
    return tuple(window for _, window in _in_force(windows, now))


def coming(windows: Mapping[str, Window], now: datetime, within: float) -> tuple[str, datetime, int] | None:
    """Which window will ask for the most within so many seconds, from when, and how much, if more than now."""
    found: tuple[str, datetime, int] | None = None
    most = max((each.floor or 0 for each in in_force(windows, now)), default=0)
    for name, window in windows.items():
        for at in _openings(window, now, now + timedelta(seconds=within)):
            if window.floor is not None and window.floor > most and in_force({name: window}, at):
                found, most = (name, at, window.floor), window.floor
    return found


def _openings(window: Window, now: datetime, until: datetime) -> Iterator[datetime]:
    """When its hours begin, on whatever day, after now and no later than `until`."""
    zone, (begin, _) = ZoneInfo(window.zone), _hours(window.hours)
    day, last = now.astimezone(zone).date(), until.astimezone(zone).date()
    while day <= last:
        at = datetime.combine(day, begin, tzinfo=zone).astimezone(now.tzinfo)
        if now < at <= until:
            yield at
        day += timedelta(days=1)


def with_dates(windows: Mapping[str, Window], calendars: Mapping[str, Sequence[str]]) -> dict[str, Window]:
    """The windows with the dates of the calendars that their exceptions name, in the names' place."""
    return {
        name: replace(window, except_on=tuple(day for each in window.except_on for day in calendars.get(each, (each,))))
        for name, window in windows.items()
    }


def _in_force(windows: Mapping[str, Window], now: datetime) -> Iterator[tuple[str, Window]]:
    """Names and windows in force."""
    for name, window in windows.items():
        if _covers(window, now.astimezone(ZoneInfo(window.zone))):
            yield name, window


def _covers(window: Window, local: datetime) -> bool:
    """Rule 1: at that time, or from before it to after it, where the clock shows its hour twice."""
    return any(_is_within(window, each) for each in (local, *_showings(local)))


def _showings(local: datetime) -> Iterator[datetime]:
    """What the clock has shown of a repeated hour before, at its first showing; at the second what it shows until then.

    A window that is in force at any of these is in force all the time between.
    """
    at, step = local, timedelta(minutes=1 if local.fold else -1)
    while _offset(at, 0) > _offset(at, 1):
        yield at
        at += step


def _offset(local: datetime, fold: int) -> timedelta:
    return local.replace(fold=fold).utcoffset() or timedelta()


def _is_within(window: Window, local: datetime) -> bool:
    """Rules 1 and 2 at a wall-clock time."""
    begin, end = _hours(window.hours)
    clock = local.time()
    if end is None or begin < end:
        return begin <= clock and (end is None or clock < end) and begins_on(window, local.date())
    if clock >= begin:
        return begins_on(window, local.date())
    return clock < end and begins_on(window, local.date() - timedelta(days=1))


def begins_on(window: Window, day: date) -> bool:
    """Whether the window begins on that date, by days, dates and exceptions."""
    date_text = day.isoformat()
    return (
        _DAYS[day.weekday()] in {name for each in window.days for name in _weekdays(each)}
        and (window.first_day is None or window.first_day <= date_text)
        and (window.last_day is None or date_text <= window.last_day)
        and not any(first <= date_text <= last for first, last in map(_stretch, window.except_on))
    )


def _hours(text: str) -> tuple[time, time | None]:
    """From and to of `08:00-18:00`; None is the end of the day.

    Raises:
        ValueError: it is no such text.

    """
    found = _HOURS.fullmatch(text)
    if found is None or found[1] + found[2] == (found[3] or "") + (found[4] or ""):
        raise ValueError(f"{text!r} is no stretch of a day")
    return time(int(found[1]), int(found[2])), None if found[3] is None else time(int(found[3]), int(found[4]))


def _weekdays(text: str) -> tuple[str, ...]:
    """The days of `mon-fri`, `sat` or `fri-mon`.

    Raises:
        ValueError: a name is none of a day's.

    """
    first, _, last = text.strip().lower().partition("-")
    begin = _DAYS.index(first)
    length = (_DAYS.index(last) - begin) % len(_DAYS) if last else 0
    return tuple(_DAYS[(begin + each) % len(_DAYS)] for each in range(length + 1))


def _stretch(text: str) -> tuple[str, str]:
    """First and last date of `2026-12-24` or `2026-12-24/2027-01-01`; dates of this form compare as texts do."""
    first, _, last = text.partition("/")
    return first, last or first


def _window_words(name: str, window: Window, now: datetime) -> str:
    """One window in force, for people."""
    local = now.astimezone(ZoneInfo(window.zone))
    limits = {"at least {} nodes": window.min_nodes, "at most {} nodes": window.max_nodes}
    limits |= {"at least {} GPUs": window.min_gpus, "at most {} GPUs": window.max_gpus}
    bounds = " and ".join(words.format(number) for words, number in limits.items() if number is not None)
    there = f"{_DAYS[local.weekday()]} {local:%H:%M}"
    return (
        f"{name} ({', '.join(window.days)} {window.hours} {window.zone}, there it is {there}): {bounds or 'no bounds'}"
    )


def contradictions(
    windows: Mapping[str, Window], calendars: Mapping[str, Sequence[str]], path: tuple[str, ...]
) -> Iterator[Contradiction]:
    """What cannot be read, names nothing, or contradicts itself; `path` is where the windows stand.

    The windows are as they are written: names of calendars in their exceptions are looked up here.
    """
    for name, window in windows.items():
        for key, wrong, right in (*_unreadable(window, calendars), *_misfits(window)):
            where = (*path, name)
            yield Contradiction(keys=((*where, key), where), wrong=f"{'.'.join((*where, key))} {wrong}", right=right)


def calendar_contradictions(calendars: Mapping[str, Sequence[str]], path: tuple[str, ...]) -> Iterator[Contradiction]:
    """Texts in calendars that are not dates."""
    for name, days in calendars.items():
        for text in days:
            wrong = _wrong_date(text)
            if wrong is not None:
                wrong_date = f"{'.'.join((*path, name))} has {text!r}, which {wrong}"
                yield Contradiction(keys=((*path, name),), wrong=wrong_date, right=_DATE_RIGHT)


def _unreadable(window: Window, calendars: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """Texts that say nothing: key, what is wrong, what would be right."""
    for text in window.days:
        try:
            _weekdays(text)
        except ValueError:
            yield "days", f"has {text!r}, which is no day", f"{', '.join(_DAYS)}, or a range such as mon-fri"
    if not window.days:
        yield "days", "is empty: the window never begins", "days such as mon-fri"
    try:
        _hours(window.hours)
    except ValueError:
        right = "from and to with two digits each, such as 08:00-18:00; a whole day is 00:00-24:00"
        yield "hours", f"is {window.hours!r}, which is no stretch of a day", right
    known = available_timezones()
    if window.zone not in known:
        yield "zone", f"is {window.zone!r}, which is no time zone", _nearest_zone(window.zone, known)
    for key, day in (("first_day", window.first_day), ("last_day", window.last_day)):
        if day is not None and not _is_date(day):
            yield key, f"is {day!r}, which is no date", "a date such as 2026-12-24"
    for text in window.except_on:
        wrong = None if text in calendars else _wrong_date(text)
        if wrong is not None:
            near = difflib.get_close_matches(text, calendars, 1)
            right = f"{_DATE_RIGHT}, or the name of a calendar"
            yield "except_on", f"has {text!r}, which {wrong}", f"the calendar {near[0]}" if near else right


def _misfits(window: Window) -> Iterator[tuple[str, str, str]]:
    """Keys of one window that do not go together."""
    for unit, floor, ceiling in (
        ("nodes", window.min_nodes, window.max_nodes),
        ("gpus", window.min_gpus, window.max_gpus),
    ):
        if floor is not None and ceiling is not None and floor > ceiling:
            wrong = f"({floor}) is above max_{unit} ({ceiling})"
            yield f"min_{unit}", wrong, f"a min_{unit} of {ceiling} or less"
    if (window.floor, window.ceiling, window.idle_timeout) == (None, None, None):
        yield "min_nodes", "is not set, nor max_nodes nor idle_timeout: the window does nothing", "one of the three"
    if window.first_day is not None and window.last_day is not None and window.first_day > window.last_day:
        wrong = f"({window.first_day}) is after last_day ({window.last_day}): the window never begins"
        yield "first_day", wrong, f"a first_day of {window.last_day} or before"


def _wrong_date(text: str) -> str | None:
    """Why a text is neither a date nor a range of dates; None: it is one."""
    first, last = _stretch(text)
    if not (_is_date(first) and _is_date(last)):
        return "is no date"
    return "ends before it begins" if last < first else None


def _is_date(text: str) -> bool:
    """Whether the text is a date of the calendar, written as 2026-12-24."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return _DATE.fullmatch(text) is not None


def _nearest_zone(text: str, known: Iterable[str]) -> str:
    """The zone that was probably meant: by its city, else by its whole name."""
    written = text.strip().replace(" ", "_").lower()
    names = {name.lower(): name for name in sorted(known)}
    cities = {name.rpartition("/")[2]: zone for name, zone in names.items()}
    city = written.rpartition("/")[2]
    near = difflib.get_close_matches(written, names, 1, 0.75) or difflib.get_close_matches(city, cities, 1, 0.75)
    return f"such as {names.get(near[0]) or cities[near[0]]}" if near else "an IANA name such as Europe/Berlin"
