"""PURE: the rows of prices.tsv, what a cloud's answer changes in them, and what of that must be looked at first."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from gpuwatch.money.prices.fetch import Wanted

_COLUMNS = ("provider", "region", "type", "on_demand", "spot", "as_of", "source")
# Prices of machines move by percents. A larger step is more often another unit, another system or a slipped digit.
_LARGEST_FACTOR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; prices of an hour in the cloud's currency, None: not sold so, or not known."""

    provider: str
    region: str
    type: str
    on_demand: Decimal | None
    spot: Decimal | None
    as_of: date
    source: str

    @property
    def name(self) -> str:
        """What `--accept` takes."""
        return f"{self.provider}/{self.region}/{self.type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of a row. `old` None: it is new; `new` None: its cloud names it no longer."""

    old: Row | None
    new: Row | None

    @property
    def name(self) -> str:
        """What `--accept` takes."""
        row = self.new or self.old
        return "" if row is None else row.name

    @property
    def doubt(self) -> str | None:
        """Why a person should look at it first."""
        if self.new is None:
            return "is no longer in the catalogue"
        before, now = self.old and self.old.on_demand, self.new.on_demand
        if not before or not now or (before <= now * _LARGEST_FACTOR and now <= before * _LARGEST_FACTOR):
            return None
        return f"was {before:f} and would be {now:f}, more than {_LARGEST_FACTOR} times as much or as little"

    @property
    def text(self) -> str | None:
        """What changes besides the day; None: nothing."""
        if self.doubt is not None:
            return f"{self.name} {self.doubt}"
        if self.old is None and self.new is not None:
            return f"{self.name} is new: {self.new.on_demand:f}"
        if self.old is not None and self.new is not None and self.old.on_demand != self.new.on_demand:
            return f"{self.name} was {self.old.on_demand or '?'} and is {self.new.on_demand:f}"
        return None


def read(text: str) -> list[Row]:
    """The table as rows."""
    return [
        Row(
            provider=row["provider"],
            region=row["region"],
            type=row["type"],
            on_demand=Decimal(row["on_demand"]) if row["on_demand"] else None,
            spot=Decimal(row["spot"]) if row["spot"] else None,
            as_of=date.fromisoformat(row["as_of"]),
            source=row["source"],
        )
        for row in csv.DictReader(text.splitlines(), delimiter="\t")
    ]


def written(rows: Iterable[Row]) -> str:
    """Rows as the table."""
    lines = ["\t".join(_COLUMNS)]
    for row in rows:
        prices = ("" if price is None else f"{price:f}" for price in (row.on_demand, row.spot))
        lines.append("\t".join((row.provider, row.region, row.type, *prices, row.as_of.isoformat(), row.source)))
    return "\n".join(lines) + "\n"


def changes(
    rows: Sequence[Row], provider: str, answer: Mapping[Wanted, Decimal], *, as_of: date, source: str
) -> list[Change]:
    """What the answer of one cloud does to its rows, those that are new last."""
    before = {(row.region, row.type): row for row in rows if row.provider == provider}
    made = []
    for wanted in [*before, *(each for each in answer if each not in before)]:
        region, kind = wanted
        price = None if wanted not in answer else plain(answer[wanted])
        new = Row(provider=provider, region=region, type=kind, on_demand=price, spot=None, as_of=as_of, source=source)
        made.append(Change(old=before.get(wanted), new=None if price is None else new))
    return made


def applied(rows: Sequence[Row], changed: Iterable[Change]) -> list[Row]:
    """The table after these changes: each row at its place, a new one behind the last of its region."""
    by_name = {change.name: change for change in changed}
    places: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        change = by_name.pop(row.name, None)
        kept = row if change is None else change.new
        places.setdefault((row.provider, row.region), []).extend([] if kept is None else [kept])
    for change in by_name.values():
        if change.new is not None:
            places.setdefault((change.new.provider, change.new.region), []).append(change.new)
    return [row for place in places.values() for row in place]


def plain(price: Decimal) -> Decimal:
    """Without the zeros that catalogues write behind it."""
    return Decimal(f"{price.normalize():f}")
