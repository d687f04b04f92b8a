"""PURE: what the answers about each step say that a node did. Any failure is unknown; any sign of work is busy.

An agent that was restarted has forgotten since when its node is idle: then nobody knows what was before. An idle time
that began again by itself, however, shows that there was work between two scrapes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from gpuwatch.model.duration import format_time
from gpuwatch.simulate.backtest.sources.nodes import Kind
from gpuwatch.simulate.backtest.sources.questions import Bits

_SAME_SECONDS = 2.0  # two reports of one begin of idleness may differ by so much: agents read once a second
_LOST_SAMPLES = 1.0  # which a step may have less than others: scrapes come a little sooner or later
_FORGOTTEN_A_STEP = 0.02  # of the samples that are usual, where there are fewer since: somebody scrapes less often now
_GIB = 1024.0**3

Values = Mapping[str, Mapping[float, float]]  # of one target, by query and the Unix time at which its step ends


class Stretch(NamedTuple):
    """A node does the same from `begin` to `end`, in Unix time."""

    begin: float
    end: float
    kind: Kind
    gpus: int = 0
    words: str = ""


@dataclass(slots=True, kw_only=True)
class Remembered:
    """What of one node's past its next step is judged by: its last idleness, its last peak of work, and more."""

    since: float = -1.0
    idle_until: float = -1.0
    worked_ratio: float | None = None
    usual_samples: float = 0.0


_NOTHING = Stretch(0.0, 0.0, Kind.UNKNOWN, -1)
_WITHOUT_WORK = frozenset({Kind.IDLE, Kind.PARKED})
# By the bits of a step at whose end the node is not idle.
_STATES = {
    bits: Kind.BUSY
    if bits & (Bits.BUSY | Bits.STALLED)
    else Kind.PARKED
    if bits & Bits.PARKED and not bits & Bits.UNKNOWN
    else Kind.UNKNOWN
    for bits in range(2 * Bits.IDLE)
}


def agents_stretches(values: Values, step: float, past: Remembered) -> Iterator[Stretch]:
    """What our agent reported."""
    held, told_at, restarted = (values.get(name, {}) for name in ("held", "told_at", "restarted"))
    open_ = _NOTHING
    for end, bits in sorted(values.get("states", {}).items()):
        # By the host's clock, which may be wrong, but not by more than shows.
        since = min(max(told_at[end], end - step), end) - held[end] if end in held and end in told_at else None
        for begin, until, kind in _parts(end - step, end, int(bits), since, past, restarted=end in restarted):
            if kind is open_.kind and begin <= open_.end:
                open_ = open_._replace(end=until)
                continue
            if open_ is not _NOTHING:
                yield open_
            words = ""
            if kind is Kind.IDLE and since is not None:
                words = f"idle since {format_time(since, seconds=True)} by its agent"
            open_ = Stretch(begin, until, kind, 0, words)
    if open_ is not _NOTHING:
        yield open_


def _parts(
    begin: float, end: float, bits: int, since: float | None, past: Remembered, *, restarted: bool
) -> tuple[tuple[float, float, Kind], ...]:
    """A step in one or two parts: idle from `since` on, and what was before."""
    else_ = _STATES.get(bits, Kind.UNKNOWN)
    if since is None or not bits & Bits.IDLE or bits & Bits.UNKNOWN:
        return ((begin, end, else_),)
    anew = abs(since - past.since) > _SAME_SECONDS
    if anew and past.idle_until == begin and 2 * begin - end < since <= begin:
        since = begin + _SAME_SECONDS / 2  # it began anew after the last scrape of the step before
    past.since, past.idle_until = since, end
    if not anew or since <= begin:  # idle all the while, unless two agents contradict each other
        return ((begin, end, Kind.IDLE if bits == Bits.IDLE else else_),)
    if bits == Bits.IDLE:
        else_ = Kind.UNKNOWN if restarted else Kind.BUSY
    middle = min(since, end)
    return ((begin, middle, else_), (middle, end, Kind.IDLE)) if middle < end else ((begin, end, else_),)


def exporters_stretches(values: Values, step: float, past: Remembered) -> Iterator[Stretch]:
    """What another exporter's samples show."""
    utilization, memory, samples_of = (values.get(name, {}) for name in ("utilization", "memory", "samples"))
    work, held, doubt = (values.get(name, {}) for name in ("work", "held", "doubt"))
    open_ = _NOTHING
    for end in utilization if utilization.keys() >= work.keys() else sorted(utilization.keys() | work.keys()):
        counted, samples = int(min(utilization.get(end, 0), memory.get(end, 0))), samples_of.get(end, 0)
        usual = past.usual_samples
        past.usual_samples, kind = max(samples, usual - _FORGOTTEN_A_STEP), Kind.IDLE
        if end in work:
            kind, past.worked_ratio = Kind.BUSY, work[end]
        elif not counted or end in doubt or samples < usual - _LOST_SAMPLES:
            kind = Kind.UNKNOWN
        elif end in held:
            kind = Kind.PARKED
        if kind is open_.kind and counted == open_.gpus and end - step <= open_.end:
            open_ = open_._replace(end=end)
            continue
        if open_ is not _NOTHING:
            yield open_
        words = _of_samples(counted, held.get(end), past.worked_ratio) if kind in _WITHOUT_WORK else ""
        open_ = Stretch(end - step, end, kind, counted, words)
    if open_ is not _NOTHING:
        yield open_


def _of_samples(gpus: int, held_bytes: float | None, worked_ratio: float | None) -> str:
    """Why nobody works, where a stretch begins."""
    words = f"{gpus} GPUs below 1 %" if gpus > 1 else "its GPU below 1 %"
    if held_bytes is not None:
        words += f", {held_bytes / _GIB:.3g} GiB held" if held_bytes else ", a process there"
    return words if worked_ratio is None else f"{words}, after {min(worked_ratio, 1.0):.0%}"


def merge_series(series: Iterable[Iterable[Stretch]]) -> Iterator[Stretch]:
    """One node of which several targets tell: where two tell at once it is busy if one says so, and else unknown."""
    edges = [
        (at, last, number, stretch)
        for number, stretch in enumerate(chain.from_iterable(series))
        for at, last in ((stretch.begin, False), (stretch.end, True))
    ]
    open_: dict[int, Stretch] = {}
    before = 0.0
    for at, last, number, stretch in sorted(edges, key=itemgetter(0)):
        if open_ and at > before:
            alone = next(iter(open_.values()))
            if len(open_) == 1:
                yield alone._replace(begin=before, end=at)
            else:
                busy = any(each.kind is Kind.BUSY for each in open_.values())
                yield alone._replace(begin=before, end=at, kind=Kind.BUSY if busy else Kind.UNKNOWN)
        before = at
        if last:
            del open_[number]
        else:
            open_[number] = stretch
