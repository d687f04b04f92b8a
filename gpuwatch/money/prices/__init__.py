"""What an hour of a machine costs: the built-in table, the user's own prices, and what clouds answer when asked.

`catalogue` reads the table (data/types.tsv is edited by hand, `make prices` renews data/prices.tsv), `overrides_file`
the file of `prices.file`, `fetch` keeps what the providers answer, and `price_book` chooses among them.
"""

from datetime import datetime
from functools import cache

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Price, PriceKey
from gpuwatch.money.prices import catalogue
from gpuwatch.money.prices.price_book import STORAGE_AS_OF, STORAGE_SOURCE, address_usd_per_month, volume_usd_per_month

__all__ = [
    "STORAGE_AS_OF",
    "STORAGE_SOURCE",
    "address_usd_per_month",
    "listed",
    "lookup",
    "volume_usd_per_month",
]


@cache
def lookup(instance_type: str) -> Price | None:
    """The list price of an AWS machine on demand in us-east-1; None where the table does not know it, never a guess."""
    found = catalogue.offer("aws", "us-east-1", instance_type, CapacityType.ON_DEMAND)
    if found is None or found.price_per_hour is None:
        return None
    return Price(usd_per_hour=found.price_per_hour, as_of=found.as_of, source=found.source)


def listed(hire: PriceKey, now: datetime) -> Price | None:
    """The list price of a simulated machine; its clock is not ours."""
    del now
    return lookup(hire.instance_type)
