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
from gpuwatch.model.money import Price, elsewhere_note, place_of
from gpuwatch.model.offers import PriceKey
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

    assert (price.usd_per_hour, price.as_of, price.exact) == (Decimal("55.04"), date(2026, 7, 20), True)
    assert "karpenter" in price.source


def test_a_region_without_a_list_price_takes_the_nearest_and_says_so() -> None:
    """Ireland has no p5: London's price stands in, is not exact, names itself, and is bounded by the dearest."""
    price = known(Book(provider="aws"), replace(P5, region="eu-west-1"))

    assert (price.usd_per_hour, price.exact) == (Decimal("71.552"), False)
    assert place_of(price.source) == "eu-west-2"
    assert price.source.endswith(
        "; the price of another region: eu-west-2, the nearest with a list price, in place of eu-west-1's"
    )
    assert price.limit_usd_per_hour == Decimal("92.4672"), "what Sao Paulo pays"


def test_a_region_that_nobody_knows_takes_the_dearest() -> None:
    """Where it lies is not known, so what is nearest to it is not: never less than is paid."""
    price = known(Book(provider="aws"), replace(P5, region="moon-central-1"))

    assert (price.usd_per_hour, price.limit_usd_per_hour) == (Decimal("92.4672"), Decimal("92.4672"))
    assert "sa-east-1, the dearest, for its own is not known" in price.source


def test_a_price_of_another_seller_stands_in_only_where_the_own_has_none() -> None:
    """GovCloud east takes GovCloud west; China, where no p5 is listed, takes the nearest that there is."""
    book = Book(provider="aws")

    assert place_of(known(book, replace(P5, region="us-gov-east-1")).source) == "us-gov-west-1"
    assert place_of(known(book, replace(P5, region="cn-north-1")).source) == "ap-northeast-2"


def test_a_machine_that_is_listed_nowhere_has_no_price() -> None:
    """None is "not known": it is never taken from a machine with a similar name."""
    found = Book(provider="aws").find(PriceKey(instance_type="p5e.48xlarge", region="us-east-1"), NOW)

    assert isinstance(found, NoPrice)
    assert found.why == "no list price of it is known; name it in prices.file, or set prices.live"


def test_a_price_of_another_region_needs_a_rate_as_any_other() -> None:
    """Without one it is unknown; with one, the amount, the currency and the rate stay in it."""
    hire = PriceKey(instance_type="ecs.gn7i-c16g1.4xlarge", region="me-central-1")
    price = known(Book(provider="alibaba", rates={"CNY": Decimal("0.14")}), hire)

    assert isinstance(Book(provider="alibaba").find(hire, NOW), NoPrice)
    assert (price.currency, price.rate, price.exact) == ("CNY", Decimal("0.14"), False)
    assert place_of(price.source) is not None


def test_azures_names_have_no_case() -> None:
    """The size and the region come as somebody once wrote them; own prices may be written in any case too."""
    book = Book(provider="azure")
    odd = PriceKey(instance_type="standard_nc24ads_A100_V4", region="East US")

    assert known(book, odd).usd_per_hour == Decimal("3.673")
    assert known(book, odd).exact


def test_an_own_price_of_azure_holds_in_any_case(tmp_path: Path) -> None:
    """As the cloud itself does not tell the names apart."""
    file = tmp_path / "prices.yaml"
    file.write_text("prices:\n  - {instance_type: STANDARD_nc24ads_a100_v4, region: EastUS, price: 1}\n")
    book = Book(provider="azure", own=open_own(PriceSettings(file=str(file))))

    assert known(book, PriceKey(instance_type="Standard_NC24ads_a100_v4", region="eastus")).usd_per_hour == 1


def n1(gpus: str, region: str = "us-central1", **more: Any) -> PriceKey:  # noqa: ANN401  any field of PriceKey
    """An n1-standard-8 with GPUs."""
    return PriceKey(instance_type=f"n1-standard-8+{gpus}", region=region, **more)


@pytest.mark.parametrize(
    ("gpus", "region", "usd"),
    [
        ("1xnvidia-tesla-t4", "us-central1", "0.729998"),
        ("4xnvidia-tesla-v100", "us-central1", "10.299998"),
        ("1xnvidia-tesla-p100", "us-central1", "1.839998"),
        ("2xnvidia-tesla-p4", "europe-west4", "1.678336"),
        ("2xnvidia-tesla-t4", "europe-west4", "1.153336"),
    ],
)
def test_attached_gpus_are_in_the_price_of_an_n1(gpus: str, region: str, usd: str) -> None:
    """The machine and its GPUs: one T4 is not four V100, though both are in an n1-standard-8."""
    price = known(Book(provider="gcp"), n1(gpus, region))

    assert (price.usd_per_hour, price.exact) == (Decimal(usd), True)
    assert "skypilot" in price.source
    assert "karpenter" in price.source


def test_spot_and_another_region_hold_for_attached_gpus_too() -> None:
    """Spot where both parts have it; where a GPU is not sold, the nearest region that has both."""
    spot = known(Book(provider="gcp"), n1("1xnvidia-tesla-t4", capacity_type=CapacityType.SPOT))
    far = known(Book(provider="gcp"), n1("1xnvidia-tesla-v100", "europe-west3"))

    assert (spot.usd_per_hour, spot.exact) == (Decimal("0.30902"), True)
    assert place_of(far.source) == "europe-west4"
    assert isinstance(Book(provider="gcp").find(n1("1xnvidia-tesla-t4-vws"), NOW), NoPrice)
    assert isinstance(Book(provider="gcp").find(n1("x"), NOW), NoPrice)


