"""PURE: plays recorded gaps through the learned wait, knowing nothing ahead of time, and says what any wait costs."""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.hazard import BINS, EDGES
from gpuwatch.policies.idle_timeout.learned import waits

_ROUND_SECONDS = 60.0
_ENDS, _BEGINS, _ASKS = range(3)  # of what happens at once, ends come first


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One idle gap of a node. `needed`: it ended in work, otherwise with the node or the recording."""

    node_id: str
    begin: float
    end: float
    needed: bool = True

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Waits in all, notice included: of a pool that has not shown how it pauses, then of each node's first pause."""

    pool: float
    node: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What gaps cost: idle rental, and restarts of so many seconds of rental each."""

    idle_seconds: float
    restarts: int
    seconds: float


def cost(recorded: Sequence[Recorded], waited: Iterable[float], restart: float) -> Cost:
    """What gaps cost that were reclaimed once they were longer than these waits."""
    idle, restarts = 0.0, 0
    for gap, wait in zip(recorded, waited, strict=True):
        idle += min(gap.seconds, wait)
        restarts += gap.needed and gap.seconds > wait
    return Cost(idle_seconds=idle, restarts=restarts, seconds=idle + restarts * restart)


def optimum(recorded: Iterable[Recorded], restart: float) -> float:
    """What they cost who knows each end: the shorter of gap and restart, and nothing where the node is never needed."""
    return sum(min(gap.seconds, restart) for gap in recorded if gap.needed)


def live_waits(
    recorded: Sequence[Recorded],
    waited: Iterable[float],
    grace: float,
    *,
    learned: bool,
    interval: float = _ROUND_SECONDS,
) -> list[float]:
    """What becomes of waits where rounds are made every `interval` seconds, and a notice comes first.

    No notice comes within the first minute, and nothing is stopped in the round of its notice. A learned wait holds its
    notice; after any other it follows.
    """
    found, ahead = [], max(grace, interval)
    for gap, wait in zip(recorded, waited, strict=True):
        if math.isinf(wait):
            found.append(wait)
            continue
        least = max(MINIMUM_WAIT_SECONDS, wait - ahead if learned else wait)
        notice = math.ceil((gap.begin + least) / interval)
        stop = max(notice + 1, math.ceil(notice + grace / interval), math.ceil((gap.begin + wait) / interval))
        found.append(stop * interval - gap.begin)
    return found


def learned_waits(
    recorded: Sequence[Recorded],
    restart: float,
    *,
    queued: Callable[[str, float], float | None] | None = None,
    hints: Callable[[str, float], Mapping[str, float]] | None = None,
    fresh: Fresh | None = None,
    waiting: Callable[[str], float] | None = None,
) -> list[float]:
    """The wait that was over for each gap, infinite where it ended first; gaps of one node must not overlap.

    A node is asked about when its gap begins, in each bin of its age, when its wait is over, and every minute while
    work waits for it. `queued` says for how long work has waited at a time, None if no work waits; `hints` are numbers
    that tell how soon a node may be needed. With `fresh`, what is not known yet waits so long. `waiting` is what a
    regretted stop of a node costs people, in restarts' costs.
    """
    history, young = GapHistory(), dict[str, None]()  # nodes whose gaps are not past the last bin
    waited = [float("inf")] * len(recorded)
    due = [(gap.begin, _BEGINS, number) for number, gap in enumerate(recorded)]
    due += [(gap.end, _ENDS, number) for number, gap in enumerate(recorded)]
    heapq.heapify(due)
    ended = [False] * len(recorded)
    while due:
        at, what, number = heapq.heappop(due)
        gap = recorded[number]
        if what == _ENDS:
            ended[number] = True
            young.pop(gap.node_id, None)
            if _fixed_wait(history, gap.node_id, fresh) is not None:
                history = gaps.keep_nodes(history, at, (gap.node_id,))
            history = (gaps.need_node if gap.needed else gaps.forget_node)(history, gap.node_id, at)
            continue
        if ended[number]:
            continue
        queue = None if queued is None else queued(gap.node_id, at)
        if what == _BEGINS:
            history = gaps.went_idle(history, gap.node_id, at, restart, waiting(gap.node_id) if waiting else 0.0)
            young[gap.node_id] = None
        news = {} if hints is None else hints(gap.node_id, at)
        history = gaps.after_time(history, at, (gap.node_id,) if news or what == _BEGINS else young, news)
        if history.open[gap.node_id].bin == BINS:
            young.pop(gap.node_id, None)
        asks = [when for edge in EDGES if (when := gap.begin + edge * restart) > at]
        if math.isinf(waited[number]):
            history = gaps.after_look(history, at)
            if (fixed := _fixed_wait(history, gap.node_id, fresh)) is not None:
                history = gaps.keep_nodes(history, at, (gap.node_id,))
                over = gap.begin + fixed
            else:
                answers, history = waits(history, at, (gap.node_id,), queued=queue is not None and queue < restart)
                over = gap.begin + answers[gap.node_id].seconds
            if over <= at:
                waited[number] = at - gap.begin
                history = gaps.reclaim_node(history, gap.node_id, at)
            else:
                asks += [over] + [at + _ROUND_SECONDS] * (queue is not None)
        if asks:
            heapq.heappush(due, (min(asks), _ASKS, number))
    return waited


def _fixed_wait(history: GapHistory, node_id: str, fresh: Fresh | None) -> float | None:
    """The wait of what is not known yet; None: it is known, or need not be."""
    if fresh is None:
        return None
    if not gaps.is_pool_known(history):
        return fresh.pool
    return None if node_id in history.habits else fresh.node
