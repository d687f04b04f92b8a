"""PURE: what a pool knows of its idle gaps, as one value; every change makes a new one.

A gap begins when a node turns idle and ends when it is needed again: it works, or, if it was reclaimed, it is started
again. Times are seconds on any one axis. Nothing is known of the future: a gap is counted as it grows.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.model.measurement import Pauses
from gpuwatch.policies.idle_timeout import facts
from gpuwatch.policies.idle_timeout.answers import AnswerHistory
from gpuwatch.policies.idle_timeout.break_even import REGRET_SECONDS
from gpuwatch.policies.idle_timeout.hazard import BINS, EDGES, Asked, Facts, Hazard, best_stop, bin_of, chances, taught
from gpuwatch.policies.idle_timeout.restart_times import Starts

_MOST_NODES = 2000
_MOVES = 64  # of the pool's starts and idle nodes, so many times are known
_RETURNS = 16  # and of one node
_ENOUGH = 8  # starts, to know the pool's pace
_PACE = 604800.0  # seconds over which a start of a node fades out of its pace
_USUAL, _LONG = 0.2, 0.1  # how much the latest gap counts in what is usual for a node
_MARGIN = 0.03  # of a restart: less is not worth a departure from break-even
SHARE = 0.05  # more than break-even, at the worst
ENOUGH_PAUSES, ENOUGH_DAYS = 20, 3  # that a pool has shown before its waits are learned, where that is asked for
_DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """One node: its gaps' usual length (a logarithm), their number, the last, the part that outlast a restart.

    `last_seconds` and `long_ratio` are None of a node that only an earlier version saw.
    `pace` is how often it was needed in the week to `ended_at`, as a sum that fades.
    """

    usual_log: float
    gaps: int
    ended_at: float
    last_seconds: float | None = None
    long_ratio: float | None = None
    returns: tuple[float, ...] = ()
    pace: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An open gap. The bins before `bin` are learned from; `asked` are its decisions, the last of which is `wish`."""

    since: float
    restart: float
    bin: int = 0
    asked: tuple[Asked, ...] = ()
    wish: float | None = None  # idle seconds after which to stop is expected to cost least
    why: str = ""  # the factors behind it
    promised: float = 0.0  # idle seconds, past the restart's cost, that it may reach
    reclaimed: float | None = None  # after so many idle seconds
    excused: float = 0.0  # of its idle seconds, those that a floor kept it for: the account leaves them out
    waiting: float = 0.0  # restarts' costs that a regretted stop of it costs people

    def bin_at(self, at: float) -> int:
        """The bin that it is in by then."""
        return bin_of(max(0.0, at - self.since) / self.restart)

    def charged_seconds(self, at: float) -> float:
        """The idle seconds that count."""
        return at - self.since - self.excused

    def regret(self, at: float, *, needed: bool) -> float:
        """What it cost, if it ends now, less 1.05 times what break-even pays."""
        seconds, restart = self.charged_seconds(at), self.restart
        stop = None if self.reclaimed is None else self.reclaimed - self.excused
        paid = seconds if stop is None else stop + restart * needed
        both = seconds > restart or (stop is not None and stop >= restart)
        return paid - (1 + SHARE) * (restart + restart * needed if both else seconds)

    def worst(self, at: float) -> float:
        """The largest loss that it can still come to, if it is reclaimed by `promised` or by break-even's wait."""
        age, restart = at - self.since - self.excused, self.restart
        if self.reclaimed is None:
            held = age if age < restart else max(age, self.promised)
            return held - (1 + SHARE) * min(age, restart)  # needed again now; or, past the restart's cost, never
        stop = self.reclaimed - self.excused
        if stop < restart and age <= restart:
            return stop + restart - (1 + SHARE) * age  # needed again now
        return stop - (1 + SHARE) * restart  # never needed again


@dataclass(frozen=True, slots=True, kw_only=True)
class GapHistory:
    """One pool's knowledge: the hazard, 2,000 nodes' habits, open gaps, the pool's last moves, its answers."""

    hazard: Hazard = field(default_factory=Hazard)
    habits: dict[str, Habit] = field(default_factory=dict)  # the node that was needed last is the last one
    open: dict[str, Gap] = field(default_factory=dict)
    idled: tuple[float, ...] = ()  # when nodes turned idle
    returned: tuple[float, ...] = ()  # when nodes were needed again
    saved: float = 0.0  # 1.05 times what break-even would have paid for the closed gaps, less what was paid
    starts: Starts = field(default_factory=Starts)
    queued_since: float | None = None  # since when work waits for the pool
    pauses: Pauses = field(default_factory=Pauses)
    day_since: float | None = None  # of the day that is not over
    answers: AnswerHistory = field(default_factory=AnswerHistory)

    def spare(self, at: float) -> float:
        """What may be lost from now on, if the open gaps all turn out as badly as they can."""
        return self.saved - sum([gap.worst(at) for gap in self.open.values()])


