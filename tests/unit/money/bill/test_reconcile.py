"""Bills of every kind beside what was metered: what differs, the largest first, and why."""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.bill.charge import BillError
from gpuwatch.money.bill.parse import Columns, map_columns
from gpuwatch.money.bill.statement import Compared, as_text, compare_bill, reconcile_document
from tests.support.builders.bills import CUR_2, LEGACY_CUR
from tests.support.builders.fleet import a_node
from tests.support.builders.money import a_busy_node, a_round

ZONE = ZoneInfo("UTC")
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """Two days of three machines at $10 an hour; the price of i-3 is not known."""
    made = Ledger.in_memory()
    rules = Metering(zone=ZONE, silent_after_seconds=7200)
    for hour in range(49):
        at = BEGIN + timedelta(hours=hour)
        unpriced = replace(a_busy_node("i-3", at), instance_type="x9.huge")
        seen = a_round(at, a_busy_node("i-1", at), a_busy_node("i-2", at))
        nodes = (*seen.fleet.nodes, unpriced)
        SpendBook(made).meter(replace(seen, fleet=replace(seen.fleet, nodes=nodes)), rules)
    yield made
    made.close()


def a_bill(folder: Path, text: str, *, packed: bool = False) -> Path:
    """A file of these lines."""
    path = folder / ("bill.csv.gz" if packed else "bill.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode("utf-8-sig"))
    return path


def beside(ledger: Ledger, path: Path, own: Columns | None = None) -> Compared:
    """The bill's file beside the ledger."""
    return compare_bill(SpendBook(ledger), path, ZONE, {"EUR": Decimal("1.25")}, own)


def whys(result: Compared) -> dict[tuple[str, int], tuple[float, str]]:
    """By machine and day of March: by how much the bill is higher, and why."""
    return {
        (each.resource, each.day.day): (round(float(each.usd), 2), each.why.split(":")[0])
        for each in result.found.differences
    }


def cur(columns: Columns, *lines: str) -> str:
    """An AWS report of the columns that matter; a line is: resource, day, hours, cost, usage type, line type."""
    names = ("node", "start", "end", "hours", "cost", "currency", "usage", "line")
    rows = [",".join(getattr(columns, name) for name in names)]
    for line in lines:
        node, day, hours, cost, usage, kind = line.split()
        begin, end = f"2026-03-{day}T00:00:00Z", f"2026-03-{int(day) + 1:02}T00:00:00Z"
        rows.append(f"{node},{begin},{end},{hours},{cost},USD,{usage},{kind}")
    return "\n".join(rows)


@pytest.mark.parametrize("columns", [LEGACY_CUR, CUR_2], ids=["legacy", "2.0"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_an_aws_report(ledger: Ledger, tmp_path: Path, columns: Columns, *, packed: bool) -> None:
    """Both namings, packed or not: each difference has its likeliest reason, and what is no machine time is apart."""
    text = cur(
        columns,
        "i-1 02 24 240 BoxUsage:g6.xlarge Usage",
        "i-2 02 24 216 BoxUsage:g6.xlarge Usage",
        "i-3 02 24 48 BoxUsage:x9.huge Usage",
        "i-1 03 12 120 BoxUsage:g6.xlarge Usage",
        "i-2 03 24 100 BoxUsage:g6.xlarge SavingsPlanCoveredUsage",
        "arn:aws:ec2:us-east-1:1:instance/i-9 03 1 10.5 SpotUsage:g6.xlarge Usage",
        "i-2 03 7 1.25 DataTransfer-Out-Bytes Usage",
        "vol-1 03 9 2.5 EBS:VolumeUsage.gp3 Usage",
    )
    result = beside(ledger, a_bill(tmp_path, text, packed=packed))

    assert whys(result) == {
        ("i-2", 3): (-140.0, "a commitment covers it, and the bill lacks its effective cost"),
        ("i-1", 3): (-120.0, "other hours"),
        ("i-3", 2): (48.0, "its price was not known"),
        ("i-2", 2): (-24.0, "another price"),
        ("i-9", 3): (10.5, "only in the bill"),
    }
    assert (result.bill.other_of_machines, result.bill.of_no_machine) == (Fraction(5, 4), Fraction(5, 2))
    assert result.bill.by_kind == {"egress": Fraction(5, 4), "disks": Fraction(5, 2)}
    assert "By kind: $2.50 disks, $1.25 egress." in as_text([result], 20)
    assert reconcile_document([result]).usd_by_kind == {"disks": Decimal("2.50"), "egress": Decimal("1.25")}
    assert [abs(each.usd) for each in result.found.differences] == [140, 120, 48, 24, Decimal("10.5")]
    assert result.found.equal == 1  # i-1 on the first day
    assert result.found.unknown == 1  # i-3 on the second: in no bill, and of no known price
    assert "1 line is metered without a known price and in no bill" in as_text([result], 20)


def test_what_only_one_side_has(ledger: Ledger, tmp_path: Path) -> None:
    """A day before metering began, a machine that is metered and not billed."""
    text = "node,start,cost\ni-1,2026-03-01,240\ni-1,2026-03-02,240.00\n"
    result = beside(ledger, a_bill(tmp_path, text))

    assert whys(result) == {
        ("i-1", 1): (240.0, "only in the bill"),
        ("i-2", 2): (-240.0, "only metered"),
    }
    assert "metering began later" in as_text([result], 10)
    assert str(reconcile_document([result]).usd_metered) == "480.00"


def test_a_bill_of_one_cloud_is_compared_with_what_was_metered_there(tmp_path: Path) -> None:
    """Others' machines are not missing in it; what has no known cloud counts where the bill has it."""
    made = Ledger.in_memory()
    for hour in range(25):
        at = BEGIN + timedelta(hours=hour)
        clouds = {"i-1": "bj", "i-2": "us", "i-3": "", "i-4": ""}
        nodes = [replace(a_busy_node(name, at), cloud=cloud) for name, cloud in clouds.items()]
        rules = Metering(zone=ZONE, silent_after_seconds=7200, providers={"bj": "tencent", "us": "aws"})
        SpendBook(made).meter(a_round(at, *nodes), rules)
    path = a_bill(tmp_path, "node,start,cost\ni-1,2026-03-02,250\ni-3,2026-03-02,240\n")
    found = [compare_bill(SpendBook(made), path, ZONE, {}, cloud=cloud) for cloud in ("bj", None)]
    made.close()

    assert whys(found[0]) == {("i-1", 2): (10.0, "another price")}
    assert found[0].found.equal == 1
    assert {name for name, _ in whys(found[1])} == {"i-1", "i-2", "i-4"}


def test_cost_explorers_table(ledger: Ledger, tmp_path: Path) -> None:
    """Days down, resources across; its sums are no resources."""
    text = "Resource,i-1($),i-2($),vol-7($),Total costs($)\nResource total,480,470,1,951\n"
    text += '2026-03-02,240,"230.0",0.5,470.5\n2026-03-03,240,240,0.5,480.5\n'
    result = beside(ledger, a_bill(tmp_path, text))

    assert whys(result) == {("i-2", 2): (-10.0, "another price")}
    assert result.bill.of_no_machine == 1


def test_any_bill_with_its_own_columns_and_currency(ledger: Ledger, tmp_path: Path) -> None:
    """Its columns are named, and its money is converted at the configured rate or not at all."""
    own = map_columns(["node=Instance", "cost=Amount", "start=When", "currency=Money"])
    text = "Instance,When,Amount,Money\ni-1,2026-03-02,192,{0}\ni-2,2026-03-02,192,{0}\n"
    result = beside(ledger, a_bill(tmp_path, text.format("EUR")), own)

    assert whys(result) == {}
    with pytest.raises(BillError, match=r"the bill is in CHF, of which prices\.rates has no rate"):
        beside(ledger, a_bill(tmp_path, text.format("CHF")), own)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a,b\n1,2\n", "has no columns node, start, cost; it has a, b. Name them by --column"),
        ("node,start,cost\ni-1,2026-03-02,much\n", "line 2: cost is 'much', which is no number"),
        ("node,start,cost\ni-1,yesterday,1\n", "line 2: start is 'yesterday', which is no time"),
        ("node,start,end,cost\ni-1,2026-03-02T00:00Z,2026-04-02T00:00Z,1\n", "more than a day"),
        ("node,start,cost\n", "holds no line of a machine's time"),
        ("", "has no columns"),
    ],
)
def test_what_is_no_bill_is_refused(ledger: Ledger, tmp_path: Path, text: str, wrong: str) -> None:
    """With the line, the column, the value and what would be right."""
    with pytest.raises(BillError, match=wrong):
        beside(ledger, a_bill(tmp_path, text))


def test_files_that_cannot_be_read(ledger: Ledger, tmp_path: Path) -> None:
    """One that is not there, and one that is cut off."""
    with pytest.raises(BillError, match="cannot be read: No such file"):
        beside(ledger, tmp_path / "none.csv")
    path = a_bill(tmp_path, cur(CUR_2, *["i-1 02 24 240 BoxUsage:g6.xlarge Usage"] * 500), packed=True)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BillError, match="not a whole one"):
        beside(ledger, path)
    assert a_node().id in SpendBook(ledger).nodes()


def test_a_column_that_is_none() -> None:
    """The names that can be mapped are told."""
    with pytest.raises(
        BillError, match=r"--column .colour=X. maps no column; write for example node=Instance, of node, start"
    ):
        map_columns(["colour=X"])
