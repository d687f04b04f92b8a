"""PURE: billed time by what it was used for, cut at the hours and days of a place, under labels and price of then.

Times are milliseconds since 1970 and all amounts are whole numbers, so that sums are exact in any order. A stretch
that is cut gives its parts by largest remainders: they add up to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.model.usage import AMOUNTS, EPOCH, GROUPS, MS, HourKey


@dataclass(frozen=True, slots=True)
class Bucket:
    """An hour or a day, in seconds since 1970."""

    begin: int
    end: int


@dataclass(slots=True)
class Calendar:
    """The hours and days of a time zone. A day has 23, 24 or 25 hours, and hours begin where local ones do."""

    zone: ZoneInfo
    _day: Bucket = Bucket(0, 0)
    _hour: Bucket = Bucket(0, 0)

    def day(self, at_ms: int) -> Bucket:
        """The local day of a moment."""
        seconds = at_ms // 1000
        if not self._day.begin <= seconds < self._day.end:
            local = self.local(at_ms).date()
            self._day = Bucket(self.midnight(local), self.midnight(local + timedelta(days=1)))
        return self._day

    def hour(self, at_ms: int) -> Bucket:
        """The local hour of a moment, within its day."""
        seconds = at_ms // 1000
        if not self._hour.begin <= seconds < self._hour.end:
            day = self.day(at_ms)
            offset = self.local(at_ms).utcoffset() or timedelta()
            begin = seconds - (seconds + int(offset.total_seconds())) % 3600
            self._hour = Bucket(max(begin, day.begin), min(begin + 3600, day.end))
        return self._hour

    def local(self, at_ms: int) -> datetime:
        """The moment by the clocks of the place."""
        return (EPOCH + at_ms * MS).astimezone(self.zone)

    def midnight(self, day: date) -> int:
        """When a day begins, in seconds since 1970; where the clocks skip midnight, when they do."""
        return int(datetime(day.year, day.month, day.day, tzinfo=self.zone).timestamp())


@dataclass(slots=True)
class HourSheet:
    """The rows of one metering; days that end by `days_until` (ms) are not cut to hours."""

    calendar: Calendar
    days_until: int = 0
    rows: dict[HourKey, list[int]] = field(default_factory=dict)

    def add(self, node_id: str, terms: int, begin: int, end: int, amounts: Mapping[int, int]) -> None:
        """Amounts, by their place among AMOUNTS, spread evenly over (begin, end]; each part adds up by itself."""
        at, left = begin, amounts
        while at < end:
            bucket = self._bucket(at)
            upto = min(end, bucket.end * 1000)
            part = left if upto == end else _share(left, upto - at, end - at)
            key = HourKey(bucket.begin, node_id, terms, bucket.end - bucket.begin)
            row = self.rows.get(key)
            if row is None:
                row = self.rows[key] = [0] * len(AMOUNTS)
            for place, amount in part.items():
                row[place] += amount
            if upto < end:
                left = {place: amount - part.get(place, 0) for place, amount in left.items()}
            at = upto

    def _bucket(self, at: int) -> Bucket:
        if at < self.days_until:
            day = self.calendar.day(at)
            if day.end * 1000 <= self.days_until:
                return day
        return self.calendar.hour(at)


def _share(left: Mapping[int, int], length: int, whole: int) -> dict[int, int]:
    """What of these amounts belongs to the first `length` of a stretch: each group's share, divided by its uses."""
    taken: dict[int, int] = {}
    for group in GROUPS:
        amounts = {place: left[place] for place in group if place in left}
        taken |= apportion(sum(amounts.values()) * length // whole, amounts)
    return taken


def apportion(whole: int, shares: Mapping[int, int]) -> dict[int, int]:
    """A whole number divided in proportion to shares, by largest remainders; nothing where all shares are 0."""
    total = sum(shares.values())
    if total <= 0:
        return {}
    parts = {name: whole * share // total for name, share in shares.items()}
    rest = whole - sum(parts.values())
    for name in sorted(parts, key=lambda name: (-(whole * shares[name] % total), name))[:rest]:
        parts[name] += 1
    return parts
