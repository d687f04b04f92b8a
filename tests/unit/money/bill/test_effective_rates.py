"""Effective rates of a bill: by type and region, dated, and as entries of the file of own prices."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.cli.main import commands
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import avoidable_usd, committed_note, committed_ratio, effective_source
from gpuwatch.model.offers import PriceKey
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.bill.charge import Charge
from gpuwatch.money.bill.parse import charges
from gpuwatch.money.bill.rates import Metered, Rate, effective_rates
from gpuwatch.money.bill.rates_file import read_rates, write_rates
from gpuwatch.money.prices import overrides_file
from gpuwatch.money.prices.price_book import Book, NoPrice
from gpuwatch.runtime.json_document import read_json
from tests.support.builders.bills import cur_line, focus_line, table
from tests.support.builders.money import a_busy_node, a_round
from tests.support.nightly import examples

ZONE = ZoneInfo("UTC")
COVERED = {"LineItemType": "SavingsPlanCoveredUsage", "savingsPlan/SavingsPlanEffectiveCost": "13.17"}
P4D = PriceKey(instance_type="p4d.24xlarge", region="us-east-1")


def read(rows: Sequence[Mapping[str, object]]) -> list[Charge]:
    """The charges of a table of these rows."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    return list(
        charges(header, [{n: str(v) for n, v in row.items()} for row in rows], lambda at: at.date(), None, read_json)
    )


def rates_of(*rows: Mapping[str, object], **metered: Metered) -> list[Rate]:
    """The rates of these rows."""
    known = {(node, date(2026, 3, 2)): each for node, each in metered.items()}
    return list(effective_rates(read(rows), known).rates)


def test_a_partly_covered_hour_is_one_hour_of_one_rate() -> None:
    """0.4 h at a plan's rate and 0.6 h on demand: one hour of $8.80, and not two of $4.40."""
    part = {"product/regionCode": "us-east-1", "pricing/publicOnDemandCost": "4"}
    covered = cur_line(
        "i-1", 0, **{**COVERED, "savingsPlan/SavingsPlanEffectiveCost": "2.80"}, UsageAmount="0.4", **part
    )
    rest = cur_line("i-1", 0, UnblendedCost="6", UsageAmount="0.6", **{**part, "pricing/publicOnDemandCost": "6"})
    [rate] = rates_of(covered, rest)

    assert [rate.per_hour, rate.list_per_hour, rate.hours, rate.machines] == [Decimal("8.8"), 10, 1, 1]
    assert rate.committed_ratio == Decimal("0.31818182")
    assert rate.source == "effective rate of your bill, 2026-03, 31.8 % committed"


def test_discounts_lower_the_rate_and_taxes_and_credits_do_not() -> None:
    """What ends with a credit would price the next month wrongly."""
    apart = [cur_line("i-1", 0, kind, UnblendedCost="-9") for kind in ("Credit", "Refund", "Tax")]
    discount = cur_line("i-1", 0, "EdpDiscount", UnblendedCost="-2.7726", **{"pricing/publicOnDemandCost": ""})
    [rate] = rates_of(cur_line("i-1", 0), discount, *apart)

    assert [rate.per_hour, rate.hours, rate.list_per_hour] == [30, 1, Decimal("32.7726")]


def test_spot_and_on_demand_are_two_rates_and_hours_for_nothing_are_none() -> None:
    """57.50 for 2.5 hours is 23.00; the first hour of an interrupted machine is free, and no price."""
    spot = {"UsageType": "EUC1-SpotUsage:p4d.24xlarge"}
    rows = [
        cur_line("i-1", 0, UnblendedCost="20", **spot),
        cur_line("i-1", 1, UnblendedCost="22.5", **spot),
        cur_line("i-1", 2, UnblendedCost="15", UsageAmount="0.5", **spot),
        cur_line("i-2", 2, UnblendedCost="0", **spot),
        cur_line("i-3", 0),
    ]
    found = {each.kind.capacity_type: each.per_hour for each in rates_of(*rows)}

    assert found == {CapacityType.SPOT: 23, CapacityType.ON_DEMAND: Decimal("32.7726")}


