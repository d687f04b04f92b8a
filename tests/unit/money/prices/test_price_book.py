"""Which price holds for a machine, in which currency, on whose word; and what stands for a price that is not known."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import CapacityType, Fleet, Node, NodeGroup
from gpuwatch.model.money import Price, PriceKey
from gpuwatch.money.prices.open import open_own
from gpuwatch.money.prices.overrides_file import PricesError
from gpuwatch.money.prices.price_book import Book, Launch, NoPrice, of_fleet
from gpuwatch.money.prices.settings import PriceSettings
from tests.support.builders.fleet import a_node

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
P5 = PriceKey(instance_type="p5.48xlarge", region="us-east-1")
GN7I = PriceKey(instance_type="ecs.gn7i-c16g1.4xlarge", region="cn-shenzhen")


def a_book(tmp_path: Path, text: str, **settings: Any) -> Book:  # noqa: ANN401  any field of PriceSettings
    """AWS's book with own prices."""
    file = tmp_path / "prices.yaml"
    file.write_text(text, encoding="utf-8")
    result = PriceSettings(file=str(file), **settings)
    return Book(provider="aws", rates=result.rates, own=open_own(result))


def known(book: Book, hire: PriceKey, now: datetime = NOW) -> Price:
    """The price of a machine that has one."""
    found = book.find(hire, now)
    assert isinstance(found, Price), found
    return found


def test_without_own_prices_the_table_holds_with_its_day_and_source() -> None:
    """The price on demand of that region."""
    price = known(Book(provider="aws"), P5)

    assert (price.usd_per_hour, price.as_of, price.exact) == (Decimal("55.04"), date(2026, 1, 19), True)
    assert "karpenter" in price.source


def test_another_region_has_another_price_and_not_ours() -> None:
    """What us-east-1 costs says nothing of eu-west-1: unknown, with the remedy."""
    found = Book(provider="aws").find(replace(P5, region="eu-west-1"), NOW)

    assert isinstance(found, NoPrice)
    assert found.why == "no list price of it is known there; name it in prices.file, or set prices.live"


def test_own_prices_come_first_and_a_nodes_own_before_them(tmp_path: Path) -> None:
    """The source names entry, file and line; the day is that of its beginning."""
    book = a_book(
        tmp_path,
        "prices:\n"
        "  - {instance_type: p5.48xlarge, price: 31.46, from: 2026-01-02, source: contract}\n"
        "  - {node: i-7, price: 4.10, source: power}\n",
    )

    assert known(book, P5) == Price(
        usd_per_hour=Decimal("31.46"), as_of=date(2026, 1, 2), source="contract, prices.yaml:2"
    )
    assert known(book, replace(P5, node_id="i-7")).usd_per_hour == Decimal("4.10")
    assert known(book, replace(P5, node_id="i-8")).usd_per_hour == Decimal("31.46")


def test_discounts_come_off_the_list_price_one_upon_the_other_and_not_off_own_prices(tmp_path: Path) -> None:
    """55.04 less 27 % less 8 %, exactly; an own price is what it says."""
    discounts = (
        "  - {capacity_type: on_demand, percent_off: 27, source: savings plan}\n"
        "  - {capacity_type: any, percent_off: 8, source: EDP}\n"
    )
    listed = known(a_book(tmp_path, f"prices:\n{discounts}"), P5)
    own = known(a_book(tmp_path, f"prices:\n  - {{instance_type: p5.48xlarge, price: 31}}\n{discounts}"), P5)

    assert listed.usd_per_hour == Decimal("55.04") * Decimal("0.73") * Decimal("0.92")
    assert listed.source.endswith("; less 27 % (savings plan, prices.yaml:2); less 8 % (EDP, prices.yaml:3)")
    assert own.usd_per_hour == 31


