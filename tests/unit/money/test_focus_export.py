"""The export in FOCUS columns: valid by the specification, and its sums are those of `gpuwatch cost`."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.cli.main import commands
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.money import effective_source
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.settings import EnergySettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.bill.parse import charges
from gpuwatch.money.focus_export import COLUMNS, focus_table
from gpuwatch.money.report.cost import cost_document, cost_report
from gpuwatch.money.report.period import Period
from gpuwatch.runtime.json_document import read_json
from tests.support.builders.fleet import a_node, a_verdict
from tests.support.builders.money import a_busy_node, a_round
from tests.support.nightly import examples

ZONE = ZoneInfo("Europe/Berlin")
BEGIN = datetime(2026, 3, 1, 22, tzinfo=UTC)
PERIOD = Period(zone=ZONE, first=date(2026, 3, 1), after=date(2026, 3, 4))
MANDATORY = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost",
    "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName",
    "PublisherName", "ServiceCategory", "ServiceName",
)  # fmt: skip
NULLABLE = {"BillingAccountName", "ChargeClass"}
OWNER = '=HYPERLINK("x"), Ng'


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """Thirty hours of a busy machine, of an idle one with an owner, and of one without a price; odd prices."""
    made = Ledger.in_memory()
    rules = Metering(zone=ZONE, tags=("team",), silent_after_seconds=7200, providers={"": "aws"})
    for hour in range(31):
        at = BEGIN + timedelta(hours=hour, minutes=hour * 7 % 13)
        signal = NodeReport(verdict=a_verdict("i-2", State.IDLE, 90_000.0, age=0.0, at=at))
        idle = a_node("i-2", pool="serving", owner=OWNER, tags={"team": "a,b"}, signal=signal)
        seen = a_round(at, a_busy_node("i-1", at), idle, usd="10.0000333")
        unpriced = replace(a_busy_node("i-3", at), instance_type="x9.huge")
        SpendBook(made).meter(replace(seen, fleet=replace(seen.fleet, nodes=(*seen.fleet.nodes, unpriced))), rules)
    yield made
    made.close()


def table_of(ledger: Ledger, by: str = "node") -> list[dict[str, str]]:
    """The rows of the export."""
    text, _ = focus_table(SpendBook(ledger), PERIOD, by)
    return list(csv.DictReader(io.StringIO(text)))


def cents(rows: list[dict[str, str]], name: str) -> Decimal:
    """The sum of a column, to the cent."""
    return sum((Decimal(row[name]) for row in rows), Decimal(0)).quantize(Decimal("0.01"), ROUND_HALF_EVEN)


@pytest.mark.parametrize("by", ["node", "workload"])
def test_sums_are_those_of_cost_to_the_cent(ledger: Ledger, by: str) -> None:
    """Cost, waste and what is not proven; useful, wasted and unproven add up to the cost of each row."""
    rows = table_of(ledger, by)
    total = cost_document(cost_report(SpendBook(ledger), PERIOD, "pool"), EnergySettings()).total

    assert (cents(rows, "BilledCost"), cents(rows, "x_WastedCost")) == (total.usd, total.usd_wasted)
    assert cents(rows, "x_UnprovenCost") == total.usd_unproven
    assert sum(Decimal(row["x_UnpricedHours"]) for row in rows) == pytest.approx(Decimal(total.unpriced_machine_hours))
    for row in rows:
        parts = sum(Decimal(row[name]) for name in ("x_UsefulCost", "x_WastedCost", "x_UnprovenCost"))
        assert abs(parts - Decimal(row["BilledCost"])) < Decimal("0.00000001")


def test_rows_are_valid_by_the_specification(ledger: Ledger) -> None:
    """Mandatory columns, no null where none is allowed, half-open days in UTC, and ours begin with x_."""
    rows = table_of(ledger)

    assert set(MANDATORY) <= set(COLUMNS)
    assert all(row[name] for row in rows for name in MANDATORY if name not in NULLABLE)
    assert {row["ChargeCategory"] for row in rows} == {"Usage"}
    assert {row["ServiceCategory"] for row in rows} == {"Compute"}
    assert {(row["ChargePeriodStart"], row["ChargePeriodEnd"]) for row in rows} == {
        ("2026-02-28T23:00:00Z", "2026-03-01T23:00:00Z"),
        ("2026-03-01T23:00:00Z", "2026-03-02T23:00:00Z"),
        ("2026-03-02T23:00:00Z", "2026-03-03T23:00:00Z"),
    }
    assert {(row["BillingPeriodStart"], row["BillingPeriodEnd"]) for row in rows} == {
        ("2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z")
    }
    assert {row["x_Owner"] for row in rows} == {"", f"'{OWNER}"}, "no spreadsheet takes an owner for a formula"


def test_our_own_reader_of_bills_reads_it_back(ledger: Ledger) -> None:
    """To the same sum."""
    rows = table_of(ledger)
    found = list(charges(COLUMNS, rows, lambda at: at.date(), None, read_json))

    assert sum(each.cost for each in found) == sum(Decimal(row["BilledCost"]) for row in rows)
    assert {each.resource for each in found} == {"i-1", "i-2", "i-3"}


def test_what_is_paid_by_a_commitment_has_its_list_price_next_to_it() -> None:
    """At an effective rate the list price is the table's."""
    made = Ledger.in_memory()
    for hour in range(3):
        at = BEGIN + timedelta(hours=hour)
        node = replace(a_busy_node("i-1", at), instance_type="p4d.24xlarge")
        seen = a_round(at, node, usd="7")
        [(key, price)] = seen.prices.items()
        source = effective_source(date(2026, 2, 1), date(2026, 2, 28), Decimal(1))
        rules = Metering(zone=ZONE, silent_after_seconds=7200, providers={"": "aws"})
        SpendBook(made).meter(replace(seen, prices={key: replace(price, source=source)}), rules)
    rows = table_of(made)
    made.close()

    assert cents(rows, "EffectiveCost") == Decimal("14.00")
    assert cents(rows, "ListCost") > 40


