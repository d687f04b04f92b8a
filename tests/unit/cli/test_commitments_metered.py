"""`gpuwatch recommend commitments` from what the ledger has metered."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.ledger import LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import CapacityType, Node, NodeReport
from gpuwatch.model.offers import price_key
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.advice.load_curve import LoadError, load_of
from tests.support.builders.fleet import a_node, a_verdict
from tests.support.builders.money import a_busy_node, a_round
from tests.support.real.postgresql import Place

Run = Callable[..., Result]
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
HOURS = 12


def an_idle_node(name: str, at: datetime) -> Node:
    """One GPU, idle for a day."""
    return a_node(name, signal=NodeReport(verdict=a_verdict(name, State.IDLE, 90_000.0, age=0.0, at=at)))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Half a day at $10 an hour: one machine works, in the second half two do; a third is idle; another type works."""
    made = Place(LedgerSettings(path=str(tmp_path / "ledger.db")))
    ledger = made.open()
    rules = Metering(zone=ZoneInfo("UTC"), silent_after_seconds=7200)
    for hour in range(HOURS + 1):
        at = BEGIN + timedelta(hours=hour)
        late = [replace(a_busy_node("i-2", at), cloud="us")] if hour >= HOURS // 2 else []
        other = a_node("i-9", State.BUSY, 9000.0, instance_type="p5.48xlarge")
        SpendBook(ledger).meter(a_round(at, a_busy_node("i-1", at), *late, an_idle_node("i-3", at), other), rules)
    made.close()
    return made


@pytest.fixture
def run(place: Place, tmp_path: Path) -> Run:
    """The command with a configuration that names that ledger."""
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(f"ledger: {{path: {place.settings.path}}}\n")

    def advise(*arguments: str) -> Result:
        return CliRunner().invoke(commands, ["recommend", "commitments", *arguments, "--config", str(config)])

    return advise


def test_the_load_is_what_was_of_use_hour_by_hour_at_the_price_it_had(run: Run) -> None:
    """Idle time is no load, and neither are machines of another type."""
    done = run("--instance-type", "g6.xlarge", "--json")
    result = json.loads(done.stdout)

    assert done.exit_code == 0, done.output
    assert result["load"]["hours"] == HOURS
    assert result["load"]["peak"] == pytest.approx(2.0)
    assert result["load"]["mean"] == pytest.approx(1.5, abs=0.1)
    assert (result["terms"]["price_per_hour"], result["terms"]["price_source"]) == ("10", "a list")


def test_the_load_of_one_cloud(run: Run) -> None:
    """What is reserved in one cloud serves no other; of one that nothing was metered in, the others are told."""
    done = run("--instance-type", "g6.xlarge", "--cloud", "us", "--json")
    none = run("--instance-type", "g6.xlarge", "--cloud", "cn")
    file = run("--csv", __file__, "--cloud", "us", "--price", "1")

    assert json.loads(done.stdout)["load"]["peak"] == pytest.approx(1.0)
    assert "nothing of the cloud cn is metered; expected --cloud with one of (not known), us" in none.stderr
    assert (none.exit_code, file.exit_code) == (2, 2)
    assert "--csv has no clouds" in file.stderr


@pytest.fixture
def kinds(tmp_path: Path) -> Callable[..., Path]:
    """A ledger of four hours with a machine of each of these kinds of capacity, spot at $3 and others at $10."""

    def make(*capacity: CapacityType) -> Path:
        made = Place(LedgerSettings(path=str(tmp_path / "kinds.db")))
        ledger = made.open()
        rules = Metering(zone=ZoneInfo("UTC"), silent_after_seconds=7200)
        for hour in range(5):
            at = BEGIN + timedelta(hours=hour)
            nodes = [
                replace(a_busy_node(f"i-{number}", at), capacity_type=kind) for number, kind in enumerate(capacity)
            ]
            seen = a_round(at, *nodes)
            cheap = replace(seen.prices["g6.xlarge"], usd_per_hour=Decimal(3), source="the spot market")
            spot = {price_key(each).key: cheap for each in nodes if each.capacity_type is CapacityType.SPOT}
            SpendBook(ledger).meter(replace(seen, prices={**seen.prices, **spot}), rules)
        made.close()
        config = tmp_path / "kinds.yaml"
        config.write_text(f"ledger: {{path: {made.settings.path}}}\n")
        return config

    return make


