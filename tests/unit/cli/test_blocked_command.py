"""`gpuwatch blocked` as a person and a script see it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli import cost
from gpuwatch.cli.main import commands
from gpuwatch.controller.context import LiveParts, Round
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from tests.support.builders.blocked import a_priced_desk
from tests.support.builders.fleet import a_node

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command on a fleet that is observed."""
    desk = a_priced_desk(
        a_node("i-busy", State.BUSY, 60.0),
        a_node("i-disk", name="trainer\x1b", instance_store=True),
        a_node("i-waits", held=60.0),
        a_node("i-silent", signal=NodeReport(failure="its agent did not answer within 5s")),
        a_node("i-parked", State.PARKED, 72000.0, pool="training"),
        enforce=False,
    )

    @contextmanager
    def a_plan(_: Path | None) -> Iterator[tuple[LiveParts, Round]]:
        yield desk.parts, desk.plan()

    monkeypatch.setattr(cost, "a_plan", a_plan)

    def run(*words: str, columns: int = 80) -> Result:
        return CliRunner(env={"COLUMNS": str(columns)}).invoke(commands, ["blocked", *words])

    return run


def test_eighty_columns_hold_the_reason_the_act_and_the_risk(run: Run) -> None:
    """Long words go on in the next line; nothing is cut, and nothing from outside reaches the terminal raw."""
    result = run()

    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(result.output.split())
    assert "set pools.default.idle.instance_store to `discard`, or to `keep` if such machines are to stay" in text
    assert "risk with `discard` a stop empties these disks: checkpoints and data on them are lost" in text
    assert "frees $136.13 only together with observe mode" in text
    assert "Use unknown, so it is not counted above:" in text
    assert r"trainer\x1b (i-disk)" in text
    assert "i-busy" not in text


def test_json_is_one_document_with_its_schema(run: Run) -> None:
    """Money is text with all its digits, and times end in Z."""
    document = json.loads(run("--json").output)

    assert document["schema"] == "gpuwatch.blocked/1"
    assert document["at"].endswith("Z")
    assert document["blocked"] == {"nodes": 2, "gpus": 2, "usd_per_day": "272.256", "unpriced": 0}
    assert [(group["reason"], [node["id"] for node in group["nodes"]]) for group in document["groups"]] == [
        ("local_disks", ["i-disk"]),
        ("parked", ["i-parked"]),
    ]
    assert [group["reason"] for group in document["groups_in_doubt"]] == ["no_agent"]


def test_one_pool(run: Run) -> None:
    """Its own machines alone; a pool that does not exist is refused, with those that do."""
    assert "i-disk" not in run("--pool", "training").output
    refused = run("--pool", "trainin")

    assert refused.exit_code == 2
    assert "there is no such pool. The nearest is 'training'." in refused.output
