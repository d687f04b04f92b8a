"""PURE: a grace that asks somebody is not over before somebody is at work again.

Rules, all of them:

1. Saturdays, Sundays and the dates on which a window of the pool's schedule does not begin (`except_on`, with its
   calendars) are days off. Days are those of the zone of the first window that names one, of UTC without any.
2. A grace of half a working day (four hours) or more that begins or would end on a day off lasts until noon of the next
   working day, or up to an hour longer. A shorter one is no question to somebody, and stays as it is.
3. It is never shorter than without this, and never longer by more than two weeks: a calendar may name every day.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.model.duration import format_time
from gpuwatch.policies.schedule import Window, begins_on

HALF_A_WORKING_DAY_SECONDS = 4 * 3600.0
_MOST_DAYS = 14
_NOON = time(12, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """When people of a pool are at work: Mondays to Fridays in a zone, but for these dates and ranges of dates."""

    zone: str = "UTC"
    days_off: tuple[str, ...] = ()

    def works_on(self, day: date) -> bool:
        """Whether it is a working day there."""
        return begins_on(Window(days=("mon-fri",), zone=self.zone, except_on=self.days_off), day)


ANYWHERE = Office()


def office_of(windows: Mapping[str, Window]) -> Office:
    """The working days of a pool with these windows, the calendars in which are resolved."""
    named: Iterable[str] = (each.zone for each in windows.values() if each.zone != ANYWHERE.zone)
    off = tuple(sorted({day for each in windows.values() for day in each.except_on}))
    return Office(zone=next(iter(named), ANYWHERE.zone), days_off=off)


def grace_at_work(seconds: float, at: datetime, office: Office) -> float:
    """The seconds of a grace that is given at a time, with what days off add to it."""
    until = _end_at_work(seconds, at, office)
    return seconds if until is None else max(seconds, (until - _hour_of(at)).total_seconds())


def days_off_words(seconds: float, at: datetime, office: Office) -> str:
    """Say why a grace lasts longer than is set, as a sentence of its own; of other graces say nothing."""
    until = _end_at_work(seconds, at, office)
    if until is None or grace_at_work(seconds, at, office) <= seconds:
        return ""
    return f" Its grace lasts until people are at work again ({format_time(until)}, noon in {office.zone})."


def hour_of_days_off(seconds: float, at: datetime, office: Office) -> datetime | None:
    """What such a grace follows from besides the settings: the hour, if days off add to it."""
    return None if _end_at_work(seconds, at, office) is None else _hour_of(at)


def _end_at_work(seconds: float, at: datetime, office: Office) -> datetime | None:
    """Rule 2: when it ends at the earliest; None: no day off is in its way."""
    if seconds < HALF_A_WORKING_DAY_SECONDS:
        return None
    zone = ZoneInfo(office.zone)
    begin, end = at.astimezone(zone).date(), (at + timedelta(seconds=seconds)).astimezone(zone).date()
    if office.works_on(begin) and office.works_on(end):
        return None
    day = end if not office.works_on(end) else begin
    for _ in range(_MOST_DAYS):
        if office.works_on(day):
            break
        day += timedelta(days=1)
    return datetime.combine(day, _NOON, tzinfo=zone).astimezone(at.tzinfo)


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
