"""Built-in list prices: exact, dated, sourced, and silent about what they do not know."""

from datetime import date
from decimal import Decimal

import pytest

from gpuwatch.model.money import Price
from gpuwatch.money import storage
from gpuwatch.money.prices import catalogue


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
    price = catalogue.list_price(instance_type)

    assert price == Price(usd_per_hour=Decimal(usd), as_of=date(2026, 7, 20), source=catalogue.SOURCES["karpenter-aws"])


def test_an_unknown_type_has_no_price() -> None:
    """None is "not known"; no price is ever guessed from a similar name."""
    assert catalogue.list_price("p5.49xlarge") is None
    assert catalogue.list_price("") is None


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
        one, eight = catalogue.list_price(small), catalogue.list_price(large)

        assert one is not None
        assert eight is not None
        assert 8 * one.usd_per_hour <= eight.usd_per_hour <= 17 * one.usd_per_hour, f"{small} against {large}"


# Volumes and addresses

GIB = 1024**3
MIB = 1024**2


@pytest.mark.parametrize(
    ("kind", "size_bytes", "iops", "bytes_per_second", "usd"),
    [
        ("gp2", 100 * GIB, 300, None, "10.00"),
        ("gp3", 100 * GIB, 3000, 125 * MIB, "8.00"),
        ("gp3", 100 * GIB, 4000, 225 * MIB, "17.00"),
        ("gp3", 100 * GIB, None, None, "8.00"),
        ("io1", 100 * GIB, 1000, None, "77.50"),
        ("io2", 100 * GIB, 1000, None, "77.50"),
        ("st1", 500 * GIB, None, None, "22.50"),
        ("sc1", 500 * GIB, None, None, "7.50"),
        ("standard", 10 * GIB, None, None, "0.50"),
    ],
)
def test_a_month_of_a_volume(
    kind: str, size_bytes: int, iops: int | None, bytes_per_second: int | None, usd: str
) -> None:
    """Size, and what of IOPS and throughput is not free of charge, make the price; attached or not."""
    price = storage.volume_usd_per_month(kind, size_bytes=size_bytes, iops=iops, bytes_per_second=bytes_per_second)

    assert price == Decimal(usd)


def test_a_volume_that_the_table_does_not_know_has_no_price() -> None:
    """Another kind, and io2 where other prices begin, are not guessed."""
    assert storage.volume_usd_per_month("gp9", size_bytes=GIB) is None
    assert storage.volume_usd_per_month("io2", size_bytes=GIB, iops=32_001) is None


def test_a_month_of_an_address() -> None:
    """Half a cent an hour, used or not."""
    assert storage.address_usd_per_month() == Decimal("3.650")
