"""Another exporter's samples in real engines: busy wins, idle takes a window without a gap, all else is unknown."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuwatch.controller.observe.exporters import DIALECTS
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeState
from tests.support.builders.exporters import (
    LOOKBACK,
    NOW,
    WORK,
    Change,
    a_day,
    a_machine,
    a_source,
    an_exporter,
    at_rest,
    during,
    unchanged,
)
from tests.support.real.tsdb import PROMETHEUS_BY_DAY, History, Points, victoria

MEMORY = {"dcgm": 9000.0, "nvidia_smi": 9e9, "nvitop": 9000.0}


def without(begin: float, end: float, *, sign: str = "", gpu: int | None = None) -> Change:
    """No sample for so long, of all signs and GPUs or of one."""

    def change(name: str, number: int, points: list[tuple[float, float]]) -> Points:
        if sign not in {"", name} or gpu not in {None, number}:
            return points
        return [(at, value) for at, value in points if not begin <= at - NOW < end]

    return change


def later(seconds: float) -> Change:
    """All samples bear a later time."""
    return lambda _sign, _gpu, points: [(at + seconds, value) for at, value in points]


def denser(_sign: str, _gpu: int, points: list[tuple[float, float]]) -> Points:
    """Scraped three times as often as the settings say, in every other stretch of ten minutes."""
    often = [(at + more, value) for at, value in points for more in (0.0, 5.0, 10.0)]
    return [(at, value) for at, value in often if at > NOW - 400 or (at // 600) % 2]


@dataclass(frozen=True, slots=True)
class Story:
    """What was scraped of a node, and what is to be thought of it."""

    state: State
    change: Callable[[str], Change] = lambda _: unchanged
    why: str = ""
    gpus: int = 2
    also: str | None = None  # another port on which the same node answers
    labels: dict[str, str] = field(default_factory=dict)
    node: dict[str, object] = field(default_factory=dict)


STORIES = {
    "at rest": Story(State.IDLE),
    "at rest for an hour": Story(State.IDLE, lambda _: during(-5000, -3950, WORK)),
    "a second's work half an hour ago": Story(State.BUSY, lambda _: during(-1800, -1784, WORK)),
    "at work, with gaps": Story(
        State.BUSY, lambda _: lambda s, g, p: without(-900, -300)(s, g, list(during(-60, 0, WORK)(s, g, p)))
    ),
    "an encoder at work": Story(State.BUSY, lambda _: during(-300, 0, WORK, sign="encoder")),
    "memory held": Story(State.PARKED, lambda d: during(-9999, 1, MEMORY[d], sign="memory_used")),
    "memory held for a while": Story(State.PARKED, lambda d: during(-900, -600, MEMORY[d], sign="memory_used")),
    "one GPU of two": Story(State.UNKNOWN, gpus=1, why="1 of the 2 GPUs"),
    "one GPU gone a while ago": Story(State.UNKNOWN, lambda _: without(-450, 1, gpu=1), "1 of the 2 GPUs"),
    "one sample missing": Story(State.UNKNOWN, lambda _: without(-1800, -1785), "12 of the 13 stretches"),
    "one of the newest missing": Story(State.UNKNOWN, lambda _: without(-33, -18)),
    "ten minutes missing": Story(State.UNKNOWN, lambda _: without(-1800, -1200), "of the 13 stretches"),
    "the oldest missing": Story(State.UNKNOWN, lambda _: without(-9999, -3000), "of the 13 stretches"),
    "the newest missing": Story(State.UNKNOWN, lambda _: without(-45, 1), "old"),
    "one GPU's newest missing": Story(State.UNKNOWN, lambda _: without(-45, 1, gpu=1), "old"),
    "one GPU's older ones missing": Story(State.UNKNOWN, lambda _: without(-1800, -600, gpu=1), "of the 13"),
    "one GPU's older ones missing for a while": Story(State.UNKNOWN, lambda _: without(-700, -660, gpu=1), "of the 13"),
    "no memory told": Story(State.UNKNOWN, lambda _: without(-9999, 1, sign="memory_used"), "no samples"),
    "one GPU's memory not told": Story(
        State.UNKNOWN, lambda _: without(-9999, 1, sign="memory_used", gpu=1), "not all of its GPUs"
    ),
    "no number": Story(State.UNKNOWN, lambda _: during(-1800, -1700, math.nan), ""),
    "infinite memory": Story(State.UNKNOWN, lambda _: during(-1800, -1700, -math.inf, sign="memory_used"), ""),
    "a negative share": Story(State.UNKNOWN, lambda _: lambda _s, _g, p: [(at, -1.0) for at, _ in p], "no numbers"),
    "samples of tomorrow": Story(State.UNKNOWN, lambda _: later(90), "from the future"),
    "scraped oftener than told": Story(State.UNKNOWN, lambda _: denser, "scrape_interval"),
    "eight GPUs where there are two": Story(State.UNKNOWN, gpus=8, why="8 GPUs"),
    "two exporters": Story(State.UNKNOWN, also="9500", why="2 targets claim"),
    "another machine at its address": Story(State.UNKNOWN, node={"address": "10.0.0.1"}, why="also is what"),
    "nobody's": Story(State.UNKNOWN, node={"address": "10.9.9.9"}, why="no target"),
    "no address": Story(State.UNKNOWN, node={"address": None}, why="no target"),
    "stopped": Story(State.UNKNOWN, node={"state": NodeState.STOPPED}, why="stopped"),
}


def the_fleet() -> list[Node]:
    """A node for each story; "another machine" has the address of the first, whose story is told twice."""
    return [
        a_machine(f"i-{number}", **{"address": f"10.0.1.{number}", **story.node})  # type: ignore[arg-type]
        for number, story in enumerate(STORIES.values())
    ] + [a_machine("i-rival", "10.0.0.1")]


@pytest.fixture(scope="module", params=PROMETHEUS_BY_DAY)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus, and then a VictoriaMetrics, that has all stories in all dialects."""
    history = History()
    for dialect in DIALECTS:
        for number, story in enumerate(STORIES.values()):
            # A target at a private address that is nobody's would make every node unknown that its address alone names.
            for port in filter(None, () if "address" in story.node else ("9400", story.also)):
                made = f"10.0.1.{number}:{port}"
                an_exporter(history, dialect, made, story.change(dialect), gpus=story.gpus, labels=story.labels)
        an_exporter(history, dialect, "10.0.0.1:9400")
    with request.param(tmp_path_factory.mktemp("engine") / "data", history) as url:
        yield url


