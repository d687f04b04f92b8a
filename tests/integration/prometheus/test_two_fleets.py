"""Two fleets with machines, pools and budgets of the same names in one real Prometheus: each raises its own alerts."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.round import step
from gpuwatch.model.activity import State
from gpuwatch.model.budget import BudgetState, Scope
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import HOUR, NOW, Desk, a_node
from tests.support.real.agents import eventually
from tests.support.real.alerting import impatient_rules, web
from tests.support.real.tsdb import History, prometheus

pytestmark = pytest.mark.component("prometheus")


def a_controller(fleet: str, state: State, spent: int) -> ControllerMetrics:
    """Of one machine `gpu-1` and a budget `team` of 10 dollars, after its first round."""
    now = SystemClock().now()
    desk = Desk(clock=ManualClock(wall=now), enforce=False)
    desk.fleet.put(a_node("gpu-1", state, 3 * HOUR, name="gpu-1", launched_at=now - timedelta(days=2)))
    budget = BudgetState(
        name="team",
        scope=Scope(),
        usd_per_month=Decimal(10),
        month="2026-03",
        ends_at=NOW,
        thresholds=(1.0,),
        spent_usd=Decimal(spent),
    )
    seen = step(desk.parts)
    telling = ControllerMetrics("observe", fleet, desk.clock)
    telling.round(replace(seen, observation=replace(seen.observation, budgets=(budget,))), 0.1)
    return telling


def an_agent(state: str) -> bytes:
    """The page of an agent on a machine called `gpu-1`: all that matters here."""
    lost = 'gpuwatch_gpu_down_info{uuid="GPU-0",gpu="0",cause="lost"} 1\n' if state == "lost" else ""
    return f'gpuwatch_node_info{{node_id="gpu-1"}} 1\n{lost}'.encode()


# What tells the fleets apart: the label that controllers write, with agents as docs/alerts.md has them; or labels that
# the scrape configuration gives all targets of one site, whose fleets have one name.
SITES = {
    "fleet": ({"controllers": {}, "agents": {"fleet": "a"}}, {"controllers": {}, "agents": {"fleet": "b"}}),
    "cluster": tuple({"controllers": {"cluster": name}, "agents": {"cluster": name}} for name in ("a", "b")),
}


@pytest.fixture(params=["fleet", pytest.param("cluster", marks=pytest.mark.nightly)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The label by which the fleets differ, and the address of the Prometheus that scrapes both."""
    label = request.param
    names = ("a", "b") if label == "fleet" else ("default", "default")
    first, second = a_controller(names[0], State.IDLE, 15), a_controller(names[1], State.BUSY, 1)
    pages = {
        "/controllers/a": lambda: first.page().body,
        "/controllers/b": lambda: second.page().body,
        "/agents/a": lambda: an_agent("lost"),
        "/agents/b": lambda: an_agent("well"),
    }
    with web(pages) as (address, _):
        jobs = {"gpuwatch-controller": "controllers", "gpuwatch": "agents"}
        targets: dict[str, list[dict[str, Any]]] = {
            job: [
                {"targets": [address], "labels": {"__metrics_path__": f"/{kind}/{name}", **labels[kind]}}
                for name, labels in zip(("a", "b"), SITES[label], strict=True)
            ]
            for job, kind in jobs.items()
        }
        if label == "fleet":  # two addresses: without any label of theirs, targets of one address are one target
            targets["gpuwatch-controller"][1]["labels"]["instance"] = "other:9461"
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(impatient_rules(tmp_path))],
            "scrape_configs": [{"job_name": job, "static_configs": each} for job, each in targets.items()],
        }
        with prometheus(tmp_path / "prometheus", History(), yaml.safe_dump(configuration)) as url:
            yield label, url


def asked(url: str, path: str) -> Any:  # noqa: ANN401  JSON
    """What the API answers."""
    with urllib.request.urlopen(f"{url}/api/v1/{path}", timeout=10) as answer:  # noqa: S310  our own
        return json.load(answer)["data"]


def firing(url: str, label: str) -> dict[str, list[str]]:
    """The fleets of each alert that fires."""
    found: dict[str, list[str]] = {}
    for alert in asked(url, "alerts")["alerts"]:
        if alert["state"] == "firing":
            found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"].get(label, ""))
    return found


def test_each_fleet_raises_its_own_alerts(site: tuple[str, str]) -> None:
    """An idle machine, a budget that is spent and a lost GPU are fleet A's alone; no rule of the file fails."""
    label, url = site
    expected = {"GpuNodeIdle", "GpuBudgetSpent", "GpuLost"}
    eventually(lambda: expected <= set(firing(url, label)), lambda: f"{firing(url, label)}")
    found = firing(url, label)
    health = {
        rule["name"]: rule["lastError"]
        for group in asked(url, "rules")["groups"]
        for rule in group["rules"]
        if rule.get("lastError")
    }

    assert {name: found[name] for name in expected} == {name: ["a"] for name in expected}
    assert health == {}