@pytest.mark.parametrize(
    ("capacity", "words"),
    [
        (CapacityType.SPOT, "in place of its spot price"),
        (CapacityType.RESERVED, "in place of what its reservation costs"),
        (CapacityType.CAPACITY_BLOCK, "in place of what its capacity block costs"),
    ],
)
def test_what_is_not_had_on_demand_is_never_silently_priced_so(capacity: CapacityType, words: str) -> None:
    """Where its own price is not known, that on demand stands in, is not exact, and the source says it."""
    price = known(Book(provider="aws"), replace(P5, capacity_type=capacity))

    assert (price.usd_per_hour, price.exact) == (Decimal("55.04"), False)
    assert words in price.source


def test_a_discount_on_reservations_makes_their_price(tmp_path: Path) -> None:
    """So much off the price on demand is what a reserved hour costs: exact, with nothing in its place."""
    text = "prices:\n  - {capacity_type: reserved, percent_off: 40, source: three years}\n"
    price = known(a_book(tmp_path, text), replace(P5, capacity_type=CapacityType.RESERVED))

    assert (price.usd_per_hour, price.exact) == (Decimal("33.024"), True)
    assert "in place of" not in price.source


def test_a_known_spot_price_is_taken() -> None:
    """GCP's table has them by region, also for a machine in a zone."""
    hire = PriceKey(
        instance_type="a3-highgpu-8g", region="us-central1", zone="us-central1-a", capacity_type=CapacityType.SPOT
    )
    price = known(Book(provider="gcp"), hire)

    assert (price.usd_per_hour, price.exact) == (Decimal("50.60954"), True)


def test_nothing_is_converted_without_a_rate() -> None:
    """A price in yuan is unknown until somebody says what a yuan is worth."""
    found = Book(provider="alibaba").find(GN7I, NOW)

    assert isinstance(found, NoPrice)
    assert found.why == "its price is in CNY, and prices.rates has no rate for CNY"


def test_a_conversion_keeps_amount_currency_and_rate() -> None:
    """All three are in the price, and in the words of its source."""
    price = known(Book(provider="alibaba", rates={"CNY": Decimal("0.14")}), GN7I)

    assert price.usd_per_hour == Decimal("1.413076")
    assert (price.currency, price.original_per_hour, price.rate) == ("CNY", Decimal("10.0934"), Decimal("0.14"))
    assert price.source.endswith("; CNY 10.0934 at 0.14 US dollars")


def test_own_prices_may_be_in_another_currency(tmp_path: Path) -> None:
    """That of the entry, else that of prices.currency."""
    text = "prices:\n  - {node: a, price: 10}\n  - {node: b, price: 10, currency: CNY}\n"
    book = a_book(tmp_path, text, currency="EUR", rates={"EUR": Decimal("1.1"), "CNY": Decimal("0.14")})

    assert [known(book, replace(P5, node_id=node)).usd_per_hour for node in "ab"] == [11, Decimal("1.4")]


def test_a_file_that_changes_is_read_again_and_a_bad_change_leaves_the_old_prices(tmp_path: Path) -> None:
    """At the next moment that is asked about."""
    file = tmp_path / "prices.yaml"
    book = a_book(tmp_path, "prices:\n  - {instance_type: p5.48xlarge, price: 1}\n")
    first = known(book, P5, NOW).usd_per_hour
    file.write_text("prices:\n  - {instance_type: p5.48xlarge, price: 22}\n", encoding="utf-8")
    second = known(book, P5, NOW.replace(minute=1)).usd_per_hour
    file.write_text("prices:\n  - {instance_type: p5.48xlarge, price: three}\n", encoding="utf-8")
    third = known(book, P5, NOW.replace(minute=2)).usd_per_hour

    assert [first, second, third] == [Decimal(1), Decimal(22), Decimal(22)]


def test_a_file_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    """With its name and the remedy, not as a price that is missing."""
    with pytest.raises(PricesError, match="cannot be read: No such file"):
        open_own(PriceSettings(file=str(tmp_path / "none.yaml")))


def test_the_log_says_once_why_a_price_is_not_known(caplog: pytest.LogCaptureFixture) -> None:
    """Not in each round anew."""
    book = Book(provider="aws")
    for minute in range(3):
        assert book.price(replace(P5, region="eu-west-1"), NOW.replace(minute=minute)) is None

    assert len(caplog.records) == 1
    assert "eu-west-1/p5.48xlarge/on_demand" in caplog.text


