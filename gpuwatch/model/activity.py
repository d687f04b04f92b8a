"""What a machine does: its state of use, the evidence for it, the owner of the work, and how much of it was counted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpuwatch.model.bounds import BoundedFloat, BoundedInt, BoundedText


class State(StrEnum):
    """What a GPU or a node is doing. Occupied, parked and stalled are never merged with idle."""

    BUSY = "busy"
    PARKED = "parked"  # memory held, nothing computed, nobody there
    STALLED = "stalled"  # full "utilization" at idle power and without memory traffic: a deadlock
    OCCUPIED = "occupied"  # of a node: somebody's process is alive and does nothing
    IDLE = "idle"
    UNKNOWN = "unknown"  # any doubt


# As screens explain them; words.js has the same sentences.
MEANINGS = {
    State.BUSY: "a GPU works, or somebody's program does",
    State.IDLE: "nothing works, and nobody is there",
    State.OCCUPIED: "somebody's program is alive and does nothing",
    State.PARKED: "GPU memory is held, nothing computes, and nobody is there",
    State.STALLED: "full use without work, most likely a deadlock",
    State.UNKNOWN: "its use is not known, so it is never stopped",
}


def legend(states: Iterable[State]) -> str:
    """What these states mean, without busy and idle, which everybody knows: `parked: …; stalled: …`."""
    shown = set(states) - {State.BUSY, State.IDLE}
    return "; ".join(f"{state.value}: {words}" for state, words in MEANINGS.items() if state in shown)


class LocalDisks(StrEnum):
    """Whether a stop would lose data on local disks (EC2: instance store); None in a verdict is not known."""

    NONE = "none"
    UNUSED = "unused"  # neither formatted nor written to, or an empty file system
    USED = "used"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOwner:
    """The owner of a process: names for people, None where not known. Never a command line."""

    user: BoundedText | None = None
    unit: BoundedText | None = None  # systemd unit, container, pod or Slurm job
    process: BoundedText | None = None  # the program's short name
    pid: BoundedInt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One signal that was looked at: what was seen against which limit, from where, and what it says by itself.

    `note` is for people: who, which, or why nothing could be seen; never a command line or a secret. `owner` is the
    process that made the difference; `setting` the key of the setting that would change the answer.
    """

    name: BoundedText
    says: State
    observed: BoundedFloat | None
    limit: BoundedFloat | None
    unit: BoundedText
    source: BoundedText
    note: BoundedText | None = None
    owner: WorkOwner | None = None
    setting: BoundedText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBusy:
    """The newest evidence of a signal that set the idle time to zero; `ago_seconds` is by the agent's clock.

    It says busy; or parked, stalled or occupied, which are not idle either; or unknown, if doubt lasted too long.
    """

    evidence: Evidence
    at: datetime
    ago_seconds: BoundedFloat


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A verdict on use.

    `held_seconds` is how long it has held, summed on the host's monotonic clock over good samples alone; decisions rest
    on it and never on `since`, which is wall-clock time for people.
    """

    state: State
    since: datetime | None
    held_seconds: BoundedFloat
    evidence: tuple[Evidence, ...] = ()
    doubt: BoundedText | None = None  # why it is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """How much one GPU did lately: means over the last `over_seconds`; None is unknown. No ground for a removal."""

    over_seconds: BoundedFloat
    utilization_ratio: BoundedFloat | None = None
    memory_used_ratio: BoundedFloat | None = None
    sm_active_ratio: BoundedFloat | None = None
    power_limit_watts: BoundedFloat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What an agent has counted since it began at `since`, which names its run: each run begins at zero.

    Seconds of the node and of its GPUs together by state, as long as somebody looked; a GPU that is not to be given
    work and does none counts as `down`. Joules are differences of the GPUs' energy counters, over `joules_gpu_seconds`.
    For accounting, and for how long a node was watched; never a ground for removal.
    """

    since: datetime
    node_seconds: Mapping[BoundedText, BoundedFloat]
    gpu_seconds: Mapping[BoundedText, BoundedFloat]
    joules: BoundedFloat = 0.0
    joules_gpu_seconds: BoundedFloat = 0.0


class Preparing(StrEnum):
    """How far a machine is with what is to run on it before a stop; only DONE allows the stop."""

    READY = "ready"  # there are commands, and none has run for this stop
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"  # a command says not now, failed, or could not be run


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeStop:
    """What an agent says of the commands of `agent.before_stop`, as the controller asks it a last time."""

    state: Preparing
    sentence: BoundedText
