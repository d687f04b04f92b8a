"""Prices of several clouds: each machine is priced by its own cloud's list."""

from dataclasses import replace

import pytest

from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.offers import PriceKey, price_key
from gpuwatch.money.prices.open import open_book
from gpuwatch.money.prices.price_book import Book, Books, NoPrice, of_fleet
from gpuwatch.money.prices.settings import PriceSettings
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_node, an_observation

G6 = PriceKey(instance_type="g6.xlarge", region="us-east-1")
TWO = Books({"us": Book(provider="aws"), "az": Book(provider="azure")})


def test_a_machine_is_priced_by_its_own_cloud() -> None:
    """The same type and region in another cloud's list is another machine's."""
    alone = Book(provider="aws").find(G6, NOW)

    assert TWO.find(replace(G6, cloud="us"), NOW) == alone
    assert isinstance(TWO.find(replace(G6, cloud="az"), NOW), NoPrice)
    assert TWO.price(replace(G6, cloud="us"), NOW) == alone
    assert TWO.price(replace(G6, cloud="az"), NOW) is None


@pytest.mark.parametrize(
    ("hire", "why"),
    [
        (replace(G6, cloud="eu"), "its cloud 'eu' is none of us, az"),
        (replace(G6, instance_type="nonesuch"), "it may be in us, az"),
    ],
)
def test_what_no_cloud_prices_says_why(hire: PriceKey, why: str) -> None:
    """Nothing is guessed."""
    assert TWO.find(hire, NOW) == NoPrice(why=why)
    assert TWO.price(hire, NOW) is None


def test_a_launch_that_names_no_cloud_has_the_price_of_the_only_list_that_knows_it() -> None:
    """Two lists that know it are a doubt."""
    assert TWO.find(G6, NOW) == Book(provider="aws").find(G6, NOW)
    twice = Books({"a": Book(provider="aws"), "b": Book(provider="aws")})
    assert isinstance(twice.find(G6, NOW), NoPrice)
    assert Books({"a": Book(provider="aws")}).find(G6, NOW) == Book(provider="aws").find(G6, NOW)


def test_a_round_keeps_the_prices_of_two_clouds_apart() -> None:
    """By keys that name the cloud; machines of a nameless cloud keep the keys that they have always had."""
    books = Books({"a": Book(provider="aws"), "b": Book(provider="azure")})
    nodes = tuple(a_node(f"i-{name}", cloud=name) for name in "ab")
    fleet = Fleet(observed_at=NOW, nodes=nodes)
    launches = [("p5.48xlarge", "us-east-1", "a"), ("p5.48xlarge", None, "a"), ("g6.2xlarge", None, None)]

    known = of_fleet(books.price, fleet, launches, NOW)
    seen = replace(an_observation(*nodes), prices={key: each for key, each in known.items() if "/" in key})

    assert price_key(nodes[0]).key == "a:us-east-1/g6.xlarge/on_demand"
    assert price_key(a_node()).key == "us-east-1/g6.xlarge/on_demand"
    assert [seen.price(node) is None for node in nodes] == [False, True]
    assert "p5.48xlarge" in known
    assert "g6.2xlarge" not in known, "it may come in the cloud that has no price of it"


def test_the_settings_give_each_cloud_its_list() -> None:
    """One cloud without a name has one book."""
    clock, aws = ManualClock(wall=NOW), CloudSettings(regions=("us-east-1",))
    one = open_book(PriceSettings(), clouds={"": aws}, clock=clock, background=False)
    two = open_book(PriceSettings(), clouds={"us": aws, "cn": aws}, clock=clock, background=False)

    assert isinstance(one, Book)
    assert isinstance(two, Books)
    assert two.find(replace(G6, region=None, cloud="cn"), NOW) == one.find(G6, NOW)