def advised(config: Path, *arguments: str) -> Result:
    """The command on such a ledger."""
    return CliRunner().invoke(commands, ["recommend", "commitments", *arguments, "--config", str(config)])


def test_the_price_of_spot_is_none_on_demand(kinds: Callable[..., Path]) -> None:
    """A discount is off the price on demand: that of a spot machine, however new, does not stand for it."""
    mixed = json.loads(advised(kinds(CapacityType.SPOT, CapacityType.ON_DEMAND), "--json").stdout)

    assert (mixed["terms"]["price_per_hour"], mixed["terms"]["price_source"]) == ("10", "a list")
    assert mixed["load"]["mean"] == pytest.approx(2.0)


def test_a_ledger_of_spot_alone_has_no_price_on_demand(kinds: Callable[..., Path]) -> None:
    """The sentence says what to give: to `recommend ownership`, which has another --price, it is --rent."""
    config = kinds(CapacityType.SPOT)
    done = advised(config)
    words = ["recommend", "ownership", "--ledger", "--price", "250000", "--watts", "700", "--config", str(config)]
    owned = CliRunner().invoke(commands, words)

    assert (done.exit_code, owned.exit_code) == (2, 2), owned.output
    assert "no price on demand of g6.xlarge is metered; give --price" in done.stderr
    assert "no price on demand of g6.xlarge is metered; give --rent" in owned.stderr


def test_machines_in_reservations_are_told_where_none_is_given(kinds: Callable[..., Path]) -> None:
    """The cloud says which they are, not for how long: whether they are yours for a year is yours to say."""
    config = kinds(CapacityType.RESERVED, CapacityType.PREPAID, CapacityType.ON_DEMAND)
    told = json.loads(advised(config, "--json").stdout)["warnings"]
    given = json.loads(advised(config, "--committed", "2", "--json").stdout)["warnings"]

    words = "up to 2 machines at once were reserved or prepaid in the last week; say with --committed how many stay"
    assert words in told
    assert words not in given


def test_several_types_are_no_load_and_each_is_named(run: Run) -> None:
    """A load is of one type; one that was never metered is told with those that were."""
    for arguments, words in (
        ([], "several machine types are metered; expected --instance-type with one of g6.xlarge, p5.48xlarge"),
        (["--instance-type", "p4d.24xlarge"], "no p4d.24xlarge is metered; expected --instance-type with one of"),
    ):
        done = run(*arguments)

        assert done.exit_code == 2
        assert words in done.stderr


def test_days_that_are_kept_as_days_count_with_their_mean_and_that_is_said(tmp_path: Path) -> None:
    """A day's rows are summed up once it is long over."""
    made = Place(LedgerSettings(path=str(tmp_path / "ledger.db")))
    ledger = made.open()
    rules = Metering(zone=ZoneInfo("UTC"), silent_after_seconds=7200)
    for hour in range(24 * 4 + 1):
        at = BEGIN + timedelta(hours=hour)
        SpendBook(ledger).meter(a_round(at, a_busy_node("i-1", at)), rules)
    load = load_of(SpendBook(ledger), None)
    made.close()

    assert load.instance_type == "g6.xlarge"
    assert load.coarse_hours >= 24
    assert [hour for hour in load.hours if hour != pytest.approx(1.0)] == []


def test_a_ledger_without_metering_is_no_load(tmp_path: Path) -> None:
    """The sentence says what to do."""
    made = Place(LedgerSettings(path=str(tmp_path / "ledger.db")))
    ledger = made.open()

    with pytest.raises(LoadError, match="nothing is metered yet; let `gpuwatch controller` run, or give --csv"):
        load_of(SpendBook(ledger), None)
    made.close()
