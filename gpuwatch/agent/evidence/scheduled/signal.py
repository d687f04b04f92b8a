"""The signal `scheduled`: work that people queued for later on this host keeps the node."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from gpuwatch.agent.evidence.base import Moment, Roots, make_finding, several
from gpuwatch.agent.evidence.scheduled.at_jobs import AtJobs
from gpuwatch.agent.evidence.scheduled.crontabs import ContainedCrontabs, Crontabs
from gpuwatch.agent.evidence.scheduled.events import Events
from gpuwatch.agent.evidence.scheduled.found import Found, Standing, Users, Zones
from gpuwatch.agent.evidence.scheduled.planned import GpuRuns, Horizons, Keeps, Planned
from gpuwatch.agent.evidence.scheduled.shipped import ShippedFiles
from gpuwatch.agent.evidence.scheduled.timers import Timers, UserTimers
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.agent.processes.packages import PackageOwners
from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.evidence_text import LATER

_GAP_SECONDS = 600.0
_SETTING = "agent.evidence.scheduled"
_SHARE_OF_DEADLINE = 0.5  # systemctl's, so that the files can still be read when it did not answer
_CALLED = {
    "at": "at jobs",
    "cron": "crontabs",
    "timers": "systemd timers",
    "user_timers": "users' timers",
    "events": "event units",
}


class Known(Protocol):
    """What the last days have shown of planned work."""

    def due(self, now: Moment) -> Collection[Planned]:
        """What used a GPU at this time before."""
        ...

    def note_due(self, mark: str) -> None:
        """Take that planned work was due just now."""
        ...

    def planned_words(self, work: Planned, at: float) -> str | None:
        """That planned work has come for days without a GPU."""
        ...


class Scheduled:
    """Busy while work that somebody queued is due soon enough; see `planned` for the rules.

    `runs` must be given the processes that hold a GPU, often enough to see short ones.
    """

    name = "scheduled"
    source = "at jobs, crontabs, systemd timers and event units"

    def __init__(
        self,
        settings: ScheduledSettings,
        roots: Roots,
        deadline_seconds: float,
        systemctl: str | None = None,
        packages: PackageOwners | None = None,
        habits: Known | None = None,
    ) -> None:
        """`systemctl` is the program to ask; None: the one on the PATH. `packages` knows the owners of files.

        `habits` is what the last days have shown.
        """
        self._habits, self._users = habits, Users(roots)
        self._awaited: dict[str, datetime] = {}
        self._looked_at: float | None = None
        self._horizons = Horizons(
            recurring_seconds=settings.horizon,
            once_seconds=settings.once_horizon,
            min_period_seconds=settings.min_period,
        )
        self._sources = settings.sources
        users, zones, shipped = Users(roots), Zones(roots), ShippedFiles(packages)
        self.runs = GpuRuns(users.name)
        self._at = AtJobs(roots, users)
        self._cron = Crontabs(roots, users, zones, shipped)
        self._contained = ContainedCrontabs(roots)
        share = _SHARE_OF_DEADLINE * deadline_seconds
        self._timers = Timers(roots, zones, settings.ignored, share, shipped, systemctl)
        self._user_timers = UserTimers(roots, users, zones, settings.ignored)
        self._events = Events(roots, settings.ignored, shipped)

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all queued work, by the wall clock of this look."""
        found = Found()
        if "at" in self._sources:
            self._at.read(found)
        if "cron" in self._sources:
            self._cron.read(found, now)
            self._contained.read(found, now)
        if "timers" in self._sources:
            self._timers.read(found, now)
        if "user_timers" in self._sources:
            self._user_timers.read(found, now)
        if "events" in self._sources:
            self._events.read(found, now)
        learned = [] if self._habits is None else list(self._habits.due(now))
        found.planned += learned
        self._note_due(found.planned, now)
        usual = self._usual(found.planned, now)
        kept = sorted(
            (each for each in found.planned if each.keeps(now.at, self._horizons) is Keeps.NODE and each not in usual),
            key=lambda each: (each.due is not None, each.due and each.due.timestamp(), each.what),
        )
        if kept:
            # The batch that comes first is said first; one without a time may start at any moment.
            return (self._busy(kept, now),)
        often = [each for each in found.planned if each.keeps(now.at, self._horizons) is Keeps.NOTHING_OFTEN]
        on_gpu = [each for each in often if self.runs.lately(each, now.monotonic_seconds)]
        if on_gpu:
            return (self._recurs(State.BUSY, on_gpu, ", and a run lately held a GPU"),)
        unseen = [each for each in found.planned if each.keeps(now.at, self._horizons) is Keeps.UNSEEN]
        found.doubts += [f"when {each.what} is due is not to be seen without systemctl" for each in unseen]
        if found.doubts:
            return (make_finding(self, State.UNKNOWN, several(found.doubts), setting=f"{_SETTING}.sources"),)
        own = [each for each in often if each.persons]
        if own:
            return (self._recurs(State.OCCUPIED, own, ""),)
        if found.standing:
            return (self._waits(found.standing),)
        new = [each for each in often if self.runs.unknown(each, now.monotonic_seconds)]
        if new:
            return (self._recurs(State.OCCUPIED, new, "; what its runs do was not seen yet"),)
        later = [each for each in (*learned, *found.planned) if each in learned or each.persons]
        known = "".join(f"; {each.what} {words}" for each, words in list(usual.items())[:2])
        nothing = self._nothing(found.planned, now) + known + self._later(later, now)
        return (self._seldom(later, now) or make_finding(self, State.IDLE, nothing),)

    def _note_due(self, planned: Collection[Planned], now: Moment) -> None:
        """Tell which work was due since the look before, if that was not long ago."""
        last, self._looked_at = self._looked_at, now.monotonic_seconds
        next_times = {each.mark: each.due for each in planned if each.mark is not None and each.due is not None}
        if self._habits is not None and last is not None and now.monotonic_seconds - last <= _GAP_SECONDS:
            for mark, due in self._awaited.items():
                if due <= now.at and next_times.get(mark, due) > due:
                    self._habits.note_due(mark)
        self._awaited = next_times

    def _usual(self, planned: Collection[Planned], now: Moment) -> dict[Planned, str]:
        """What of the machine's own has come for days without a GPU, and the words for it."""
        if self._habits is None:
            return {}
        recurring = (each for each in planned if each.period_seconds is not None and not each.persons)
        own = (each for each in recurring if self._users.machines_own(each.user or "root"))
        said = ((each, self._habits.planned_words(each, now.at.timestamp())) for each in own)
        return {each: words for each, words in said if words is not None}

    def _waits(self, standing: list[Standing]) -> Evidence:
        owner = WorkOwner(user=standing[0].user, unit=standing[0].unit)
        note = f"{several([each.what for each in standing])} waits for an event"
        return make_finding(self, State.OCCUPIED, note, owner=owner, setting=f"{_SETTING}.sources")

    def _recurs(self, says: State, often: list[Planned], why: str) -> Evidence:
        owner = WorkOwner(user=often[0].user, unit=often[0].unit)
        note = several(list(dict.fromkeys(each.often() for each in often))) + why
        return make_finding(self, says, note, owner=owner, setting=f"{_SETTING}.sources")

    def _seldom(self, later: Collection[Planned], now: Moment) -> Evidence | None:
        """Occupied by what comes within a week, and a long time after that only."""
        own = (each for each in later if each.persons and each.is_seldom(now.at, self._horizons))
        found = {each.sentence(now.at): each.user for each in own}
        if not found:
            return None
        owner = WorkOwner(user=next(iter(found.values())))
        return make_finding(self, State.OCCUPIED, several([*found]), owner=owner, setting=f"{_SETTING}.once_horizon")

    def _busy(self, kept: list[Planned], now: Moment) -> Evidence:
        first = kept[0]
        once = first.period_seconds is None
        ahead = None if first.due is None else (first.due - now.at).total_seconds()
        return make_finding(
            self,
            State.BUSY,
            several([each.sentence(now.at) for each in kept]),
            observed=ahead,
            limit=self._horizons.once_seconds if once else self._horizons.recurring_seconds,
            unit="seconds until it is due",
            owner=WorkOwner(user=first.user, unit=first.unit),
            setting=f"{_SETTING}.once_horizon" if once else f"{_SETTING}.horizon",
        )

    def _later(self, planned: Collection[Planned], now: Moment) -> str:
        """What of somebody's comes later than the horizon, for the notice."""
        ahead = sorted(
            {
                each.sentence(now.at): each.due
                for each in planned
                if each.keeps(now.at, self._horizons) is Keeps.NOTHING_LATER
            }.items(),
            key=lambda item: (item[1] is None, item[1] and item[1].timestamp(), item[0]),
        )
        return LATER + several([sentence for sentence, _ in ahead], 2) if ahead else ""

    def _nothing(self, planned: list[Planned], now: Moment) -> str:
        """What was looked at, and what of it does not count."""
        counts: dict[str, int] = {}
        for each in planned:
            keeps = each.keeps(now.at, self._horizons)
            counts[keeps] = counts.get(keeps, 0) + 1
        passed = ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))
        looked = ", ".join(_CALLED[source] for source in _CALLED if source in self._sources)
        return f"nothing is due soon: {looked}" + (f" ({passed})" if passed else "")
