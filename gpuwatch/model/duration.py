"""Durations and times as people write them: `90s`, `1h30m`, `2026-03-28 07:15 UTC`."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import inf, isfinite
from typing import Annotated, Any

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PATTERN = r"^(\d+(\.\d+)?(ms|s|m|h|d|w))+$"
_FIRST_YEAR, _LAST_YEAR = 2, 9998
LONGEST_SECONDS = 36_525 * 86_400.0  # a century: what is longer is a slip, and leaves the calendar
_MOST_DOUBLINGS = 30  # a float would overflow after a thousand
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


class DurationSyntax:
    """Accepts `90s`, `30m`, `1h30m`, `2d` and gives seconds; of numbers without a unit 0 alone."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """Parse text before the number is checked."""
        return {
            "type": "function-before",
            "function": {"type": "no-info", "function": duration_with_unit},
            "schema": handler(source),
        }

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """Tell editors what is right."""
        del core_schema, handler
        return {"anyOf": [{"type": "string", "pattern": _PATTERN}, {"const": 0}]}


Seconds = Annotated[float, DurationSyntax()]


@dataclass(frozen=True, slots=True)
class DurationOr:
    """Accepts a duration above zero, or one of some words that stand for a way to find one."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """Judge the text here: no bound applies to a word."""
        del source, handler
        return {"type": "function-plain", "function": {"type": "no-info", "function": self.parse}}

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """Tell editors what is right."""
        del core_schema, handler
        return {"anyOf": [{"enum": list(self.words)}, {"type": "string", "pattern": _PATTERN}]}

    def parse(self, value: object) -> object:
        """The word, or seconds above zero.

        Raises:
            ValueError: it is neither.

        """
        if value in self.words:
            return value
        seconds = duration_with_unit(value)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            msg = f"{value!r} is neither a duration above 0s nor {' or '.join(self.words)}"
            raise ValueError(msg)
        return float(seconds)


def parse_duration(value: object) -> object:
    """Seconds of a text such as `30m` or `1h30m`; other values pass through for the number check to judge.

    Raises:
        ValueError: the text is no duration, or longer than a century; the message says what would be right.

    """
    if not isinstance(value, str):
        return value
    text = value.strip().replace(" ", "")
    try:
        return float(text)
    except ValueError:
        parts = _PART.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        msg = f"{value!r} is not a duration; write for example 90s, 30m, 1h30m or 2d"
        raise ValueError(msg)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > LONGEST_SECONDS:
        msg = f"{value!r} is longer than a century; write for example 90s, 30m, 1h30m or 2d"
        raise ValueError(msg)
    return seconds


def format_duration(seconds: float) -> str:
    """A duration for people in its two largest units, such as `1h30m`; below ten seconds with tenths."""
    if 10 <= seconds < inf:  # noqa: PLR2004  as below; most of what a round says
        return _in_units(int(seconds))
    if not isfinite(seconds):
        return f"{seconds}s"  # as somebody sent it
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    return f"{seconds:.3g}s"  # below ten seconds a tenth still says something


@lru_cache(maxsize=8192)  # a round says thousands of times how long something has lasted
def _in_units(rest: int) -> str:
    """The two largest units of whole seconds."""
    words = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words[:2])


def format_age(seconds: float, word: str = "") -> str:
    """An age for people, such as `5m old` with that word; of what a wrong clock puts there `5m in the future`."""
    return f"{format_duration(seconds)}{word}" if seconds >= 0 else f"{format_duration(-seconds)} in the future"


def format_time(at: datetime | float, *, seconds: bool = False) -> str:
    """A time (a number is seconds since 1970) for people, in UTC, such as `2026-03-28 07:15 UTC`."""
    at = at.astimezone(UTC) if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    # By `isoformat`, which ends in the offset: `strftime` takes six times as long, and a round says thousands of times.
    return f"{at.isoformat(' ', 'seconds' if seconds else 'minutes')[:-6]} UTC"


def in_calendar(at: datetime) -> bool:
    """Whether a time, whatever its offset, is in the calendar as UTC, where it is shown and compared."""
    return _FIRST_YEAR <= at.year <= _LAST_YEAR


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """The wait after so many failures in a row: the first wait, doubled with each failure, up to the longest."""
    return min(longest, first * 2.0 ** min(max(0, failures - 1), _MOST_DOUBLINGS))


def has_no_unit(value: object) -> bool:
    """Whether a duration is written as a number alone: who writes 30 may mean minutes, and would get seconds."""
    if isinstance(value, bool):
        return False
    try:
        number = float(value) if isinstance(value, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return False
    return number != 0 and isfinite(number)


def duration_with_unit(value: object) -> object:
    """Seconds, as `parse_duration`, of a setting.

    Raises:
        ValueError: it is no duration, or a number without a unit.

    """
    if has_no_unit(value):
        msg = f"{value!r} has no unit; write for example {value}s or {value}m"
        raise ValueError(msg)
    return parse_duration(value)
