"""Own prices by file: what is read, which entry holds for a machine and when, and how mistakes are told."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.offers import PriceKey
from gpuwatch.money.prices.overrides import OwnPrices
from gpuwatch.money.prices.overrides_file import PricesError, read_prices

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
P5 = PriceKey(instance_type="p5.48xlarge", region="us-east-1", node_id="i-1", node_name="trainer-1")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Where a test writes its file."""
    return tmp_path / "prices.yaml"


def the_prices(file: Path, text: str) -> OwnPrices:
    """The entries of a text."""
    file.write_text(text, encoding="utf-8")
    return read_prices(file, "USD")


def test_amounts_are_what_is_written(written: Path) -> None:
    """A tenth is a tenth, with or without quotes; a float would not be."""
    prices = the_prices(written, 'prices:\n  - {instance_type: a, price: 0.1}\n  - {instance_type: b, price: "0.10"}\n')

    assert [row.price for row in prices.rows] == [Decimal("0.1"), Decimal("0.10")]


def test_a_purchase_price_is_spread_over_the_hours_of_its_years(written: Path) -> None:
    """24,000 over four years of 8,766 hours; the source says so unless the entry names another."""
    (row,) = the_prices(written, "prices:\n  - {instance_type: rtx-box, purchase: 24000, years: 4}\n").rows

    assert (row.price, row.source) == (Decimal("0.684463"), "purchase price of 24000 over 4 years")


def test_a_table_says_the_same_as_yaml(tmp_path: Path) -> None:
    """The columns of a CSV file are the keys; an empty cell is not given."""
    table = tmp_path / "prices.csv"
    table.write_text(
        "provider,region,instance_type,capacity_type,node,price,currency,from,source\n"
        "aws,us-east-1,p5.48xlarge,on_demand,,31.46,EUR,2026-01-01,contract\n"
        ",,,,rack3-07,4.10,,,power\n",
        encoding="utf-8",
    )
    same = tmp_path / "prices.yaml"
    same.write_text(
        "prices:\n  - {provider: aws, region: us-east-1, instance_type: p5.48xlarge, capacity_type: on_demand,\n"
        "     price: 31.46, currency: EUR, from: 2026-01-01, source: contract}\n"
        "  - {node: rack3-07, price: 4.10, source: power}\n",
        encoding="utf-8",
    )
    ours, theirs = read_prices(table, "USD"), read_prices(same, "USD")

    assert [(row.scope, row.price, row.currency, row.begins, row.source) for row in ours.rows] == [
        (row.scope, row.price, row.currency, row.begins, row.source) for row in theirs.rows
    ]
    assert [row.line for row in ours.rows] == [2, 3]
    assert [row.line for row in theirs.rows] == [2, 4]


def test_the_closest_entry_holds(written: Path) -> None:
    """A type beats a pattern, a region beats every region, and of two equals the later line holds."""
    prices = the_prices(
        written,
        "prices:\n"
        "  - {instance_type: 'p*', price: 1}\n"
        "  - {instance_type: 'p5.*', price: 2}\n"
        "  - {instance_type: p5.48xlarge, price: 3}\n"
        "  - {instance_type: p5.48xlarge, region: us-east-1, price: 4}\n"
        "  - {instance_type: p5.48xlarge, region: us-east-1, capacity_type: spot, price: 5}\n",
    )

    def line(**changed: Any) -> int | None:  # noqa: ANN401  any field of PriceKey
        found = prices.price("aws", replace(P5, **changed), NOW)
        return None if found is None else found.line

    assert line() == 5
    assert line(capacity_type=CapacityType.SPOT) == 6
    assert line(region="eu-west-1") == 4
    assert line(instance_type="p5.4xlarge") == 3
    assert line(instance_type="p4d.24xlarge") == 2
    assert line(instance_type="g5.xlarge") is None


def test_a_node_has_a_price_of_its_own_by_id_or_name(written: Path) -> None:
    """On premises there are no types: a node by its name costs what it costs."""
    prices = the_prices(written, "prices:\n  - {node: trainer-1, price: 4.10}\n")
    other = PriceKey(instance_type="p5.48xlarge", region="us-east-1", node_id="i-2", node_name="trainer-2")

    assert prices.node_price(P5, NOW) is prices.rows[0]
    assert prices.node_price(other, NOW) is None
    assert prices.price("aws", P5, NOW) is None


def test_a_price_that_changes_is_two_prices(written: Path) -> None:
    """Up to the moment the one, from the moment on the other, also in the middle of an hour and in another zone."""
    prices = the_prices(
        written,
        "prices:\n"
        "  - {instance_type: p5.48xlarge, price: 5, until: 2026-01-05T20:30:00+08:00}\n"
        "  - {instance_type: p5.48xlarge, price: 6, from: 2026-01-05T12:30:00Z}\n",
    )

    def price(minute: int, second: int) -> Decimal | None:
        found = prices.price("aws", P5, NOW.replace(minute=minute, second=second))
        return None if found is None else found.price

    assert (price(29, 59), price(30, 0)) == (Decimal(5), Decimal(6))


