"""`gpuwatch recommend rightsize` on a ledger of real rounds."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.controller.round import step
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.money.advice import rightsizing_report
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.json_document import json_text
from tests.support.builders.fleet import NOW, Desk, a_node, a_verdict
from tests.support.builders.money import a_gpu


def a_ledger(path: Path) -> LedgerSettings:
    """Six rounds of a machine with four GPUs, of which two have been idle for nine days."""
    settings = LedgerSettings(path=str(path))
    ledger = Ledger.connect(settings)
    desk = Desk(ledger=ledger)
    gpus = (
        a_gpu(0, State.BUSY, 60.0, memory=0.5, active=0.5),
        a_gpu(1, State.BUSY, 60.0, memory=0.5, active=0.5),
        a_gpu(2, State.IDLE, 9 * 86400.0),
        a_gpu(3, State.IDLE, 9 * 86400.0),
    )
    verdict = replace(a_verdict("i-1", State.BUSY, 60.0, gpus=4), gpus=gpus)
    node = a_node("i-1", State.BUSY, 60.0, instance_type="g6.12xlarge", gpu_count=4, signal=NodeReport(verdict=verdict))
    desk.fleet.put(node)
    for _ in range(6):
        step(desk.parts)
        desk.clock.advance(60)
    ledger.close()
    return settings


def test_the_rounds_on_record_are_read_and_the_unused_gpus_are_told(tmp_path: Path) -> None:
    """Two of four GPUs have been idle for nine days by their agent's clock, though the record is minutes long."""
    settings = a_ledger(tmp_path / "ledger.db")
    found = rightsizing_report.make_report(settings, ManualClock(wall=NOW + timedelta(hours=1)), 7 * 86400.0, ["aws"])

    assert (found.nodes, found.rounds, found.rounds_kept) == (1, 6, 6)
    assert [each.sentence.split(";")[0] for each in found.advice] == ["2 of 4 GPUs unused for 9 days"]
    assert "i-1 (g6.12xlarge, pool default): 2 of 4 GPUs unused for 9 days" in rightsizing_report.as_text(found)
    assert json.loads(json_text("recommend.rightsize", found))["advice"][0]["gpus"] == [
        2,
        3,
    ]


def test_busy_hours_with_little_use_are_in_the_report(tmp_path: Path) -> None:
    """Two GPUs at half of their multiprocessors for five minutes: none is low, and the table says so."""
    settings = a_ledger(tmp_path / "ledger.db")
    found = rightsizing_report.make_report(settings, ManualClock(wall=NOW + timedelta(hours=1)), 7 * 86400.0, ["aws"])

    [owner] = found.low_use
    assert (owner.owner, owner.job, owner.gpu_hours_low, owner.gpu_hours_unknown) == ("(none)", None, 0.0, 0.0)
    assert owner.gpu_hours_busy == pytest.approx(2 * 5 / 60)
    assert "Busy GPU-hours below 20% of the multiprocessors, by rounds" in rightsizing_report.as_text(found)


def test_a_ledger_without_rounds_of_that_time_is_told_as_such(tmp_path: Path) -> None:
    """An hour's advice a day later has nothing to rest on."""
    settings = a_ledger(tmp_path / "ledger.db")

    with pytest.raises(LedgerError, match=r"keeps no round of the last 1h whole \(ledger.retention"):
        rightsizing_report.make_report(settings, ManualClock(wall=NOW + timedelta(days=1)), 3600.0, ["aws"])


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    """A ledger that is not there is a sentence and exit status 2."""
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(f"ledger: {{path: {tmp_path / 'none.db'}}}\ncloud: {{regions: [us-east-1]}}\n", encoding="utf-8")
    done = CliRunner().invoke(commands, ["recommend", "rightsize", "--config", str(config)])

    assert done.exit_code == 2
    assert "none.db" in done.output
