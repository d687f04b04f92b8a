"""What the ledger has metered, as a series and as a source of `gpuwatch forecast`."""

import json
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.ledger import Ledger
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.forecast.series import DAY_SECONDS, HOUR_SECONDS
from gpuwatch.money.forecast.spending import spending
from tests.support.builders.fleet import a_node
from tests.support.builders.money import a_busy_node, a_round

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three days at $10 an hour: one machine all the time, one of another pool on the second day only."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    rules = Metering(zone=ZoneInfo("UTC"), silent_after_seconds=7200)
    for hour in range(3 * 24 + 2):
        at = BEGIN + timedelta(hours=hour)
        more = [a_node("i-2", pool="other", launched_at=BEGIN + timedelta(days=1))] if 24 <= hour <= 48 else []
        SpendBook(ledger).meter(a_round(at, a_busy_node("i-1", at), *more), rules)
    ledger.close()
    return tmp_path / "ledger.db"


def test_each_day_costs_what_its_machines_cost(path: Path) -> None:
    """24 h of $10, the second day about twice; the unfinished fourth day is left out."""
    ledger = Ledger.open(path)
    days = spending(SpendBook(ledger), DAY_SECONDS)
    hours = spending(SpendBook(ledger), HOUR_SECONDS)
    other = spending(SpendBook(ledger), DAY_SECONDS, "other")
    ledger.close()

    assert (days.start, len(days.values)) == (BEGIN, 3)
    assert [days.values[0], days.values[2]] == pytest.approx([240.0, 240.0], abs=15)
    assert days.values[1] == pytest.approx(480.0, abs=30)
    assert sum(hours.known[:72]) == pytest.approx(sum(days.known))
    assert sum(other.known) == pytest.approx(240.0, abs=30)


def test_an_empty_ledger_and_an_unknown_pool_are_said(path: Path, tmp_path: Path) -> None:
    """The sentence has what would be right."""
    ledger, empty = Ledger.open(path), Ledger.open(tmp_path / "empty.db")
    with pytest.raises(ValueError, match="nothing is metered yet"):
        spending(SpendBook(empty))
    with pytest.raises(ValueError, match=r"no machine of pool nobody is metered; expected --pool with one of .*other"):
        spending(SpendBook(ledger), DAY_SECONDS, "nobody")
    ledger.close()
    empty.close()


def test_a_pool_without_prices_is_no_certain_zero(path: Path) -> None:
    """Its hours are not known; what other sums lack is told with the type, its region and what to do."""
    other = sqlite3.connect(path)
    other.execute("UPDATE spend_terms SET usd_per_hour = NULL WHERE pool = 'other'")
    other.commit()
    other.close()
    ledger = Ledger.open(path)
    with pytest.raises(ValueError, match=r"no metered machine has a known price; set prices\.live"):
        spending(SpendBook(ledger), DAY_SECONDS, "other")
    whole = spending(SpendBook(ledger), DAY_SECONDS)
    ledger.close()
    done = CliRunner().invoke(commands, ["forecast", "--ledger", str(path), "--horizon", "1d"])

    assert whole.known == pytest.approx([240.0] * 3, abs=15)
    [note] = [each for each in whole.notes if "price" in each]
    assert re.match(
        r"2\d\.\d machine-hours have no known price \(g6.xlarge in us-east-1\): the sums are the least", note
    )
    assert "machine-hours have no known price (g6.xlarge in us-east-1)" in " ".join(done.output.split())


def test_the_command_reads_a_ledger(path: Path) -> None:
    """By name or by --config; of a file it takes no pool, and of both sources only one."""
    config = path.parent / "gpuwatch.yaml"
    config.write_text(f"ledger: {{path: {path}}}\n")

    def run(*arguments: str | Path) -> tuple[int, str]:
        done = CliRunner().invoke(commands, ["forecast", *map(str, arguments)])
        return done.exit_code, done.output

    named, configured = (
        run("--ledger", path, "--step", "1h", "--json"),
        run("--config", config, "--step", "1h", "--json", "--ledger"),
    )
    assert named == configured
    assert json.loads(named[1])["step_seconds"] == 3600
    assert run() == (2, run()[1])
    assert "give one of --csv FILE and --ledger [FILE]" in run()[1]
    assert "--pool says nothing about --csv" in run("--csv", config, "--pool", "a")[1]
    assert run("--ledger", path, "--pool", "nobody")[0] == 2


def test_days_in_which_the_controller_was_down_are_not_known_and_no_zero(tmp_path: Path) -> None:
    """Two days without a row and without a round: a hole with its note; hours in which a round saw nothing cost $0."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    rules = Metering(zone=ZoneInfo("UTC"))
    for minute in range(0, 24 * 60 + 1, 5):
        at = BEGIN + timedelta(minutes=minute)
        SpendBook(ledger).meter(a_round(at, a_node("i-1", launched_at=BEGIN)), rules)
    back = BEGIN + timedelta(days=3)
    for minute in range(0, 24 * 60 + 70, 5):
        at = back + timedelta(minutes=minute)
        SpendBook(ledger).meter(a_round(at, a_node("i-1", launched_at=back)), rules)
    days = spending(SpendBook(ledger), DAY_SECONDS)
    ledger.close()

    assert [value and round(value) for value in days.values] == [240, None, None, 240]
    assert any(re.search(r"^4[678] hours had no round: what ran then is not known$", note) for note in days.notes)
