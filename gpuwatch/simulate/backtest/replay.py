"""PURE: plays recorded gaps through the learned wait, knowing nothing ahead of time, and says what any wait costs."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.hazard import EDGES
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


def learned_waits(
    recorded: Sequence[Recorded],
    restart: float,
    *,
    queued: Callable[[str, float], float | None] | None = None,
) -> list[float]:
    """The wait that was over for each gap, infinite where it ended first; gaps of one node must not overlap.

    A node is asked about when its gap begins, at each bin's end up to break-even, when its wait is over, and every
    minute while work waits for it. `queued` says for how long work has waited at a time, None if no work waits.
    """
    history = GapHistory()
    waited = [float("inf")] * len(recorded)
    due = [(gap.begin, _BEGINS, number) for number, gap in enumerate(recorded)]
    due += [(gap.end, _ENDS, number) for number, gap in enumerate(recorded)]
    heapq.heapify(due)
    ended = [False] * len(recorded)
    while due:
        at, what, number = heapq.heappop(due)
        gap = recorded[number]
        history = gaps.aged(history, at)
        if what == _ENDS:
            ended[number] = True
            history = (gaps.needed if gap.needed else gaps.gone)(history, gap.node_id, at)
            continue
        if ended[number]:
            continue
        queue = None if queued is None else queued(gap.node_id, at)
        if what == _BEGINS:
            demand = None if queued is None else queue is not None
            history = gaps.went_idle(history, gap.node_id, at, restart, demand=demand)
        answers, history = waits(history, at, (gap.node_id,), queued=queue is not None and queue < restart)
        wait = answers[gap.node_id].seconds
        if gap.begin + wait <= at:
            waited[number] = at - gap.begin
            history = gaps.reclaimed(history, gap.node_id, at)
            continue
        asks = [gap.begin + edge for edge in (*EDGES, restart) if edge <= restart and gap.begin + edge > at]
        asks += [at + _ROUND_SECONDS] if queue is not None else []
        heapq.heappush(due, (min([gap.begin + wait, *asks]), _ASKS, number))
    return waited