def test_an_own_price_may_name_the_attached_gpus(tmp_path: Path) -> None:
    """The entry with its GPUs comes before the one without, which holds for all others."""
    file = tmp_path / "prices.yaml"
    file.write_text(
        "prices:\n  - {instance_type: n1-standard-8, price: 5}\n"
        "  - {instance_type: n1-standard-8+4xnvidia-tesla-v100, price: 9}\n"
        "  - {instance_type: n1-*+1xnvidia-tesla-p4, price: 2}\n"
    )
    book = Book(provider="gcp", own=open_own(PriceSettings(file=str(file))))

    assert [
        known(book, n1(gpus)).usd_per_hour
        for gpus in ("4xnvidia-tesla-v100", "1xnvidia-tesla-t4", "1xnvidia-tesla-p4", "1xnvidia-tesla-t4-vws")
    ] == [9, 5, 2, 5]


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

    assert (price.usd_per_hour, price.exact) == (Decimal("50.609541"), True)


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
        assert book.price(replace(P5, instance_type="p5e.48xlarge"), NOW.replace(minute=minute)) is None

    assert len(caplog.records) == 1
    assert "us-east-1/p5e.48xlarge/on_demand" in caplog.text


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
        p5("i-near", region="ap-south-2"),
        p5("i-unknown", instance_type="p5e.48xlarge"),
    ]
    seen = observed(a_book(tmp_path, text), a_fleet(*nodes))
    rows = [None if (price := seen.price(node)) is None else str(price.usd_per_hour) for node in seen.fleet.nodes]

    assert rows == ["55.04", "4.10", "60", "20", "66.048", None]


def test_a_machine_to_come_costs_what_it_costs_where_it_may_come() -> None:
    """A launch without a region counts everywhere the fleet is; where one price is unknown, so is the type's."""
    book = Book(provider="aws", region="us-east-1")
    group = NodeGroup(
        id="g", name="g", pool="p", min_size=0, max_size=9, desired=0, region="us-east-1", instance_type="g6.xlarge"
    )

    assert set(observed(book, Fleet(observed_at=NOW, nodes=()), ("p5.48xlarge", None, None)).prices) == {"p5.48xlarge"}
    assert "g6.xlarge" in observed(book, Fleet(observed_at=NOW, nodes=(), groups=(group,))).prices
    assert "p5.48xlarge" in observed(book, a_fleet(p5("i-1")), ("p5.48xlarge", "us-east-1", None)).prices
    assert "p5e.48xlarge" not in observed(book, a_fleet(p5("i-1")), ("p5e.48xlarge", "eu-west-1", None)).prices


def test_an_observation_of_an_earlier_version_is_read_with_its_prices_by_type() -> None:
    """Its prices have fewer fields and other keys; each machine still finds its own."""
    price = {"usd_per_hour": "0.8048", "as_of": "2026-01-19", "source": "a list"}
    body = {"now": NOW, "fleet": a_fleet(p5("i-1")), "prices": {"p5.48xlarge": price}}
    seen = msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=Observation)

    assert seen.price(seen.fleet.nodes[0]) == Price(
        usd_per_hour=Decimal("0.8048"), as_of=date(2026, 1, 19), source="a list"
    )


@given(
    regions=st.lists(st.sampled_from(["us-east-1", "eu-west-1", "ap-south-1", "moon-1"]), min_size=1, max_size=6),
    capacities=st.lists(st.sampled_from([each for each in CapacityType if each is not CapacityType.OWN]), min_size=6),
)
def test_no_machine_ever_silently_gets_the_price_of_another_region(
    regions: list[str], capacities: list[CapacityType]
) -> None:
    """Where its own has no list price, the price says whose it is, is not exact, and counts for no less in limits."""
    nodes = [
        p5(f"i-{number}", region=region, capacity_type=capacity)
        for number, (region, capacity) in enumerate(zip(regions, capacities, strict=False))
    ]
    seen = observed(Book(provider="aws"), a_fleet(*nodes))

    for node in nodes:
        price = seen.price(node)
        assert price is not None
        listed = node.region in {"us-east-1", "ap-south-1"}
        assert (place_of(price.source) is None) == listed
        assert price.exact == (listed and node.capacity_type is CapacityType.ON_DEMAND)
        assert price.limit_usd_per_hour >= price.usd_per_hour


def test_machines_with_other_gpus_attached_have_other_prices_in_a_round() -> None:
    """Two n1-standard-8, one T4 and four V100: each has its own price, and the number of its GPUs."""
    nodes = [
        a_node("one", instance_type="n1-standard-8", region="us-central1", accelerators="1xnvidia-tesla-t4"),
        a_node("four", instance_type="n1-standard-8", region="us-central1", accelerators="4xnvidia-tesla-v100"),
    ]
    seen = observed(Book(provider="gcp"), a_fleet(*nodes))

    assert [str(price.usd_per_hour) for node in nodes if (price := seen.price(node))] == ["0.729998", "10.299998"]


def test_the_sentence_about_other_regions_names_them_once() -> None:
    """And is not there where every price is of its own region."""
    book = Book(provider="aws")
    sources = [known(book, replace(P5, region=region)).source for region in ("eu-west-1", "eu-west-3", "us-east-1")]

    assert elsewhere_note([sources[2], None]) is None
    assert elsewhere_note(sources) == (
        "Some prices are of another region (eu-west-2), because the machine's own has no known list price; prices.file "
        "and prices.live have the right ones."
    )
