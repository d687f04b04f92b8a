"""Lives: what one node's GPUs do, who works at it, and when it fails; the demo fleet's are scripted here.

The scripted lives begin at eight in the morning, on the simulation's time axis in seconds, and are whole seconds. In
this fleet everybody who works at a node has a notebook open there, which holds GPU memory from the first moment on.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile, Phase
from gpuwatch.model.fleet import DEFAULT_POOL

DAY_BEGINS_HOUR = 8  # the wall clock at second 0
_HOUR = 3600
_DAY = 24 * _HOUR
_GIB = 1024**3


class DemoError(Exception):
    """The demo cannot be shown as asked; the sentence names what is wrong and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """One GPU that the driver loses for a while."""

    gpu: int
    spans: Intervals


POOLS = (DEFAULT_POOL, "training", "serving", "batch", "research")  # of all lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One node's life. `story` is one word for people; `people` is when somebody is at work on it."""

    name: str
    story: str
    instance_type: str
    gpus: tuple[LoadProfile, ...]
    pool: str = DEFAULT_POOL
    people: Intervals = field(default_factory=Intervals)
    silent: Intervals = field(default_factory=Intervals)
    lost: tuple[Lost, ...] = ()


# A story makes one life of a name, a source of chance and a horizon in seconds.
Story = Callable[[str, random.Random, int], Workload]


def demo_fleet(seed: int, horizon_seconds: float) -> tuple[Workload, ...]:
    """The demo fleet's lives: the same seed and horizon give the same."""
    whole = int(horizon_seconds) + 1
    return tuple(story(name, random.Random(f"{seed}/{name}"), whole) for name, story in _FLEET.items())


def _rises(phases: list[Phase]) -> tuple[Phase, ...]:
    """Phases in order; of those that begin together the last counts."""
    return tuple({phase.at: phase for phase in sorted(phases, key=lambda phase: phase.at)}.values())


def _training(name: str, chance: random.Random, horizon: int) -> Workload:
    """Long jobs on all eight GPUs with a checkpoint now and then; hours between jobs in which nothing runs."""
    return Workload(
        name=name,
        story="training",
        pool="training",
        instance_type="p4d.24xlarge",
        gpus=(LoadProfile(_jobs(chance, horizon, 0)),) * 8,
    )


def _jobs(chance: random.Random, horizon: int, begin: int) -> tuple[Phase, ...]:
    """Jobs of 6 to 14 hours, 1 to 6 hours apart."""
    phases: list[Phase] = []
    at = begin
    while at < horizon:
        end = at + chance.randrange(6 * _HOUR, 14 * _HOUR)
        phases += _job(chance, at, end)
        at = end + chance.randrange(1 * _HOUR, 6 * _HOUR)
    return _rises(phases)


def _job(chance: random.Random, begin: int, end: int) -> Iterator[Phase]:
    """One job: half an hour of steps, a checkpoint of a minute or three in which the GPUs wait, and so on."""
    held = chance.randrange(28, 38) * _GIB
    at = begin
    while at < end:
        yield Phase(at=at, utilization_ratio=round(chance.uniform(0.85, 1.0), 2), memory_bytes=held)
        at += chance.randrange(20 * 60, 40 * 60)
        if at < end:
            yield Phase(at=at, memory_bytes=held)
            at += chance.randrange(60, 180)
    yield Phase(at=end)


def _losing_a_gpu(name: str, chance: random.Random, horizon: int) -> Workload:
    """A training node that loses a GPU: the job dies, the node is repaired hours later, a new job begins."""
    lost_at = chance.randrange(2 * _HOUR, 5 * _HOUR)
    back_at = lost_at + chance.randrange(2 * _HOUR, 5 * _HOUR)
    first = [phase for phase in _job(chance, 0, lost_at + _HOUR) if phase.at < lost_at]
    programme = LoadProfile(_rises([*first, Phase(at=lost_at), *_jobs(chance, horizon, back_at + 600)]))
    lost = Lost(gpu=chance.randrange(8), spans=Intervals([(lost_at, back_at)]))
    return Workload(
        name=name,
        story="loses a GPU",
        pool="training",
        instance_type="p4d.24xlarge",
        gpus=(programme,) * 8,
        lost=(lost,),
    )


