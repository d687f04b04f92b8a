"""The fold of steps, over any load and any loss of samples: never idler than the truth, whatever the chunks."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.devices.load_profile import Intervals
from gpuwatch.simulate.backtest.sources.nodes import Kind, NodeObservation
from gpuwatch.simulate.backtest.sources.questions import Bits
from gpuwatch.simulate.backtest.sources.steps import (
    Remembered,
    Stretch,
    Values,
    agents_stretches,
    exporters_stretches,
    merge_series,
)
from gpuwatch.simulate.backtest.sources.window import moment_of, window_of
from tests.support.builders.fleet import NOW

STEP, EVERY = 60.0, 15.0
STEPS = 30
SCRAPES = [3.0 + EVERY * number for number in range(int(STEPS * STEP / EVERY))]
Fold = Callable[[Values, float, Remembered], Iterator[Stretch]]

BUSY = st.lists(st.tuples(st.integers(0, 1790), st.integers(1, 400)), max_size=6).map(
    lambda spans: Intervals((float(begin), float(begin + length)) for begin, length in spans)
)
LOST = st.sets(st.integers(0, len(SCRAPES) - 1)) | st.tuples(st.integers(0, 119), st.integers(1, 60)).map(
    lambda hole: set(range(hole[0], min(len(SCRAPES), sum(hole))))
)
CUTS = st.sets(st.integers(1, STEPS - 1)).map(sorted)


def kept(lost: set[int]) -> list[tuple[int, list[float]]]:
    """The scrapes of each step that has any, by its number from 1 on: those after its begin, up to its end."""
    moments = [at for number, at in enumerate(SCRAPES) if number not in lost]
    steps = ((number, [at for at in moments if -STEP < at - number * STEP <= 0]) for number in range(1, STEPS + 1))
    return [(number, scraped) for number, scraped in steps if scraped]


def agents(busy: Intervals, lost: set[int]) -> dict[str, dict[float, float]]:
    """What PromQL gives of an agent's scrapes."""
    document: dict[str, dict[float, float]] = {"states": {}, "held": {}, "told_at": {}}
    for number, scraped in kept(lost):
        states = [Bits.IDLE if busy.end_of_interval(at) is None else Bits.BUSY for at in scraped]
        document["states"][number * STEP] = float(Bits.IDLE * (Bits.IDLE in states) + Bits.BUSY * (Bits.BUSY in states))
        if states[-1] is Bits.IDLE:
            since = max([-600.0, *(end for _, end in busy if end <= scraped[-1])])
            document["held"][number * STEP] = scraped[-1] - since
        document["told_at"][number * STEP] = scraped[-1]
    return document


def exporters(busy: Intervals, lost: set[int]) -> dict[str, dict[float, float]]:
    """What PromQL gives of another exporter's samples."""
    document: dict[str, dict[float, float]] = {"utilization": {}, "memory": {}, "samples": {}, "work": {}}
    for number, scraped in kept(lost):
        document["utilization"][number * STEP] = document["memory"][number * STEP] = 1.0
        document["samples"][number * STEP] = float(len(scraped))
        if any(busy.end_of_interval(at) is not None for at in scraped):
            document["work"][number * STEP] = 0.97
    return document


def folded(fold: Fold, values: Values, cuts: Sequence[int] = ()) -> NodeObservation:
    """All of it, in chunks that end after these steps."""
    node, past, edges = NodeObservation(name="n"), Remembered(), [0, *cuts, STEPS]
    for first, last in pairwise(edges):
        part = {
            query: {end: value for end, value in points.items() if first * STEP < end <= last * STEP}
            for query, points in values.items()
        }
        for each in fold(part, STEP, past):
            node.add(each.begin, each.end, each.kind, gpus=each.gpus, words=each.words)
    return node


def idle(node: NodeObservation) -> Intervals:
    """Where it is idle."""
    return Intervals((run.begin, run.end) for run in node.runs if run.kind is Kind.IDLE)


