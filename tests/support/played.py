"""Captures, played through the agent's own fold, and what a GPU is in each pattern of use (tests/gpu/burn.py)."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Cycle, End, Message, Unavailable
from gpuwatch.agent.devices.replay import ReplaySource
from gpuwatch.agent.probe.main import sample
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import ManualClock

# Never idle, whatever it is: that is the promise. `hang_on_host` may move data over PCIe as long as it polls.
TRUTH: Mapping[str, set[State]] = {
    "idle": {State.IDLE},
    "context": {State.PARKED},
    "allocate": {State.PARKED},
    "work": {State.BUSY},
    "trickle": {State.BUSY},
    "blip": {State.BUSY, State.PARKED},
    "upload": {State.BUSY},
    "move": {State.BUSY},
    "hang": {State.STALLED},
    "hang_on_host": {State.STALLED, State.BUSY},
    "after": {State.IDLE},
}
_CYCLE_SECONDS = 1.0
_PLAYED_SECONDS = 700.0  # a deadlock is called one after ten minutes


def states_of(capture: Path, *, gpu: int = 0, rules: ActivityRules | None = None) -> list[State]:
    """The state of a GPU in each cycle, a second each, for 12 minutes: a capture, then its last cycle on and on."""
    clock, states, last = ManualClock(), list[State](), list[Message]()
    core = AgentCore(
        node_id="n", clock=clock, rules=rules or ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0
    )
    source = ReplaySource(capture)
    for seq in count():
        clock.advance(_CYCLE_SECONDS)
        if clock.elapsed_seconds > _PLAYED_SECONDS:
            return states
        messages = list(sample(source, seq, clock))
        if isinstance(messages[-1], Unavailable):
            messages = [_again(message, seq, clock.monotonic()) for message in last]
        core.ingest_messages(messages)
        states.append(next(one.activity.state for one in core.verdict(clock.monotonic()).gpus if one.index == gpu))
        last = messages
    raise AssertionError(states)


def _again(message: Message, seq: int, seconds: float) -> Message:
    """The same message of a later cycle."""
    if isinstance(message, Cycle | End):
        return replace(message, seq=seq, monotonic_seconds=seconds)
    return replace(message, seq=seq)
