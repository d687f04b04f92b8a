"""PURE: what a pool knows of its idle gaps, as one value; every change makes a new one.

A gap begins when a node turns idle and ends when it is needed again: it works, or, if it was reclaimed, it is started
again. Times are seconds on any one axis. Nothing is known of the future: a gap is counted as it grows.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from gpuwatch.policies.idle_timeout.hazard import Table, bin_of, counted
from gpuwatch.policies.idle_timeout.restart_times import Starts

_LATEST = 0.2  # how much the latest gap counts in what is usual for a node
_MOST_NODES = 2000
_CLASSES = 6
_CLASS_GROWTH = 4.0
_CLASS_FIRST_SECONDS = 40.0
SHARE = 0.05  # more than break-even, at the worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """One node: the usual length of its gaps, on a scale of logarithms, how many there were, when its last ended."""

    usual_log: float
    gaps: int
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An open gap. `passed` bins are counted already; `tables` are the names of those that it counts in."""

    since: float
    restart: float
    tables: tuple[str, ...]
    passed: int = 0
    promised: float = 0.0  # idle seconds, past the restart's cost, that it may reach
    reclaimed: float | None = None  # after so many idle seconds
    excused: float = 0.0  # of its idle seconds, those that a floor kept it for: they count in the tables alone

    def charged(self, at: float) -> float:
        """The idle seconds that count."""
        return at - self.since - self.excused

    def worst(self, at: float) -> float:
        """The largest loss that it can still come to."""
        stop = None if self.reclaimed is None else self.reclaimed - self.excused
        return worst(age=self.charged(at), restart=self.restart, reclaimed=stop, promised=self.promised)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapHistory:
    """One pool's knowledge: at most 117 tables, 2,000 nodes' habits, the gaps that are open, and the last starts."""

    tables: dict[str, Table] = field(default_factory=dict)
    habits: dict[str, Habit] = field(default_factory=dict)
    open: dict[str, Gap] = field(default_factory=dict)
    saved: float = 0.0  # 1.05 times what break-even would have paid for the closed gaps, less what was paid
    starts: Starts = field(default_factory=Starts)
    queued_since: float | None = None  # since when work waits for the pool

    def spare(self, at: float) -> float:
        """What may be lost from now on, if the open gaps all turn out as badly as they can."""
        return self.saved - sum(gap.worst(at) for gap in self.open.values())


def went_idle(
    history: GapHistory, node_id: str, at: float, restart: float, *, demand: bool | None = None
) -> GapHistory:
    """A node turned idle, while work waited for the pool or none did; a gap of it that is open goes on."""
    if node_id in history.open:
        return history
    gap = Gap(since=at, restart=restart, tables=tuple(_tables(history.habits.get(node_id), at, demand)))
    return replace(history, open={**history.open, node_id: gap})


def aged(history: GapHistory, at: float, unseen: Collection[str] = ()) -> GapHistory:
    """Time passed: open gaps count in the bins that they have left behind; those of unseen nodes wait for sight."""
    grown = {
        name: gap for name, gap in history.open.items() if name not in unseen and bin_of(at - gap.since) > gap.passed
    }
    if not grown:
        return history
    tables, gaps = dict(history.tables), dict(history.open)
    for name, gap in grown.items():
        last = bin_of(at - gap.since)
        _count(tables, gap, last, ended=False)
        gaps[name] = replace(gap, passed=last)
    return replace(history, tables=tables, open=gaps)


def kept(history: GapHistory, at: float) -> GapHistory:
    """A floor keeps the pool's nodes: no time past break-even's wait, or a promise, is the choice of a wait."""
    found = {
        name: replace(gap, excused=excused)
        for name, gap in history.open.items()
        if gap.reclaimed is None and (excused := at - gap.since - max(gap.restart, gap.promised)) > gap.excused
    }
    return replace(history, open={**history.open, **found}) if found else history


def reclaimed(history: GapHistory, node_id: str, at: float) -> GapHistory:
    """The node was stopped to save its rent; its gap stays open until it is needed again."""
    gap = history.open.get(node_id)
    if gap is None or gap.reclaimed is not None:
        return history
    return replace(history, open={**history.open, node_id: replace(gap, reclaimed=at - gap.since)})