# A round's prices


def observed(book: Book, fleet: Fleet, *launches: Launch) -> Observation:
    """A round's observation, as it is written down and read again."""
    made = Observation(now=NOW, fleet=fleet, prices=of_fleet(book.price, fleet, launches, NOW))
    return msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Observation)


def a_fleet(*nodes: Node) -> Fleet:
    """A fleet of these."""
    return Fleet(observed_at=NOW, nodes=nodes)


def p5(node_id: str, **changed: Any) -> Node:  # noqa: ANN401  any field of Node
    """A p5 in us-east-1."""
    return a_node(node_id, **({"instance_type": "p5.48xlarge"} | changed))


def test_each_machine_is_priced_by_what_it_is(tmp_path: Path) -> None:
    """Region, kind of capacity and a price of its own make four prices of one machine type."""
    text = (
        "prices:\n"
        "  - {node: i-own, price: 4.10}\n"
        "  - {instance_type: p5.48xlarge, region: eu-west-1, price: 60}\n"
        "  - {instance_type: p5.48xlarge, region: us-east-1, capacity_type: spot, price: 20}\n"
    )
    nodes = [
        p5("i-list"),
        p5("i-own"),
        p5("i-eu", region="eu-west-1"),
        p5("i-spot", capacity_type=CapacityType.SPOT, zone=""),
        p5("i-unknown", region="ap-south-1"),
    ]
    seen = observed(a_book(tmp_path, text), a_fleet(*nodes))
    rows = [None if (price := seen.price(node)) is None else str(price.usd_per_hour) for node in seen.fleet.nodes]

    assert rows == ["55.04", "4.10", "60", "20", None]


def test_a_machine_to_come_costs_what_it_costs_where_it_may_come() -> None:
    """A launch without a region counts everywhere the fleet is; where one price is unknown, so is the type's."""
    book = Book(provider="aws", region="us-east-1")
    group = NodeGroup(
        id="g", name="g", pool="p", min_size=0, max_size=9, desired=0, region="us-east-1", instance_type="g6.xlarge"
    )

    assert set(observed(book, Fleet(observed_at=NOW, nodes=()), ("p5.48xlarge", None, None)).prices) == {"p5.48xlarge"}
    assert "g6.xlarge" in observed(book, Fleet(observed_at=NOW, nodes=(), groups=(group,))).prices
    assert "p5.48xlarge" in observed(book, a_fleet(p5("i-1")), ("p5.48xlarge", "us-east-1", None)).prices
    assert "p5.48xlarge" not in observed(book, a_fleet(p5("i-1")), ("p5.48xlarge", "eu-west-1", None)).prices


def test_an_observation_of_an_earlier_version_is_read_with_its_prices_by_type() -> None:
    """Its prices have fewer fields and other keys; each machine still finds its own."""
    price = {"usd_per_hour": "0.8048", "as_of": "2026-01-19", "source": "a list"}
    body = {"now": NOW, "fleet": a_fleet(p5("i-1")), "prices": {"p5.48xlarge": price}}
    seen = msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=Observation)

    assert seen.price(seen.fleet.nodes[0]) == Price(
        usd_per_hour=Decimal("0.8048"), as_of=date(2026, 1, 19), source="a list"
    )


@given(
    regions=st.lists(st.sampled_from(["us-east-1", "eu-west-1", "ap-south-1"]), min_size=1, max_size=6),
    capacities=st.lists(st.sampled_from(list(CapacityType)), min_size=6, max_size=6),
)
def test_no_machine_ever_gets_the_price_of_another_region(regions: list[str], capacities: list[CapacityType]) -> None:
    """Only us-east-1 has a price: a machine anywhere else has none, whatever stands beside it."""
    nodes = [
        p5(f"i-{number}", region=region, capacity_type=capacity)
        for number, (region, capacity) in enumerate(zip(regions, capacities, strict=False))
    ]
    seen = observed(Book(provider="aws"), a_fleet(*nodes))

    assert [seen.price(node) is not None for node in nodes] == [node.region == "us-east-1" for node in nodes]