def _inference(name: str, chance: random.Random, horizon: int) -> Workload:
    """A service: bursts around the clock, more by day, its model always loaded on all four GPUs."""
    gpus = []
    for _ in range(4):
        held, at, phases = chance.randrange(14, 20) * _GIB, 0, []
        while at < horizon:
            phases.append(Phase(at=at, utilization_ratio=round(chance.uniform(0.2, 0.9), 2), memory_bytes=held))
            at += chance.randrange(20, 300)
            phases.append(Phase(at=at, memory_bytes=held))
            by_day = (at % _DAY) < 12 * _HOUR
            at += chance.randrange(30, 600 if by_day else 3000)
        gpus.append(LoadProfile(_rises(phases)))
    return Workload(name=name, story="inference", pool="serving", instance_type="g6.12xlarge", gpus=tuple(gpus))


def _batch(name: str, chance: random.Random, horizon: int) -> Workload:
    """A batch job every two to four hours that leaves nothing behind."""
    phases: list[Phase] = []
    at = chance.randrange(_HOUR // 2, 2 * _HOUR)
    while at < horizon:
        phases.append(Phase(at=at, utilization_ratio=round(chance.uniform(0.6, 1.0), 2), memory_bytes=12 * _GIB))
        at += chance.randrange(15 * 60, 50 * 60)
        phases.append(Phase(at=at))
        at += chance.randrange(2 * _HOUR, 4 * _HOUR)
    return Workload(
        name=name, story="batch", pool="batch", instance_type="g6.xlarge", gpus=(LoadProfile(_rises(phases)),)
    )


def _notebook(name: str, chance: random.Random, horizon: int) -> Workload:
    """A person from morning to evening: mostly thinking, short runs; now and then the notebook stays open all night."""
    phases: list[Phase] = []
    people: list[tuple[float, float]] = []
    for morning in range(0, horizon, _DAY):
        begin = morning + (0 if morning == 0 else chance.randrange(0, _HOUR))
        lunch = morning + 4 * _HOUR + chance.randrange(0, _HOUR // 2)
        evening = morning + 9 * _HOUR + chance.randrange(0, 2 * _HOUR)
        people += [(begin, lunch), (lunch + 45 * 60, evening)]
        held, at = chance.randrange(2, 18) * _GIB, begin
        phases.append(Phase(at=at, memory_bytes=held))
        for from_, to in people[-2:]:
            at = int(from_) + chance.randrange(60, 1500)
            while at < to - 600:
                phases.append(Phase(at=at, utilization_ratio=round(chance.uniform(0.1, 1.0), 2), memory_bytes=held))
                at += chance.randrange(10, 400)
                phases.append(Phase(at=at, memory_bytes=held))
                at += chance.randrange(120, 2400)
        if chance.random() < 0.75:  # noqa: PLR2004  one evening in four the notebook stays open
            phases.append(Phase(at=evening))
    return Workload(
        name=name,
        story="notebook",
        pool="research",
        instance_type="g5.xlarge",
        gpus=(LoadProfile(_rises(phases)),),
        people=Intervals(people),
    )


def _forgotten(name: str, chance: random.Random, horizon: int) -> Workload:
    """An experiment ends in the first minutes, and nobody comes back."""
    del horizon
    end = chance.randrange(60, 600)
    phases = (Phase(at=0, utilization_ratio=0.7, memory_bytes=10 * _GIB), Phase(at=end))
    kind, count = chance.choice((("g6e.xlarge", 1), ("g6.12xlarge", 4), ("g5.xlarge", 1)))
    return Workload(
        name=name, story="forgotten", pool="research", instance_type=kind, gpus=(LoadProfile(phases),) * count
    )


def _falling_silent(name: str, chance: random.Random, horizon: int) -> Workload:
    """Its agent says nothing for hours while a job runs on; the job ends an hour or two after it speaks again."""
    del horizon
    begin = chance.randrange(_HOUR // 3, 2 * _HOUR)
    end = begin + chance.randrange(3 * _HOUR, 6 * _HOUR)
    programme = LoadProfile(tuple(_job(chance, 0, end + chance.randrange(_HOUR, 2 * _HOUR))))
    return Workload(
        name=name,
        story="falls silent",
        pool="research",
        instance_type="g6.12xlarge",
        gpus=(programme,) * 4,
        silent=Intervals([(begin, end)]),
    )


_FLEET: dict[str, Story] = {
    "batch-1": _batch,
    "batch-2": _batch,
    "forgotten-1": _forgotten,
    "forgotten-2": _forgotten,
    "forgotten-3": _forgotten,
    "notebook-ana": _notebook,
    "notebook-ben": _notebook,
    "notebook-chi": _notebook,
    "serve-1": _inference,
    "serve-2": _inference,
    "silent-1": _falling_silent,
    "train-1": _training,
    "train-2": _losing_a_gpu,
}
