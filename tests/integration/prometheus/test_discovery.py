"""http_sd: Prometheus finds the agents of the fleet from the controller, with what the controller knows of them."""

import json
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.serve import Discovery, Observers, make_server
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.request import Response
from tests.support.builders.exporters import a_source
from tests.support.builders.fleet import NOW, a_node
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.certificates import Authority
from tests.support.real.tsdb import History, prometheus

CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: gpuwatch
    http_sd_configs:
      - url: {url}/v1/http_sd
        refresh_interval: 1s
        basic_auth: {{username: prometheus, password: correct horse}}
        tls_config: {{ca_file: {ca}}}
    relabel_configs:
      - {{source_labels: [__meta_gpuwatch_node_id], target_label: node}}
      - {{source_labels: [__meta_gpuwatch_pool], target_label: pool}}
"""


def a_discovery(*nodes: Node, **targets: str) -> Discovery:
    """What is served after a round that saw these nodes."""
    discovery = Discovery(
        signals=ObserveSettings(targets={name.replace("_", "-"): url for name, url in targets.items()}), fleet="lab"
    )
    discovery.update(Fleet(observed_at=NOW, nodes=nodes))
    return discovery


def found(discovery: Discovery) -> list[dict[str, Any]]:
    """The targets of its page."""
    listed: list[dict[str, Any]] = json.loads(discovery.page().body)
    return listed


def test_each_running_node_is_a_target_with_what_is_known_of_it() -> None:
    """Address, scheme and the facts that people select and group by; enrolled or not."""
    node = replace(a_node("i-1", name="trainer", address="10.0.0.7"), owner="ann", enrolled=False)

    assert found(a_discovery(node)) == [
        {
            "targets": ["10.0.0.7:9460"],
            "labels": {
                "__scheme__": "http",
                "__meta_gpuwatch_node_id": "i-1",
                "__meta_gpuwatch_name": "trainer",
                "__meta_gpuwatch_pool": "default",
                "__meta_gpuwatch_instance_type": "g6.xlarge",
                "__meta_gpuwatch_region": "us-east-1",
                "__meta_gpuwatch_zone": "us-east-1a",
                "__meta_gpuwatch_owner": "ann",
                "__meta_gpuwatch_enrolled": "false",
                "__meta_gpuwatch_fleet": "lab",
            },
        }
    ]


def test_what_cannot_be_scraped_is_no_target() -> None:
    """Stopped, or without an address; signals.targets says where another one is, IPv6 stands in brackets."""
    stopped = replace(a_node("i-1"), state=NodeState.STOPPED)
    discovery = a_discovery(
        stopped,
        a_node("i-2", address=None),
        a_node("i-3", address=None),
        a_node("i-4", address="fd00::1"),
        i_3="https://gpu-3.example.com:443/",
    )

    assert [(each["targets"], each["labels"]["__scheme__"]) for each in found(discovery)] == [
        (["gpu-3.example.com:443"], "https"),
        (["[fd00::1]:9460"], "http"),
    ]


def test_until_a_round_has_seen_the_fleet_the_answer_is_an_error() -> None:
    """Prometheus keeps its targets then; an empty list would make it drop them."""
    discovery = Discovery(signals=ObserveSettings(), first_seconds=0.0)

    assert discovery.page().status is HTTPStatus.SERVICE_UNAVAILABLE


def test_a_request_that_comes_before_the_first_round_gets_its_targets() -> None:
    """A controller that has just started costs Prometheus no minute without agents."""
    discovery = Discovery(signals=ObserveSettings(), first_seconds=60.0)
    answers: list[Response] = []
    asking = threading.Thread(target=lambda: answers.append(discovery.page()))
    asking.start()

    discovery.update(Fleet(observed_at=NOW, nodes=(a_node("i-1", address="10.0.0.1"),)))
    asking.join(60)

    (answer,) = answers
    assert answer.status is HTTPStatus.OK
    assert json.loads(answer.body)[0]["targets"] == ["10.0.0.1:9460"]


def observers(*nodes: Node, **endpoints: str) -> Observers:
    """Discovery of some nodes, metrics before the first round, and no page."""
    metrics = ControllerMetrics("observe", "test", SystemClock())
    return Observers(discovery=a_discovery(*nodes, **endpoints), metrics=metrics)


def test_nothing_listens_where_nothing_is_to_be_served() -> None:
    """Without metrics and fleet the controller opens no port."""
    assert make_server(ControllerSettings(metrics=False, http_sd=False), observers(), SystemClock()) is None


def test_the_fleet_is_served_by_default_and_a_path_that_is_switched_off_names_its_switch() -> None:
    """Whoever follows docs/alerts.md finds targets; whoever has switched them off reads which setting did it."""
    answers = {}
    for name, settings in {"on": ControllerSettings(port=0), "off": ControllerSettings(port=0, http_sd=False)}.items():
        server = make_server(settings, observers(a_node("i-1")), SystemClock())
        assert server is not None
        server.start()
        try:
            with urllib.request.urlopen(f"{server.url}/v1/http_sd") as answer:  # noqa: S310  our own URL
                answers[name] = (answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            answers[name] = (error.code, error.read().decode())
        finally:
            server.close()

    assert answers["on"][0] == 200
    assert '"__meta_gpuwatch_node_id":"i-1"' in answers["on"][1]
    assert answers["off"][0] == 404
    assert "controller.http_sd is false" in answers["off"][1]


@pytest.mark.component("prometheus")
def test_a_real_prometheus_finds_an_agent_and_its_node_is_seen(driver: StubDriver, tmp_path: Path) -> None:
    """Over TLS, with a password; then the controller asks that Prometheus, and knows the node by the label it gave."""
    driver.gpus(2)
    authority, users = Authority(tmp_path / "ca"), tmp_path / "users"
    certificate = authority.issue("controller")
    users.write_bytes(b"prometheus:" + bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)) + b"\n")
    settings = ControllerSettings(
        http_sd=True,
        port=0,
        tls_certificate=str(certificate.certificate),
        tls_key=str(certificate.key),
        users_file=str(users),
    )
    node = a_node("i-1", address="192.0.2.1", gpu_count=2)
    with RunningAgent(driver.environment, node_id="another-name") as agent:
        server = make_server(settings, observers(node, i_1=agent.url), SystemClock())
        assert server is not None
        server.start()
        try:
            configuration = CONFIGURATION.format(url=server.url, ca=authority.ca)
            with prometheus(tmp_path / "prometheus", History(), configuration) as url:

                def seen() -> Node:
                    now = SystemClock().now().timestamp()
                    source = a_source(url, "gpuwatch", at=now, skew=5.0, node_label="node")
                    return source.observe([node]).nodes[0]

                eventually(lambda: seen().verdict is not None, lambda: seen().activity.doubt)
                verdict = seen().verdict
        finally:
            server.close()

    assert verdict is not None
    assert (verdict.node_id, len(verdict.gpus)) == ("i-1", 2)
