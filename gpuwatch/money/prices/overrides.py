"""The user's own prices, which come before all others: what an entry says, and which one holds for a machine."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cached_property

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.offers import PriceKey
from gpuwatch.money.prices.catalogue import NO_CASE

_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRow:
    """One entry: a price of an hour, or a discount in percent, for what it names; what it leaves open is any."""

    line: int
    provider: str | None
    region: str | None
    instance_type: str | None  # may be a pattern such as p5.*
    capacity_type: CapacityType | None
    node: str | None
    price: Decimal | None
    percent_off: Decimal | None
    currency: str
    begins: datetime | None
    ends: datetime | None
    source: str

    def holds(self, now: datetime) -> bool:
        """Whether it is valid now: from its first moment until just before its last."""
        return (self.begins is None or self.begins <= now) and (self.ends is None or now < self.ends)

    def fits(self, provider: str, hire: PriceKey) -> bool:
        """Whether it is about such a machine, whichever it is."""
        alike = str.casefold if provider in NO_CASE else str
        return (
            self.node is None
            and self.provider in (None, provider)
            and (self.region is None or alike(self.region) == alike(hire.region or ""))
            and self.capacity_type in (None, hire.capacity_type)
            and (
                self.instance_type is None
                or any(fnmatchcase(alike(each), alike(self.instance_type)) for each in _names_of(hire))
            )
        )

    @property
    def weight(self) -> tuple[int, ...]:
        """How closely it names a machine, attached GPUs first; of two that are equally close, the later line holds."""
        exact = self.instance_type is not None and not _PATTERN.search(self.instance_type)
        attached = self.instance_type is not None and "+" in self.instance_type
        named = (self.instance_type, self.region, self.capacity_type, self.provider)
        return (attached, exact, *(each is not None for each in named), self.line)

    @property
    def scope(self) -> tuple[object, ...]:
        """What two entries must not have in common at the same time."""
        named = (self.provider, self.region, self.instance_type, self.capacity_type, self.node)
        return (*named, self.source if self.percent_off is not None else None)


def _names_of(hire: PriceKey) -> tuple[str, ...]:
    """What an entry may call a machine's type: as it is, and without the GPUs attached to it."""
    host, attached, _ = hire.instance_type.partition("+")
    return (hire.instance_type, host) if attached else (host,)


@dataclass(frozen=True, kw_only=True)
class OwnPrices:
    """All entries of a file, its name, and the day on which it was written."""

    rows: tuple[OwnRow, ...] = ()
    name: str = ""
    written: date = date.min

    def node_price(self, hire: PriceKey, now: datetime) -> OwnRow | None:
        """The price that the file gives to that machine by its id or name."""
        named = [*self._by_node.get(hire.node_id, ()), *self._by_node.get(hire.node_name, ())]
        return self._closest(row for row in named if row.holds(now))

    def price(self, provider: str, hire: PriceKey, now: datetime) -> OwnRow | None:
        """The price that names such a machine most closely; None: the file gives none now."""
        return self._closest(
            row for row in self.rows if row.price is not None and row.fits(provider, hire) and row.holds(now)
        )

    def discounts(self, provider: str, hire: PriceKey, now: datetime) -> tuple[OwnRow, ...]:
        """The discounts on such a machine: of each source the closest one, in the order of the file."""
        by_source: dict[str, list[OwnRow]] = {}
        for row in self.rows:
            if row.percent_off is not None and row.fits(provider, hire) and row.holds(now):
                by_source.setdefault(row.source, []).append(row)
        closest = (max(rows, key=lambda row: row.weight) for rows in by_source.values())
        return tuple(sorted(closest, key=lambda row: row.line))

    @cached_property
    def named(self) -> frozenset[str]:
        """The ids and names of the machines that have entries of their own."""
        return frozenset(row.node for row in self.rows if row.node is not None)

    @cached_property
    def _by_node(self) -> dict[str | None, list[OwnRow]]:
        """A fleet has thousands of nodes, and each is asked about in each round."""
        found: dict[str | None, list[OwnRow]] = {}
        for row in self.rows:
            if row.node is not None:
                found.setdefault(row.node, []).append(row)
        return found

    @staticmethod
    def _closest(rows: Iterable[OwnRow]) -> OwnRow | None:
        return max(rows, key=lambda row: row.weight, default=None)
