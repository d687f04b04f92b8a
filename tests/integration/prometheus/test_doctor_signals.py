"""The doctor and what tells of use: agents with their versions and clocks, and a real Prometheus with its series."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest

from gpuwatch import __version__
from gpuwatch.cli.doctor import signals
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.clouds import CloudError
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeVerdict
from gpuwatch.policies import PoolRules
from gpuwatch.policies.scaling.settings import Metric, ScalingRules
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.cloud import SimulatedCloud
from tests.support.builders.doctor_findings import a_controller, codes, the
from tests.support.builders.exporters import NOW
from tests.support.builders.exporters import an_agent as a_scraped_agent
from tests.support.builders.fleet import a_node, a_verdict
from tests.support.fakes.http_sink import Answer, Asked, serving
from tests.support.fakes.scraped_agent import an_agent
from tests.support.real.tsdb import History, prometheus


def a_verdict_now(node_id: str = "i-1") -> NodeVerdict:
    """Of this version, at this moment."""
    return replace(a_verdict(node_id, State.BUSY, at=SystemClock().now()), agent_version=__version__, age_seconds=0.0)


def a_case(
    nodes: tuple[Node, ...], settings: ObserveSettings, pools: Mapping[str, PoolRules] | None = None
) -> ControllerCase:
    """A controller of these machines."""
    cloud = SimulatedCloud(fleet="lab", clock=SystemClock())
    cloud.nodes = lambda: nodes  # type: ignore[method-assign]  # machines whose agents are these tests'
    return a_controller(cloud, settings={"signals": settings, "pools": dict(pools or {})})


def ask(verdict: NodeVerdict, *nodes: Node) -> list[str]:
    """What is found where `i-1` answers so and the other nodes do not at all."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = msgspec.json.encode(verdict)
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with an_agent(answer) as url:
        settings = ObserveSettings(targets={"i-1": url}, timeout=2.0)
        return codes(signals.agents(a_case((a_node("i-1"), *nodes), settings)))


def test_agents_that_answer_are_fine() -> None:
    """Of this version and by this clock."""
    assert ask(a_verdict_now()) == []


def test_silent_agents_are_counted() -> None:
    """One of two is a warning; none at all is a problem."""
    assert ask(a_verdict_now(), a_node("i-2")) == ["agents.silent"]
    assert ask(a_verdict_now("somebody else")) == ["agents.none"]


def test_an_older_agent_is_told() -> None:
    """By the numbers of its version; a newer one is nobody's flaw."""
    assert ask(replace(a_verdict_now(), agent_version="0.0.9")) == ["agents.old"]
    assert ask(replace(a_verdict_now(), agent_version="99.0.0")) == []


@pytest.mark.parametrize("seconds", [-10, 10])
def test_an_agent_of_another_time_is_told(seconds: int) -> None:
    """Its verdict still counts, and its clock is off."""
    now = a_verdict_now()

    assert ask(replace(now, at=now.at + timedelta(seconds=seconds))) == ["agents.clock"]


def test_a_late_answer_is_no_wrong_clock() -> None:
    """A cycle that was eight seconds ago by the agent's own count was read at the right time."""
    now = a_verdict_now()

    assert ask(replace(now, at=now.at - timedelta(seconds=8), age_seconds=8.0)) == []


def test_an_address_for_a_machine_that_does_not_exist_is_named_with_the_nearest_one() -> None:
    """A slip in `signals.targets` leaves that machine without a verdict."""
    found = list(
        signals.agents(a_case((a_node("i-eval"),), ObserveSettings(targets={"i-evall": "http://127.0.0.9:1"})))
    )

    assert "targets.unknown" in codes(found)
    wrong = the(found, "targets.unknown")
    assert (wrong.looked_at, wrong.seen) == (
        "signals.targets.i-evall",
        "no GPU machine has this id or name. The nearest is 'i-eval'.",
    )


def test_without_a_fleet_nobody_is_asked() -> None:
    """Which is not the same as fine."""
    assert codes(signals.agents(a_controller(CloudError("no credentials")))) == ["cloud.skipped"]


def test_a_prometheus_that_is_not_there_is_a_problem() -> None:
    """And none at all, where none is configured, is nothing to look at."""
    nobody = ObserveSettings(promql=PromqlSettings(url="http://127.0.0.1:1"))

    assert codes(signals.prometheus(a_case((), nobody))) == ["prometheus.silent"]
    assert list(signals.prometheus(a_case((), ObserveSettings()))) == []


def test_a_query_that_fails_is_told_as_that() -> None:
    """And not as series that are not there, which would send people to look at their agents."""

    def respond(asked: Asked) -> Answer:
        if asked.form["query"] != "vector(1)":
            return Answer(body="too busy", status=503)
        one = {"metric": {}, "value": [float(asked.form["time"]), "1"]}
        return Answer(body={"status": "success", "data": {"resultType": "vector", "result": [one]}})

    with serving(respond) as server:
        found = list(
            signals.prometheus(a_case((), ObserveSettings(source="promql", promql=PromqlSettings(url=server.url))))
        )

    assert codes(found) == ["prometheus.silent"]
    assert "503" in found[-1].seen


@pytest.mark.component("prometheus")
def test_the_series_that_verdicts_rest_on_are_looked_for(tmp_path: Path) -> None:
    """In a real Prometheus that has scraped our agents and nobody else's; expressions of pools likewise."""
    history = History()
    a_scraped_agent(history, "10.0.0.1:9460", "i-1", newest=SystemClock().now().timestamp() - NOW)  # the doctor's now
    pools = {
        "good": PoolRules(scaling=scaled("vector(1)")),
        "bad": PoolRules(scaling=scaled("queue_of_nobody")),
        "wrong": PoolRules(scaling=scaled("sum(")),
    }
    with prometheus(tmp_path / "prometheus", history) as url:
        ours = PromqlSettings(url=url)

        fine = list(signals.prometheus(a_case((), ObserveSettings(source="promql", promql=ours))))
        assert codes(fine) == [], fine
        assert len(fine) == 2

        rules = ObserveSettings(source="promql", promql=replace(ours, rules=True))
        assert "gpuwatch:node_gpus" in the(signals.prometheus(a_case((), rules)), "prometheus.series").seen

        dcgm = ObserveSettings(source="promql", promql=replace(ours, dialect="dcgm"))
        assert "DCGM_FI_DEV_GPU_UTIL" in the(signals.prometheus(a_case((), dcgm)), "prometheus.series").seen

        found = list(signals.prometheus(a_case((), ObserveSettings(promql=ours), pools)))
        assert codes(found) == ["prometheus.expression"] * 2
        assert [each.looked_at.split(".")[1] for each in found[1:]] == ["bad", "wrong"]


def scaled(expression: str) -> ScalingRules:
    """A pool that follows it."""
    return ScalingRules(metrics={"queue": Metric(signal="promql", expression=expression, target=1.0)})
