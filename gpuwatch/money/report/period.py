"""Which stretch of time somebody asks about, in days and months of a time zone."""

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.money.accounting.slices import Calendar

_DAY = timedelta(days=1)
_EARLIEST = date(2000, 1, 1)  # nothing was metered before; a year such as 0026 is a slip


class PeriodError(ValueError):
    """No such stretch of time; the sentence says what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """[since, until) in seconds since 1970, and its days for people."""

    zone: ZoneInfo
    first: date
    after: date  # the first day that is no longer in it

    @property
    def since(self) -> int:
        """When its first day begins."""
        return Calendar(self.zone).midnight(self.first)

    @property
    def until(self) -> int:
        """When its last day ends."""
        return Calendar(self.zone).midnight(self.after)

    @property
    def days(self) -> int:
        """Return the number of days in the period."""
        return (self.after - self.first).days

    @property
    def before(self) -> "Period":
        """What to compare with: of a day the same weekday a week ago, of a month the last one, else as many days."""
        if self.days == 1:
            return replace(self, first=self.first - 7 * _DAY, after=self.after - 7 * _DAY)
        if self.first.day == self.after.day == 1:
            months = 12 * (self.after.year - self.first.year) + self.after.month - self.first.month
            month = self.first.year * 12 + self.first.month - 1 - months
            return replace(self, first=date(month // 12, month % 12 + 1, 1), after=self.first)
        return replace(self, first=self.first - self.days * _DAY, after=self.first)

    def part_that_is_over(self, now: datetime) -> "Period":
        """The whole days of it that are over; itself where it is over, and where it is one day."""
        today = now.astimezone(self.zone).date()
        return self if today >= self.after or self.days == 1 else replace(self, after=max(self.first, today))

    def same_part(self, of: "Period") -> tuple["Period", "Period"]:
        """This part of a period, and the one before the period, cut to as many days: a month has no 30 February."""
        before = of.before
        if self == of:
            return self, before
        days = min(self.days, before.days)
        return replace(self, after=self.first + days * _DAY), replace(before, after=before.first + days * _DAY)

    def __str__(self) -> str:
        """For people, with its last day."""
        return f"{self.first:%A} {self.first}" if self.days == 1 else f"{self.first} to {self.after - _DAY}"


def period_of(
    zone: ZoneInfo,
    now: datetime,
    *,
    first: str | None = None,
    last: str | None = None,
    month: str | None = None,
    day: str | None = None,
    year: str | None = None,
) -> Period:
    """From a first day to a last one, both in it; or a year, a month, or a day; without any of these, this month.

    Raises:
        PeriodError: they are no dates, lie in the future, or contradict each other.

    """
    if sum(each is not None for each in (year, month, day, first or last)) > 1:
        raise PeriodError("--day, --month, --year and --from/--to exclude each other")
    today = now.astimezone(zone).date()
    if year is not None:
        begin = _date("--year", f"{year}-01-01", today, year, "a year such as 2026")
        return Period(zone=zone, first=begin, after=begin.replace(year=begin.year + 1))
    if first is not None or last is not None or day is not None:
        first_of, last_of = ("--day", "--day") if day is not None else ("--from" if first else "--to", "--to")
        begin = _date(first_of, first or last or day or "", today)
        end = today if last is None and day is None else _date(last_of, last or day or "", today)
        if end < begin:
            raise PeriodError(f"--to {end} lies before --from {begin}")
        return Period(zone=zone, first=begin, after=end + _DAY)
    right = "a month such as 2026-03"
    begin = today.replace(day=1) if month is None else _date("--month", f"{month}-01", today, month, right)
    return Period(zone=zone, first=begin, after=(begin + 31 * _DAY).replace(day=1))


def _date(
    option: str, text: str, today: date, shown: str | None = None, right: str = "a day such as 2026-03-01"
) -> date:
    """The day that a text means, or with which the month or year `shown` begins."""
    shown = text if shown is None else shown
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise PeriodError(f"{option} {shown!r} is not {right}") from None
    if found > today:
        raise PeriodError(f"{option} {shown!r} lies in the future: today is {today}; expected {right}, today or before")
    if found < _EARLIEST:
        raise PeriodError(f"{option} {shown!r} lies before {_EARLIEST}; expected {right}")
    return found
