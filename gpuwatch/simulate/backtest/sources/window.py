"""Which time a backtest is about, and how it fails."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpuwatch.model.duration import format_time, has_no_unit, parse_duration
from gpuwatch.simulate.fleet.workloads import DemoError

_RIGHT = "now, a duration before now such as 30d, or a time such as 2026-01-31T18:00Z"


class SourceError(DemoError):
    """There is no history to be had; the sentence says why and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From one moment to a later one."""

    begin: datetime
    end: datetime

    def __str__(self) -> str:
        """Return the window in words for people."""
        return f"{self.begin:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"


def moment_of(text: str, now: datetime) -> datetime:
    """The moment that `now`, a duration before now, or an ISO 8601 time means; a time without a zone is UTC.

    Raises:
        ValueError: it is none of them.

    """
    if text.strip() == "now":
        return now
    try:
        seconds = None if has_no_unit(text) else parse_duration(text)  # 2030 is no number of seconds
    except ValueError:
        seconds = None
    try:
        if isinstance(seconds, float):
            return now - timedelta(seconds=seconds)
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time; expected {_RIGHT}") from None


def past_moment(text: str, now: datetime) -> datetime:
    """As `moment_of`, of a moment that something can have begun at.

    Raises:
        ValueError: it is not a time, or lies in the future.

    """
    at = moment_of(text, now)
    if at > now:
        raise ValueError(f"{text!r} lies in the future (it is {format_time(now)}); expected {_RIGHT}")
    return at


def window_of(since: str, until: str, now: datetime, hours: float | None = None) -> Window:
    """The window between two moments, or its first `hours`.

    Raises:
        ValueError: one is not a time, or the window is empty.

    """
    begin, end = past_moment(since, now), min(now, moment_of(until, now))
    if hours is not None:
        end = min(end, begin + timedelta(hours=hours))
    if end <= begin:
        raise ValueError(f"{since!r} is not before {until!r}; expected an earlier --from")
    return Window(begin=begin, end=end)
