"""What has no price of its own: regions of the settings, and types of the fleet, with what would give them one.

A type without a price is in no sum; one that is priced by another region may cost more than is shown. People should
know both before a month of it is on record, so `gpuwatch config check` says them.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.model.fleet import Node
from gpuwatch.model.money import Price, place_of
from gpuwatch.model.offers import PriceKey, price_key
from gpuwatch.money.prices import catalogue
from gpuwatch.money.prices.price_book import NoPrice
from gpuwatch.money.prices.settings import PriceSettings

_MOST = 5  # kinds in a sentence
Find = Callable[[PriceKey, datetime], Price | NoPrice]


def unpriced_regions(clouds: Mapping[str, CloudSettings], prices: PriceSettings) -> list[str]:
    """A sentence for each cloud with regions that have no list price, if nothing else gives them one."""
    if prices.file is not None:
        return []
    found = []
    for each in clouds.values():
        if each.provider in prices.live.providers or each.provider not in catalogue.PROVIDERS:
            continue
        regions = [region for _, region in each.regions_written if region != "all"]
        without = [region for region in dict.fromkeys(regions) if not _is_priced(each.provider, region)]
        if without:
            found.append(
                f"no list price is known of {each.provider} in {', '.join(without)}: machines there count at the "
                f"nearest region's price, if there is any; {_remedy(each.provider)}"
            )
    return found


def _is_priced(provider: str, region: str) -> bool:
    return any(each.price_per_hour is not None for each in catalogue.offers(provider=provider, region=region))


def unpriced_kinds(nodes: Iterable[Node], find: Find, now: datetime, providers: Mapping[str, str]) -> list[str]:
    """Sentences about types of the fleet without a price, and with that of another region.

    `providers` are those of the clouds, by their names in the settings.
    """
    keys: dict[str, PriceKey] = {}
    for node in nodes:
        key = price_key(node)
        keys.setdefault(key.key, key)
    missing: dict[tuple[str, str], list[str]] = {}
    elsewhere: dict[str, list[str]] = {}
    for key in keys.values():
        price = find(key, now)
        kind, provider = f"{key.instance_type} in {key.region}", providers.get(key.cloud, "")
        if isinstance(price, NoPrice):
            missing.setdefault((price.why, provider), []).append(kind)
        elif place_of(price.source) is not None:
            elsewhere.setdefault(provider, []).append(kind)
    found = [f"no price is known of {_some(kinds)}: {why}" for (why, _), kinds in missing.items()]
    for provider, kinds in elsewhere.items():
        found.append(f"another region's price counts for {_some(kinds)}: {_remedy(provider)}")
    return found


def _remedy(provider: str) -> str:
    return f"prices.live.{provider} asks for them, prices.file has your own (`gpuwatch cost rates` makes it of a bill)"


def _some(kinds: list[str]) -> str:
    more = f" and {len(kinds) - _MOST} more" if len(kinds) > _MOST else ""
    return ", ".join(sorted(kinds)[:_MOST]) + more
