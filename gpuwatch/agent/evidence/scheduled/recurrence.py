"""PURE: when a crontab's line or a calendar expression of systemd is due, to the minute, in a time zone.

Daylight saving: a time that a day does not have is taken as long after the change as it is written (02:30 is 03:30);
a time that a day has twice is the first one. Both daemons agree within an hour, which no horizon notices. Written here
and not taken from a library: crontabs and systemd's calendars are the same sets, and the agent's base stays small.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

_MOST_DAYS = 400  # searched ahead: more than any horizon, and as good as never
_DAY = timedelta(days=1)
_MOST_RUNS = 49  # counted in a day: a job each half hour or sooner
LATE = timedelta(minutes=1)  # cron starts a due job within a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The days and minutes that match: `minutes` of the day, sorted; `weekdays` from Monday 0; `years` None for all.

    A day matches if its month and year do, and both its day of the month and its weekday; with `either`, one of these.
    """

    minutes: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    years: frozenset[int] | None = None
    either: bool = False

    def upcoming(self, after: datetime, zone: tzinfo) -> Iterator[datetime]:
        """The times after that moment (aware), in order, in UTC; they end 400 days ahead."""
        local = after.astimezone(zone)
        first = local.date() - _DAY  # a change of the clock may move a time over midnight
        last = after
        for number in range(_MOST_DAYS + 2):
            try:
                day = first + number * _DAY
            except OverflowError:
                return
            if not self._matches(day):
                continue
            begin = datetime(day.year, day.month, day.day, tzinfo=zone)
            for minute in self.minutes[self._minutes_ahead(local, day) :]:
                moment = begin.replace(hour=minute // 60, minute=minute % 60).astimezone(UTC)
                if moment > last:
                    last = moment
                    yield moment

    def _minutes_ahead(self, local: datetime, day: date) -> int:
        """Which minutes of that day may still be ahead: an hour of grace for changes of the clock."""
        if day != local.date():
            return 0
        return bisect_left(self.minutes, local.hour * 60 + local.minute - 180)

    def _matches(self, day: date) -> bool:
        if day.month not in self.months or (self.years is not None and day.year not in self.years):
            return False
        of_month, of_week = day.day in self.days, day.weekday() in self.weekdays
        return (of_month or of_week) if self.either else (of_month and of_week)


def next_run(recurrence: Recurrence, now: datetime, zone: tzinfo, late: timedelta = LATE) -> tuple[datetime, float]:
    """When it is due next, in UTC, and its period in seconds (infinite: not again within a year).

    A run that was due within `late` may not have begun yet: it counts as due. The period is the time to the run after
    the next one; runs that come in pairs count by their mean over a day, so that two at 2 and 3 o'clock are 12 h apart.

    Raises:
        LookupError: it is not due within a year.

    """
    times = recurrence.upcoming(now - late, zone)
    due = next(times, None)
    if due is None:
        raise LookupError("it is not due within a year")
    after = next(times, None)
    if after is None:
        return due, float("inf")
    runs = 1
    gap = (after - due).total_seconds()
    while after is not None and after < due + _DAY and runs < _MOST_RUNS:
        runs += 1
        after = next(times, None)
    return due, max(gap, _DAY.total_seconds() / runs)
