"""Built-in list prices: exact, dated, sourced, and silent about what they do not know."""

from datetime import date
from decimal import Decimal

import pytest

from gpuwatch import prices
from gpuwatch.model.money import Price


@pytest.mark.parametrize(
    ("instance_type", "usd"),
    [
        ("g5.xlarge", "1.006"),
        ("p3.16xlarge", "24.48"),
        ("p4d.24xlarge", "21.957642"),
        ("p5.48xlarge", "55.04"),
        ("p6-b200.48xlarge", "113.9328"),
    ],
)
def test_a_known_type_has_an_exact_price_with_its_date_and_source(instance_type: str, usd: str) -> None:
    """A price is a Decimal and says as of when and on whose word it holds."""
    price = prices.lookup(instance_type)

    assert price == Price(usd_per_hour=Decimal(usd), as_of=date(2026, 1, 19), source=prices.SOURCE)


def test_an_unknown_type_has_no_price() -> None:
    """None is "not known"; no price is ever guessed from a similar name."""
    assert prices.lookup("p5.49xlarge") is None
    assert prices.lookup("") is None


def test_eight_gpus_cost_no_less_than_one_of_the_same_family() -> None:
    """A slipped digit in the table would break the order within a family."""
    for small, large in [
        ("g4dn.xlarge", "g4dn.metal"),
        ("g5.xlarge", "g5.48xlarge"),
        ("g6.xlarge", "g6.48xlarge"),
        ("g6e.xlarge", "g6e.48xlarge"),
        ("p3.2xlarge", "p3.16xlarge"),
        ("p5.4xlarge", "p5.48xlarge"),
    ]:
        one, eight = prices.lookup(small), prices.lookup(large)

        assert one is not None
        assert eight is not None
        assert 8 * one.usd_per_hour <= eight.usd_per_hour <= 17 * one.usd_per_hour, f"{small} against {large}"
