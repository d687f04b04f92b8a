"""A series of values at equal steps in which a hole is a hole, and how samples become one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median

from gpuwatch.model.duration import format_time

HOUR_SECONDS = 3600.0
DAY_SECONDS = 86400.0
WEEK_SECONDS = 604800.0
MONTH_SECONDS = 2629800.0  # a twelfth of 365.25 days; a series with this step has calendar months
MOST_STEPS = 200_000

_STEPS_SECONDS = (*(hours * HOUR_SECONDS for hours in (1, 2, 3, 4, 6, 8, 12)), DAY_SECONDS, WEEK_SECONDS)
_YEAR = 12
_SHORTEST_MONTH, _LONGEST_MONTH = 27.5 * DAY_SECONDS, 31.5 * DAY_SECONDS
_FULL = 0.5  # of the samples that a step should have; with fewer, its mean says little


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement at one time."""

    time: datetime
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """What a day and a week are in steps, as far as they can be seen at that step."""

    season: int  # steps until things repeat: a day of hours, a week of days; 1: none seen
    memory: int  # steps over which the usual level is taken: a week of hours, four weeks of days
    week: int
    year: int = 1  # steps of a year, where months are counted; a season of it needs two of them

    @classmethod
    def at_step(cls, step_seconds: float) -> "Rhythm":
        """The rhythm at a step; a step that does not divide a day or a week has no season."""
        week = max(1, round(WEEK_SECONDS / step_seconds))
        if step_seconds == MONTH_SECONDS:
            return cls(season=1, memory=_YEAR, week=week, year=_YEAR)
        if step_seconds < DAY_SECONDS and DAY_SECONDS % step_seconds == 0:
            return cls(season=round(DAY_SECONDS / step_seconds), memory=week, week=week)
        if step_seconds == DAY_SECONDS:
            return cls(season=7, memory=28, week=7)
        return cls(season=1, memory=12, week=week)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value for each step from `start` on; None where nothing was measured."""

    start: datetime
    step_seconds: float
    values: tuple[float | None, ...]
    notes: tuple[str, ...] = field(default=())

    def time(self, step: int) -> datetime:
        """When a step begins; steps past the end are the future."""
        if self.step_seconds == MONTH_SECONDS:
            return _months_later(self.start, step)
        return self.start + timedelta(seconds=step * self.step_seconds)

    @property
    def end(self) -> datetime:
        """When the last step ends."""
        return self.time(len(self.values))

    @property
    def known(self) -> list[float]:
        """The values without the holes."""
        return [value for value in self.values if value is not None]


def natural_step(samples: Sequence[Sample]) -> float:
    """The shortest usual step, of an hour or longer, that is not shorter than what lies between most samples."""
    between = _spacing(samples)
    if between is None:
        return DAY_SECONDS
    if _SHORTEST_MONTH < between < _LONGEST_MONTH:
        return MONTH_SECONDS
    fits = [step for step in _STEPS_SECONDS if between <= step * 1.05]  # a day of 25 hours is still a day
    return fits[0] if fits else round(between / DAY_SECONDS) * DAY_SECONDS


def resample(samples: Sequence[Sample], step_seconds: float) -> Series:
    """The means of the samples in each step; a step with none, or with fewer than half of what is usual, is a hole.

    Where samples are as far apart as steps, each belongs to the nearest step of the first one's grid, so that a clock
    change of an hour shifts no day. Otherwise steps begin at multiples since midnight of the first sample's own zone,
    and a first or last step of which a part was not measured is left out.

    Raises:
        ValueError: no samples, or so far apart in time that they make more than 200,000 steps.

    """
    if not samples:
        raise ValueError("there are no values")
    ordered = sorted(samples, key=lambda sample: sample.time)
    between = _spacing(ordered)
    if step_seconds == MONTH_SECONDS:
        return _by_month(ordered, between)
    fine = between is not None and between < step_seconds * 0.75
    first, last = ordered[0].time, ordered[-1].time
    start = _grid(first, step_seconds) if fine else first
    shift = 0.0 if fine else step_seconds / 2
    count = int(((last - start).total_seconds() + shift) // step_seconds) + 1
    if count > MOST_STEPS:
        raise ValueError(f"{first} to {last} are {count} steps of {step_seconds:g} s; at most {MOST_STEPS} are taken")
    buckets: list[list[float]] = [[] for _ in range(count)]
    for sample in ordered:
        buckets[int(((sample.time - start).total_seconds() + shift) // step_seconds)].append(sample.value)
    least = _FULL * step_seconds / between if fine and between is not None else 1.0
    values = [sum(bucket) / len(bucket) if bucket and len(bucket) >= least else None for bucket in buckets]
    notes: list[str] = []
    skipped = 0
    if fine and between is not None:
        # Half of a spacing allows for clocks that do not strike on time.
        end = start + timedelta(seconds=count * step_seconds)
        if count > 1 and (end - last).total_seconds() > 1.5 * between:
            values.pop()
            begun = start + timedelta(seconds=(count - 1) * step_seconds)
            notes.append(f"the step from {format_time(begun)} is not over and left out")
        if len(values) > 1 and (first - start).total_seconds() > 1.5 * between:
            values.pop(0)
            skipped = 1
    notes += _doubled_times(ordered)
    return Series(
        start=(start + timedelta(seconds=skipped * step_seconds)).astimezone(UTC),
        step_seconds=step_seconds,
        values=tuple(values),
        notes=tuple(notes),
    )


def _by_month(ordered: Sequence[Sample], between: float | None) -> Series:
    """The means of calendar months, of the first sample's own zone; months of which a part is missing are left out."""
    first, last = ordered[0].time, ordered[-1].time
    start = first.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    count = _months(start, last) + 1
    if count > MOST_STEPS:
        raise ValueError(f"{first} to {last} are {count} months; at most {MOST_STEPS} are taken")
    buckets: list[list[float]] = [[] for _ in range(count)]
    for sample in ordered:
        buckets[_months(start, sample.time)].append(sample.value)
    apart = between if between is not None and between < _SHORTEST_MONTH else None
    needed = 1.0 if apart is None else _FULL * MONTH_SECONDS / apart
    values = [sum(bucket) / len(bucket) if bucket and len(bucket) >= needed else None for bucket in buckets]
    notes, skipped = _doubled_times(ordered), 0
    if apart is not None:
        if count > 1 and (_months_later(start, count) - last).total_seconds() > 1.5 * apart:
            values.pop()
            notes.append(f"the month {_months_later(start, count - 1):%Y-%m} is not over and left out")
        if len(values) > 1 and (first - start).total_seconds() > 1.5 * apart:
            values.pop(0)
            skipped = 1
    begin = _months_later(start, skipped)
    return Series(start=begin, step_seconds=MONTH_SECONDS, values=tuple(values), notes=tuple(notes))


def _months(start: datetime, time: datetime) -> int:
    """In which month after that of `start` a time is, by the clocks of `start`."""
    local = time.astimezone(start.tzinfo)
    return (local.year - start.year) * _YEAR + local.month - start.month


def _months_later(start: datetime, months: int) -> datetime:
    """The same day so many months later; `start` is the first of a month."""
    month = start.month - 1 + months
    return start.replace(year=start.year + month // _YEAR, month=month % _YEAR + 1)


def _doubled_times(ordered: Sequence[Sample]) -> list[str]:
    doubled = len(ordered) - len({sample.time for sample in ordered})
    return [f"{doubled} of {len(ordered)} samples repeat a time; their mean is taken"] if doubled else []


def _spacing(samples: Sequence[Sample]) -> float | None:
    """Seconds between most neighbours; None of fewer than two times."""
    times = sorted({sample.time for sample in samples})
    return median((after - before).total_seconds() for before, after in pairwise(times)) if len(times) > 1 else None


def _grid(time: datetime, step_seconds: float) -> datetime:
    """The last multiple of a step since the midnight of the time's own offset from UTC."""
    offset = (time.utcoffset() or timedelta()).total_seconds()
    since = (time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() + offset
    return time - timedelta(seconds=since % step_seconds)
