"""PURE: a week of small memory of the programs on a host: what recurs without a GPU is its hum.

Rules, all of them:

1. A program is known by what it is: its user, its unit or cron, its name, and its arguments without numbers. It is kept
   of each day how often it began, how long its longest run took, and the most that it used.
2. A day counts if the agent watched for four hours of it with a list of what held the GPUs. Days to come never count.
3. It is regular if it was there on three earlier days at least, and missed at most one day since the first of them that
   was watched nearly whole.
4. It is hum while it does as on its earlier days: no longer, no more often, and with no more cores and bytes than twice
   their median. What is new, what grows and what is far above its own past is work.
5. What held a GPU within the week, itself or what it began, is never hum.
6. What began on a GPU at the same time of three days in a row, or of a weekday in two weeks, is due at that time again,
   until it has stayed away for an hour. The same time is a quarter of an hour more or less. What has stayed away at a
   time at which it came a week ago is not due at any other one.
7. What stays for days is hum only where it uses little (`_STEADY_CORES`): a computation that takes a week is work.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gpuwatch.model.bounds import BoundedFloat, BoundedInt
from gpuwatch.model.duration import format_duration

HUM = "hum"  # the name of evidence that a heavy run of hum is at work
DAY_SECONDS = 86400.0
_HOUR = 3600.0
KEPT_DAYS = 7
MOST_PROGRAMS = 192
_NEEDED_DAYS = 3
_WATCHED_SECONDS, _WHOLE_SECONDS = 4 * _HOUR, 20 * _HOUR
_GAP_SECONDS = 600.0  # what lies between two looks further apart was not watched
_TIMES_USUAL = 2.0
_LEAST_CORES, _LEAST_BYTES_PER_SECOND = 0.02, 10e3
_LEAST_SECONDS = 60.0
_LONGEST_RUN_SECONDS = 4 * _HOUR
_SAME_TIME_SECONDS, _LATE_SECONDS = 900.0, _HOUR
_PERIODS = ((DAY_SECONDS, 3), (7 * DAY_SECONDS, 2))  # with the starts in a row that are needed
_BEGINS_KEPT_SECONDS = 15 * DAY_SECONDS
_MOST_BEGINS, MOST_STARTERS = 16, 64
_STEADY_CORES, _STEADY_BYTES_PER_SECOND = 0.3, 4e3


class DayOf(NamedTuple):
    """What a program did at most on one day since 1970."""

    day: int
    runs: int = 0
    seconds: float = 0.0
    cores: float = 0.0
    bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """What is remembered of one program; `gpu_at` is when it last held a GPU, in seconds since 1970."""

    days: tuple[DayOf, ...] = ()
    gpu_at: BoundedFloat | None = None

    @property
    def newest_day(self) -> int:
        """The last day on which it was seen."""
        return max((each.day for each in self.days), default=0)

    def had_gpu(self, at: float) -> bool:
        """Whether it held a GPU within the week before, or at any time to come by a clock that was set back since."""
        return self.gpu_at is not None and at - self.gpu_at <= KEPT_DAYS * DAY_SECONDS

    def worth(self, at: float) -> tuple[bool, int, int]:
        """What is kept before others where there are too many: users of GPUs, what is here, what has long been here."""
        return self.had_gpu(at), self.newest_day, len(self.days)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a program does at a look: for how long it has run, what it uses, and how often it began since the last."""

    seconds: float
    cores: float
    bytes_per_second: float
    begun: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A program that used a GPU at this time before, and so may come at `at`; `starts` is how often it came."""

    key: str
    at: float
    period_seconds: float
    starts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """What is remembered of a host: the seconds that were watched of each day, and its programs by what they are.

    `begins` are the times at which programs without a terminal began that held a GPU, oldest first.
    """

    watched: Mapping[BoundedInt, BoundedFloat]
    habits: Mapping[str, Habit]
    begins: Mapping[str, tuple[BoundedFloat, ...]] = field(default_factory=dict)
    asked: Mapping[str, tuple[BoundedInt, ...]] = field(default_factory=dict)  # `activity.asked` has the rules

    def after_look(self, at: float, gap: float, runs: Mapping[str, Run], on_gpu: Collection[str]) -> "Week":
        """The week after one more look, `gap` seconds after the one before, in which the GPUs' holders were listed."""
        today = int(at // DAY_SECONDS)
        oldest = today - KEPT_DAYS
        watched = {day: seconds for day, seconds in self.watched.items() if oldest <= day <= today}
        watched[today] = watched.get(today, 0.0) + (gap if gap <= _GAP_SECONDS else 0.0)
        habits = dict(self.habits)
        for key, run in runs.items():
            habits[key] = _habit_after(habits.get(key, Habit()), today, run)
        for key in on_gpu:
            habits[key] = replace(habits.get(key) or Habit(days=(DayOf(today),)), gpu_at=at)
        if len(habits) > MOST_PROGRAMS:
            habits = {key: each for key, each in habits.items() if each.newest_day >= oldest or each.had_gpu(at)}
            newest = sorted(habits, key=lambda key: habits[key].worth(at), reverse=True)
            habits = {key: habits[key] for key in newest[:MOST_PROGRAMS]}
        return replace(self, watched=watched, habits=habits)

    def after_begins(self, at: float, begun: Mapping[str, float]) -> "Week":
        """The week with what began to use a GPU, and when."""
        begins = dict(self.begins)
        for key, since in begun.items():
            known = begins.get(key, ())
            if all(abs(since - each) > _SAME_TIME_SECONDS for each in known):
                begins[key] = (*known, since)[-_MOST_BEGINS:]
        if len(begins) > MOST_STARTERS or any(at - each[0] > _BEGINS_KEPT_SECONDS for each in begins.values()):
            young = {
                key: tuple(one for one in each if at - one <= _BEGINS_KEPT_SECONDS) for key, each in begins.items()
            }
            newest = sorted(filter(young.get, young), key=lambda key: young[key][-1], reverse=True)
            begins = {key: young[key] for key in newest[:MOST_STARTERS]}
        return self if begins == self.begins else replace(self, begins=begins)

    def due(self, at: float) -> tuple[Due, ...]:
        """What is due at that time or later, by rule 6; the next one of each program."""
        found = (_next_due(key, each, at) for key, each in self.begins.items())
        return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.at, each.key)))

    def hum_of(self, key: str, run: Run, at: float) -> str | None:
        """That a program which comes and goes is hum, in words; None: it is work."""
        earlier = self._usual_days(key, at)
        if not earlier or median(each.seconds for each in earlier) > _LONGEST_RUN_SECONDS:
            return None
        today = next((each.runs for each in self.habits[key].days if each.day == int(at // DAY_SECONDS)), 0)
        longest = _TIMES_USUAL * median(each.seconds for each in earlier) + _LEAST_SECONDS
        often = _TIMES_USUAL * max(each.runs for each in earlier) + 1
        if run.seconds > longest or today > often or _above_usual(run, earlier):
            return None
        return f"has run {self._how_often(earlier)} for {len(earlier)} days without a GPU"

    def steady_words(self, key: str, run: Run, at: float) -> str | None:
        """That a program which stays is at rest, in words; None: it is work, or has not stayed for so long."""
        earlier = self._usual_days(key, at)
        if not earlier or run.seconds < _NEEDED_DAYS * DAY_SECONDS or _above_usual(run, earlier):
            return None
        if any(each.cores > _STEADY_CORES or each.bytes_per_second > _STEADY_BYTES_PER_SECOND for each in earlier):
            return None
        if run.cores > _STEADY_CORES or run.bytes_per_second > _STEADY_BYTES_PER_SECOND:
            return None
        return f"has used as little for {len(earlier)} days, without a GPU"

    def _usual_days(self, key: str, at: float) -> tuple[DayOf, ...]:
        """Rules 2, 3 and 5: the earlier days of a regular program; none of another."""
        habit, today = self.habits.get(key), int(at // DAY_SECONDS)
        if habit is None or habit.had_gpu(at):
            return ()
        earlier = tuple(
            each
            for each in habit.days
            if today - KEPT_DAYS <= each.day < today and self.watched.get(each.day, 0.0) >= _WATCHED_SECONDS
        )
        if len(earlier) < _NEEDED_DAYS:
            return ()
        seen, first = {each.day for each in earlier}, min(each.day for each in earlier)
        missed = [
            day for day in range(first, today) if day not in seen and self.watched.get(day, 0.0) >= _WHOLE_SECONDS
        ]
        return earlier if len(missed) <= 1 else ()

    def _how_often(self, earlier: Iterable[DayOf]) -> str:
        """How often it runs, as people say it."""
        gaps = [self.watched[each.day] / each.runs for each in earlier if each.runs > 1]
        return f"about each {format_duration(60 * round(median(gaps) / 60) or 60)}" if gaps else "each day"


EMPTY = Week(watched={}, habits={})


def _next_due(key: str, begins: tuple[float, ...], at: float) -> Due | None:
    """When a program is due next, by its starts; None: it keeps no time, or no longer comes when it came a week ago."""
    found: list[Due] = []
    newest, week = begins[-1], 7 * DAY_SECONDS
    if any(newest + _SAME_TIME_SECONDS < each + week < at - _LATE_SECONDS for each in begins):
        return None
    for period, needed in _PERIODS:
        for last in begins:
            starts, before = 1, last
            while (earlier := _a_period_before(before, period, begins)) is not None:
                starts, before = starts + 1, earlier
            due = last + period
            if starts >= needed and at <= due + _LATE_SECONDS and not _came(due, begins):
                found.append(Due(key=key, at=due, period_seconds=period, starts=starts))
    return min(found, key=lambda each: each.at, default=None)


def _a_period_before(begun: float, period: float, begins: tuple[float, ...]) -> float | None:
    return next((each for each in begins if abs(begun - period - each) <= _SAME_TIME_SECONDS), None)


def _came(due: float, begins: tuple[float, ...]) -> bool:
    return any(abs(each - due) <= _SAME_TIME_SECONDS for each in begins)


def _habit_after(habit: Habit, today: int, run: Run) -> Habit:
    """The habit after a look at which the program ran."""
    before = next((each for each in habit.days if each.day == today), DayOf(today))
    after = DayOf(
        today,
        before.runs + run.begun,
        max(before.seconds, round(run.seconds)),
        max(before.cores, round(run.cores, 3)),
        max(before.bytes_per_second, round(run.bytes_per_second)),
    )
    if after == before and before in habit.days:
        return habit
    kept = [each for each in habit.days if today - KEPT_DAYS <= each.day < today]
    return replace(habit, days=(*kept, after))


def _above_usual(run: Run, earlier: tuple[DayOf, ...]) -> bool:
    """Rule 4: whether it uses much more than on its earlier days."""
    cores, moved = median(day.cores for day in earlier), median(day.bytes_per_second for day in earlier)
    return (
        run.cores > _TIMES_USUAL * cores + _LEAST_CORES
        or run.bytes_per_second > _TIMES_USUAL * moved + _LEAST_BYTES_PER_SECOND
    )


def median(values: Iterable[float]) -> float:
    """The middle one, or the mean of the two in the middle; `statistics` takes 0.2 MiB for it."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
