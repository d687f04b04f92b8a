"""Commands about money to come show it in the currency of the settings; JSON stays in US dollars."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.ledger import LedgerSettings
from gpuwatch.model.currency import DOLLARS, show_in
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from tests.support.builders.money import a_busy_node, a_round
from tests.support.real.postgresql import Place

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
NOTE = "Money in CNY: one is 0.125 US dollars, the rate of 2026-11-20."

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A command with settings of yuan, eight of which are a dollar; the ledger has one machine of $10 an hour."""
    place = Place(LedgerSettings(path=str(tmp_path / "ledger.db")))
    ledger = place.open()
    for hour in range(13):
        at = BEGIN + timedelta(hours=hour)
        SpendBook(ledger).meter(
            a_round(at, a_busy_node("i-1", at)), Metering(zone=ZoneInfo("UTC"), silent_after_seconds=7200)
        )
    place.close()
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(
        f"currency: CNY\nprices: {{rates: {{CNY: '0.125'}}, rates_as_of: '2026-11-20'}}\n"
        f"ledger: {{path: {place.settings.path}}}\n",
        encoding="utf-8",
    )

    def run(*words: str, settings: bool = True) -> str:
        show_in(DOLLARS)  # as a process of its own begins
        done = CliRunner().invoke(commands, [*words, *(["--config", str(config)] if settings else [])])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


@pytest.fixture
def load(tmp_path: Path) -> str:
    """Five weeks: eight machines by day, four by night."""
    path = tmp_path / "load.csv"
    path.write_text("\n".join(["time,value", *(f"{at * 3600},{8 if at % 24 < 12 else 4}" for at in range(840))]))
    return str(path)


def amounts(text: str, line: str) -> list[float]:
    """The numbers of the first line that begins so."""
    found = next(each for each in text.splitlines() if each.startswith(line))
    return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*\.\d\d", found)]


def test_reservations_are_in_yuan(run: Run, load: str) -> None:
    """Eight times the numbers of US dollars, with the rate below; JSON is as without settings."""
    words = ("recommend", "commitments", "--csv", load, "--price", "2.50")
    yuan, dollars = run(*words), run(*words, settings=False)

    assert amounts(yuan, "today") == [8 * each for each in amounts(dollars, "today")] == [8 * 6 * 8760 * 2.5]
    assert "Price: ¥20.0000 an hour" in yuan
    assert "Price: $2.50 an hour" in dollars
    assert NOTE in yuan
    assert "$" not in yuan
    assert json.loads(run(*words, "--json")) == json.loads(run(*words, "--json", settings=False))


def test_list_prices_are_in_yuan(run: Run) -> None:
    """The columns of what is paid name the currency; a price in that currency has no column of its own beside them."""
    of_aws = run("prices", "--provider", "aws", "--gpu", "H100")
    of_alibaba = run("prices", "--provider", "alibaba", "--gpu", "T4")

    assert re.search(r"CNY/HOUR +CNY/GPU-HOUR", of_aws)
    assert re.search(r"p5\.48xlarge .* 440\.3200 +55\.0400\n", of_aws), of_aws
    assert "PER HOUR" in of_aws
    assert "PER HOUR" not in of_alibaba
    assert NOTE in of_aws
    assert json.loads(run("prices", "--gpu", "H100", "--json")) == json.loads(
        run("prices", "--gpu", "H100", "--json", settings=False)
    )


def test_own_or_rent_is_in_yuan(run: Run, load: str) -> None:
    """So are the curve and the sentence about the load."""
    words = ("recommend", "ownership", "--price", "250000", "--rent", "40", "--csv", load)
    yuan, dollars = run(*words), run(*words, settings=False)

    assert "Rent: ¥320.00 an hour" in yuan
    assert "Rent: $40.00 an hour" in dollars
    assert amounts(yuan, "together") == pytest.approx([8 * each for each in amounts(dollars, "together")])
    assert "own, CNY a year" in yuan
    assert NOTE in yuan
    assert "$" not in yuan
    assert json.loads(run(*words, "--json")) == json.loads(run(*words, "--json", settings=False))


def test_a_forecast_of_the_ledger_is_in_yuan_and_one_of_a_file_in_its_own_unit(run: Run, load: str) -> None:
    """What a file counts is not known; what the ledger has metered is money."""
    of_ledger = run("forecast", "--ledger", "--step", "1h", "--horizon", "2h")
    of_file = run("forecast", "--csv", load, "--horizon", "2h")

    assert of_ledger.startswith("In CNY.\n")
    assert re.search(r"2026-03-01 12:00 UTC +80\b", of_ledger), of_ledger
    assert NOTE in of_ledger
    assert "CNY" not in of_file
    assert json.loads(run("forecast", "--ledger", "--step", "1h", "--horizon", "2h", "--json"))["forecast"][0][
        "mean"
    ] == pytest.approx(10.0)
