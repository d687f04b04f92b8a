"""Idle gaps of a recording, node by node, in seconds from its begin.

In a file a node exists from the first moment that it is known (its first busy interval, or its first sample) to the
recording's end; `sources` has histories that were not recorded for this. Idle is what is neither busy nor unknown; a
node is unknown while it is silent or a GPU of it is lost. A gap was needed if work ended it; one that the recording's
end, silence or a lost GPU ends has no known end.

Nodes are priced by list prices, each with its date and source; none is guessed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import chain, pairwise

from gpuwatch.agent.devices.load_profile import Intervals
from gpuwatch.model.money import Price
from gpuwatch.money.prices.catalogue import list_price
from gpuwatch.simulate.backtest.replay import Recorded
from gpuwatch.simulate.fleet.options import Options, recorded_lives
from gpuwatch.simulate.fleet.traces import read_trace
from gpuwatch.simulate.fleet.workloads import Workload

_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a recording comes to: its lives, how long each node existed, its idle gaps in the order of their begin.

    `begins_at` is second 0 where the source knows it; `evidence` is why a gap (node, begin) counts as idle, in words.
    """

    lives: tuple[Workload, ...]
    horizon_seconds: float
    node_seconds: Mapping[str, float]
    gaps: tuple[Recorded, ...]
    begins_at: datetime | None = None
    evidence: Mapping[tuple[str, float], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A life, when it was first known, and how many seconds of it somebody paid for, all from the history's begin."""

    life: Workload
    begin: float
    seconds: float


def history_of(options: Options) -> History:
    """The history in the file `options.trace`, or in its first `options.hours`.

    Raises:
        DemoError: the recording cannot be read, or one of its machines has no price.

    """
    if options.trace is None:
        raise ValueError("a backtest needs a recording")
    recording = read_trace(options.trace)
    workloads, horizon = recorded_lives(options, recording)
    known = []
    for life in workloads:
        spans = recording.intervals.get(life.name)
        begin = (life.silent.end_of_interval(0.0) or 0.0) if spans is None else spans[0][0] - recording.begin
        if begin < horizon:
            known.append(Known(life=life, begin=begin, seconds=horizon - begin))
    return of_lives(known, horizon, _words_of_intervals if recording.intervals else _words_of_samples)


def of_lives(
    workloads: Iterable[Known],
    horizon: float,
    words: Callable[[Workload, float], str],
    *,
    begins_at: datetime | None = None,
) -> History:
    """The history of some lives; `words` say why a gap of a life that begins then counts as idle."""
    known = list(workloads)
    gaps, evidence = list[Recorded](), dict[tuple[str, float], str]()
    for each in known:
        mine = list(_gaps(each.life, _busy(each.life, horizon), each.begin, horizon))
        evidence |= {(gap.node_id, gap.begin): words(each.life, gap.begin) for gap in mine}
        gaps += mine
    gaps.sort(key=lambda gap: (gap.begin, gap.node_id))
    return History(
        lives=tuple(each.life for each in known),
        horizon_seconds=horizon,
        node_seconds={each.life.name: each.seconds for each in known},
        gaps=tuple(gaps),
        begins_at=begins_at,
        evidence=evidence,
    )


def _words_of_intervals(_life: Workload, _begin: float) -> str:
    return "no work recorded"


def _words_of_samples(life: Workload, begin: float) -> str:
    held = sum(programme.phase_at(begin)[0].memory_bytes for programme in life.gpus) / _GIB
    gpus = f"{len(life.gpus)} GPUs" if len(life.gpus) > 1 else "its GPU"
    return f"{gpus} at 0 %, {held:.3g} GiB held"


def _busy(life: Workload, horizon: float) -> Intervals:
    """When any of its GPUs computes."""
    return Intervals(chain.from_iterable(programme.busy(horizon) for programme in dict.fromkeys(life.gpus)))


def _gaps(life: Workload, busy: Intervals, begin: float, horizon: float) -> Iterator[Recorded]:
    """What is left between begin, horizon, work and the unknown."""
    unknown = chain(life.silent, *(lost.spans for lost in life.lost))
    taken = Intervals(chain(busy, unknown, [(begin - 1.0, begin), (horizon, horizon + 1.0)]))
    for (_, since), (until, _) in pairwise(taken):
        if begin <= since < until <= horizon:
            needed = until < horizon and busy.end_of_interval(until) is not None
            yield Recorded(node_id=life.name, begin=since, end=until, needed=needed)


def prices_of(history: History) -> dict[str, Price | None]:
    """The list price of each machine type in a history; None where it is not known."""
    return {kind: list_price(kind) for kind in sorted({life.instance_type for life in history.lives})}


def node_prices_of(history: History) -> dict[str, Price] | None:
    """Each node's price; None where that of one is not known."""
    listed = prices_of(history)
    known = {kind: price for kind, price in listed.items() if price is not None}
    return {life.name: known[life.instance_type] for life in history.lives} if len(known) == len(listed) else None


def known_prices_of(history: History) -> dict[str, Price]:
    """The price of each node that has one."""
    listed = prices_of(history)
    return {life.name: price for life in history.lives if (price := listed[life.instance_type]) is not None}


def usd(priced: Mapping[str, Price] | None, seconds: Mapping[str, float]) -> Decimal | None:
    """What nodes cost for so many seconds each, to the cent; None where a price is not known."""
    if priced is None:
        return None
    rented = dict.fromkeys((price.usd_per_hour for price in priced.values()), 0.0)
    for name, price in priced.items():
        rented[price.usd_per_hour] += seconds.get(name, 0.0)
    total = sum((price * Decimal(f"{each / 3600:.6f}") for price, each in rented.items()), Decimal(0))
    return total.quantize(Decimal("0.01"), rounding=ROUND_HALF_EVEN)