def test_the_command_writes_a_table_and_counts_what_has_no_price(tmp_path: Path) -> None:
    """An empty ledger gives the columns alone; a file that differs is not overwritten without --force."""
    config = tmp_path / "gpuwatch.yaml"
    Ledger.connect(LedgerSettings(path=str(tmp_path / "ledger.db"))).close()
    config.write_text(f"ledger: {{path: {tmp_path / 'ledger.db'}}}\n", encoding="utf-8")
    line = ["export", "focus", str(tmp_path / "out"), "--month", "2026-03", "--config", str(config)]
    done = CliRunner().invoke(commands, line)
    file = tmp_path / "out" / "focus-2026-03-01-to-2026-03-31.csv"

    assert done.exit_code == 0, done.output
    assert file.read_text(encoding="utf-8") == ",".join(COLUMNS) + "\n"
    file.write_text("mine", encoding="utf-8")
    assert CliRunner().invoke(commands, line).exit_code == 2


@given(st.lists(st.integers(1, 3_600_000), min_size=1, max_size=6), st.decimals("0.0001", "100", places=4))
@settings(max_examples=examples(25), deadline=None)
def test_thirds_of_a_cent_are_not_lost(parts: list[int], usd: Decimal) -> None:
    """Rows of any length at any price add up to the cent of the whole."""
    made = Ledger.in_memory()
    at = BEGIN
    book, rules = SpendBook(made), Metering(zone=ZONE, silent_after_seconds=7200)
    book.meter(a_round(at, a_busy_node("i-1", at), usd=str(usd)), rules)
    for number, ms in enumerate(parts):
        at += timedelta(milliseconds=ms)
        book.meter(a_round(at, replace(a_busy_node("i-1", at), owner=f"o{number}"), usd=str(usd)), rules)
    total = cost_document(cost_report(book, PERIOD, "owner"), EnergySettings()).total
    rows = table_of(made)
    made.close()

    assert cents(rows, "BilledCost") == (total.usd or 0)
