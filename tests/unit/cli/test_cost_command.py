"""`gpuwatch cost`: what it prints, and how it fails."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report.period import PeriodError, period_of
from tests.support.builders.fleet import a_node, a_verdict
from tests.support.builders.money import a_busy_node, a_round
from tests.support.real.postgresql import Place

Cost = Callable[..., Result]
BEGIN = datetime(2026, 3, 1, 22, tzinfo=UTC)  # 23:00 in Berlin


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Four hours of two machines of two pools at $10 an hour; one works, one is idle and has an owner."""
    made = Place(LedgerSettings(path=str(tmp_path / "ledger.db")))
    ledger = made.open()
    rules = Metering(zone=ZoneInfo("Europe/Berlin"), tags=("team",), silent_after_seconds=7200)
    for hour in range(5):
        at = BEGIN + timedelta(hours=hour)
        signal = NodeReport(verdict=a_verdict("i-2", State.IDLE, 90_000.0, age=0.0, at=at))
        idle = a_node("i-2", pool="serving", owner="ann", tags={"team": "nlp"}, signal=signal)
        SpendBook(ledger).meter(a_round(at, a_busy_node("i-1", at), idle), rules)
    made.close()
    return made


@pytest.fixture
def cost(place: Place, tmp_path: Path) -> Cost:
    """The command with a configuration whose days are Berlin's."""
    config = tmp_path / "gpuwatch.yaml"
    energy = "{host_watts: 500, pue: 1.2, co2e_grams_per_kwh: 300}"
    config.write_text(f"ledger: {{path: {place.settings.path}}}\ncost: {{timezone: Europe/Berlin, energy: {energy}}}\n")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(commands, ["cost", *arguments, "--config", str(config)])

    return run


@pytest.mark.parametrize("by", ["namespace", "workload", "workload-owner"])
def test_by_holder_machines_without_a_cluster_stand_apart(cost: Cost, by: str) -> None:
    """Nothing is missing from the total, and the proof agrees."""
    found = cost("--month", "2026-03", "--by", by, "--explain")
    document = json.loads(cost("--month", "2026-03", "--by", by, "--json").output)

    assert found.exit_code == 0
    assert "(no cluster)" in found.output
    assert "Billed is what pods request, useful what they use" in found.output
    assert [(each["name"], each["usd"]) for each in document["groups"]] == [("(no cluster)", "80.00")]


def test_the_table_adds_up(cost: Cost) -> None:
    """By pool, the dearest first, the whole below, with what the words mean."""
    rows = cost("--month", "2026-03").output.splitlines()

    assert rows[0] == "Billed 2026-03-01 to 2026-03-31 (Europe/Berlin), by pool; metered since 2026-03-01T22:00:00Z."
    heads = "pool billed useful idle parked stalled down unknown silent no use cost wasted of cost unproven"
    none = ["0.00"] * 5
    assert [line.split() for line in rows[2:6]] == [
        heads.split(),
        ["default", "8.00", "8.00", "0.00", *none, "0.0%", "$40.00", "$0.00", "0.0%", "$0.00"],
        ["serving", "4.00", "0.00", "4.00", *none, "100.0%", "$40.00", "$40.00", "100.0%", "$0.00"],
        ["all", "12.00", "8.00", "4.00", *none, "33.3%", "$80.00", "$40.00", "50.0%", "$0.00"],
    ]
    assert rows[-1].startswith(
        "Energy: 0.0 kWh of the GPUs, measured over 0.0% of their billed time (12.0 GPU-hours are"
    )


def test_in_another_currency_the_table_adds_up_to_the_cent_and_names_the_rate(place: Place, tmp_path: Path) -> None:
    """$40 at $0.138 for a yuan; JSON stays in dollars and has the rate."""
    config = tmp_path / "yuan.yaml"
    prices = 'prices: {rates: {CNY: "0.138"}, rates_as_of: "2026-02-27"}'
    config.write_text(f"ledger: {{path: {place.settings.path}}}\ncurrency: CNY\n{prices}\n")
    asked = ["cost", "--month", "2026-03", "--config", str(config)]
    text = CliRunner().invoke(commands, asked).output
    document = json.loads(CliRunner().invoke(commands, [*asked, "--json"]).output)

    assert "¥579.71" in text  # of 80 dollars; the groups are ¥289.86 and ¥289.85
    assert ("¥289.86" in text, "¥289.85" in text, "$" in text) == (True, True, False)
    assert "Money in CNY: one is 0.138 US dollars, the rate of 2026-02-27." in text
    assert document["currency"] == {"code": "CNY", "usd": "0.138", "as_of": "2026-02-27"}
    assert document["total"]["usd"] == "80.00"


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("owner", ["(none)", "ann"]),
        ("node", ["i-1", "i-2"]),
        ("tag:team", ["(none)", "nlp"]),
        ("day", ["2026-03-01", "2026-03-02"]),
        ("capacity", ["on_demand"]),
    ],
)
def test_every_slicing_has_the_same_whole(cost: Cost, by: str, names: list[str]) -> None:
    """Also by the day of Berlin, which begins an hour after the first round."""
    result = json.loads(cost("--from", "2026-03-01", "--to", "2026-03-02", "--by", by, "--json").output)

    assert [group["name"] for group in result["groups"]] == names
    assert (result["total"]["usd"], result["total"]["usd_wasted"], result["total"]["gpu_hours"]) == (
        "80.00",
        "40.00",
        12.0,
    )
    assert sum(float(group["usd"]) for group in result["groups"]) == 80.0
    assert result["total"]["energy"]["host_kwh"] == 4.0


