"""All known prices, as text and as JSON: the machine, the price of a GPU for an hour, its age and its source."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from gpuwatch.model.currency import display_currency
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Price, column_usd, day_with_age
from gpuwatch.model.offers import Offer, PriceKey
from gpuwatch.model.slips import meant_name
from gpuwatch.money.prices import catalogue
from gpuwatch.money.prices.fetch import Found
from gpuwatch.money.prices.price_book import Book, NoPrice
from gpuwatch.money.prices.settings import PriceSettings
from gpuwatch.runtime.json_document import fill_document
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows

OLD_DAYS = 180
_GIB = 1024**3
_MORE = "prices.live asks the clouds for others, and prices.file has your own."
_ZONE = re.compile(r"(?<=\d)[a-z]$|-[a-z0-9]$")  # what a zone's name has beyond its region's


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An offer, what is to be paid for it by the settings, and what part of the price on demand that is."""

    offer: Offer
    paid: Price | NoPrice
    ratio: Decimal | None  # of a spot price to the one on demand
    age_days: int

    @property
    def usd_per_gpu_hour(self) -> Decimal | None:
        """What is paid for one whole GPU, the rest of the machine in it."""
        return self.offer.for_each_gpu(self.paid.usd_per_hour) if isinstance(self.paid, Price) else None


def merge_offers(found: Mapping[str, Iterable[Found]]) -> tuple[Offer, ...]:
    """The built-in table with what was fetched of each cloud, where that is newer or not in the table."""
    offers = {_key(each): each for each in catalogue.offers(slices=True)}
    for provider, fetched in found.items():
        for each in fetched:
            machine = catalogue.find_type(provider, each.instance_type)
            if machine is None:
                continue
            offer = catalogue.describe_type(machine, each.place, each.capacity_type, each.quote)
            known = offers.get(_key(offer))
            if known is None or known.as_of <= offer.as_of:
                offers[_key(offer)] = offer
    return tuple(offers.values())


def rows(offers: Sequence[Offer], books: Mapping[str, Book], now: datetime) -> list[Row]:
    """Each offer with what is paid, the cheapest GPU of a cloud and region first."""
    made = []
    for each in offers:
        paid = price_paid(each, books, now)
        made.append(Row(offer=each, paid=paid, ratio=_ratio(each, offers), age_days=(now.date() - each.as_of).days))
    return sorted(made, key=_order)


def price_paid(offer: Offer, books: Mapping[str, Book], now: datetime) -> Price | NoPrice:
    """What is to be paid for an offer by the settings."""
    if not offer.region:
        return NoPrice(why="no price of it is known offline")
    zone = offer.region if offer.capacity_type is CapacityType.SPOT else ""
    kind, region = offer.instance_type, _region(offer)
    hire = PriceKey(instance_type=kind, region=region, zone=zone, capacity_type=offer.capacity_type)
    return books[offer.provider].find(hire, now)


def is_asked_for(offer: Offer, *, provider: str | None, region: str | None, gpu: str | None) -> bool:
    """Whether an offer is of that cloud, region (or a zone of it) and GPU model, where they are given."""
    return (
        provider in (None, offer.provider)
        and region in (None, offer.region, _region(offer))
        and (gpu is None or offer.gpu_model.lower() == gpu.lower())
    )


def unknown(offers: Sequence[Offer], *, provider: str | None, region: str | None, gpu: str | None) -> str | None:
    """What is wrong with a region or a GPU model that no offer has, with those that there are; None: nothing."""
    here = [each for each in offers if provider in (None, each.provider)]
    of = "" if provider is None else f" of {provider}"
    regions = {name for each in here for name in (each.region, _region(each)) if name}
    if region is not None and region not in regions:
        return f"--region: no price{of} in {region!r} is known. {meant_name(region, regions)} {_MORE}"
    models = {each.gpu_model for each in here}
    if gpu is not None and gpu.lower() not in {each.lower() for each in models}:
        return f"--gpu: no machine{of} with a GPU {gpu!r} is known. {meant_name(gpu, models)}"
    return None


