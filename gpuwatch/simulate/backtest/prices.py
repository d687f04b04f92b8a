"""What the nodes of a history are priced as: list prices, each with its date and source; none is guessed."""

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal

from gpuwatch.model.money import Price
from gpuwatch.money.prices.catalogue import list_price
from gpuwatch.simulate.backtest.gaps import History


def prices_of(history: History) -> dict[str, Price | None]:
    """The list price of each machine type in a history; None where it is not known."""
    return {kind: list_price(kind) for kind in sorted({life.instance_type for life in history.lives})}


def node_prices_of(history: History) -> dict[str, Price] | None:
    """Each node's price; None where that of one is not known."""
    listed = prices_of(history)
    known = {kind: price for kind, price in listed.items() if price is not None}
    return {life.name: known[life.instance_type] for life in history.lives} if len(known) == len(listed) else None


def usd(priced: Mapping[str, Price] | None, seconds: Mapping[str, float]) -> Decimal | None:
    """What nodes cost for so many seconds each, to the cent; None where a price is not known."""
    if priced is None:
        return None
    rented = dict.fromkeys((price.usd_per_hour for price in priced.values()), 0.0)
    for name, price in priced.items():
        rented[price.usd_per_hour] += seconds.get(name, 0.0)
    total = sum((price * Decimal(f"{each / 3600:.6f}") for price, each in rented.items()), Decimal(0))
    return total.quantize(Decimal("0.01"), rounding=ROUND_HALF_EVEN)
