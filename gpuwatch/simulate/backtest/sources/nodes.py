"""Nodes as a source shows them, stretch by stretch in the order of time, and the history that they make.

Time without data is out of sight: it is neither idle nor paid for. Unknown time is paid for and not idle, either.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from itertools import pairwise

from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile, Phase
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.simulate.backtest.gaps import History, Known, of_lives
from gpuwatch.simulate.fleet.options import Options
from gpuwatch.simulate.fleet.traces import machine_for
from gpuwatch.simulate.fleet.workloads import Workload


class Kind(IntEnum):
    """What a node does for a while."""

    UNKNOWN = 0
    BUSY = 1
    PARKED = 2  # somebody's, by memory or by a process, and nothing computed
    IDLE = 3


@dataclass(slots=True)
class Run:
    """A node does the same from `begin` to `end`. `gpus` is how many GPUs reported it, 0 where they are not counted."""

    begin: float
    end: float
    kind: Kind
    gpus: int
    words: str


@dataclass(slots=True, kw_only=True)
class NodeObservation:
    """One node; times are seconds from the history's begin.

    `parked_is` is what held memory counts as; where that is idle, it is so after `parked_after` seconds, and busy
    before.
    """

    name: str
    parked_is: Kind = Kind.BUSY
    parked_after: float = 0.0
    pool: str = DEFAULT_POOL
    instance_type: str | None = None
    gpus: int = 0
    runs: list[Run] = field(default_factory=list)

    def add(self, begin: float, end: float, kind: Kind, *, gpus: int = 0, words: str = "") -> None:
        """What it did from the end of what is known, or from `begin`, on; `words` are why, where it begins to be so."""
        if kind is Kind.PARKED:
            words = words or "memory held"
            kind = kind if self._late else self.parked_is
        runs = self.runs
        if runs:
            last = runs[-1]
            if begin <= last.end and last.kind is kind and last.gpus == gpus:
                last.end = max(last.end, end)
                return
            begin = max(begin, last.end)
        if begin < end:
            runs.append(Run(begin, end, kind, gpus, words))

    def settle(self, moment: float) -> None:
        """Idle only while all of its GPUs say so; their number is the most that it had for longer than a moment.

        In one moment the GPU that goes and the one that comes in its place may both be seen.
        """
        if self._late:
            self.runs = [part for run in self.runs for part in self._parts(run)]
        lasting = defaultdict[int, float](float)
        for run in self.runs:
            lasting[run.gpus] += run.end - run.begin
        most = max([gpus for gpus, seconds in lasting.items() if seconds > 1.5 * moment] or lasting, default=0)
        self.gpus = self.gpus or most
        for run in self.runs:
            if run.kind is Kind.IDLE and run.gpus < most:
                run.kind = Kind.UNKNOWN

    @property
    def _late(self) -> bool:
        return self.parked_is is Kind.IDLE and self.parked_after > 0

    def _parts(self, run: Run) -> Iterator[Run]:
        """A run in which somebody may come back, as long as the rules wait for that, and then idleness."""
        if run.kind is not Kind.PARKED:
            yield run
            return
        middle = min(run.end, run.begin + self.parked_after)
        yield Run(run.begin, middle, Kind.BUSY, run.gpus, "")
        if middle < run.end:
            yield Run(middle, run.end, Kind.IDLE, run.gpus, run.words)


def history_of_nodes(
    observations: Iterable[NodeObservation], horizon: float, begins_at: datetime, options: Options, moment: float = 0.0
) -> History:
    """The history that they make; `moment` is the shortest time that the source shows.

    Raises:
        TraceError: no machine type has so many GPUs, and the data names no type.

    """
    nodes = {node.name: node for node in sorted(observations, key=lambda node: node.name) if node.runs}
    words = {}
    for node in nodes.values():
        node.settle(moment)
        idle = [(run.begin, run.words) for run in node.runs if run.kind is Kind.IDLE]
        words[node.name] = ([begin for begin, _ in idle], [why for _, why in idle])

    def why(life: Workload, begin: float) -> str:
        begins, reasons = words[life.name]
        return reasons[bisect_right(begins, begin) - 1]

    return of_lives((_node_life(node, horizon, options) for node in nodes.values()), horizon, why, begins_at=begins_at)


def _node_life(node: NodeObservation, horizon: float, options: Options) -> Known:
    """The node as a life."""
    busy = [(run.begin, run.end) for run in node.runs if run.kind is Kind.BUSY]
    sure = Intervals((run.begin, run.end) for run in node.runs if run.kind is not Kind.UNKNOWN)
    edges = [(-1.0, 0.0), *sure, (horizon, horizon + 1.0)]
    silent = Intervals((end, begin) for (_, end), (begin, _) in pairwise(edges))
    gpus = node.gpus or options.gpus_per_node
    life = Workload(
        name=node.name,
        story="recorded",
        instance_type=options.instance_type or node.instance_type or machine_for(gpus),
        pool=node.pool,
        gpus=(LoadProfile(tuple(_phases(Intervals(busy)))),) * gpus,
        silent=silent,
    )
    return Known(life=life, begin=0.0, seconds=sum(run.end - run.begin for run in node.runs))


def _phases(busy: Intervals) -> Iterator[Phase]:
    for begin, end in busy:
        yield Phase(at=begin, utilization_ratio=1.0)
        yield Phase(at=end)
