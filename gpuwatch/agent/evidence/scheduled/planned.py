"""PURE: one piece of queued work, whether it keeps the node, and which recurring work has held a GPU lately.

Work that runs once is an explicit intention: it keeps the node however far off it is, up to `once_horizon`. Work that
recurs keeps it only if it is due soon and runs seldom. A job each quarter of an hour is judged by what its runs do;
otherwise no machine with a cron job would ever be found. It keeps the node if a run lately held a GPU. It occupies the
node if it is a person's own, or until a run was seen: a look at the queue alone does not tell training from
housekeeping. So does a person's that runs each week, a week ahead: no run of tomorrow makes up for a lost one.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gpuwatch.agent.processes.process import Process, ProcessView, from_cron
from gpuwatch.model.duration import format_duration, format_time

_LATE = timedelta(minutes=5)  # daemons start a due job within a minute; afterwards something holds it up
DAY_SECONDS = 86400.0
_SELDOM_SECONDS = 2 * DAY_SECONDS
_MISSED_PERIODS = 2.0  # a run may find nothing to do
_DELAY_SECONDS = 600.0  # a timer's random delay, and the run's own time
_MOST = 256


class Keeps(StrEnum):
    """What one piece of queued work says."""

    NODE = "node"  # it keeps the node
    UNSEEN = "due at an unknown time"
    NOTHING_OFTEN = "repeats often"
    NOTHING_LATER = "due later"
    NOTHING_STALE = "overdue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizons:
    """How far ahead queued work keeps the node, in seconds."""

    recurring_seconds: float
    once_seconds: float
    min_period_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One piece of queued work.

    `due` is None where the time is not known. `period_seconds` is the time between runs; None: it runs once.
    """

    what: str  # for people, without the command: "alice's at job"
    user: str | None
    unit: str | None = None  # the timer
    starts: str | None = None  # what the timer starts; None: the service of its name
    persons: bool = False  # of a person's own queue, not of the machine's
    due: datetime | None
    period_seconds: float | None = None
    batch: bool = False  # it waits for a low load from its due time on
    mark: str | None = None  # what it is, over restarts: another command is another one

    def keeps(self, now: datetime, horizons: Horizons) -> Keeps:
        """Whether it keeps the node at that moment."""
        once = self.period_seconds is None
        if self.period_seconds is not None and self.period_seconds < horizons.min_period_seconds:
            return Keeps.NOTHING_OFTEN
        if self.due is None:
            return Keeps.NODE if once else Keeps.UNSEEN
        ahead = (self.due - now).total_seconds()
        if ahead > (horizons.once_seconds if once else horizons.recurring_seconds):
            return Keeps.NOTHING_LATER
        # Nobody waits for a job that has been overdue for as long as one may be queued ahead.
        return Keeps.NOTHING_STALE if once and ahead < -horizons.once_seconds else Keeps.NODE

    def is_seldom(self, now: datetime, horizons: Horizons) -> bool:
        """Whether it comes later than what keeps the node, within a week, and not each day or two."""
        return (
            self.keeps(now, horizons) is Keeps.NOTHING_LATER
            and self.due is not None
            and (self.period_seconds or 0.0) > _SELDOM_SECONDS
            and (self.due - now).total_seconds() <= horizons.once_seconds
        )

    def often(self) -> str:
        """That it recurs; its period is only a mean."""
        return f"{self.what} runs often"

    def sentence(self, now: datetime) -> str:
        """What is due, and when."""
        if self.due is None:
            return f"{self.what} is queued for an unknown time"
        at = format_time(self.due)
        if self.batch and self.due <= now:
            return f"{self.what} has waited since {at} for a lower load"
        if now - self.due > _LATE:
            return f"{self.what} was due at {at} and has not run (does its daemon run?)"
        often = "" if self.period_seconds is None else f" and again after {_round_duration(self.period_seconds)}"
        return f"{self.what} is due at {at}{often}"


def _round_duration(seconds: float) -> str:
    return "more than a year" if seconds > 366 * DAY_SECONDS else format_duration(seconds)


class GpuRuns:
    """Notes the processes that hold a GPU by what began them. Times are of the monotonic clock."""

    def __init__(self, user_name: Callable[[int], str]) -> None:
        """`user_name` gives the name of a uid as crontabs are named."""
        self._user_name = user_name
        self._seen: Mapping[str, float] = {}  # by unit, or by the user of a cron job
        self._since: float | None = None

    def note(self, view: ProcessView, gpu_pids: Collection[int], at: float) -> None:
        """Note those that hold a GPU now."""
        new = {key: at for pid in gpu_pids if (key := self._key(view.processes.get(pid), view)) is not None}
        if new:
            kept = sorted({**self._seen, **new}.items(), key=lambda item: -item[1])
            self._seen = dict(kept[:_MOST])

    def lately(self, work: Planned, at: float) -> bool:
        """Whether one of the last runs of recurring work held a GPU."""
        started = work.unit and (work.starts or f"{work.unit.removesuffix('.timer')}.service")
        seen = self._seen.get(started or f"cron:{work.user}")
        span = _MISSED_PERIODS * (work.period_seconds or 0.0) + _DELAY_SECONDS
        return seen is not None and at - seen <= span

    def unknown(self, work: Planned, at: float) -> bool:
        """Whether recurring work may not have run yet since the first call of this."""
        self._since = at if self._since is None else self._since
        return at - self._since <= (work.period_seconds or 0.0) + _DELAY_SECONDS

    def _key(self, process: Process | None, view: ProcessView) -> str | None:
        if process is None:
            return None
        if from_cron(process, view.processes):
            return f"cron:{self._user_name(process.uid)}"
        return process.placement.systemd_unit