@pytest.fixture(scope="module", params=list(DIALECTS))
def seen(engine: str, request: pytest.FixtureRequest) -> dict[str, Node]:
    """What is seen of each story in one dialect."""
    fleet = a_source(engine, request.param).observe(the_fleet())
    return dict(zip(STORIES, fleet.nodes, strict=False))


@pytest.mark.parametrize("told", STORIES)
def test_each_story_has_its_verdict(seen: dict[str, Node], told: str) -> None:
    """Any sign of work makes it busy; idleness needs every sample of every GPU over the whole window; else unknown."""
    story, node = STORIES[told], seen[told]

    assert (node.activity.state, story.why in (node.activity.doubt or "")) == (story.state, True), node.activity
    if story.state is not State.UNKNOWN:
        assert node.activity.held_seconds == (0.0 if story.state is State.BUSY else LOOKBACK)
        assert node.verdict is not None
        assert (round(node.verdict.age_seconds, 1), node.verdict.interval_seconds) == (3.2, 15.0)
        assert len(node.verdict.gpus) == story.gpus


def test_which_gpu_of_a_busy_node_works_is_not_told(seen: dict[str, Node]) -> None:
    """Its GPUs are unknown, one by one; those of an idle node are all idle."""
    busy, idle = seen["an encoder at work"].verdict, seen["at rest"].verdict

    assert busy is not None
    assert idle is not None
    assert {gpu.activity.state for gpu in busy.gpus} == {State.UNKNOWN}
    assert {gpu.activity.state for gpu in idle.gpus} == {State.IDLE}


def test_without_an_agent_to_ask_nothing_is_confirmed_unless_the_settings_say_so(engine: str) -> None:
    """The veto names the setting; with it a second, fresh query answers for this node alone."""
    source = a_source(engine, "dcgm")
    idle, busy = the_fleet()[0], the_fleet()[list(STORIES).index("an encoder at work")]
    willing = a_source(engine, "dcgm", scrape=ObserveSettings(act_without_confirm=True))

    assert "signals.act_without_confirm" in (source.confirm(idle).failure or "")
    assert a_machine("i-0", "x", signal=willing.confirm(idle)).activity.state is State.IDLE
    assert a_machine("i-0", "x", signal=willing.confirm(busy)).activity.state is State.BUSY


def test_a_second_query_is_let_do_only_with_the_newest_sample_that_there_can_be(engine: str) -> None:
    """A scrape interval and five seconds: a sample that the rounds still believe is too old for the last look."""
    idle = the_fleet()[0]
    for later, confirms in ((16.0, True), (18.0, False)):
        willing = ObserveSettings(act_without_confirm=True)
        source = a_source(engine, "dcgm", at=NOW + later, scrape=willing, max_missed_scrapes=1)
        signal = source.confirm(idle)

        assert source.observe(the_fleet()).nodes[0].activity.state is State.IDLE
        assert (signal.verdict is not None) is confirms, signal.failure
        assert confirms or "its newest sample is 21s old; a last look may be 20s old at most" in (signal.failure or "")


def test_a_gpu_that_mig_has_split_is_unknown(engine: str, tmp_path: Path) -> None:
    """What its parts do is not in the exporter's utilization, which may be 0 while they work."""
    del engine  # one engine is enough, the other has been shown to think the same
    history = History()
    an_exporter(history, "dcgm", "10.0.0.1:9400", labels={"GPU_I_ID": "1"})
    with victoria(tmp_path / "data", history) as url:
        node = a_source(url, "dcgm").observe([a_machine("i-1", "10.0.0.1")]).nodes[0]

    assert node.activity.state is State.UNKNOWN
    assert "MIG" in (node.activity.doubt or "")


@pytest.mark.component("victoria-metrics")
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), dialect=st.sampled_from(sorted(DIALECTS)))
@example(seed=1898, dialect="nvitop")  # the GPU that worked is lost to the exporter
def test_no_sample_that_is_lost_late_or_broken_makes_a_node_idle(
    tmp_path_factory: pytest.TempPathFactory, seed: int, dialect: str
) -> None:
    """Whatever happens to samples: for as long as a node is said to be at rest, no sample of work was ever taken."""
    history, nodes = History(), [a_machine(f"i-{number}", f"10.0.0.{number}") for number in range(50)]
    worked = a_day(history, dialect, random.Random(seed), len(nodes))
    with victoria(tmp_path_factory.mktemp("engine") / "data", history) as url:
        fleet = a_source(url, dialect).observe(nodes)

    wrong = {node.id: node.activity for node in fleet.nodes if any(map(at_rest(node), worked[node.id]))}
    assert wrong == {}
    assert any(node.activity.state is State.BUSY for node in fleet.nodes)
