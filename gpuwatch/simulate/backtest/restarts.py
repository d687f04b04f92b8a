"""PURE: what no wait can repair: what a shorter restart would save, and requests packed onto few nodes.

Rules, all of them:

1. A shorter restart: the same gaps under the break-even wait of that restart. A gap of *g* costs min(*g*, *S*), and *S*
   more if it was longer and work ended it.
2. Packed: in each pool the node of rank *k* works while *k* nodes did, as if each piece of work went to the most
   recently used free node. This holds only if any node may serve any request: it is the most that routing can save.
3. Time in which a node's use is not known is billed as it was.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from gpuwatch.agent.devices.load_profile import Intervals
from gpuwatch.model.duration import format_duration
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.replay import Recorded, cost, optimum
from gpuwatch.simulate.fleet.workloads import Workload

_HOUR = 3600.0
_SHORTER = (0.75, 0.5, 0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One length of a restart: node-hours billed under break-even, and the share of the bill that this saves.

    `best_ratio` is what the one who knows every gap's end would save.
    """

    name: str
    restart_seconds: float
    node_hours_billed: float
    saved_ratio: float
    best_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """One pool: node-hours billed under break-even as recorded, and with its work packed onto few nodes."""

    pool: str
    nodes: int
    most_at_work: int
    node_hours_billed: float
    packed_node_hours_billed: float
    saved_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartsDocument:
    """What a shorter restart would save (`cases`, today's first), and what packing each pool's work would.

    `node_hours` is what never stopping bills.
    """

    source: str
    node_hours: float
    gaps: int
    cases: tuple[Case, ...]
    pools: tuple[Packed, ...]


def advise(source: str, history: History, restart: float, parts: Sequence[tuple[str, float]] = ()) -> RestartsDocument:
    """Both, of a history.

    Args:
        source: the history, in words.
        history: what was recorded.
        restart: what a restart costs today, in seconds of rental.
        parts: of it, by name; each is left out once. Without parts, shorter restarts are tried.

    Raises:
        ValueError: parts are longer than the restart, or the history holds no time of any node.

    """
    known = sum(seconds for _, seconds in parts)
    if known > restart:
        raise ValueError(
            f"the parts of a restart are {format_duration(known)} together, longer than the whole restart "
            f"({format_duration(restart)}, --restart-cost)"
        )
    whole = sum(history.node_seconds.values())
    if whole <= 0:
        raise ValueError("the history holds no time of any node")
    shorter = [(f"without {name}", restart - seconds) for name, seconds in parts if seconds > 0]
    shorter = shorter or [(f"{share:.0%} of it", restart * share) for share in _SHORTER]
    cases = [_case(name, history, seconds, whole) for name, seconds in (("today", restart), *shorter)]
    by_pool: dict[str, list[Workload]] = defaultdict(list)
    for life in history.lives:
        by_pool[life.pool].append(life)
    return RestartsDocument(
        source=source,
        node_hours=whole / _HOUR,
        gaps=len(history.gaps),
        cases=tuple(cases),
        pools=tuple(_pack_lives(pool, history, by_pool[pool], restart) for pool in sorted(by_pool)),
    )


def _case(name: str, history: History, restart: float, whole: float) -> Case:
    idle = sum(gap.seconds for gap in history.gaps)
    billed = whole - idle + _idle_cost(history.gaps, restart)
    best = whole - idle + optimum(history.gaps, restart)
    return Case(
        name=name,
        restart_seconds=restart,
        node_hours_billed=billed / _HOUR,
        saved_ratio=1 - billed / whole,
        best_ratio=1 - best / whole,
    )


def _idle_cost(gaps: Sequence[Recorded], restart: float) -> float:
    """Return what idle nodes cost under break-even."""
    return cost(gaps, [restart] * len(gaps), restart).seconds


def _pack_lives(pool: str, history: History, lives: Sequence[Workload], restart: float) -> Packed:
    names = {life.name for life in lives}
    gaps = [gap for gap in history.gaps if gap.node_id in names]
    work = [_busy(life, history.horizon_seconds) for life in lives]
    spans = sorted((begin, end) for each in work for begin, end in each)
    busy = sum(end - begin for begin, end in spans)
    # What was neither work nor idle is not known, and billed in both cases.
    unknown = max(0.0, sum(history.node_seconds[name] for name in names) - busy - sum(gap.seconds for gap in gaps))
    ranks = rank_spans(spans, history.horizon_seconds)
    billed = unknown + busy + _idle_cost(gaps, restart)
    packed = unknown + busy + _idle_cost(ranks.gaps, restart)
    return Packed(
        pool=pool,
        nodes=len(lives),
        most_at_work=ranks.nodes,
        node_hours_billed=billed / _HOUR,
        packed_node_hours_billed=packed / _HOUR,
        saved_ratio=1 - packed / billed if billed > 0 else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """As many nodes as ever worked at once, and the gaps that they have when work goes to the lowest rank."""

    nodes: int
    gaps: tuple[Recorded, ...]


def rank_spans(spans: Iterable[tuple[float, float]], horizon: float) -> Ranks:
    """Rule 2, of pieces of work (begin, end) in any order; what ends and begins at once is one piece to its node."""
    changes: dict[float, int] = defaultdict(int)
    for begin, end in spans:
        changes[begin] += 1
        changes[end] -= 1
    idle_since: list[float | None] = []  # of each rank; None: at work
    level, gaps = 0, list[Recorded]()
    for at in sorted(changes):
        after = level + changes[at]
        for rank in range(level, after):
            if rank == len(idle_since):
                idle_since.append(None)
                continue
            since = idle_since[rank]
            if since is not None:
                gaps.append(Recorded(node_id=str(rank), begin=since, end=at))
            idle_since[rank] = None
        for rank in range(after, level):
            idle_since[rank] = at
        level = after
    gaps += [
        Recorded(node_id=str(rank), begin=since, end=horizon, needed=False)
        for rank, since in enumerate(idle_since)
        if since is not None and since < horizon
    ]
    return Ranks(nodes=len(idle_since), gaps=tuple(sorted(gaps, key=lambda gap: (gap.begin, gap.node_id))))


def _busy(life: Workload, horizon: float) -> Intervals:
    return Intervals(chain.from_iterable(programme.busy(horizon) for programme in dict.fromkeys(life.gpus)))
