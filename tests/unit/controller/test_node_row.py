"""One public shape for a node: what the commands print is what the API answers, as OpenAPI describes it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gpuwatch.cli import fleet
from gpuwatch.cli.main import commands
from gpuwatch.controller.context import LiveParts, Round
from gpuwatch.model.activity import State, WorkOwner
from gpuwatch.model.fleet import NodeReport, NodeState
from tests.support.builders.fleet import RULES, Desk, a_node, a_verdict
from tests.support.builders.last_busy import busy_last, cpu_evidence
from tests.support.builders.served_page import PRICE, Site, a_site


@pytest.fixture
def site() -> Iterator[Site]:
    """Nodes in every state: busy, waiting, under notice and not approved, silent, stopped, protected, not enrolled."""
    desk = Desk(prices={"g6.xlarge": PRICE}, pools={"default": RULES, "training": replace(RULES, approval=True)})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0, name="trainer", owner="ann"))
    desk.fleet.put(a_node("i-waits", held=600.0))
    desk.fleet.put(a_node("i-due", held=7200.0, pool="training"))
    desk.fleet.put(a_node("i-silent", signal=NodeReport(failure="its agent did not answer within 5s")))
    desk.fleet.put(replace(a_node("i-off"), state=NodeState.STOPPED, signal=NodeReport()))
    desk.fleet.put(a_node("i-protected", held=7200.0, protected="tag gpuwatch:protect protects it"))
    desk.fleet.put(a_node("i-foreign", held=7200.0, enrolled=False))
    with a_site(desk) as site:
        site.round()
        site.round()
        yield site


def printed(site: Site, monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, Any]:
    """What a command prints about the very round that the page shows."""

    @contextmanager
    def the_same_round(_: Path | None) -> Iterator[tuple[LiveParts, Round]]:
        yield site.desk.parts, site.web.state.last()

    monkeypatch.setattr(fleet, "a_plan", the_same_round)
    result = CliRunner().invoke(commands, [*words, "--json"])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.output)
    assert document.pop("schema") == f"gpuwatch.{words[0]}/1"
    return document


def schema_errors(site: Site, name: str, value: object) -> list[str]:
    """Where a value is not what the OpenAPI description says of that type."""
    components = site.ask("/api/v1/openapi.json").json["components"]
    schema = {"$ref": f"#/components/schemas/{name}", "components": components}
    return [error.message for error in Draft202012Validator(schema).iter_errors(value)]


def test_status_prints_what_the_api_answers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status --json` and GET /api/v1/nodes are equal, and as described; the command has the quotas besides."""
    document = printed(site, monkeypatch, "status")

    assert document.pop("quotas") == []
    assert document == site.ask("/api/v1/nodes").json
    assert schema_errors(site, "NodesPage", document) == []
    assert schema_errors(site, "NodesPage", {"at": None, "total": 0, "nodes": [{}]})


@pytest.mark.parametrize("node", ["i-busy", "i-due", "i-silent", "i-off", "i-foreign"])
def test_explain_prints_what_the_api_answers(node: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """`explain NODE --json` and GET /api/v1/nodes/NODE are equal, and as described."""
    document = printed(site, monkeypatch, "explain", node)

    assert document == site.ask(f"/api/v1/nodes/{node}").json
    assert schema_errors(site, "NodePage", document) == []


def test_a_row_says_what_the_round_does_and_what_comes_next(site: Site) -> None:
    """A refused action is a hold with the objection; the next action names who blocks it."""
    rows = {row["id"]: row for row in site.ask("/api/v1/nodes").json["nodes"]}

    assert {name: row["action"] for name, row in rows.items()} == dict.fromkeys(rows, "hold")
    assert rows["i-foreign"]["why"].endswith("But: It is not enrolled.")
    assert rows["i-foreign"]["next"]["refused_by"] == ["not_enrolled"]
    assert rows["i-due"]["notified_at"] == "2026-03-02T12:00:00Z"
    assert rows["i-due"]["next"]["refused_by"] == ["approval"]
    assert rows["i-due"]["approval"]["who"] is None
    assert (rows["i-silent"]["held_seconds"], rows["i-silent"]["activity"]) == (None, "unknown")
    assert (rows["i-off"]["activity"], rows["i-off"]["gpu_count"], rows["i-off"]["gpus"]) == (None, 1, [])


def test_the_page_of_a_node_says_what_was_busy_last(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same JSON for command and API: one sentence, a row for each signal, who is at work, what cannot be seen."""
    alice = WorkOwner(user="alice", unit="session-3.scope", process="python3", pid=4711)
    verdict = busy_last(
        a_verdict("i-seen", State.IDLE, 720.0), (cpu_evidence(), 720.0), (cpu_evidence(name="disk"), 90.0)
    )
    alive = cpu_evidence(name="processes", says=State.OCCUPIED, owner=alice)
    activity = replace(verdict.activity, evidence=(alive,))
    seen = replace(verdict, activity=activity, blind=("It may not read /home/a\x1b: CAP_DAC_READ_SEARCH allows it.",))
    site.desk.fleet.put(a_node("i-seen", signal=NodeReport(verdict=seen)))
    site.round()
    document = printed(site, monkeypatch, "explain", "i-seen")

    assert isinstance(document, dict)
    assert document == site.ask("/api/v1/nodes/i-seen").json
    assert schema_errors(site, "NodePage", document) == []
    assert "ago, after disk was busy: 1.4 cores, limit 0.8, fluent-bit, " in document["last_reset"]
    assert [(row["evidence"]["name"], row["ago_seconds"]) for row in document["last_busy"]] == [
        ("disk", 90),
        ("cpu", 720),
    ]
    assert document["last_busy"][1]["who"] == "fluent-bit, fluent-bit.service"
    assert document["last_busy"][1]["amount"] == "1.4 cores, limit 0.8"
    assert document["last_busy"][1]["evidence"]["setting"] == "agent.evidence.cpu.busy_cores"
    assert document["agent_started_at"] == "2026-03-01T12:00:00Z"
    assert document["owners"] == ["processes: alice's python3, pid 4711, session-3.scope"]
    assert document["blind"] == [r"It may not read /home/a\x1b: CAP_DAC_READ_SEARCH allows it."]


def test_an_older_agent_says_nothing_of_what_was_busy(site: Site) -> None:
    """Nothing is made up for it."""
    document = site.ask("/api/v1/nodes/i-waits").json

    assert (document["last_reset"], document["last_busy"], document["blind"], document["owners"]) == (None, [], [], [])


def test_a_price_has_its_day_and_its_source(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of machines that are billed; of a stopped one nothing is said."""
    rows = {row["id"]: row for row in printed(site, monkeypatch, "status")["nodes"]}

    assert (rows["i-busy"]["price_as_of"], rows["i-busy"]["price_source"]) == (PRICE.as_of.isoformat(), PRICE.source)
    assert (rows["i-off"]["usd_per_hour"], rows["i-off"]["price_as_of"], rows["i-off"]["price_source"]) == (None,) * 3
