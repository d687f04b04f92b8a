"""The prices of a round: of every machine of a fleet, and of those that may be added to it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from gpuwatch.model.fleet import Fleet
from gpuwatch.model.money import Price, PriceKey, key_of_node, price_key

Ask = Callable[[PriceKey, datetime], Price | None]


def of_fleet(
    ask: Ask, fleet: Fleet, launches: Iterable[tuple[str | None, str | None]], now: datetime
) -> dict[str, Price]:
    """What is known, by `PriceKey.key`, by `key_of_node` for a machine with a price of its own, and by machine type.

    `launches` are the machine types and regions of what may be launched. The price by type is for machines that are
    not there yet: the highest on demand of all regions in question, or none where that of one is not known.
    """
    told: dict[str, Price | None] = {}
    regions: dict[str, set[str | None]] = {}
    for node in fleet.nodes:
        hire = price_key(node)
        key = hire.key
        regions.setdefault(node.instance_type, set()).add(node.region)
        if key not in told:
            told[key] = ask(replace(hire, node_id=None, node_name=None), now)
        mine = ask(hire, now)
        if mine is not told[key] and mine != told[key]:
            told[key_of_node(node.id)] = mine
    everywhere: set[str | None] = set()
    everywhere.update(node.region for node in fleet.nodes)
    everywhere.update(group.region for group in fleet.groups)
    for group in fleet.groups:
        if group.instance_type is not None:
            regions.setdefault(group.instance_type, set()).add(group.region)
    for kind, region in launches:
        if kind is not None:
            regions.setdefault(kind, set()).update({region} if region is not None else everywhere or {None})
    for kind, places in regions.items():
        prices = [ask(PriceKey(instance_type=kind, region=place), now) for place in places]
        known = [price for price in prices if price is not None]
        if len(known) == len(prices):
            told[kind] = max(known, key=lambda price: price.usd_per_hour)
    return {key: price for key, price in told.items() if price is not None}
