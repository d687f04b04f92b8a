"""Fleets whose nodes run this or that exporter, as a Prometheus has scraped them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpuwatch.controller.observe.exporters import DIALECTS
from gpuwatch.controller.observe.prometheus_api import PromApi
from gpuwatch.controller.observe.promql import PromqlSource
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import a_node
from tests.support.real.tsdb import History, Points

EVERY = 15
LOOKBACK = 3600.0
MAX_AGE = 40.0
HOURS = 5400  # of history before now
NOW = float(int(SystemClock().now().timestamp()))  # engines keep the history of their own present best

Change = Callable[[str, int, list[tuple[float, float]]], Points]  # of a sign's points on one GPU


def unchanged(_sign: str, _gpu: int, points: list[tuple[float, float]]) -> Points:
    """As they are."""
    return points


def times(begin: float = -HOURS, end: float = 0.0, phase: float = 3.217) -> list[float]:
    """When a target was scraped, by Unix time."""
    return [NOW - phase + step * EVERY for step in range(int(begin // EVERY), int(end // EVERY) + 1)]


def an_exporter(
    history: History,
    dialect: str,
    instance: str,
    change: Change = unchanged,
    *,
    gpus: int = 2,
    labels: dict[str, str] | None = None,
) -> None:
    """A target with GPUs at rest, but for what `change` makes of their points."""
    result = DIALECTS[dialect]
    for gpu in range(gpus):
        mine = {"job": dialect, "instance": instance, result.gpu_label: f"GPU-{gpu}", **(labels or {})}
        for sign in result.signs:
            if sign.name == "processes" and sign.metric == "process_info_info":
                continue  # one series for each process
            points = [(at, 0.0) for at in times()]
            history.add(sign.metric, mine, change(sign.name, gpu, points))


def an_agent(  # noqa: PLR0913  each one is another thing about a target
    history: History,
    instance: str,
    node_id: str,
    state: State = State.IDLE,
    *,
    held: float = 7200.0,
    gpus: int = 2,
    newest: float = 0.0,
    gpu_states: Sequence[State] = (),
    **labels: str,
) -> None:
    """An agent of ours: the last minutes of its node's verdict. `held` is its idle time at the newest scrape."""
    mine = {"job": "gpuwatch", "instance": instance, **labels}
    scraped = times(-600.0, newest)
    history.add("gpuwatch_node_info", {**mine, "node_id": node_id}, [(at, 1) for at in scraped])
    for each in State:
        history.add(
            "gpuwatch_node_activity", {**mine, "state": each.value}, [(at, float(each is state)) for at in scraped]
        )
    if state is not State.UNKNOWN:
        idle = held if state is State.IDLE else 0.0
        points = [(at, max(0.0, idle - (scraped[-1] - at))) for at in scraped]
        history.add("gpuwatch_node_idle_seconds", mine, points)
    history.add("gpuwatch_agent_last_cycle_age_seconds", mine, [(at, 0.5) for at in scraped])
    for gpu in range(gpus):
        of = {**mine, "uuid": f"GPU-{gpu}", "gpu": str(gpu)}
        shown = gpu_states[gpu] if gpu_states else state
        for each in State:
            points = [(at, float(each is shown)) for at in scraped]
            history.add("gpuwatch_gpu_activity", {**of, "state": each.value}, points)
        if shown is State.IDLE:
            history.add("gpuwatch_gpu_idle_seconds", of, [(at, held) for at in scraped])
        history.add("gpuwatch_gpu_utilization_ratio", of, [(at, 0.25 * (gpu + 1)) for at in scraped])


def a_machine(node_id: str, address: str, **other: object) -> Node:
    """The node of an exporter with two GPUs."""
    return replace(a_node(node_id), **{"name": f"{node_id}-name", "address": address, "gpu_count": 2, **other})  # type: ignore[arg-type]


