"""What one sample shows, and what is remembered between samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuwatch.agent.activity.holders import Holders
from gpuwatch.agent.activity.links import LinkCounters
from gpuwatch.agent.activity.rest_power import RestPower
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.model.gpu_identity import order
from gpuwatch.model.verdict import GpuVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One complete cycle of the probe. `monotonic_seconds` is when it ended, on the host's monotonic clock.

    `host` is what people and programs do on the host: each entry says busy, occupied, idle, or unknown with a note on
    why. `service_pids` are those of the processes on the GPUs that are the machine's own, without those of an unknown
    kind.
    """

    at: datetime
    monotonic_seconds: float
    readings: tuple[GpuReading, ...] = ()
    downs: tuple[GpuDown, ...] = ()
    doubt: str | None = None  # why nothing at all could be read
    host: tuple[Evidence, ...] = ()
    service_pids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The state that one sample shows by itself. `passes` is whether its doubt starts no clock, however long it is."""

    state: State
    evidence: tuple[Evidence, ...] = ()
    doubt: str | None = None
    passes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A state at rest that a visit has interrupted: since when and for how long it had held, and how long ago."""

    state: State
    since: datetime
    held_seconds: float
    away_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One state followed over time: the last sure state with the time it has held, and how long doubt has lasted.

    `paused` are the states that go on once a visit is over.
    """

    state: State = State.UNKNOWN
    since: datetime | None = None
    held_seconds: float = 0.0
    doubt_seconds: float = 0.0
    paused: tuple[Paused, ...] = ()
    shown: Activity = field(default_factory=lambda: Activity(state=State.UNKNOWN, since=None, held_seconds=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What comes back to a node at rest: the strongest state lately, for how long it was not seen, and its returns.

    `gone` is whether nothing was there in the last sample, `away_seconds` for how long then.
    """

    strongest: Judgement | None = None
    unseen_seconds: float = 0.0
    away_seconds: float = 0.0
    gone: bool = False
    returns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """What is remembered of one GPU between samples."""

    index: int | None
    track: Track = field(default_factory=Track)
    energy_joules: float | None = None
    energy_at_seconds: float = 0.0
    stall_seconds: float = 0.0
    rest: RestPower = field(default_factory=RestPower)
    holders: Holders = field(default_factory=Holders)
    links: LinkCounters | None = None
    lost_seconds: float | None = None  # for so long the driver has called it lost; None: it does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """All that is remembered of a node between samples; a new agent begins with an empty one."""

    at: datetime | None = None
    monotonic_seconds: float | None = None
    node: Track = field(default_factory=Track)
    others: Track = field(default_factory=Track)  # the node without the GPUs that are lost
    by_uuid: Mapping[str, GpuMemory] = field(default_factory=dict)
    loop: Loop = field(default_factory=Loop)

    @property
    def without_lost(self) -> Activity | None:
        """The activity of all but the GPUs that the driver has lost; None: it has lost none."""
        lost = any(gpu.lost_seconds is not None for gpu in self.by_uuid.values())
        return self.others.shown if lost else None

    @property
    def activity(self) -> Activity:
        """Return the node's activity as verdicts have it."""
        return self.node.shown

    @property
    def gpus(self) -> tuple[GpuVerdict, ...]:
        """The activity of each GPU, by index."""
        ordered = sorted(self.by_uuid.items(), key=lambda item: order(item[0], item[1].index))
        return tuple(GpuVerdict(uuid=uuid, index=gpu.index, activity=gpu.track.shown) for uuid, gpu in ordered)