@given(busy=BUSY, lost=LOST, cuts=CUTS)
def test_chunks_change_nothing(busy: Intervals, lost: set[int], cuts: list[int]) -> None:
    """The same runs with the same words, wherever chunks end."""
    assert folded(agents_stretches, agents(busy, lost), cuts).runs == folded(agents_stretches, agents(busy, lost)).runs
    assert (
        folded(exporters_stretches, exporters(busy, lost), cuts).runs
        == folded(exporters_stretches, exporters(busy, lost)).runs
    )


@given(busy=BUSY, lost=LOST)
def test_an_agents_node_is_never_idle_while_it_works(busy: Intervals, lost: set[int]) -> None:
    """Lost scrapes or none: no more than a scrape's worth of the work at the end of a step passes for idle time."""
    found = idle(folded(agents_stretches, agents(busy, lost)))
    scrapes = [at for _, scraped in kept(lost) for at in scraped]

    for begin, end in found:
        for since, until in busy:
            rows = [at for at in scrapes if max(begin, since) < at < min(end, until)]
            assert not rows, f"idle from {begin} to {end}, at work from {since} to {until}, scraped at {rows}"


@given(busy=BUSY, lost=LOST)
def test_a_step_without_a_sample_is_never_idle(busy: Intervals, lost: set[int]) -> None:
    """In either form of the answers; and of another exporter no step that has two samples fewer than all others."""
    counts = {number: len(scraped) for number, scraped in kept(lost)}
    agent, exporter = (
        idle(folded(fold, values))
        for fold, values in (
            (agents_stretches, agents(busy, lost)),
            (exporters_stretches, exporters(busy, lost)),
        )
    )

    for number in range(1, STEPS + 1):
        begin, end = (number - 1) * STEP, number * STEP
        if number not in counts:
            assert agent.overlap(begin, end) == exporter.overlap(begin, end) == 0, f"step {number}"
        elif counts[number] <= 2 and max([counts.get(each, 0) for each in range(number)]) == 4:
            assert exporter.overlap(begin, end) == 0, f"step {number} has {counts[number]} samples"


