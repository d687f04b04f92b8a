"""`gpuwatch snooze WORKLOAD` on a real ledger, beside a running controller."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.controller.operations import operator_name
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Verb
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.clusters import ClusterDesk
from tests.support.builders.workload_desk import a_workload_desk
from tests.support.builders.workloads import ALICE

ALICES = "team-a/notebook/alice"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterDesk]:
    """A controller whose ledger the configuration points to; Alice's notebook has had its notice."""
    file, path = tmp_path / "gpuwatch.yaml", tmp_path / "ledger.db"
    file.write_text(json.dumps({"ledger": {"path": str(path)}}), encoding="utf-8")
    monkeypatch.setenv("GPUWATCH_CONFIG", str(file))
    desk = a_workload_desk()
    desk.ledger = Ledger.open(path)
    monkeypatch.setattr("gpuwatch.runtime.clock.SystemClock", lambda: ManualClock(wall=desk.clock.now()))
    desk.round()
    yield desk
    desk.ledger.close()


def gpuwatch(*arguments: str) -> Result:
    """One command."""
    return CliRunner().invoke(commands, arguments)


def test_a_workload_is_kept_beside_the_running_controller(desk: ClusterDesk) -> None:
    """Its next round withdraws the notice; the ledger has who and why."""
    result = gpuwatch("snooze", ALICES, "4h", "--reason", "a demo on Friday")
    (act,) = desk.round().acts
    (order,) = desk.ledger.view(desk.clock.now()).snoozes

    assert result.exit_code == 0, result.output
    assert re.fullmatch(
        r"Notebook team-a/alice is kept until 2026-03-02 16:01 UTC, from the next round on. "
        rf"To end it sooner: gpuwatch snooze {ALICES} --end\n",
        result.output,
    )
    assert (order.node_id, order.who, order.reason) == (ALICE, operator_name(), "a demo on Friday")
    assert act.review.step.verb is Verb.WITHDRAW
    trail = gpuwatch("audit", "log", "--only", "snooze").output
    assert ALICE in trail
    assert "a demo on Friday" in trail


def test_an_order_is_taken_back_by_its_name(desk: ClusterDesk) -> None:
    """Each name that `explain` takes; then there is a notice again."""
    gpuwatch("snooze", "alice", "4h", "--reason", "a demo")
    desk.round()
    result = gpuwatch("snooze", "Notebook team-a/alice", "--end")
    (act,) = desk.round().acts

    assert (result.exit_code, desk.ledger.view(desk.clock.now()).snoozes) == (0, ())
    assert result.output == (
        "No order keeps Notebook team-a/alice any more. An annotation gpuwatch.io/snooze-until counts as before.\n"
    )
    assert act.review.step.verb is Verb.NOTICE


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("team-a/notebook/alcie", "4h"), "The nearest is 'team-a/notebook/alice'."),
        (("team-b/job/x", "4h"), "There are: team-a/notebook/alice."),
        ((ALICES, "30d"), "a workload in pool default is kept for 7d at most (max_snooze)"),
    ],
)
def test_what_cannot_be_kept_says_why(desk: ClusterDesk, words: tuple[str, ...], sentence: str) -> None:
    """Exit status 2, and nothing is written."""
    result = gpuwatch("snooze", *words, "--reason", "x")

    assert result.exit_code == 2
    assert sentence in result.output
    assert desk.ledger.view(desk.clock.now()).snoozes == ()


def test_before_the_first_round_nobody_knows_the_workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says so."""
    (tmp_path / "gpuwatch.yaml").write_text(json.dumps({"ledger": {"path": str(tmp_path / "l.db")}}), encoding="utf-8")
    monkeypatch.setenv("GPUWATCH_CONFIG", str(tmp_path / "gpuwatch.yaml"))
    Ledger.open(tmp_path / "l.db").close()
    result = gpuwatch("snooze", ALICES, "4h", "--reason", "x")

    assert result.exit_code == 2
    assert "no round is on record yet" in result.output
