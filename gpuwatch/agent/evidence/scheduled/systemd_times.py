"""PURE: systemd's calendar expressions and time spans (systemd.time(7)), those that timers use.

Not read: `~` (days from a month's end) and fractions of days of the week; such an expression is an error, not a guess.
"""

import re

from gpuwatch.agent.evidence.scheduled.recurrence import Recurrence

_WORDS = {
    "minutely": "*-*-* *:*",
    "hourly": "*-*-* *:00",
    "daily": "*-*-* 00:00",
    "weekly": "mon *-*-* 00:00",
    "monthly": "*-*-01 00:00",
    "quarterly": "*-01,04,07,10-01 00:00",
    "semiannually": "*-01,07-01 00:00",
    "semi-annually": "*-01,07-01 00:00",
    "yearly": "*-01-01 00:00",
    "annually": "*-01-01 00:00",
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHORTEST_DAY = 3  # letters
_PART = re.compile(r"(?:\*|(\d+)(?:\.\.(\d+))?)(?:/(\d+))?")
_DATE = re.compile(r"(?:([^-]+)-)?([^-]+)-([^-]+)")
_TIME = re.compile(r"([^:]+):([^:]+)(?::([^:]+))?")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
_ALL = "*"
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
_SPAN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Zµμ]*)")
_UNITS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("us", "usec", "µs", "μs"), 1e-6),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
    **dict.fromkeys(("M", "month", "months"), 2629800.0),
    **dict.fromkeys(("y", "year", "years"), 31557600.0),
}


def parse_calendar(text: str) -> tuple[Recurrence, str | None]:
    """The times of `OnCalendar=`, to the minute, and the time zone it names; None: the host's.

    Raises:
        ValueError: it is not an expression that is read here.

    """
    words = text.split()
    zone = None
    if len(words) > 1 and _ZONE.fullmatch(words[-1]) and _weekday_numbers(words[-1]) is None:
        zone = words.pop()
    expression = " ".join(words).lower()
    words = _WORDS.get(expression, expression).split()
    weekdays = _weekday_numbers(words[0]) if words else None
    if weekdays is not None:
        words = words[1:]
    date, time = _date_and_time(words, given=weekdays is not None)
    return _recurrence(date, time, weekdays), zone


def _date_and_time(words: list[str], *, given: bool) -> tuple[str, str]:
    """The words of date and time, each with what stands for a missing one."""
    if len(words) > 2 or (not words and not given):  # noqa: PLR2004  date and time
        raise ValueError("it is not a weekday, a date and a time")
    if not words:
        return "*-*-*", "00:00"
    if ":" in words[-1]:
        return (words[0] if len(words) > 1 else "*-*-*"), words[-1]
    if len(words) > 1:
        raise ValueError("its last word is not a time")
    return words[0], "00:00"


def _recurrence(date: str, time: str, weekdays: frozenset[int] | None) -> Recurrence:
    dated, timed = _DATE.fullmatch(date), _TIME.fullmatch(time)
    if dated is None or timed is None:
        raise ValueError("it is not a date and a time")
    year, month, day = dated.groups()
    hours, minutes = _numbers(timed[1], 0, 23), _numbers(timed[2], 0, 59)
    if timed[3] is not None:
        _numbers(re.sub(r"\.\d+", "", timed[3]) if ".." not in timed[3] else timed[3], 0, 59)
    return Recurrence(
        minutes=tuple(sorted(60 * hour + minute for hour in hours for minute in minutes)),
        days=_numbers(day, 1, 31),
        months=_numbers(month, 1, 12),
        weekdays=frozenset(range(7)) if weekdays is None else weekdays,
        years=None if year in {None, _ALL} else _numbers(year, _FIRST_YEAR, _LAST_YEAR),
    )


def _numbers(text: str, low: int, high: int) -> frozenset[int]:
    """The numbers of one component: lists of `*`, `a`, `a..b`, each with an optional step."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(f"{part} is no part of a calendar expression")
        step = int(found[3] or 1)
        first = low if found[1] is None else int(found[1])
        last = int(found[2]) if found[2] else (first if found[1] and not found[3] else high)
        if step < 1 or not low <= first <= last <= high:
            raise ValueError(f"{part} is out of range")
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _weekday_numbers(word: str) -> frozenset[int] | None:
    """Days of the week, from Monday 0; None if the word is something else."""
    days: set[int] = set()
    for part in word.lower().rstrip(",").split(","):
        first, ranged, last = part.partition("..")
        begin, end = _weekday(first), _weekday(last if ranged else first)
        if begin is None or end is None:
            return None
        days.update(range(begin, end + 1) if begin <= end else {*range(begin, 7), *range(end + 1)})
    return frozenset(days)


def _weekday(word: str) -> int | None:
    """Three letters or the whole name, as systemd has it."""
    matching = [number for number, name in enumerate(_WEEKDAYS) if word in {name, name[:_SHORTEST_DAY]}]
    return matching[0] if matching else None


def parse_span(text: str) -> float:
    """Seconds of a time span such as `8h`, `1h 30min` or `90`; infinite for `infinity`.

    Raises:
        ValueError: it is not a time span.

    """
    if text.strip() == "infinity":
        return float("inf")
    seconds, at = 0.0, 0
    text = text.strip()
    while at < len(text):
        found = _SPAN.match(text, at)
        if found is None or found[2] not in _UNITS:
            raise ValueError(f"{text} is no time span")
        seconds += float(found[1]) * _UNITS[found[2]]
        at = found.end()
    if not text:
        raise ValueError("an empty time span")
    return seconds