def went_idle(history: GapHistory, node_id: str, at: float, restart: float, waiting: float = 0.0) -> GapHistory:
    """A node turned idle; a gap of it that is open goes on. `waiting` is what a regretted stop of it costs people."""
    if node_id in history.open:
        return history
    gap = Gap(since=at, restart=restart, waiting=waiting)
    return replace(history, open={**history.open, node_id: gap}, idled=(*history.idled, at)[-_MOVES:])


def after_time(
    history: GapHistory, at: float, names: Iterable[str] | None = None, news: Facts | None = None
) -> GapHistory:
    """Time passed: open gaps teach the bins that they left behind, and are decided about in the one they reached.

    With `names`, these open gaps alone, in the order in which they were opened; the others wait for sight. `news` is
    what is known of the pool besides, on scales of classes.
    """
    due = {
        name: reached
        for name in (history.open if names is None else names)
        if (gap := history.open[name]).bin < BINS and ((reached := gap.bin_at(at)) > gap.bin or gap.wish is None)
    }
    if not due:
        return history
    hazard, gaps = history.hazard, dict(history.open)
    for name, reached in due.items():
        hazard = taught(hazard, gaps[name].asked, gaps[name].bin, reached, ended=False)
    history = replace(history, hazard=hazard)
    begun = sorted([gap.since for gap in gaps.values()])
    for name, reached in due.items():
        gaps[name] = _decide_gap(history, name, at, reached, _gaps_before(history.open, name, begun), news or {})
    return replace(history, open=gaps)


def _gaps_before(gaps: Mapping[str, Gap], name: str, begun: Sequence[float]) -> int:
    """How many gaps began later, of those that began with it the ones named first; `begun` is sorted."""
    since = gaps[name].since
    first, past = bisect_left(begun, since), bisect_right(begun, since)
    same = [other for other, gap in gaps.items() if gap.since == since].index(name) if past - first > 1 else 0
    return len(begun) - past + same


def _decide_gap(history: GapHistory, name: str, at: float, reached: int, before: int, news: Facts) -> Gap:
    """A gap with the decision of the bin that it has reached; past all bins nothing is left to learn or to wish."""
    gap = history.open[name]
    if reached == BINS:
        return replace(gap, bin=BINS, asked=(), wish=EDGES[-1] * gap.restart, why="")
    asked = Asked(bin=reached, facts={**_facts(history, name, gap, at, before), **news})
    found, age, soon = chances(history.hazard, asked), (at - gap.since) / gap.restart, REGRET_SECONDS / gap.restart
    wish = gap.restart * best_stop(found, age, _MARGIN, waiting=gap.waiting, soon=soon)
    why = "" if gap.reclaimed is not None else facts.words(history.hazard, asked, gap.restart)
    return replace(gap, bin=reached, asked=(*gap.asked, asked), wish=wish, why=why)


def _facts(history: GapHistory, name: str, gap: Gap, at: float, before: int) -> Facts:
    """What is known of a gap now."""
    habit, restart, moves = history.habits.get(name), gap.restart, history.returned
    returns = () if habit is None else habit.returns
    found = dict.fromkeys(("usual", "last", "long", "spell", "turn"), facts.UNKNOWN) | {
        "own": facts.count(len([each for each in returns if each > at - 6 * restart])),
        "pace": facts.count(0.0 if habit is None else _pace(habit, at)),
        "before": facts.count(before),
        "idled": facts.count(len([each for each in history.idled if each > at - restart / 2])),
    }
    if habit is not None:
        found |= {
            "usual": facts.length(math.exp(habit.usual_log) / restart),
            "spell": facts.length((gap.since - habit.ended_at) / restart),
        }
        if habit.last_seconds is not None and habit.long_ratio is not None:
            found |= {"last": facts.length(habit.last_seconds / restart), "long": facts.ratio(habit.long_ratio)}
    if len(moves) >= _ENOUGH and at > moves[0]:
        found["turn"] = facts.length((before + 1) * (at - moves[0]) / len(moves) / restart)
    return found


