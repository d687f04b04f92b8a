"""Whatever a probe says, in whatever order: it is taken or refused, and never makes a machine look more idle."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Cycle, Down, End, Event, Message, Reading, Unavailable, decode, encode
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.published import OutOfOrderError
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import GIB, a_busy_reading, a_cycle, a_down, a_gpu, a_process, a_reading
from tests.support.nightly import examples

# The same examples in each run: what a longer search finds is added as an example.
SEARCH = settings(max_examples=examples(200), deadline=None, derandomize=True)

ENTRIES: tuple[Callable[[int], GpuReading | GpuDown], ...] = (
    a_reading,
    a_reading,
    a_reading,
    a_busy_reading,
    a_down,
    lambda gpu: a_reading(gpu, memory_used_bytes=GIB, processes=(a_process(7),)),
    lambda gpu: a_reading(gpu, utilization_ratio=None, utilization_max_ratio=None),
)


class Agent:
    """A core and what shows it, on a clock of their own."""

    def __init__(self, stale_after_seconds: float = 8.0) -> None:
        """Nothing has been said yet."""
        self.clock = ManualClock()
        self.rules = ActivityRules()
        self.core = AgentCore(
            node_id="node-1",
            clock=self.clock,
            rules=self.rules,
            interval_seconds=1.0,
            stale_after_seconds=stale_after_seconds,
        )
        self.exporter = Exporter(self.core, self.clock, node_id="node-1", top_processes=2, own_process=False)

    def hear(self, message: Message) -> bool:
        """Take a message; what cannot follow costs the probe its life, as in the supervisor."""
        try:
            self.core.ingest(message)
        except OutOfOrderError as error:
            self.core.interrupt(Interruption.GARBAGE, str(error))
            return False
        return True

    def look(self) -> Activity:
        """What is shown of it; nothing of that may fail."""
        self.exporter.page("")
        return self.core.verdict(self.clock.monotonic()).activity


# Lines.

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**30, 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "GPU-0", "GPU-1", "idle", "\x00", "\ud7ff", "2026-01-05T00:00:00Z", "0001-01-01T00:00:00Z"]),
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
SEQS = st.integers(0, 2)
MOMENTS = st.floats(-20, 20) | st.sampled_from([0.0, -1e300, 1e300, -1e12, 1e12])
GPUS = st.integers(0, 2)
ENTRY = st.builds(lambda make, gpu: make(gpu), st.sampled_from(ENTRIES), GPUS)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        lambda seq, at, gpus: Cycle(seq=seq, monotonic_seconds=at, gpus=tuple(map(a_gpu, gpus))),
        SEQS,
        MOMENTS,
        st.lists(GPUS, max_size=3),
    ),
    st.builds(lambda seq, gpu, xid: Event(seq=seq, uuid=f"GPU-{gpu}", xid=xid), SEQS, GPUS, st.integers(0, 200)),
    st.builds(
        lambda seq, entry: (
            Reading(seq=seq, reading=entry) if isinstance(entry, GpuReading) else Down(seq=seq, down=entry)
        ),
        SEQS,
        ENTRY,
    ),
    st.builds(lambda seq, at: End(seq=seq, monotonic_seconds=at, duration_seconds=0.1), SEQS, MOMENTS),
    st.builds(
        lambda seq, at: Unavailable(seq=seq, monotonic_seconds=at, cause="x", detail="y", remedy=""), SEQS, MOMENTS
    ),
)


@st.composite
def altered_lines(draw: st.DrawFn) -> bytes:
    """A line with one value of it replaced or left out."""
    result = json.loads(encode(draw(MESSAGES)))
    place: Any = result
    while True:
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
            place = place[key]
        elif isinstance(place, dict) and draw(st.booleans()):
            del place[key]
            break
        else:
            place[key] = draw(JSON)
            break
    return json.dumps(result).encode()


@st.composite
def broken_lines(draw: st.DrawFn) -> bytes:
    """A line that was cut, or has some other bytes in it."""
    line = encode(draw(MESSAGES))
    begin, end = sorted(draw(st.tuples(*[st.integers(0, len(line))] * 2)))
    return line[:begin] + draw(st.binary(max_size=4)) + line[end:]


@SEARCH
@given(st.one_of(st.binary(), broken_lines(), altered_lines(), JSON.map(lambda value: json.dumps(value).encode())))
@example(b'{"kind":"end","seq":0,"monotonic_seconds":1e999,"duration_seconds":0}')
@example(b'{"kind":"end","seq":0,"monotonic_seconds":NaN,"duration_seconds":0}')
def test_any_line(line: bytes) -> None:
    """A line is a message, which says the same when it is written again, or a ValueError."""
    try:
        message = decode(line)
    except ValueError:
        return

    assert decode(encode(message)) == message


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_line_without_a_bottom(opening: bytes) -> None:
    """A line that nests for ever is no message either."""
    with pytest.raises(ValueError, match="deep"):
        decode(b'{"kind":"end","more":' + opening * 100_000)  # in a field that nobody asked for


# Sequences.


@SEARCH
@given(st.lists(st.tuples(st.floats(0, 12), st.one_of(MESSAGES.map(encode), altered_lines())), max_size=30))
def test_any_sequence(told: list[tuple[float, bytes]]) -> None:
    """Messages make no sense, tell impossible times and values: nothing breaks, and idle time needs time to pass."""
    agent = Agent()
    for seconds, line in told:
        agent.clock.advance(seconds)
        try:
            agent.hear(decode(line))
        except ValueError:
            agent.core.interrupt(Interruption.GARBAGE, "no message")
        activity = agent.look()

        assert activity.state is not State.IDLE or activity.held_seconds <= agent.clock.monotonic()


@SEARCH
@given(st.lists(st.floats(-1000, 1000), max_size=30))
@example([-1000.0 + 9.0 * n for n in range(111)])
@example([0.0] * 18 + [0.85, 2.0])  # the two sums differ in their last digit
def test_times_that_cannot_be(moments: list[float]) -> None:
    """Cycles that claim to be of long ago or of the future make nobody idle for longer than the agent has run."""
    agent = Agent()
    for seq, moment in enumerate(moments):
        for message in a_cycle(seq, moment, a_reading()):
            agent.hear(message)

        assert agent.look().held_seconds <= agent.clock.monotonic() + 1e-9
        agent.clock.advance(0.1)


def reordered(messages: list[Message], change: str, one: int, other: int) -> list[Message]:
    """A cycle with a message lost, said twice, or said at another time."""
    changed = list(messages)
    one, other = one % len(messages), other % len(messages)
    if change == "lost":
        del changed[one]
    if change == "twice":
        changed.insert(other, changed[one])
    if change == "swapped":
        changed[one], changed[other] = changed[other], changed[one]
    return changed


CHANGES = st.sampled_from(["none", "none", "none", "lost", "twice", "swapped"])
STEPS = st.tuples(
    st.sampled_from([0.25, 1.0, 5.0, 9.9, 10.1, 100.0]),
    st.tuples(st.sampled_from(ENTRIES), st.sampled_from(ENTRIES)),
    st.tuples(CHANGES, st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from([None, None, None, *Interruption]),
)


@SEARCH
@given(st.lists(STEPS, max_size=25))
def test_idle_time_is_time_that_was_seen(steps: list[Any]) -> None:
    """Idle time grows only between idle cycles that are close enough; doubt adds none, anything else ends it."""
    agent = Agent(stale_after_seconds=1000.0)
    seen, shown, at = 0.0, State.UNKNOWN, 0.0
    for seq, (seconds, makers, change, interruption) in enumerate(steps):
        agent.clock.advance(seconds)
        cycle = a_cycle(seq, agent.clock.monotonic(), *(make(gpu) for gpu, make in enumerate(makers)))
        for result in [*reordered(cycle, *change), interruption]:
            agent.clock.advance(0.001)
            if isinstance(result, Interruption):
                agent.core.interrupt(result, "it is gone")
            elif result is not None:
                agent.hear(decode(encode(result)))
            now = agent.clock.monotonic()
            snapshot = agent.core.snapshot(now)
            activity = snapshot.verdict.activity
            if activity.state is State.IDLE:
                seen += now - at if shown is State.IDLE and now - at <= agent.rules.max_gap else 0.0

                assert snapshot.downs == (), "idle, and something could not be read"
                assert {reading.utilization_ratio for reading in snapshot.readings} == {0.0}
                assert activity.held_seconds <= seen + 0.02, "idle for longer than it was seen to be"
            elif activity.state is not State.UNKNOWN:
                seen = 0.0
            shown, at = activity.state, now