def test_power_has_a_price_where_one_is_set(place: Place, tmp_path: Path) -> None:
    """8 machine-hours at 500 W with a PUE of 1.2 are 4.8 kWh; at 25 cents they cost $1.20, which is in no sum."""
    config = tmp_path / "power.yaml"
    energy = "{host_watts: 500, pue: 1.2, usd_per_kwh: 0.25}"
    config.write_text(f"ledger: {{path: {place.settings.path}}}\ncost: {{energy: {energy}}}\n")
    asked = ["cost", "--month", "2026-03", "--config", str(config)]
    total = json.loads(CliRunner().invoke(commands, [*asked, "--json"]).output)["total"]

    assert (total["energy"]["usd"], total["usd"]) == ("1.20", "80.00")
    assert "$1.20 of power by cost.energy.usd_per_kwh, in no sum above" in CliRunner().invoke(commands, asked).output


def test_the_days_of_the_prices_are_named_and_old_ones_are_a_warning(cost: Cost) -> None:
    """Those of the rows are of New Year's Day."""
    document = json.loads(cost("--month", "2026-03", "--json").output)

    assert (document["prices_from"], document["prices_to"]) == ("2026-01-01", "2026-01-01")
    assert "Prices are of 2026-01-01." in cost("--month", "2026-03").output


def test_a_day_is_that_of_the_time_zone(cost: Cost) -> None:
    """One hour of the first of March in Berlin, three of the second."""
    hours = {
        day: json.loads(cost("--day", day, "--json").output)["total"]["machine_hours"]
        for day in ("2026-02-28", "2026-03-01", "2026-03-02")
    }

    assert hours == {"2026-02-28": 0.0, "2026-03-01": 2.0, "2026-03-02": 6.0}


def test_explain_makes_each_total_again(cost: Cost) -> None:
    """Hours times price with its source, from single rows."""
    result = cost("--day", "2026-03-02", "--explain")

    assert result.exit_code == 0
    assert (
        "  3.0000 h x $10 = $30.00: g6.xlarge on_demand us-east-1, pool serving, owner ann; a list, as of"
        in result.output
    )
    assert "All totals are made again from 6 rows and are the same" in result.output


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("UPDATE spend SET gpu_idle_ms = gpu_idle_ms * 2 WHERE node_id = 'i-2'", "the row of i-2 that begins at"),
        ("DELETE FROM spend WHERE node_id = 'i-2'", "do not add up to what was metered"),
    ],
)
def test_explain_tells_of_changed_rows(cost: Cost, place: Place, statement: str, wrong: str) -> None:
    """Exit status 1, and what is wrong."""
    place.execute(statement)
    result = cost("--month", "2026-03", "--explain")

    assert result.exit_code == 1
    assert "WRONG: " in result.output
    assert wrong in result.output


def test_terms_that_are_gone_are_told(cost: Cost, place: Place) -> None:
    """Nothing is guessed in their place."""
    place.execute("DELETE FROM spend_terms WHERE pool = 'serving'")
    result = cost("--month", "2026-03")

    assert (result.exit_code, "under which spending was billed, are gone" in result.output) == (2, True)


def test_a_round_that_is_metered_meanwhile_breaks_no_proof(cost: Cost, place: Place) -> None:
    """What is shown and what proves it are of one moment, while the controller goes on writing."""
    ledger, reader = place.open(), place.beside()
    readers = SpendBook(reader)
    with readers.snapshot():
        before = readers.rows(0, 2**40)
        at = BEGIN + timedelta(hours=5)
        SpendBook(ledger).meter(a_round(at, a_busy_node("i-1", at)), Metering(zone=ZoneInfo("Europe/Berlin")))
        assert readers.rows(0, 2**40) == before
    place.close()

    assert cost("--month", "2026-03", "--explain").exit_code == 0