def after_look(history: GapHistory, at: float) -> GapHistory:
    """The pool was seen: a day counts once it is over; of days that nobody saw, or that a clock skipped, one does."""
    since = history.day_since
    if since is None or at < since:
        return replace(history, day_since=at)
    if at < since + _DAY:
        return history
    pauses = replace(history.pauses, days=min(ENOUGH_DAYS, history.pauses.days + 1))
    return replace(history, pauses=pauses, day_since=at if at >= since + 2 * _DAY else since + _DAY)


def is_pool_known(history: GapHistory) -> bool:
    """Whether the pool has shown how it pauses."""
    return history.pauses.ended >= ENOUGH_PAUSES and history.pauses.days >= ENOUGH_DAYS


def fresh_words(pauses: Pauses | None) -> str:
    """What the pool has shown so far, of what it takes to learn its waits."""
    if pauses is None:
        return ""
    seen = f"{pauses.ended} of {ENOUGH_PAUSES} pauses and {pauses.days} of {ENOUGH_DAYS} days seen"
    return f" (until its pool is known: {seen})"


def keep_nodes(history: GapHistory, at: float, nodes: Collection[str] | None = None) -> GapHistory:
    """Something else keeps these nodes, or all: no time past break-even's wait, or a promise, is a wait's choice."""
    found = {
        name: replace(gap, excused=excused)
        for name, gap in history.open.items()
        if (nodes is None or name in nodes)
        and gap.reclaimed is None
        and (excused := at - gap.since - max(gap.restart, gap.promised)) > gap.excused
    }
    return replace(history, open={**history.open, **found}) if found else history


def reclaim_node(history: GapHistory, node_id: str, at: float) -> GapHistory:
    """The node was stopped to save its rent; its gap stays open until it is needed again."""
    gap = history.open.get(node_id)
    if gap is None or gap.reclaimed is not None:
        return history
    return replace(history, open={**history.open, node_id: replace(gap, reclaimed=max(0.0, at - gap.since))})


def need_node(history: GapHistory, node_id: str, at: float) -> GapHistory:
    """The node works again, or was started again."""
    gap = history.open.get(node_id)
    if gap is None:
        return history
    seconds = at - gap.since
    hazard = taught(history.hazard, gap.asked, gap.bin, gap.bin_at(at), ended=True)
    habits = dict(history.habits)
    habits[node_id] = _learn_gap(habits.pop(node_id, None), seconds, gap.restart, at)
    if len(habits) > _MOST_NODES:
        del habits[next(iter(habits))]
    moves = (*history.returned, at)[-_MOVES:]
    pauses = replace(history.pauses, ended=min(ENOUGH_PAUSES, history.pauses.ended + 1))
    history = replace(history, hazard=hazard, habits=habits, returned=moves, pauses=pauses)
    return _close_gap(history, node_id, at, needed=True)


def forget_node(history: GapHistory, node_id: str, at: float) -> GapHistory:
    """The node is no more, or out of sight for good: what became of its gap is not known."""
    return _close_gap(history, node_id, at, needed=False) if node_id in history.open else history


def _close_gap(history: GapHistory, node_id: str, at: float, *, needed: bool) -> GapHistory:
    """Without the gap, and with what it lost."""
    lost = history.open[node_id].regret(at, needed=needed)
    left = {name: each for name, each in history.open.items() if name != node_id}
    return replace(history, open=left, saved=history.saved - lost)


def _learn_gap(habit: Habit | None, seconds: float, restart: float, at: float) -> Habit:
    """A node's habit with one more gap."""
    length, outlasts = math.log(max(1.0, seconds)), float(seconds > restart)
    if habit is None:
        habit = Habit(usual_log=length, gaps=0, ended_at=at)
    gaps, long = habit.gaps + 1, outlasts if habit.long_ratio is None else habit.long_ratio
    return Habit(
        usual_log=habit.usual_log + max(_USUAL, 1 / gaps) * (length - habit.usual_log),
        gaps=gaps,
        ended_at=at,
        last_seconds=seconds,
        long_ratio=long + max(_LONG, 1 / gaps) * (outlasts - long),
        returns=(*habit.returns, at)[-_RETURNS:],
        pace=1.0 + _pace(habit, at),
    )


def _pace(habit: Habit, at: float) -> float:
    """How often the node was needed in the week to a time, what is older fading."""
    return habit.pace * math.exp(min(0.0, habit.ended_at - at) / _PACE)
