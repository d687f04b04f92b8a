"""Which price holds for a machine: the user's own, else the newest of what was fetched and the built-in table.

Nothing is guessed and nothing converted silently: what is not known is unknown with its reason, what is converted says
at which rate, and what stands in for an unknown price says so. The price on demand stands in for another kind of
capacity, and the nearest region's for one that has no list price.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from operator import attrgetter

from gpuwatch.model.fleet import CapacityType, Fleet
from gpuwatch.model.money import Price, in_place_of_region
from gpuwatch.model.offers import PriceKey, key_of_node, price_key
from gpuwatch.money.prices import catalogue, regions
from gpuwatch.money.prices.catalogue import ListPrice
from gpuwatch.money.prices.fetch import Live
from gpuwatch.money.prices.overrides import OwnPrices, OwnRow

Ask = Callable[[PriceKey, datetime], Price | None]
Launch = tuple[str | None, str | None, str | None]  # machine type, region and cloud; None: whatever the template says
_Where = tuple[str, str | None]  # cloud and region
_PRICED_ALIKE = attrgetter("instance_type", "accelerators", "region", "zone", "capacity_type", "cloud")  # of nodes
_LOG = logging.getLogger(__name__)

_IN_PLACE_OF = {
    CapacityType.SPOT: "in place of its spot price, which is not known and is not higher",
    CapacityType.RESERVED: "on demand, in place of what its reservation costs, which is not known",
    CapacityType.DEDICATED_HOST: "on demand, in place of what its host costs, which is not known",
    CapacityType.CAPACITY_BLOCK: "on demand, in place of what its capacity block costs, which is not known",
    CapacityType.PREPAID: "on demand, in place of what its prepaid term costs, which is not known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPrice:
    """Why a price is not known, and what would make it known."""

    why: str


class Book:
    """The prices of one cloud's machines."""

    def __init__(
        self,
        *,
        provider: str,
        region: str | None = None,
        rates: Mapping[str, Decimal] | None = None,
        own: Callable[[], OwnPrices] = OwnPrices,
        live: Live | None = None,
        asked: str | None = None,
    ) -> None:
        """`region` is where machines are launched by default; `own` is read once for each moment.

        `asked` is the name of this cloud in `live`; None: that of the provider.
        """
        self._provider, self._asked = provider, asked or provider
        self._region = region
        self._rates = {"USD": Decimal(1), **(rates or {})}
        self._reread = own
        self._live = live
        self._now: datetime | None = None
        self._own = OwnPrices()
        self._found: dict[str, Price | NoPrice] = {}
        self._reported: set[str] = set()

    def price(self, hire: PriceKey, now: datetime) -> Price | None:
        """What an hour of it costs now; None is not known, and the log says once why."""
        found = self.find(hire, now)
        if isinstance(found, Price):
            return found
        if hire.key not in self._reported:
            self._reported.add(hire.key)
            _LOG.warning("No price for %s: %s", hire.key, found.why)
        return None

    def named_machines(self, now: datetime) -> frozenset[str]:
        """The ids and names of the machines that may have a price of their own."""
        self._read_own_prices(now)
        return self._own.named

    def find(self, hire: PriceKey, now: datetime) -> Price | NoPrice:
        """The price, or why it is not known."""
        self._read_own_prices(now)
        hire = self._spell_names(hire)
        mine = self._own.node_price(hire, now)
        if mine is not None:
            return self._own_price(mine)
        if hire.key not in self._found:
            self._found[hire.key] = self._common(hire, now)
        return self._found[hire.key]

    def _spell_names(self, hire: PriceKey) -> PriceKey:
        """The same with the names that the table and the cloud's own answers use, and the region of launches."""
        region, kind = hire.region or self._region, catalogue.spell_name(self._provider, hire.instance_type)
        if region is not None and self._provider in catalogue.NO_CASE:
            region = region.replace(" ", "").casefold()
        same = (region, kind) == (hire.region, hire.instance_type)
        return hire if same else replace(hire, region=region, instance_type=kind)

    def _read_own_prices(self, now: datetime) -> None:
        """Read the user's own prices, once for each moment."""
        if now != self._now:
            self._now, self._own, self._found = now, self._reread(), {}

    def _common(self, hire: PriceKey, now: datetime) -> Price | NoPrice:
        """The price of any such machine."""
        row = self._own.price(self._provider, hire, now)
        if row is not None:
            return self._own_price(row)
        discounts = self._own.discounts(self._provider, hire, now)
        found = self._list_price(hire)
        if isinstance(found, NoPrice) and hire.capacity_type in _IN_PLACE_OF:
            own = any(each.capacity_type is hire.capacity_type for each in discounts)
            found = self._in_place_of(hire, now, exact=own)
        return found if isinstance(found, NoPrice) else self._discount_price(found, discounts)

    def _in_place_of(self, hire: PriceKey, now: datetime, *, exact: bool) -> Price | NoPrice:
        """The price on demand of a machine that is not had on demand; exact where a discount gives the difference."""
        same = replace(hire, capacity_type=CapacityType.ON_DEMAND)
        row = self._own.price(self._provider, same, now)
        found = self._own_price(row) if row is not None else self._list_price(same)
        if isinstance(found, NoPrice) or exact:
            return found
        return replace(found, source=f"{found.source}; {_IN_PLACE_OF[hire.capacity_type]}", exact=False)

    def _list_price(self, hire: PriceKey) -> Price | NoPrice:
        """What the cloud asks for, from the newest of fetched prices and table."""
        if hire.region is None:
            return NoPrice(why="its region is not known; set cloud.regions")
        fetched = None if self._live is None else self._live.quote(self._asked, hire)
        places = catalogue.places(self._provider, hire.instance_type, hire.capacity_type)
        table = places.get(hire.region)
        if table is not None and (fetched is None or fetched.as_of < table.as_of):
            return self._in_usd(table.per_hour, table.currency, table.as_of, table.source)
        if fetched is not None:
            return self._in_usd(fetched.per_hour, fetched.currency, fetched.as_of, fetched.source)
        if hire.capacity_type is not CapacityType.ON_DEMAND or not places:
            return NoPrice(why="no list price of it is known; name it in prices.file, or set prices.live")
        return self._elsewhere(hire.region, places)

    def _elsewhere(self, region: str, places: Mapping[str, ListPrice]) -> Price | NoPrice:
        """The price of the nearest region, which may be less than is paid here; the dearest bounds it.

        Where nobody knows where the region lies, the dearest one stands in.
        """
        known = {
            place: self._in_usd(each.per_hour, each.currency, each.as_of, each.source)
            for place, each in places.items()
            if place in regions.alike(self._provider, region, places)
        }
        prices = {place: price for place, price in known.items() if isinstance(price, Price)}
        if not prices:
            return next(iter(known.values()))
        dearest = max(prices, key=lambda place: (prices[place].usd_per_hour, place))
        near = regions.nearest(self._provider, region, prices)
        found = prices[near or dearest]
        place = (
            f"{near}, the nearest with a list price" if near else f"{dearest}, the dearest, for its own is not known"
        )
        return replace(
            found,
            source=in_place_of_region(found.source, place, region),
            exact=False,
            most_usd_per_hour=prices[dearest].usd_per_hour,
        )

    def _own_price(self, row: OwnRow) -> Price | NoPrice:
        """The price of an entry of the file."""
        as_of = self._own.written if row.begins is None else row.begins.date()
        assert row.price is not None  # noqa: S101  only prices are looked up by node and type
        return self._in_usd(row.price, row.currency, as_of, f"{row.source}, {self._own.name}:{row.line}")

    def _in_usd(self, per_hour: Decimal, currency: str, as_of: date, source: str) -> Price | NoPrice:
        """An amount in US dollars; the source says at which rate."""
        rate = self._rates.get(currency)
        if rate is None:
            return NoPrice(why=f"its price is in {currency}, and prices.rates has no rate for {currency}")
        if currency == "USD":
            return Price(usd_per_hour=per_hour, as_of=as_of, source=source)
        return Price(
            usd_per_hour=per_hour * rate,
            as_of=as_of,
            source=f"{source}; {currency} {per_hour} at {rate} US dollars",
            currency=currency,
            original_per_hour=per_hour,
            rate=rate,
        )

    def _discount_price(self, price: Price, rows: tuple[OwnRow, ...]) -> Price:
        """After the discounts, one after the other."""
        for row in rows:
            factor = (100 - (row.percent_off or 0)) / Decimal(100)
            original = price.original_per_hour
            most = price.most_usd_per_hour
            price = replace(
                price,
                usd_per_hour=price.usd_per_hour * factor,
                original_per_hour=None if original is None else original * factor,
                most_usd_per_hour=None if most is None else most * factor,
                source=f"{price.source}; less {row.percent_off} % ({row.source}, {self._own.name}:{row.line})",
            )
        return price