def test_hours_and_type_that_the_bill_lacks_are_the_ledgers() -> None:
    """Where neither has hours, or a covered hour has no known cost, there is no rate, and the reason is told."""
    bare = focus_line("i-1", 0, SkuPriceDetails="", PricingUnit="100 Hours", ConsumedUnit="", RegionId="")
    known = Metered(region="us-east-1", instance_type="p4d.24xlarge", capacity_type="on_demand", hours=Fraction(2))
    [rate] = rates_of(bare, **{"i-1": known})
    hidden = effective_rates(read([cur_line("i-1", 0, "DiscountedUsage", UnblendedCost="0")]), {})

    assert rate.kind.instance_type == "p4d.24xlarge"
    assert [rate.per_hour, rate.hours] == [Decimal("16.3863"), 2]
    assert rates_of(bare) == []
    assert hidden.rates == ()
    assert list(hidden.left_out) == ["a commitment covers them, and the bill lacks its effective cost"]


def test_a_rate_ends_with_the_month_after_its_bill() -> None:
    """A bill comes weeks late: it prices the month in which it comes, and no later one silently."""
    [rate] = rates_of(cur_line("i-1", 0))

    assert (rate.first, rate.last, rate.until) == (date(2026, 3, 2), date(2026, 3, 2), date(2026, 5, 1))


@given(st.decimals("0", "1", places=3), st.decimals("0.01", "1000", places=2))
@settings(max_examples=examples(50))
def test_what_is_committed_is_read_back_from_the_words_of_a_price(share: Decimal, usd: Decimal) -> None:
    """To a tenth of a percent: an hour that is committed saves nothing, the rest of its price does."""
    source = (
        effective_source(date(2026, 10, 1), date(2026, 10, 31), share) + ", prices.yaml:7; EUR 3 at 1.08 US dollars"
    )

    assert committed_ratio(source) == share
    assert avoidable_usd(usd, source) == usd * (1 - share)
    assert (committed_note([source, "a list"]) is None) == (share == 0)
    assert avoidable_usd(usd, "a list, 50 % committed") == usd


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """Two hours of a machine of a type that no table has."""
    made = Ledger.in_memory()
    for hour in range(3):
        at = datetime(2026, 3, 2, tzinfo=UTC) + timedelta(hours=hour)
        SpendBook(made).meter(a_round(at, a_busy_node("i-1", at)), Metering(zone=ZONE, silent_after_seconds=7200))
    yield made
    made.close()


def write_bill(folder: Path, *rows: Mapping[str, object]) -> Path:
    """A bill's file."""
    path = folder / "bill.csv"
    path.write_text(table(rows), encoding="utf-8")
    return path


def price_at(file: Path, at: datetime) -> tuple[Decimal, str] | None:
    """What the book says of a p4d then."""
    own = overrides_file.read_prices(file, "USD")
    found = Book(provider="aws", own=lambda: own).find(P4D, at)
    return None if isinstance(found, NoPrice) else (found.usd_per_hour, found.source)


def test_rates_are_own_prices_with_their_date_and_leave_what_people_wrote(ledger: Ledger, tmp_path: Path) -> None:
    """March's rate prices April and says that it is of March; April's bill ends it; from June on the list counts."""
    file = tmp_path / "prices.yaml"
    file.write_text("prices:\n  # by hand\n  - {node: rack3, price: 4.10, source: power}\n", encoding="utf-8")
    for month, cost in (("03", "20"), ("04", "21"), ("04", "22")):
        row = cur_line("i-1", 0, UnblendedCost=cost)
        text = {name: str(value).replace("2026-03", f"2026-{month}") for name, value in row.items()}
        found = read_rates(SpendBook(ledger), write_bill(tmp_path, text), ZONE, "aws")
        assert write_rates(file, found.rates, "USD") == []

    march, april, june = (price_at(file, datetime(2026, month, 15, tzinfo=UTC)) for month in (3, 4, 6))
    assert march is not None
    assert april is not None
    assert march[0] == 20
    assert march[1].startswith("effective rate of your bill, 2026-03, prices.yaml:")
    assert april[0] == 22
    assert june is not None
    assert "effective rate" not in june[1]
    assert "# by hand\n  - {node: rack3, price: 4.10, source: power}" in file.read_text(encoding="utf-8")
    assert len(overrides_file.read_prices(file, "USD").rows) == 3


