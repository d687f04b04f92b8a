"""Idle gaps of a recording, node by node, in seconds from its begin.

A node exists from the first moment that the recording knows it (its first busy interval, or its first sample) to the
recording's end. Idle is what is neither busy nor unknown; a node is unknown while it is silent or a GPU of it is lost.
A gap was needed if work ended it; one that the recording's end, silence or a lost GPU ends has no known end.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from gpuwatch.devices.programme import Spans
from gpuwatch.policies.timing.replay import Recorded
from gpuwatch.simulation.lives import Life
from gpuwatch.simulation.options import Options, recorded
from gpuwatch.simulation.traces import Recording, read_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a recording comes to: its lives, how long each node existed, its idle gaps in the order of their begin."""

    recording: Recording
    lives: tuple[Life, ...]
    horizon_seconds: float
    node_seconds: Mapping[str, float]
    gaps: tuple[Recorded, ...]


def history_of(options: Options) -> History:
    """The history in `options.trace`, or in its first `options.hours`.

    Raises:
        DemoError: the recording cannot be read, or there is no price for a machine of it.

    """
    if options.trace is None:
        raise ValueError("a backtest needs a recording")
    recording = read_trace(options.trace)
    told, horizon = recorded(options, recording)
    lives, seconds, gaps = list[Life](), dict[str, float](), list[Recorded]()
    for life in told:
        busy = _busy(life, horizon)
        spans = recording.intervals.get(life.name)
        begin = (life.silent.until(0.0) or 0.0) if spans is None else spans[0][0] - recording.begin
        if begin < horizon:
            lives.append(life)
            seconds[life.name] = horizon - begin
            gaps += _gaps(life, busy, begin, horizon)
    gaps.sort(key=lambda gap: (gap.begin, gap.node_id))
    return History(
        recording=recording,
        lives=tuple(lives),
        horizon_seconds=horizon,
        node_seconds=seconds,
        gaps=tuple(gaps),
    )


def part_of(history: History, options: Options, names: Collection[str], begin: float) -> tuple[tuple[Life, ...], float]:
    """The lives of some nodes from a moment on, and how many seconds are left for them."""
    recording = history.recording
    first, last = recording.begin + begin, recording.begin + history.horizon_seconds
    samples = {
        name: {index: [row for row in rows if first <= row.seconds < last] for index, rows in gpus.items()}
        for name, gpus in recording.samples.items()
        if name in names
    }
    intervals = {
        name: [(max(first, since), min(last, until)) for since, until in spans if since < last and until > first]
        for name, spans in recording.intervals.items()
        if name in names
    }
    part = Recording(
        samples={
            name: kept for name, gpus in samples.items() if (kept := {k: rows for k, rows in gpus.items() if rows})
        },
        intervals={name: spans for name, spans in intervals.items() if spans},
        sampling_seconds=recording.sampling_seconds,
    )
    return recorded(replace(options, hours=None), part)


def _busy(life: Life, horizon: float) -> Spans:
    """When any of its GPUs computes."""
    return Spans(chain.from_iterable(programme.busy(horizon) for programme in dict.fromkeys(life.gpus)))


def _gaps(life: Life, busy: Spans, begin: float, horizon: float) -> Iterator[Recorded]:
    """What is left between begin, horizon, work and the unknown."""
    unknown = chain(life.silent, *(lost.spans for lost in life.lost))
    taken = Spans(chain(busy, unknown, [(begin - 1.0, begin), (horizon, horizon + 1.0)]))
    for (_, since), (until, _) in pairwise(taken):
        if begin <= since < until <= horizon:
            needed = until < horizon and busy.until(until) is not None
            yield Recorded(node_id=life.name, begin=since, end=until, needed=needed)
