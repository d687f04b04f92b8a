"""Egress in bills: a column of each cloud's row and of the totals, only where a bill itself has it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.model.currency import Currency, show_in
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.bill.charge import BillError
from gpuwatch.money.bill.parse import Columns, map_columns
from gpuwatch.money.bill.statement import Compared, as_text, compare_bill, reconcile_document
from gpuwatch.runtime.json_document import document
from tests.support.builders.money import a_busy_node, a_round

ZONE = ZoneInfo("UTC")
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
CUR = "line_item_resource_id,line_item_usage_start_date,line_item_unblended_cost,line_item_usage_type"


@pytest.fixture
def spend() -> Iterator[SpendBook]:
    """A day of one machine at $10 an hour."""
    made = Ledger.in_memory()
    for hour in range(25):
        at = BEGIN + timedelta(hours=hour)
        SpendBook(made).meter(a_round(at, a_busy_node("i-1", at)), Metering(zone=ZONE, silent_after_seconds=7200))
    yield SpendBook(made)
    made.close()


def compare(spend: SpendBook, path: Path, text: str, own: Columns | None = None, cloud: str | None = None) -> Compared:
    """A bill of these lines against the ledger."""
    path.write_text(text, encoding="utf-8")
    return compare_bill(spend, path, ZONE, {"CNY": Decimal("0.125")}, own, cloud)


@pytest.mark.parametrize(
    ("usage", "kind"),
    [
        ("DataTransfer-Out-Bytes", "egress"),
        ("EUC1-DataTransfer-Out-Bytes", "egress"),
        ("USE1-EUC1-AWS-Out-Bytes", "egress"),
        ("DataTransfer-Out-ABytes", "egress"),
        ("USE1-DataXfer-Out:dc.3", "egress"),
        ("DataTransfer-In-Bytes", "traffic"),
        ("DataTransfer-Regional-Bytes", "traffic"),
        ("USE1-EUC1-AWS-In-Bytes", "traffic"),
        ("NatGateway-Bytes", "traffic"),
        ("EBS:SnapshotUsage", "snapshots"),
        ("Requests-Tier1", "other"),
    ],
)
def test_of_aws_egress_is_what_leaves_a_region(usage: str, kind: str, spend: SpendBook, tmp_path: Path) -> None:
    """By AWS's own usage types; what comes in, and what stays in a region, is other traffic."""
    text = f"{CUR}\ni-1,2026-03-02,240,BoxUsage:g6.xlarge\nx-1,2026-03-02,7.5,{usage}\n"

    assert compare(spend, tmp_path / "bill.csv", text).bill.by_kind == {kind: Fraction(15, 2)}


def test_egress_without_a_resource_counts(spend: SpendBook, tmp_path: Path) -> None:
    """AWS names none for some of its traffic; other lines without one, such as a tax, are left out as before."""
    text = f"{CUR}\ni-1,2026-03-02,240,BoxUsage:g6.xlarge\n,2026-03-02,7.5,DataTransfer-Out-Bytes\n,2026-03-02,9,\n"
    found = compare(spend, tmp_path / "bill.csv", text).bill

    assert (found.by_kind, found.of_no_machine) == ({"egress": Fraction(15, 2)}, Fraction(15, 2))


BILL = """node,start,cost,currency,meter
i-1,2026-03-02,1920,CNY,Compute
i-1,2026-03-02,80,CNY,Standard Data Transfer Out
net-1,2026-03-02,8,CNY,Inter-Region Data Transfer Out
net-1,2026-03-02,16,CNY,Data Transfer In
"""


def test_of_other_bills_egress_is_what_their_reader_names(spend: SpendBook, tmp_path: Path) -> None:
    """By patterns of the bill's own words; without them nothing is egress, and all lines are taken for machine time."""
    named = map_columns(["item=meter"], ["*Data Transfer Out"])
    found = compare(spend, tmp_path / "bill.csv", BILL, named)
    guessed = compare(spend, tmp_path / "bill.csv", BILL, map_columns(["item=meter"]))

    assert found.bill.by_kind == {"egress": Fraction(11)}
    assert found.found.billed_usd == Fraction(242)
    assert found.found.equal == 1
    assert guessed.bill.by_kind == {}
    assert guessed.found.billed_usd == Fraction(253)


def test_patterns_want_their_column() -> None:
    """The error says what is missing."""
    with pytest.raises(BillError, match="name their column by --column, such as item=meterName"):
        map_columns(["node=Instance"], ["*Out*"])


def two_clouds(spend: SpendBook, folder: Path) -> list[Compared]:
    """A bill of AWS and one of another cloud."""
    text = f"{CUR}\ni-1,2026-03-02,250,BoxUsage:g6.xlarge\nx,2026-03-02,7.504,DataTransfer-Out-Bytes\n"
    text += "vol-1,2026-03-02,2.504,EBS:VolumeUsage.gp3\n"
    other = map_columns(["item=meter"], ["*Data Transfer Out"])  # the reader names the columns of the second bill
    return [
        compare(spend, folder / "a.csv", text, other, cloud="us"),
        compare(spend, folder / "b.csv", BILL, other, cloud="bj"),
    ]


def test_each_cloud_has_its_egress_and_all_add_up(spend: SpendBook, tmp_path: Path) -> None:
    """A row for each bill and one for all; each row and each column adds up to the cent."""
    lines = as_text(two_clouds(spend, tmp_path), 20).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("cloud  machine time"))

    assert [" ".join(line.split()) for line in lines[at : at + 4]] == [
        "cloud machine time egress disks together",
        "us $250.00 $7.50 $2.50 $260.00",
        "bj $242.00 $11.00 $0.00 $253.00",
        "all $492.00 $18.50 $2.50 $513.00",
    ]
    assert any(line.startswith("us: 2026-03-02 to 2026-03-02: $250.00 for machine time") for line in lines)


def test_programs_get_egress_by_cloud_and_in_all(spend: SpendBook, tmp_path: Path) -> None:
    """In US dollars, whatever people read."""
    show_in(Currency(code="CNY", usd=Decimal("0.125")))
    made = document("cost.reconcile", reconcile_document(two_clouds(spend, tmp_path)))

    assert made["clouds"] == [
        {"cloud": "us", "usd_machine_time": "250.00", "usd_egress": "7.50", "usd": "260.01"},
        {"cloud": "bj", "usd_machine_time": "242.00", "usd_egress": "11.00", "usd": "253.00"},
    ]
    assert made["usd_by_kind"] == {"disks": "2.50", "egress": "18.50"}
    assert made["usd_billed"] == "492.00"


def test_a_bill_of_machines_alone_has_no_such_table(spend: SpendBook, tmp_path: Path) -> None:
    """Egress of a bill that says nothing of it is not known, rather than zero."""
    found = compare(spend, tmp_path / "bill.csv", "node,start,cost\ni-1,2026-03-02,240\n")

    assert "egress" not in as_text([found], 20)
