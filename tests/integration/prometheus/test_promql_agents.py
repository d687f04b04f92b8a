"""Our agents' metrics in real engines: one scrape's verdict is believed whole or not at all, and the agent confirms."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node
from gpuwatch.model.measurement import MetricQuery
from tests.support.builders.exporters import NOW, a_machine, a_source, an_agent
from tests.support.fakes.scraped_agent import a_good_agent
from tests.support.fakes.scraped_agent import an_agent as a_served_agent
from tests.support.real.tsdb import ENGINES, History

HELD = 7200.0


@dataclass(frozen=True, slots=True)
class Story:
    """What was scraped of an agent, and what is to be thought of its node."""

    state: State
    why: str = ""
    told: dict[str, object] = field(default_factory=dict)
    drop: str = ""  # a metric that is not there
    behind: str = ""  # a metric whose newest sample is not there
    again: dict[str, object] | None = None
    gpus: dict[str, int] = field(default_factory=dict)


STORIES = {
    "idle": Story(State.IDLE, gpus={"idle": 2}),
    "busy": Story(State.BUSY, told={"state": State.BUSY}, gpus={"busy": 2}),
    "parked": Story(State.PARKED, told={"state": State.PARKED}, gpus={"parked": 2}),
    "stalled": Story(State.STALLED, told={"state": State.STALLED}, gpus={"stalled": 2}),
    "partly idle": Story(
        State.BUSY, told={"state": State.BUSY, "gpu_states": (State.IDLE, State.BUSY)}, gpus={"idle": 1, "busy": 1}
    ),
    "unknown to its agent": Story(State.UNKNOWN, "its agent says so", {"state": State.UNKNOWN}, gpus={"unknown": 2}),
    "late": Story(State.UNKNOWN, "old", {"newest": -60.0}),
    "of tomorrow": Story(State.UNKNOWN, "from the future", {"newest": 60.0}),
    "called by its name": Story(State.IDLE, told={"node_id": "NAME"}, gpus={"idle": 2}),
    "without a name": Story(State.UNKNOWN, "no target", drop="gpuwatch_node_info"),
    "without a state": Story(State.UNKNOWN, "0 states", drop="gpuwatch_node_activity"),
    "without an idle time": Story(State.UNKNOWN, "one scrape", drop="gpuwatch_node_idle_seconds"),
    "an idle time of an earlier scrape": Story(State.UNKNOWN, "one scrape", behind="gpuwatch_node_idle_seconds"),
    "without an age": Story(State.UNKNOWN, "not whole", drop="gpuwatch_agent_last_cycle_age_seconds"),
    "without GPUs": Story(State.IDLE, drop="gpuwatch_gpu_activity"),
    "two agents": Story(State.UNKNOWN, "2 targets claim", again={"instance": "elsewhere:9460"}),
    "scraped twice": Story(State.UNKNOWN, "two answers", again={"replica": "b"}),
}


@pytest.fixture(scope="module", params=list(ENGINES.values()))
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus, and then a VictoriaMetrics, that has scraped all of them."""
    history = History()
    for number, story in enumerate(STORIES.values()):
        one = History()
        document = {"node_id": f"i-{number}", "instance": f"10.0.1.{number}:9460", **story.told}
        document["node_id"] = str(document["node_id"]).replace("NAME", f"i-{number}-name")
        an_agent(one, **document)  # type: ignore[arg-type]
        if story.again is not None:
            an_agent(one, **{**document, **story.again})  # type: ignore[arg-type]
        one.lines.pop(story.drop, None)
        one.lines.get(story.behind, [None]).pop()
        for name, lines in one.lines.items():
            history.lines.setdefault(name, []).extend(lines)
    with request.param(tmp_path_factory.mktemp("engine") / "data", history) as url:
        yield url


def the_fleet() -> list[Node]:
    """A node for each story."""
    return [a_machine(f"i-{number}", f"10.0.1.{number}") for number in range(len(STORIES))]


@pytest.fixture(scope="module", params=[False, True], ids=["by GPU", "recorded"])
def seen(engine: str, request: pytest.FixtureRequest) -> dict[str, Node]:
    """What is seen of each story. Without recorded series a fleet that records them has no GPUs."""
    fleet = a_source(engine, "gpuwatch", rules=request.param).observe(the_fleet())
    return dict(zip(STORIES, fleet.nodes, strict=True))


@pytest.mark.parametrize("told", STORIES)
def test_each_story_has_its_verdict(seen: dict[str, Node], told: str, request: pytest.FixtureRequest) -> None:
    """The agent's own verdict where all of one fresh scrape is there, else unknown with the reason."""
    story, node = STORIES[told], seen[told]
    verdict = node.verdict

    assert (node.activity.state, story.why in (node.activity.doubt or "")) == (story.state, True), node.activity
    assert node.activity.held_seconds == pytest.approx(HELD if story.state is State.IDLE else 0.0)
    if verdict is not None:
        assert (round(verdict.age_seconds, 1), verdict.interval_seconds) == (3.7, 15.0)
        counted = [gpu.activity.state.value for gpu in verdict.gpus]
        recorded = "recorded" in request.node.callspec.id
        assert {state: counted.count(state) for state in counted} == ({} if recorded else story.gpus)