class Books:
    """A book for each cloud by its name, in their order. What names no cloud is priced where only one has a price."""

    def __init__(self, books: Mapping[str, Book]) -> None:
        """Take at least one book."""
        self._books = dict(books)

    def price(self, hire: PriceKey, now: datetime) -> Price | None:
        """What an hour of it costs now; None is not known, and the log says once why."""
        book = self._book_of(hire, now)
        return None if book is None else book.price(hire, now)

    def find(self, hire: PriceKey, now: datetime) -> Price | NoPrice:
        """The price, or why it is not known."""
        book = self._book_of(hire, now)
        if book is not None:
            return book.find(hire, now)
        there = ", ".join(self._books)
        return NoPrice(why=f"its cloud {hire.cloud!r} is none of {there}" if hire.cloud else f"it may be in {there}")

    def named_machines(self, now: datetime) -> frozenset[str]:
        """The ids and names of the machines that may have a price of their own."""
        return frozenset().union(*(book.named_machines(now) for book in self._books.values()))

    def _book_of(self, hire: PriceKey, now: datetime) -> Book | None:
        """The book of its cloud."""
        if hire.cloud or len(self._books) == 1:
            return self._books.get(hire.cloud) or (next(iter(self._books.values())) if not hire.cloud else None)
        known = [book for book in self._books.values() if isinstance(book.find(hire, now), Price)]
        return known[0] if len(known) == 1 else None


