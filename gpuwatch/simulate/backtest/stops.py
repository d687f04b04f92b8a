"""What a policy would have stopped, stop by stop, and the words that tell why each is one."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain

from gpuwatch.agent.devices.load_profile import Intervals
from gpuwatch.model.duration import format_duration
from gpuwatch.simulate.backtest.gaps import History, node_prices_of, usd
from gpuwatch.simulate.backtest.replay import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """One stop: the gap, how long it was let be, and the rental saved by it, a restart taken off; below 0 it lost."""

    gap: Recorded
    wait: float
    saved_seconds: float

    @property
    def at(self) -> float:
        """When, in seconds from the history's begin."""
        return self.gap.begin + self.wait

    def suspect(self, regret: float) -> bool:
        """Whether work came so soon after it that somebody may have been waiting."""
        return self.gap.needed and self.gap.end - self.at <= regret


def stops_of(gaps: Sequence[Recorded], waits: Sequence[float], restart: float) -> Iterator[Stopped]:
    """Every stop under these waits, those of one node in the order of time."""
    for gap, wait in zip(gaps, waits, strict=True):
        if gap.seconds > wait:
            yield Stopped(gap=gap, wait=wait, saved_seconds=gap.seconds - wait - restart * gap.needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRecord:
    """A stop for a list: `evidence` says why the node counted as idle, after what, and the outcome."""

    stop: Stopped
    pool: str
    saved_usd: Decimal | None
    suspect: bool
    evidence: str


def foremost(history: History, stops: Iterator[Stopped], regret: float, most: int) -> list[StopRecord]:
    """The first of a list: suspected wrong stops, the dearest first; then the others, the largest saving first.

    Without a list price for each node hours stand in for money.
    """
    priced = node_prices_of(history)
    rates = {} if priced is None else {name: float(price.usd_per_hour) for name, price in priced.items()}

    def order(stop: Stopped) -> tuple[bool, float, float, str]:
        suspect, worth = stop.suspect(regret), stop.saved_seconds * rates.get(stop.gap.node_id, 1.0)
        return not suspect, worth if suspect else -worth, stop.at, stop.gap.node_id

    first = heapq.nsmallest(most, stops, key=order)
    pools = {life.name: life.pool for life in history.lives}
    before = _gap_before(history, {stop.gap.node_id for stop in first})
    return [
        StopRecord(
            stop=stop,
            pool=pools[stop.gap.node_id],
            saved_usd=usd(
                None if priced is None else {stop.gap.node_id: priced[stop.gap.node_id]},
                {stop.gap.node_id: stop.saved_seconds},
            ),
            suspect=stop.suspect(regret),
            evidence="; ".join(
                filter(
                    None,
                    (
                        before(stop.gap),
                        history.evidence.get((stop.gap.node_id, stop.gap.begin)),
                        _outcome(stop, history.horizon_seconds),
                    ),
                )
            ),
        )
        for stop in first
    ]


def _gap_before(history: History, names: set[str]) -> Callable[[Recorded], str]:
    """What a gap of these nodes came after."""
    work = {
        life.name: Intervals(
            chain.from_iterable(each.busy(history.horizon_seconds) for each in dict.fromkeys(life.gpus))
        )
        for life in history.lives
        if life.name in names
    }

    def words(gap: Recorded) -> str:
        spans = work[gap.node_id]
        number = bisect_left(spans.ends, gap.begin)
        if number == len(spans.ends) or spans.ends[number] != gap.begin:
            return "idle when first seen"
        return f"idle after {format_duration(gap.begin - spans.begins[number])} of work"

    return words


def _outcome(stop: Stopped, horizon: float) -> str:
    rest = format_duration(stop.gap.end - stop.at)
    waited = f"stopped after {format_duration(stop.wait)}" if stop.wait > 0 else "stopped at once"
    if stop.gap.needed:
        return f"{waited}; needed again {rest} later"
    if stop.gap.end >= horizon:
        return f"{waited}; not needed in the {rest} to the end"
    return f"{waited}; lost from sight {rest} later"