_OWN_CURRENCY = 7  # the column of prices in the cloud's own currency
_SPARE = ("CAPACITY", "VCPUS", "MEMORY")  # what a narrow terminal leaves out, the last one first


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """An offer: the machine, its price in `currency`, and what it costs in US dollars by the settings.

    `memory_bytes` is the host's. `ratio_to_on_demand` is of a spot price. `usd_exact` is false where a price of another
    place or time stands in; `usd_unknown` is why there is no price.
    """

    provider: str
    region: str | None
    instance_type: str
    gpu_model: str
    gpu_count: int
    gpu_memory_bytes: int
    vcpus: int
    memory_bytes: int | None
    capacity_type: CapacityType
    price_per_hour: Decimal | None
    price_per_gpu_hour: Decimal | None
    currency: str
    ratio_to_on_demand: float | None
    as_of: date
    age_days: int
    source: str
    usd_per_hour: Decimal | None
    usd_per_gpu_hour: Decimal | None
    usd_source: str | None
    usd_exact: bool | None
    usd_unknown: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesDocument:
    """Offers of machines with GPUs, and what is too old to be relied on."""

    prices: list[PriceRow]
    warnings: list[str]


def prices_document(shown: Sequence[Row], old_days: float = OLD_DAYS) -> PricesDocument:
    """Everything; warned of is what is older than `old_days`."""
    return PricesDocument(prices=[_price_row(row) for row in shown], warnings=warnings(shown, old_days))


def as_text(shown: Sequence[Row], old_days: float = OLD_DAYS) -> str:
    """A table, then the age and the source of what is in it; warned of is what is older than `old_days`."""
    if not shown:
        return "No machine is like that; `gpuwatch prices` without options lists all."
    code = display_currency().code
    paid = (f"{code}/HOUR", f"{code}/GPU-HOUR")
    heads = ("CLOUD", "REGION", "TYPE", "GPUS", "VCPUS", "MEMORY", "CAPACITY", "PER HOUR", *paid)
    rows = [heads, *(_cells(row) for row in shown)]
    if all(row.offer.currency == code for row in shown):
        rows = [(*cells[:_OWN_CURRENCY], *cells[_OWN_CURRENCY + 1 :]) for cells in rows]
    lines = align_rows(rows, left=None, spare={heads.index(head): rank for rank, head in enumerate(_SPARE, start=1)})
    sources = {(row.offer.provider, row.offer.as_of, row.age_days, row.offer.source): None for row in shown}
    lines.append("")
    lines += [
        f"{provider}: prices as of {as_of}, {age} days old: {source}." for provider, as_of, age, source in sources
    ]
    lines += [f"In USD: {how}." for how in {_how(row): None for row in shown} if how]
    unknown = {row.paid.why: None for row in shown if isinstance(row.paid, NoPrice)}
    lines += [f"?: {why}." for why in unknown]
    lines += filter(None, [display_currency().note])
    lines += [f"Warning: {each}" for each in warnings(shown, old_days)]
    return "\n".join(map(legible, lines))


def old_table(places: Iterable[tuple[str, str | None]], prices: PriceSettings, today: date) -> list[str]:
    """A warning for each cloud with built-in prices that are too old by the settings, if nobody asks for newer ones.

    `places` are clouds with the region that counts; None: all of them count.
    """
    found = []
    for provider, region in dict.fromkeys(places):
        as_of = None if provider in prices.live.providers else catalogue.oldest(provider, region)
        if as_of is not None and (today - as_of).total_seconds() > prices.warn_older_than:
            found.append(
                f"the built-in prices of {provider} are of {day_with_age(as_of, today)}; prices.live.{provider} asks "
                "for today's, prices.file has your own (prices.warn_older_than)"
            )
    return found


