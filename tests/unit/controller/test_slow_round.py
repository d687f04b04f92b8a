"""What is slow in a round does not make old what the agents say: ages are judged when an answer comes."""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler

import pytest

from gpuwatch.controller.observe.pool_metrics import evaluate_queries
from gpuwatch.controller.observe.prometheus_api import Answer, PromApi
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Limits, judge
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import NOW, Desk, FakeFleet, a_node, a_verdict
from tests.support.builders.guard_cases import a_case, with_node
from tests.support.fakes.scraped_agent import an_agent, encoded

QUEUE = ScalingRules(metrics={"queue": Metric(signal="promql", expression="queue", target=10.0, per_node=True)})
SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0), scaling=QUEUE)


@dataclass(frozen=True, slots=True)
class Slow:
    """A fleet's signals with a Prometheus that hangs for so long, and never answers."""

    fleet: FakeFleet
    seconds: float

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """The agents answer at once."""
        return self.fleet.observe(nodes)

    def confirm(self, node: Node) -> NodeReport:
        """Likewise."""
        return self.fleet.confirm(node)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Nothing, late."""
        self.fleet.clock.advance(self.seconds)
        doubt = "Prometheus did not answer within 30s"
        return tuple(
            MetricValue(pool=q.pool, name=q.name, at=fleet.observed_at, value=None, doubt=doubt) for q in queries
        )


@pytest.mark.parametrize("seconds", [31.0, 600.0])
def test_a_prometheus_that_hangs_costs_nobody_his_verdict(seconds: float) -> None:
    """One pool waits for its query for longer than verdicts may be old: the others' idle machines are still found."""
    desk = Desk(rules=SOON, limits=Limits(max_stops_per_hour_ratio=1.0))
    desk.fleet.put(a_node("i-1", held=0.0))
    done: Round | None = None
    for _ in range(12):
        done = step(replace(desk.parts, signals=Slow(desk.fleet, seconds)))
        assert "stale" not in {answer.rule for review in done.reviews for answer in review.refusals}
        desk.rest(60.0)

    assert done is not None
    assert done.observation.measure("default", "queue") is not None
    notices = [entry for entry in desk.ledger.history("i-1") if entry.intent.verb is Verb.NOTICE]
    assert notices


@pytest.mark.parametrize(
    ("age", "waited", "says"),
    [
        (25.0, 25.0, None),
        (1.0, 30.0, None),
        (1.0, 31.0, "answered 31s ago"),
        (1.0, -31.0, "answered -31s ago"),
        (31.0, 0.0, "by its own count"),
        (31.0, 31.0, "by its own count"),
    ],
)
def test_an_age_is_judged_when_the_answer_comes(age: float, waited: float, says: str | None) -> None:
    """How long the round has taken since is another cause, and said as such; clocks are not blamed for it."""
    received = NOW - timedelta(seconds=waited)
    signal = NodeReport(
        verdict=replace(a_verdict(at=received), at=received - timedelta(seconds=age)), received_at=received
    )
    found = [answer for answer in judge(with_node(a_case(), signal=signal)).answers if answer.rule == "stale"]

    assert [answer.refused for answer in found] == [says is not None]
    assert says is None or says in found[0].sentence
    assert "clock" not in found[0].remedy or says == "by its own count"


@dataclass(slots=True)
class Agents:
    """A server that plays many agents: those of `deaf` never answer."""

    deaf: set[str]
    asked: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        """One request."""
        node_id = request.path.split("/")[1]
        self.asked.append(node_id)
        if node_id in self.deaf:
            self.over.wait(20)
            return
        body = encoded(a_verdict(node_id, State.BUSY, age=0.0, at=SystemClock().now()))
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


def test_silent_agents_do_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """Many that do not answer: once that is known, all others are asked before them, and each has its turn."""
    names = [f"i-{n:02}" for n in range(24)]
    agents = Agents(deaf=set(names[:20]))
    with an_agent(agents) as url, caplog.at_level(logging.WARNING):
        settings = ObserveSettings(timeout=0.2, concurrency=4, targets={name: f"{url}/{name}" for name in names})
        source = ScrapeSource(settings=settings, clock=SystemClock(), max_age_seconds=1.0)
        nodes = [a_node(name, signal=NodeReport()) for name in names]
        turns, fleet = list[list[str]](), source.observe(nodes)
        while len(source._silent) < len(agents.deaf):
            turns.append(agents.asked)
            agents.asked = []
            fleet = source.observe(nodes)
        for _ in range(10):  # a slow machine may let one that answers be late
            agents.asked = []
            fleet = source.observe(nodes)
            last = list(agents.asked)
            if set(last[:4]) == set(names[20:]) and all(node.verdict for node in fleet.nodes[20:]):
                break
        agents.over.set()

    assert [node.verdict is not None for node in fleet.nodes] == [False] * 20 + [True] * 4
    assert set(names[20:]) == set(last[:4]), "those that are not known to be silent come first"
    assert len(last) < len(names), "the time for asking has an end"
    assert len(turns) < 20, "each has its turn"
    assert [node.id for node in fleet.nodes] == names
    unasked = next(node for node in fleet.nodes if node.id not in last)
    assert "no time to ask its agent" in (unasked.activity.doubt or "")
    assert "Raise signals.concurrency" in caplog.text


def test_machines_that_are_no_more_are_forgotten() -> None:
    """The list of the silent does not grow with the fleet's past."""
    source = ScrapeSource(settings=ObserveSettings(), clock=SystemClock(), max_age_seconds=30.0)
    source._silent["i-gone"] = 0.0
    source.observe([replace(a_node(), state=NodeState.STOPPED)])

    assert source._silent == {}


class Api(PromApi):
    """Answers that are given, and how many were asked for at once."""

    def instant(self, expressions: Mapping[str, str], at: datetime, *, at_a_time: int = 4) -> dict[str, Answer]:
        """One expression hangs."""
        del at
        assert at_a_time >= 30, "all are asked at once"
        slow = Answer(doubt="Prometheus did not answer within 30s")
        return {name: slow if "slow" in text else Answer(scalar=7.0) for name, text in expressions.items()}


def test_a_slow_expression_costs_its_own_pool_alone() -> None:
    """Thirty pools ask at the same time, and one of them has no number."""
    queries = [MetricQuery(pool=f"p{n}", name="queue", expression="slow" if n == 7 else "vector(7)") for n in range(30)]
    api = Api(settings=ObserveSettings().promql, clock=SystemClock())
    found = evaluate_queries(api, queries, NOW, 30.0)

    assert [found[query].value for query in queries] == [None if n == 7 else 7.0 for n in range(30)]
    assert "30s" in (found[queries[7]].doubt or "")