@given(busy=BUSY, lost=LOST)
def test_lost_samples_only_take_idle_time_away(busy: Intervals, lost: set[int]) -> None:
    """Of our agent's: what is idle with fewer scrapes is idle with all of them, but for the step in which it begins."""
    whole, some = (idle(folded(agents_stretches, agents(busy, each))) for each in (set[int](), lost))

    for begin, end in some:
        for number in range(int(begin // STEP) + 1, int(end // STEP)):
            missing = STEP - whole.overlap(number * STEP, (number + 1) * STEP)
            hidden = busy.overlap(number * STEP - STEP, (number + 1) * STEP)
            assert missing <= 0 or hidden > 0, f"step {number + 1} is idle only because of what was lost"


@pytest.mark.parametrize(
    ("bits", "since", "kinds"),
    [
        (Bits.IDLE, None, [Kind.UNKNOWN]),  # no idle time is told
        (Bits.IDLE, -9.0, [Kind.IDLE]),
        (Bits.IDLE, 20.0, [Kind.BUSY, Kind.IDLE]),  # work between two scrapes
        (Bits.IDLE | Bits.BUSY, 20.0, [Kind.BUSY, Kind.IDLE]),
        (Bits.IDLE | Bits.STALLED, 20.0, [Kind.BUSY, Kind.IDLE]),
        (Bits.IDLE | Bits.PARKED, 20.0, [Kind.PARKED, Kind.IDLE]),
        (Bits.IDLE | Bits.BUSY, -9.0, [Kind.BUSY]),  # two agents contradict each other
        (Bits.IDLE | Bits.PARKED, -9.0, [Kind.PARKED]),
        (Bits.IDLE | Bits.UNKNOWN, -9.0, [Kind.UNKNOWN]),
        (Bits.IDLE | Bits.UNKNOWN | Bits.BUSY, 20.0, [Kind.BUSY]),
        (Bits.PARKED | Bits.UNKNOWN, None, [Kind.UNKNOWN]),
        (Bits.PARKED | Bits.BUSY, None, [Kind.BUSY]),
        (Bits.UNKNOWN, None, [Kind.UNKNOWN]),
        (0, None, [Kind.UNKNOWN]),
    ],
)
def test_any_work_is_busy_and_any_doubt_unknown(bits: int, since: float | None, kinds: list[Kind]) -> None:
    """By the states that an agent had within a step, and since when it says that it is idle."""
    held = {} if since is None else {60.0: 55.0 - since}
    values = {"states": {60.0: float(bits)}, "held": held, "told_at": {60.0: 55.0}}
    rows = list(agents_stretches(values, STEP, Remembered()))

    assert [each.kind for each in rows] == kinds
    assert (rows[0].begin, rows[-1].end) == (0.0, 60.0)


def test_work_after_the_last_scrape_of_a_step_ends_a_gap() -> None:
    """What was idle at both ends and began anew in between has worked; told late, it is told of the next second."""
    values = {
        "states": {60.0: float(Bits.IDLE), 120.0: float(Bits.IDLE)},
        "held": {60.0: 500.0, 120.0: 57.0},  # at work from 52 to 58, scraped at 50 and 65
        "told_at": {60.0: 50.0, 120.0: 115.0},
    }
    rows = list(agents_stretches(values, STEP, Remembered()))

    assert [(each.begin, each.end, each.kind) for each in rows] == [
        (0.0, 60.0, Kind.IDLE),
        (60.0, 61.0, Kind.BUSY),
        (61.0, 120.0, Kind.IDLE),
    ]


def test_two_targets_of_one_node_are_unknown_while_both_tell_unless_one_works() -> None:
    """Before and after, the one that tells is believed."""
    one = [Stretch(0, 60, Kind.IDLE), Stretch(60, 120, Kind.BUSY), Stretch(120, 180, Kind.IDLE)]
    other = [Stretch(30, 150, Kind.IDLE)]

    assert [(each.begin, each.end, each.kind) for each in merge_series([one, other])] == [
        (0, 30, Kind.IDLE),
        (30, 60, Kind.UNKNOWN),
        (60, 120, Kind.BUSY),
        (120, 150, Kind.UNKNOWN),
        (150, 180, Kind.IDLE),
    ]


def test_a_node_that_lacks_a_gpu_is_unknown() -> None:
    """Idle needs all of its GPUs; that a swap shows one too many for a moment makes none out of the others."""
    node = NodeObservation(name="n")
    for begin, end, gpus in ((0, 600, 8), (600, 660, 9), (660, 1200, 8), (1200, 1800, 7), (1800, 2400, 8)):
        node.add(begin, end, Kind.IDLE, gpus=gpus)
    node.settle(moment=60.0)

    assert [run.kind for run in node.runs] == [Kind.IDLE, Kind.IDLE, Kind.IDLE, Kind.UNKNOWN, Kind.IDLE]
    assert node.gpus == 8


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("now", 0), ("30d", 30 * 86400), ("1h30m", 5400), (f"{NOW:%Y-%m-%dT%H:%M:%S}", NOW.microsecond / 1e6)],
)
def test_a_moment_is_now_a_duration_before_it_or_a_time(text: str, seconds: float) -> None:
    """A time without a zone is UTC."""
    assert (NOW - moment_of(text, NOW)).total_seconds() == seconds


@pytest.mark.parametrize(
    ("since", "until", "sentence"),
    [
        ("yesterday", "now", "'yesterday' is not a time; expected now, a duration before now such as 30d"),
        ("1h", "2h", "'1h' is not before '2h'; expected an earlier --from"),
        ("now", "now", "'now' is not before 'now'"),
    ],
)
def test_a_window_that_is_none_says_what_would_be_right(since: str, until: str, sentence: str) -> None:
    """The value as it was given."""
    with pytest.raises(ValueError, match=sentence):
        window_of(since, until, NOW)
