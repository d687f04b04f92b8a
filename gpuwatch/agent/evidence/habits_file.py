"""The file in which a host's days are kept between two agents."""

import logging
import re
from dataclasses import dataclass, fields
from pathlib import Path

import msgspec

from gpuwatch.agent.activity.asked import HOUR_SECONDS, MOST_HOURS, MOST_PORTS
from gpuwatch.agent.activity.days import DAY_SECONDS, EMPTY, KEPT_DAYS, MOST_PROGRAMS, MOST_STARTERS, Week
from gpuwatch.agent.evidence.past import MOST_SIGNALS, Seen
from gpuwatch.agent.evidence.visits import MOST_USERS, MOST_VISITS

_LOG = logging.getLogger(__name__)

_LARGEST_FILE = 1 << 20
_LATEST = 1e11  # in seconds since 1970
_MOST_CORES, _MOST_BYTES_PER_SECOND = 4096.0, 1e12  # that a sound file may say
_PORT = re.compile(r"(?:tcp|udp|ssh) \d{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content(Week):
    """The file; one of an older agent is without `seen`."""

    seen: Seen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What an earlier agent kept; without a `seen` it is not known what that one saw in the end."""

    week: Week = EMPTY
    seen: Seen | None = None
    is_there: bool = True


class HabitsFile:
    """The file between two agents; in place of a damaged one a new one begins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logged = False

    def load(self) -> Kept:
        """What an earlier agent kept; what cannot be is refused, the days and what was seen each by itself."""
        try:
            with self._path.open("rb") as file:
                content = msgspec.json.decode(file.read(_LARGEST_FILE), type=_Content)
        except FileNotFoundError:
            return Kept(is_there=False)
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            _LOG.warning("what programs did in the last days is forgotten: %s cannot be read: %s", self._path, error)
            return Kept()
        week, seen = Week(**{each.name: getattr(content, each.name) for each in fields(Week)}), content.seen
        if not _is_sound(week):
            _LOG.warning("what programs did in the last days is forgotten: %s holds what cannot be", self._path)
            week = EMPTY
        if seen is not None and not _may_be_seen(seen):
            _LOG.warning("who came in the last hours is forgotten: %s holds what cannot be", self._path)
            seen = None
        return Kept(week=week, seen=seen)

    def save(self, week: Week, seen: Seen | None = None) -> None:
        """Replace the file; a failure is logged once."""
        content = _Content(**{each.name: getattr(week, each.name) for each in fields(Week)}, seen=seen)
        fresh = self._path.with_suffix(".new")
        try:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode(content))
            fresh.replace(self._path)
        except OSError as error:
            if not self._logged:
                _LOG.warning(
                    "what programs do day by day will not outlive this agent: %s cannot be written (%s)",
                    self._path,
                    error.strerror,
                )
            self._logged = True


def _is_sound(week: Week) -> bool:
    """Whether all of it may be: a damaged figure must not make work look like hum."""
    most = 2 * DAY_SECONDS
    return (
        len(week.habits) <= MOST_PROGRAMS
        and all(0.0 <= seconds <= most for seconds in week.watched.values())
        and len(week.begins) <= MOST_STARTERS
        and all(key.partition(" ")[0].isdecimal() and begins for key, begins in week.begins.items())
        and all(0.0 <= each <= _LATEST for begins in week.begins.values() for each in begins)
        and len(week.asked) <= MOST_PORTS
        and all(_PORT.fullmatch(port) and 0 < len(hours) <= MOST_HOURS for port, hours in week.asked.items())
        and all(0 <= each * HOUR_SECONDS <= _LATEST for hours in week.asked.values() for each in hours)
        and all(
            len(habit.days) <= KEPT_DAYS + 1
            and all(
                each.runs >= 0
                and each.seconds >= 0
                and 0.0 <= each.cores <= _MOST_CORES
                and 0.0 <= each.bytes_per_second <= _MOST_BYTES_PER_SECOND
                for each in habit.days
            )
            for habit in week.habits.values()
        )
    )


def _may_be_seen(seen: Seen) -> bool:
    """Whether nothing of it is later than it was kept, and no more than an agent keeps."""
    return (
        len(seen.visitors) <= MOST_USERS
        and len(seen.in_use) <= MOST_SIGNALS
        and (seen.looked_at is None or seen.looked_at <= seen.at)
        and all(each <= seen.at for each in seen.in_use.values())
        and all(
            0 < len(each.began) <= MOST_VISITS
            and list(each.began) == sorted(each.began)
            and each.began[-1] <= each.seen_at <= seen.at
            for each in seen.visitors
        )
    )