def warnings(shown: Sequence[Row], old_days: float = OLD_DAYS) -> list[str]:
    """What is too old to be relied on."""
    oldest: dict[str, int] = {}
    for row in shown:
        if row.offer.price_per_hour is not None:
            oldest[row.offer.provider] = max(row.age_days, oldest.get(row.offer.provider, 0))
    return [
        f"prices of {provider} are up to {age} days old; set prices.live.{provider} or give your own in prices.file."
        for provider, age in oldest.items()
        if age > old_days
    ]


def _key(offer: Offer) -> tuple[str, str, str, CapacityType]:
    return (offer.provider, offer.region, offer.instance_type, offer.capacity_type)


def _order(row: Row) -> tuple[object, ...]:
    """By cloud, region, GPU model, number of GPUs, price, kind of capacity."""
    offer = row.offer
    cloud = catalogue.PROVIDERS.index(offer.provider)
    price = offer.price_per_hour
    return (cloud, offer.region, offer.gpu_model, offer.gpu_count, price is None, price or 0, offer.capacity_type)


def _ratio(offer: Offer, offers: Sequence[Offer]) -> Decimal | None:
    """A spot price by the price on demand of the same machine in that region."""
    if offer.capacity_type is not CapacityType.SPOT or offer.price_per_hour is None:
        return None
    for other in offers:
        if other.capacity_type is CapacityType.ON_DEMAND and other.price_per_hour and other.currency == offer.currency:
            same = (other.provider, other.instance_type) == (offer.provider, offer.instance_type)
            if same and _region(offer) == other.region:
                return offer.price_per_hour / other.price_per_hour
    return None


def _how(row: Row) -> str:
    """What makes an amount in US dollars another one than the offer's, if anything does."""
    paid, offer = row.paid, row.offer
    if not isinstance(paid, Price) or paid.source == offer.source:
        return ""
    if paid.source == f"{offer.source}; {paid.currency} {paid.original_per_hour} at {paid.rate} US dollars":
        return f"a {paid.currency} is {paid.rate} US dollars, by prices.rates"
    return f"{offer.instance_type} {offer.capacity_type} in {offer.region}: {paid.source}"


def _region(offer: Offer) -> str:
    """The region of a price, which for spot may be given by zone: us-east-1a, cn-shenzhen-d, ap-guangzhou-6."""
    return _ZONE.sub("", offer.region) if offer.capacity_type is CapacityType.SPOT else offer.region


def _cells(row: Row) -> tuple[str, ...]:
    offer = row.offer
    price = "?" if offer.price_per_hour is None else f"{offer.price_per_hour:f} {offer.currency}"
    per_gpu = row.usd_per_gpu_hour
    ratio = "" if row.ratio is None else f" ({row.ratio:.0%} of on demand)"
    return (
        offer.provider,
        offer.region or "-",
        offer.instance_type,
        f"{offer.gpu_count * offer.gpu_share} x {offer.gpu_model} {offer.gpu_memory_bytes / _GIB:.0f} GiB",
        str(offer.vcpus),
        "?" if offer.memory_bytes is None else f"{offer.memory_bytes // _GIB} GiB",
        f"{offer.capacity_type}{ratio}",
        price,
        column_usd(row.paid.usd_per_hour, 4) if isinstance(row.paid, Price) else "?",
        "?" if per_gpu is None else column_usd(per_gpu, 4),
    )


def _price_row(row: Row) -> PriceRow:
    paid = row.paid
    known = paid if isinstance(paid, Price) else None
    return fill_document(
        PriceRow,
        row.offer,
        region=row.offer.region or None,
        ratio_to_on_demand=None if row.ratio is None else float(round(row.ratio, 4)),
        age_days=row.age_days,
        usd_per_hour=known.usd_per_hour if known else None,
        usd_per_gpu_hour=row.usd_per_gpu_hour,
        usd_source=known.source if known else None,
        usd_exact=known.exact if known else None,
        usd_unknown=paid.why if isinstance(paid, NoPrice) else None,
    )
