"""Own prices in, the price of an hour out: what a reader of docs/money.md takes for the first price that matches."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Price
from gpuwatch.model.offers import PriceKey
from gpuwatch.money.prices.open import open_own
from gpuwatch.money.prices.price_book import Book
from gpuwatch.money.prices.settings import PriceSettings

OWN = """
prices:
  - {instance_type: "p4d.*", price: 20, source: a pattern}
  - {instance_type: p4d.24xlarge, price: 18, source: a contract}
  - {instance_type: p4d.24xlarge, region: us-west-2, price: 17, source: a contract in the west}
  - {node: i-mine, price: 1.5, source: a gift}
  - {instance_type: dgx-h100, price: 14.20, until: 2026-07-01, source: depreciation}
  - {instance_type: dgx-h100, price: 12, from: 2026-07-01, until: 2026-08-01, source: a summer}
  - {instance_type: dgx-eur, price: 10, currency: EUR, source: in euros}
  - {instance_type: dgx-cny, price: 10, currency: CNY, source: in yuan}
  - {provider: aws, instance_type: "p*", capacity_type: on_demand, percent_off: 10, source: savings plan}
  - {provider: aws, instance_type: "p5.*", capacity_type: on_demand, percent_off: 27, source: savings plan}
  - {provider: aws, capacity_type: any, percent_off: 8, source: EDP}
"""


@pytest.mark.parametrize(
    ("name", "region", "node", "at", "expected"),
    [
        ("p4d.24xlarge", "us-east-1", None, "2026-03-02", "18"),  # an exact type, no discount on an own price
        ("p4d.24xlarge", "us-west-2", None, "2026-03-02", "17"),  # a region
        ("p4d.unheard", "us-west-2", None, "2026-03-02", "20"),  # the pattern
        ("p4d.24xlarge", "us-west-2", "i-mine", "2026-03-02", "1.5"),  # that machine
        ("dgx-h100", "us-east-1", None, "2026-06-30", "14.20"),
        ("dgx-h100", "us-east-1", None, "2026-07-01", "12"),  # from its first moment
        ("dgx-h100", "us-east-1", None, "2026-08-01", None),  # until is the first moment after
        ("dgx-eur", "us-east-1", None, "2026-03-02", "10.80"),
        ("dgx-cny", "us-east-1", None, "2026-03-02", None),  # no rate
        ("p5.48xlarge", "us-east-1", None, "2026-03-02", "36.964864"),  # 55.04 x 0.73 x 0.92
        ("p3.2xlarge", "us-east-1", None, "2026-03-02", "2.533680"),  # 3.06 x 0.90 x 0.92
        ("g6.xlarge", "us-east-1", None, "2026-03-02", "0.740416"),  # 0.8048 x 0.92
    ],
)
def test_the_first_price_that_matches_is_taken(
    tmp_path: Path, name: str, region: str, node: str | None, at: str, expected: str | None
) -> None:
    """Own prices by machine, by type, by pattern; else the list less discounts."""
    file = tmp_path / "prices.yaml"
    file.write_text(OWN, encoding="utf-8")
    settings = PriceSettings(file=str(file), rates={"EUR": Decimal("1.08")})
    book = Book(provider="aws", rates=settings.rates, own=open_own(settings))
    hire = PriceKey(instance_type=name, region=region, capacity_type=CapacityType.ON_DEMAND)
    hire = replace(hire, node_id=node) if node else hire
    found = book.find(hire, datetime.fromisoformat(f"{at}T00:00:00+00:00"))

    assert (found.usd_per_hour if isinstance(found, Price) else None) == (expected and Decimal(expected))