def test_a_price_that_people_wrote_for_the_same_machines_stays(ledger: Ledger, tmp_path: Path) -> None:
    """Two prices at one time would be refused: theirs holds, and the command says so."""
    file = tmp_path / "prices.yaml"
    mine = "{provider: aws, region: us-east-1, instance_type: p4d.24xlarge, capacity_type: on_demand, price: 9}"
    file.write_text(f"prices:\n  - {mine}\n", encoding="utf-8")
    found = read_rates(SpendBook(ledger), write_bill(tmp_path, cur_line("i-1", 0)), ZONE, "aws")

    assert write_rates(file, found.rates, "USD") == ["p4d.24xlarge in us-east-1: your own price in line 2 stays"]
    assert file.read_text(encoding="utf-8") == f"prices:\n  - {mine}\n"


def test_the_command_shows_the_rates_and_writes_them(tmp_path: Path) -> None:
    """With the list price next to what is paid, and what to set."""
    config, prices = tmp_path / "gpuwatch.yaml", tmp_path / "prices.yaml"
    Ledger.connect(LedgerSettings(path=str(tmp_path / "ledger.db"))).close()
    config.write_text(
        f"ledger: {{path: {tmp_path / 'ledger.db'}}}\ncloud: {{regions: [us-east-1]}}\n", encoding="utf-8"
    )
    bill = write_bill(tmp_path, cur_line("i-1", 0, **COVERED), cur_line("i-1", 1))
    line = ["cost", "rates", "--bill", str(bill), "--config", str(config), "--write", str(prices)]
    done = CliRunner().invoke(commands, line)

    assert done.exit_code == 0, done.output
    row = done.output.splitlines()[1].split()
    assert row[:8] == ["aws", "us-east-1", "p4d.24xlarge", "on_demand", "22.9713", "USD", "32.7726", "29.9%"]
    assert "a stop of these hours saves nothing" in done.output
    assert f"Wrote 1 rate into {prices}." in done.output
    assert f"Set prices.file: {prices}" in done.output
    assert "Hours that are metered already keep their price" in done.output
    assert "28.7 % committed" in prices.read_text(encoding="utf-8")


def test_metered_hours_keep_their_price_and_the_comparison_has_the_bills(tmp_path: Path) -> None:
    """Ten hours at $10 that a plan covered for $6: $100.00 metered, $60.00 in the bill, before and after the rate."""
    config, prices = tmp_path / "gpuwatch.yaml", tmp_path / "prices.yaml"
    made = Ledger.connect(LedgerSettings(path=str(tmp_path / "ledger.db")))
    for hour in range(11):
        at = datetime(2026, 3, 2, tzinfo=UTC) + timedelta(hours=hour)
        SpendBook(made).meter(a_round(at, a_busy_node("i-1", at)), Metering(zone=ZONE, silent_after_seconds=7200))
    made.close()
    config.write_text(
        f"ledger: {{path: {tmp_path / 'ledger.db'}}}\ncloud: {{regions: [us-east-1]}}\n", encoding="utf-8"
    )
    plan = {**COVERED, "savingsPlan/SavingsPlanEffectiveCost": "6"}
    bill = write_bill(tmp_path, *(cur_line("i-1", hour, **plan) for hour in range(10)))
    told = []
    for line in (
        ["reconcile", "--bill", str(bill)],
        ["rates", "--bill", str(bill), "--write", str(prices)],
        ["reconcile", "--bill", str(bill)],
    ):
        done = CliRunner().invoke(commands, ["cost", *line, "--config", str(config)])
        assert done.exit_code in {0, 1}, done.output
        told.append(done.output)

    assert "$60.00 for machine time in the bill, $100.00 metered, -$40.00 apart" in told[0]
    assert told[2] == told[0]
    assert "100 % committed" in prices.read_text(encoding="utf-8")