def test_an_unknown_price_is_told(cost: Cost, place: Place) -> None:
    """Unknown where nothing has a price, more than the sum where some have none; never $0."""
    place.execute("UPDATE spend_terms SET usd_per_hour = NULL WHERE pool = 'serving'")
    text = cost("--month", "2026-03").output

    assert "$40.00+?" in text
    assert [line.split()[-4:-2] for line in text.splitlines() if line.startswith("serving")] == [["unknown", "unknown"]]
    assert (
        "4.0 machine-hours of 1 machine have no known price (g6.xlarge in us-east-1): they are in no sum of money (+?)."
        in text
    )
    assert "Set `prices.live`" in text


def test_a_narrow_terminal_leaves_out_first_what_no_machine_did(cost: Cost, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table fits, says what it lacks, and keeps hours, cost and waste."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = cost("--month", "2026-03").output.splitlines()
    table, lacks = lines[2:6], lines[6]

    assert max(map(len, table)) <= 80
    assert " ".join(table[0].split()) == "pool billed useful idle unknown silent no use cost wasted of cost"
    assert lacks == "(a wider terminal, or a pipe, also has: parked, stalled, down, unproven)"


def test_reconcile_is_a_part_of_it(cost: Cost, tmp_path: Path) -> None:
    """With the largest difference first."""
    bill = tmp_path / "bill.csv"
    bill.write_text("node,start,cost\ni-1,2026-03-02,30\ni-2,2026-03-02,33\n")
    result = cost("reconcile", "--bill", str(bill))

    assert result.output.splitlines()[1].split()[:5] == ["i-2", "2026-03-02", "$3.00", "$33.00", "$30.00"]
    assert (
        "$63.00 for machine time in the bill, $60.00 metered, $3.00 apart; 1 line agrees to the cent." in result.output
    )
    assert json.loads(cost("reconcile", "--bill", str(bill), "--json").output)["differences"][0]["usd"] == "3.00"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--by", "colour"], "'colour' is no way to slice"),
        (["--month", "March"], "'March' is not a month such as 2026-03"),
        (["--day", "2026-02-30"], "'2026-02-30' is not a day such as 2026-03-01"),
        (["--from", "2026-03-02", "--to", "2026-03-01"], "--to 2026-03-01 lies before --from 2026-03-02"),
        (["--month", "2026-03", "--day", "2026-03-01"], "exclude each other"),
        (["reconcile", "--bill", "/nowhere.csv"], "/nowhere.csv cannot be read"),
        (["reconcile", "--bill", "a.csv", "--bill", "b.csv"], "several bills need a cloud each, such as aws=FILE"),
        (["reconcile", "--bill", "aws=a.csv", "--bill", "aws=b.csv"], "several bills need a cloud each"),
        (["reconcile", "--bill", "aws=/nowhere.csv"], "/nowhere.csv cannot be read"),
        (
            ["reconcile", "--bill", "b.csv", "--egress", "*Out*"],
            "name their column by --column, such as item=meterName",
        ),
        (["reconcile", "--bill", "usa=/dev/null"], "the settings have no cloud 'usa', only aws"),
        (["reconcile", "--bill", "b.csv", "--cloud", "bj"], "the settings have no cloud 'bj', only aws"),
    ],
)
def test_mistakes_are_told_in_a_sentence(cost: Cost, arguments: list[str], wrong: str) -> None:
    """With what would be right, and exit status 2."""
    result = cost(*arguments)

    assert (result.exit_code, wrong in result.output) == (2, True), result.output


def test_a_ledger_that_has_metered_nothing_says_so(cost: Cost, place: Place) -> None:
    """And so does one that is not there."""
    for file in Path(place.settings.path).parent.glob("ledger.db*"):
        file.unlink()
    assert "does not exist yet; start `gpuwatch controller`" in cost().output
    Ledger.open(Path(place.settings.path)).close()
    assert cost().output == "Nothing is metered yet; `gpuwatch controller` does it from its first round on.\n"


def test_months_end_where_they_end() -> None:
    """February and December, and by default the month of the place's clocks."""
    berlin, late = ZoneInfo("Europe/Berlin"), datetime(2026, 12, 31, 23, 30, tzinfo=UTC)

    assert period_of(berlin, late, month="2024-02").after.isoformat() == "2024-03-01"
    assert str(period_of(berlin, late, month="2026-12")) == "2026-12-01 to 2026-12-31"
    assert period_of(berlin, late).first.isoformat() == "2027-01-01"
    assert str(period_of(berlin, late, last="2026-12-31")) == "Thursday 2026-12-31"
    with pytest.raises(PeriodError):
        period_of(berlin, late, first="2027-02-01")


def test_a_time_zone_that_is_none_is_refused(tmp_path: Path) -> None:
    """By the configuration, with its key."""
    config = tmp_path / "gpuwatch.yaml"
    config.write_text("cost: {timezone: Mars/Olympus}\n")
    result = CliRunner().invoke(commands, ["cost", "--config", str(config)])

    assert (result.exit_code, "cost.timezone 'Mars/Olympus' is no time zone" in result.output) == (2, True)