def a_source(
    url: str,
    dialect: str,
    *,
    at: float = NOW,
    skew: float = 3600.0,
    scrape: ObserveSettings | None = None,
    **settings: object,
) -> PromqlSource:
    """A source that asks about that moment; engines' own clocks have gone on since."""
    clock = ManualClock(wall=datetime.fromtimestamp(at, UTC))
    promql = PromqlSettings(url=url, dialect=dialect, scrape_interval=EVERY, lookback=LOOKBACK, **settings)  # type: ignore[arg-type]
    asked = replace(scrape or ObserveSettings(timeout=0.2), source="promql", promql=promql)
    return PromqlSource(
        settings=asked,
        clock=clock,
        max_age_seconds=MAX_AGE,
        api=PromApi(settings=promql, clock=clock, most_skew_seconds=skew),
        agents=ScrapeSource(settings=asked, clock=clock, max_age_seconds=MAX_AGE),
    )


@dataclass(slots=True)
class Damage:
    """Something that happens to samples on their way: lost, late, broken. The work that they told of was real."""

    seed: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Seeded, so that a failure can be seen again."""
        self.rng = random.Random(self.seed)

    def __call__(self, _sign: str, _gpu: int, points: list[tuple[float, float]]) -> Points:
        """Lose, break or move some of them."""
        kind = self.rng.choice(("none", "one in a few", "a stretch", "the newest", "the oldest", "nan", "inf"))
        share = self.rng.choice((0.02, 0.2, 0.5))
        begin = self.rng.randrange(len(points))
        end = begin + self.rng.choice((2, 10, 30, 120))
        match kind:
            case "one in a few":
                return [point for point in points if self.rng.random() > share]
            case "a stretch":
                return points[:begin] + points[end:]
            case "the newest":
                return points[: len(points) - self.rng.choice((1, 4, 30))]
            case "the oldest":
                return points[begin:]
            case "nan" | "inf":
                return [
                    (at, float(kind)) if begin <= place < end else (at, value)
                    for place, (at, value) in enumerate(points)
                ]
            case _:
                return points


WORK = 1000.0  # above the limit of every sign that says busy


def during(begin: float, end: float, value: float, *, sign: str = "utilization", gpu: int = 1) -> Change:
    """One sign of one GPU has that value for so long, by seconds from now."""

    def change(name: str, number: int, points: list[tuple[float, float]]) -> Points:
        inside = [name == sign and number == gpu and begin <= at - NOW < end for at, _ in points]
        return [(at, value if hit else rest) for (at, rest), hit in zip(points, inside, strict=True)]

    return change


def a_day(history: History, dialect: str, rng: random.Random, nodes: int) -> dict[str, list[float]]:
    """Nodes that work now and then, and whose samples are lost, late or broken; gives when each was seen at work."""
    worked: dict[str, list[float]] = {}
    for number in range(nodes):
        begin = rng.uniform(-5400, 0)
        work = during(begin, begin + rng.choice((16, 100, 1000)), WORK, gpu=rng.randrange(2))
        story = _Damaged(work, Damage(rng.randrange(2**32)))
        an_exporter(history, dialect, f"10.0.0.{number}:9400", story)
        worked[f"i-{number}"] = story.worked
    return worked


@dataclass(slots=True)
class _Damaged:
    """Work, and then damage to the samples that tell of it."""

    work: Change
    damage: Change
    worked: list[float] = field(default_factory=list)

    def __call__(self, sign: str, gpu: int, points: list[tuple[float, float]]) -> Points:
        rows = list(self.work(sign, gpu, points))
        self.worked += [at for at, value in rows if value == WORK]
        return self.damage(sign, gpu, rows)


def at_rest(node: Node) -> Callable[[float], bool]:
    """Whether a moment lies in the time for which a node is said to have been at rest."""
    end = 0.0 if node.verdict is None else node.verdict.at.timestamp()
    held = node.activity.held_seconds if node.activity.state in {State.IDLE, State.PARKED} else 0.0
    return lambda at: end - held < at <= end
