"""Fleets whose load is known, as each exporter would have told it to a Prometheus: the truth beside its scrapes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.agent.devices.load_profile import Intervals
from gpuwatch.controller.observe.exporters import DIALECTS
from gpuwatch.model.activity import State
from tests.support.builders.exporters import NOW
from tests.support.real.tsdb import History

EVERY = 15.0
BEGIN = (NOW - 20 * 3600) // 300 * 300  # of all recordings: a multiple of every step
Pairs = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One node by the truth, in seconds from BEGIN: when it works, holds memory, is not scraped, is restarted."""

    busy: Pairs = ()
    parked: Pairs = ()
    unscraped: Pairs = ()
    restarts: Sequence[float] = ()
    gpus: int = 2
    clock_ahead: float = 0.0

    def state(self, seconds: float) -> State:
        """What it does at a moment."""
        if Intervals(self.busy).end_of_interval(seconds) is not None:
            return State.BUSY
        return State.PARKED if Intervals(self.parked).end_of_interval(seconds) is not None else State.IDLE

    def scrapes(self, hours: float, phase: float) -> list[float]:
        """When it was scraped."""
        dark = Intervals(self.unscraped)
        moments = [phase + EVERY * number for number in range(int(hours * 3600 / EVERY))]
        return [at for at in moments if dark.end_of_interval(at) is None]


def tell_agent(history: History, node_id: str, load: Load, hours: float, *, instance: str = "", **labels: str) -> None:
    """Our own agent's series."""
    mine = {"job": "gpuwatch", "instance": instance or f"{node_id}:9460", **labels}
    scrapes = load.scrapes(hours, phase=3.2)

    def add(name: str, value: Callable[[float], float], **more: str) -> None:
        history.add(name, {**mine, **more}, [(BEGIN + at, value(at)) for at in scrapes])

    add("gpuwatch_node_info", lambda _: 1, node_id=node_id)
    add("gpuwatch_instance_info", lambda _: 1, instance_type="g6.12xlarge")
    for gpu in range(load.gpus):
        add("gpuwatch_gpu_up", lambda _: 1, uuid=f"GPU-{gpu}")
    for state in State:
        add("gpuwatch_node_activity", lambda at, state=state: float(load.state(at) is state), state=state.value)  # type: ignore[misc]
    worked = [end for _, end in [*load.busy, *load.parked]]
    began = [0.0, *sorted([*worked, *load.restarts])]

    def idle(at: float) -> float:
        return at - max(each for each in began if each <= at) if load.state(at) is State.IDLE else 0.0

    add("gpuwatch_node_idle_seconds", idle)
    add("gpuwatch_agent_last_cycle_timestamp_seconds", lambda at: BEGIN + at + load.clock_ahead)
    restarts = [0.0, *load.restarts]
    add("gpuwatch_agent_cycle_duration_seconds_count", lambda at: at - max(each for each in restarts if each <= at))


def tell_exporter(history: History, dialect: str, node: str, load: Load, hours: float, **labels: str) -> None:
    """Another exporter's series; the last GPU works, all hold memory."""
    result = DIALECTS[dialect]
    for gpu in range(load.gpus):
        for sign in result.signs:
            if sign.name not in {"utilization", "memory_used", "encoder"}:
                continue
            mine = {"job": dialect, "instance": f"{node}:9400", result.gpu_label: f"{node}-{gpu}", **labels}
            points = []
            for at in load.scrapes(hours, phase=7.4):
                state = load.state(at)
                works = state is State.BUSY and gpu == load.gpus - 1 and sign.name == "utilization"
                holds = state is not State.IDLE and sign.name == "memory_used"
                scale = 97.0 if works else 20.0 if holds else 0.0
                points.append((BEGIN + at, sign.limit * scale))
            history.add(sign.metric, mine, points)


def as_csv(loads: Mapping[str, Load]) -> str:
    """The same busy intervals as a file."""
    rows = [f"{name},{begin},{end}" for name, load in loads.items() for begin, end in load.busy]
    return "\n".join(["node,busy_from_s,busy_to_s", *rows])