def of_fleet(
    ask: Ask,
    fleet: Fleet,
    launches: Iterable[Launch],
    now: datetime,
    offers: Iterable[PriceKey] = (),
    *,
    named: Collection[str] | None = None,
) -> dict[str, Price]:
    """What is known, by `PriceKey.key`, by `key_of_node` for a machine with a price of its own, and by machine type.

    `launches` are the machine types, regions and clouds of what may be launched. The price by type is for machines that
    are not there yet: the highest on demand of all regions in question, or none where that of one is not known. The
    prices of `offers` are known by their own keys. `named` are the ids and names of all machines that may have a price
    of their own; None: any may.
    """
    found: dict[str, Price | None] = {}
    places: dict[str, set[_Where]] = {}
    first: dict[str, PriceKey] = {}
    for host, gpus, region, zone, capacity_type, cloud in dict.fromkeys(map(_PRICED_ALIKE, fleet.nodes)):
        kind = f"{host}+{gpus}" if gpus else host  # as Node.kind, which is not made here for each of thousands
        hire = PriceKey(instance_type=kind, region=region, zone=zone, capacity_type=capacity_type, cloud=cloud)
        first.setdefault(hire.key, hire)
    for key, hire in first.items():
        places.setdefault(hire.instance_type, set()).add((hire.cloud, hire.region))
        found[key] = ask(hire, now)
    for node in fleet.nodes if named is None or named else ():
        if named is not None and node.id not in named and node.name not in named:
            continue
        hire = price_key(node)
        mine = ask(hire, now)
        if mine is not found[hire.key] and mine != found[hire.key]:
            found[key_of_node(node.id)] = mine
    everywhere: set[_Where] = {(hire.cloud, hire.region) for hire in first.values()}
    everywhere.update((group.cloud, group.region) for group in fleet.groups)
    for group in fleet.groups:
        if group.instance_type is not None:
            places.setdefault(group.instance_type, set()).add((group.cloud, group.region))
    for kind, region, cloud in launches:
        if kind is not None:
            there = {each for each in everywhere if cloud in (None, each[0])} or {(cloud or "", None)}
            places.setdefault(kind, set()).update({(cloud or "", region)} if region is not None else there)
    for kind, wheres in places.items():
        prices = [ask(PriceKey(instance_type=kind, region=region, cloud=cloud), now) for cloud, region in wheres]
        known = [price for price in prices if price is not None]
        if len(known) == len(prices):
            found[kind] = max(known, key=lambda price: (price.limit_usd_per_hour, price.usd_per_hour))
    found = {**{hire.key: ask(hire, now) for hire in offers}, **found}
    return {key: price for key, price in found.items() if price is not None}