def test_an_idle_gpu_of_a_busy_node_tells_for_how_long(engine: str) -> None:
    """So that somebody may be told that half of the machine is not needed."""
    node = a_source(engine, "gpuwatch").observe(the_fleet()).nodes[list(STORIES).index("partly idle")]

    assert node.verdict is not None
    held = {gpu.uuid: gpu.activity.held_seconds for gpu in node.verdict.gpus}
    assert held == {"busy 1 of 1": 0.0, "idle 1 of 1": HELD}


def test_its_agent_itself_confirms(engine: str) -> None:
    """Prometheus observes, the agent is asked last: it has begun to work since the scrape."""
    with a_served_agent(a_good_agent) as url:
        source = a_source(engine, "gpuwatch", scrape=ObserveSettings(timeout=5.0, targets={"i-1": url}))
        signal = source.agents.confirm(a_machine("i-1", "127.0.0.1"))
        gone = source.confirm(a_machine("i-2", "127.0.0.1"))

    assert signal.verdict is None or signal.verdict.activity.state is State.BUSY
    assert gone.failure is not None
    assert "could not be asked" in gone.failure


MEASURED = {
    "a mean over GPUs": (MetricQuery(pool="default", name="gpu_utilization"), 0.375, ""),
    "a metric that nobody has": (MetricQuery(pool="default", name="sm_activity"), None, "none of 17 running nodes"),
    "a name that is none": (MetricQuery(pool="default", name="queue"), None, "no queue"),
    "another pool": (MetricQuery(pool="other", name="gpu_utilization"), None, "no running node"),
    "a sum": (MetricQuery(pool="p", name="x", expression="sum(gpuwatch_node_info{node_id='i-1'})"), 1.0, ""),
    "a series": (MetricQuery(pool="p", name="x", expression="gpuwatch_node_info{node_id='i-1'}"), 1.0, ""),
    "the pool's": (
        MetricQuery(pool="i-1", name="x", expression='gpuwatch_node_info{node_id="$pool"} # it\'s'),
        1.0,
        "",
    ),
    "a pool's name that is PromQL": (
        MetricQuery(pool='"} or vector(1) or x{a="', name="x", expression='gpuwatch_node_info{node_id="$pool"}'),
        None,
        "0 series",
    ),
    "a pool in a text without escapes": (MetricQuery(pool="p", name="x", expression="x{a=`$pool`}"), None, "in quotes"),
    "a pool in no text": (MetricQuery(pool="p", name="x", expression="$pool"), None, "in quotes"),
    "a pool in a remark": (MetricQuery(pool="p", name="x", expression="1 # it's $pool"), None, "in quotes"),
    "no series": (MetricQuery(pool="p", name="x", expression="nothing_at_all"), None, "0 series"),
    "several series": (MetricQuery(pool="p", name="x", expression="gpuwatch_node_info"), None, "series, not one"),
    "an old series": (
        MetricQuery(pool="p", name="x", expression="gpuwatch_node_info{node_id='i-6'}"),
        None,
        "1m3s old",
    ),
    "no number": (MetricQuery(pool="p", name="x", expression="vector(0)/0"), None, ""),
    "a matrix": (MetricQuery(pool="p", name="x", expression="gpuwatch_node_info[5m]"), None, "matrix"),
    "no PromQL": (MetricQuery(pool="p", name="x", expression="sum("), None, "refused the query"),
}


@pytest.mark.parametrize("told", MEASURED)
def test_a_measure_is_one_number_of_now_or_unknown(engine: str, told: str) -> None:
    """Means over the members that tell, with how many they are; an expression gives one sample, or why not."""
    query, value, why = MEASURED[told]
    source = a_source(engine, "gpuwatch")
    fleet = source.observe(the_fleet())
    measured = source.measure(fleet, [query])[0]

    assert measured.value == value
    assert why in (measured.doubt or "")
    assert (measured.doubt is None) == (value is not None)
    assert measured.at.timestamp() == NOW


def test_how_many_nodes_a_measure_is_of_is_told(engine: str) -> None:
    """Whoever scales decides what a part of the pool is worth."""
    source = a_source(engine, "gpuwatch")
    measured = source.measure(source.observe(the_fleet()), [MetricQuery(pool="default", name="gpu_utilization")])[0]

    assert measured.expected == len(STORIES)
    assert measured.samples == len(STORIES) - len(["late", "without a name", "two agents", "scraped twice"])