def test_discounts_of_different_sources_add_up_and_of_one_source_the_closest_holds(written: Path) -> None:
    """An EDP comes off a savings plan's price; a plan for a type replaces the plan for all."""
    prices = the_prices(
        written,
        "prices:\n"
        "  - {capacity_type: any, percent_off: 8, source: EDP}\n"
        "  - {capacity_type: on_demand, percent_off: 20, source: savings plan}\n"
        "  - {instance_type: 'p5.*', capacity_type: on_demand, percent_off: 27, source: savings plan}\n",
    )
    spot = PriceKey(instance_type="p5.48xlarge", region="us-east-1", capacity_type=CapacityType.SPOT)

    assert [row.percent_off for row in prices.discounts("aws", P5, NOW)] == [8, 27]
    assert [row.percent_off for row in prices.discounts("aws", spot, NOW)] == [8]


MISTAKES = [
    ("- {instance_type: x, price: 4,10}", "2: 10: is no key of a price", "one of provider, region"),
    ("- {instance_type: x, prise: 4}", "2: prise: is no key of a price (its value is '4')", "one of provider"),
    ("- {instance_type: x, price: -4}", "2: price: '-4' is no amount", "a number of 0 or more, such as 4.10"),
    ("- {instance_type: x, price: 1e3}", "2: price: '1e3' is no amount", "a number of 0 or more"),
    ("- {price: 4}", "2: instance_type: a price belongs to a machine type or to a node", "p5.48xlarge"),
    ("- {node: x, region: y, price: 4}", "2: region: a node's price names the node alone", "node and price"),
    ("- {instance_type: x}", "2: price: an entry gives either a price, or a purchase", "percent_off: 27"),
    ("- {instance_type: x, purchase: 9}", "2: years: a purchase price is spread over years", "years: 4"),
    ("- {instance_type: x, price: 9, years: 4}", "2: years: a purchase price is spread over years", "years: 4"),
    ("- {instance_type: x, price: 9, purchase: 9, years: 4}", "2: price: an entry gives either", "purchase: 24000"),
    ("- {instance_type: x, purchase: 9, years: 2026}", "2: years: '2026' is no number of years", "at most 100"),
    ("- {instance_type: x, price: 1, price: 2}", "2: price: is written twice", "one of the two"),
    ("- {instance_type: x, price: [1]}", "2: price: is no single value", "one plain value"),
    ("- {percent_off: 27, source: plan}", "2: capacity_type: a discount says what it is on", "one of on_demand, spot"),
    ("- {percent_off: 27, capacity_type: any}", "2: source: a discount says what it is on", "savings plan"),
    ("- {percent_off: 0, capacity_type: any, source: x}", "2: percent_off: '0' is no discount", "above 0"),
    ("- {percent_off: 101, capacity_type: any, source: x}", "2: percent_off: '101' is no discount", "at most 100"),
    ("- {instance_type: x, price: 1, capacity_type: spott}", "2: capacity_type: 'spott' is no kind", "on_demand, spot"),
    ("- {instance_type: x, price: 1, currency: euro}", "2: currency: 'euro' is no currency", "USD or CNY"),
    ("- {instance_type: x, price: 1, from: soon}", "2: from: 'soon' is no day", "2026-01-01 (midnight UTC)"),
    ("- {instance_type: x, price: 1, from: 2026-01-01T08:00}", "2: from: '2026-01-01T08:00' is no day", "+08:00"),
    (
        "- {instance_type: x, price: 1, from: 2026-02-01, until: 2026-01-01}",
        "2: until: 2026-01-01 is not after",
        "later",
    ),
    (
        "- {instance_type: x, price: 1}\n  - {instance_type: x, price: 2}",
        "3: says the same as line 2",
        "one of the two",
    ),
    ("- 7", "2: prices: an item is no group of keys", "a list under `prices:`"),
    ("7", "2: prices: is no list", "a list under `prices:`"),
    ("- {", "3: is no YAML", "a list under `prices:`"),
]


@pytest.mark.parametrize(("text", "wrong", "right"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_a_mistake_is_told_with_its_line_key_value_and_remedy(text: str, wrong: str, right: str, written: Path) -> None:
    """File, line and key are named, and what would be right."""
    with pytest.raises(PricesError) as error:
        the_prices(written, f"prices:\n  {text}\n")

    first, _, second = str(error.value).partition("\n")
    assert first.startswith(f"{written}:{wrong}")
    assert second.startswith("    expected: ")
    assert right in second


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("price\n4\n", ":2: instance_type: a price belongs"), ("node,price\nx,4,5\n", ":2: has more cells than")],
)
def test_a_mistake_in_a_table_is_told_the_same_way(text: str, wrong: str, tmp_path: Path) -> None:
    """With the line of the table."""
    table = tmp_path / "prices.csv"
    table.write_text(text, encoding="utf-8")

    with pytest.raises(PricesError, match=wrong):
        read_prices(table, "USD")


def test_a_file_without_prices_is_good(written: Path) -> None:
    """An empty file, one with comments only, and an empty list."""
    assert the_prices(written, "").rows == ()
    assert the_prices(written, "# none yet\n").rows == ()
    assert the_prices(written, "prices: []\n").rows == ()