def needed(history: GapHistory, node_id: str, at: float) -> GapHistory:
    """The node works again, or was started again."""
    gap = history.open.get(node_id)
    if gap is None:
        return history
    seconds = at - gap.since
    tables = dict(history.tables)
    _count(tables, gap, bin_of(seconds), ended=True)
    habits = {**history.habits, node_id: _learned(history.habits.get(node_id), seconds, at)}
    if len(habits) > _MOST_NODES:
        del habits[min(habits, key=lambda name: habits[name].ended_at)]
    return _closed(replace(history, tables=tables, habits=habits), node_id, at, needed=True)


def gone(history: GapHistory, node_id: str, at: float) -> GapHistory:
    """The node is no more, or out of sight for good: what became of its gap is not known."""
    return _closed(history, node_id, at, needed=False) if node_id in history.open else history


def _closed(history: GapHistory, node_id: str, at: float, *, needed: bool) -> GapHistory:
    """Without the gap, and with what it lost."""
    gap = history.open[node_id]
    stop = None if gap.reclaimed is None else gap.reclaimed - gap.excused
    lost = loss(seconds=gap.charged(at), restart=gap.restart, reclaimed=stop, needed=needed)
    left = {name: each for name, each in history.open.items() if name != node_id}
    return replace(history, open=left, saved=history.saved - lost)


def _count(tables: dict[str, Table], gap: Gap, last: int, *, ended: bool) -> None:
    """A gap into all of its tables."""
    for name in gap.tables:
        tables[name] = counted(tables.get(name, Table()), gap.passed, last, ended=ended)


def _learned(habit: Habit | None, seconds: float, at: float) -> Habit:
    """A node's habit with one more gap."""
    length = math.log(max(1.0, seconds))
    if habit is None:
        return Habit(usual_log=length, gaps=1, ended_at=at)
    weight = max(_LATEST, 1 / (habit.gaps + 1))
    return Habit(usual_log=habit.usual_log + weight * (length - habit.usual_log), gaps=habit.gaps + 1, ended_at=at)


def _tables(habit: Habit | None, at: float, demand: bool | None) -> Iterator[str]:
    """The tables of a gap that begins now, each within the one before.

    Of all gaps, of nodes with gaps as long, of these after as long a spell, of these while work waited or none did.
    """
    finest = "all"
    yield finest
    if habit is not None:
        usual = f"gap{_class(math.exp(habit.usual_log))}"
        yield usual
        finest = f"{usual}.busy{_class(at - habit.ended_at)}"
        yield finest
    if demand is not None:
        yield f"{finest}.{'queue' if demand else 'none'}"


def _class(seconds: float) -> int:
    """Lengths in classes, each four times as long as the one before."""
    if seconds < _CLASS_FIRST_SECONDS:
        return 0
    return min(_CLASSES - 1, 1 + int(math.log(seconds / _CLASS_FIRST_SECONDS, _CLASS_GROWTH)))


def loss(*, seconds: float, restart: float, reclaimed: float | None, needed: bool) -> float:
    """What a gap of so many seconds cost, reclaimed after so many of them, less 1.05 times what break-even pays."""
    paid = seconds if reclaimed is None else reclaimed + restart * needed
    both = seconds > restart or (reclaimed is not None and reclaimed >= restart)
    reference = restart + restart * needed if both else seconds
    return paid - (1 + SHARE) * reference


def worst(*, age: float, restart: float, reclaimed: float | None, promised: float) -> float:
    """The largest loss that an open gap can come to, if it is reclaimed by `promised` or by break-even's wait."""
    if reclaimed is None:
        held = age if age < restart else max(age, promised)
        return held - (1 + SHARE) * min(age, restart)  # needed again now; or, past the restart's cost, never
    if reclaimed < restart and age <= restart:
        return reclaimed + restart - (1 + SHARE) * age  # needed again now
    return reclaimed - (1 + SHARE) * restart  # never needed again
