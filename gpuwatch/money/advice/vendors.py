"""Vendors compared by a person's own scores, weighted, and by what gpuwatch knows of prices.

Rules, all of them:

1. A value counts as (value - worst) / (best - worst), cut to 0 to 1. Where the table gives neither, the lowest value of
   the column counts 1 and any other lowest / value: that is for prices.
2. The score is the sum of weight times that, over the sum of the weights: 0 to 1.
3. What is not known counts 0 and is named.
4. Weights are opinions. Each is doubled and left out in turn; where that changes the first place, it is said.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.model.slips import nearest, right_way, semicolons
from gpuwatch.runtime.table import align_rows

WEIGHT, BEST, WORST = "weight", "best", "worst"
PRICE, USEFUL_HOUR = "price", "useful_hour"  # columns that gpuwatch fills in where they are empty
_MOST_ROWS = 1000
_TITLES = "write the titles vendor and criteria, such as vendor,sla,latency_ms,support"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One column: its weight, and the values that count 1 and 0; None for both: the lowest is best."""

    name: str
    weight: float
    best: float | None
    worst: float | None

    def points(self, value: float | None, lowest: float | None) -> float:
        """Rules 1 and 3."""
        if value is None:
            return 0.0
        if self.best is None or self.worst is None:
            return 1.0 if not value else min(1.0, (lowest or 0.0) / value)
        return min(1.0, max(0.0, (value - self.worst) / (self.best - self.worst)))


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorTurn:
    """With that weight of that criterion another vendor is first."""

    criterion: str
    weight: str
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Criteria, and each vendor's values by criterion; None is not known."""

    criteria: tuple[Criterion, ...]
    values: Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A vendor with its score and the points of each criterion."""

    vendor: str
    score: float
    points: Mapping[str, float]
    values: Mapping[str, float | None]
    unknown: tuple[str, ...]


def _rows(text: str, name: str) -> list[tuple[int, list[str]]]:
    try:
        return [(number, row) for number, row in enumerate(csv.reader(io.StringIO(text)), start=1) if any(row)]
    except csv.Error as error:
        raise ValueError(f"{name} cannot be read as CSV: {error}") from error


def read_sheet(text: str, name: str) -> Sheet:
    """A CSV table: criteria as columns, the rows `weight`, `best`, `worst` (optional), then one row a vendor.

    Raises:
        ValueError: with the line, what is wrong with it, and what is expected.

    """
    rows = _rows(text, name)
    if not rows:
        raise ValueError(f"{name} is empty; {_TITLES}")
    if rows[0][1][0].strip() != "vendor" or not rows[0][1][1:]:
        titled = ",".join(rows[0][1])
        raise ValueError(f"{name}:1: {semicolons(rows[0][1]) or f'the titles are {titled!r}'}; {_TITLES}")
    if len(rows) > _MOST_ROWS:
        raise ValueError(f"{name} has {len(rows):,} rows; {_MOST_ROWS:,} are read")
    titles = [title.strip() for title in rows[0][1][1:]]
    if len({*titles, ""}) <= len(titles):
        raise ValueError(f"{name}:1: a title is empty, or stands twice")
    table: dict[str, list[float | None]] = {}
    for number, row in rows[1:]:
        who = row[0].strip()
        where = f"{name}:{number}"
        if not who or who in table:
            raise ValueError(f"{where}: " + (f"{who!r} stands twice" if who else "the first value names the vendor"))
        if len(row) != len(titles) + 1:
            raise ValueError(f"{where}: {who} has {len(row) - 1} values; the titles need {len(titles)}, empty or not")
        table[who] = [_number(cell, f"{where}: {title}") for title, cell in zip(titles, row[1:], strict=True)]
    weights = table.pop(WEIGHT, None)
    best, worst = (table.pop(row, [None] * len(titles)) for row in (BEST, WORST))
    if weights is None:
        near = next((who for who in table if nearest(who, (WEIGHT,))), None)
        found = "" if near is None else f"; the row {near!r} may be meant"
        raise ValueError(f"{name}: no row is named {WEIGHT}{found}; write a weight for each title, such as weight,5,3")
    _check_weights(name, titles, weights)
    if not table:
        raise ValueError(f"{name}: expected a row for each vendor, such as aws,99.99,12,4")
    criteria = tuple(
        Criterion(name=title, weight=weight or 0.0, best=high, worst=low)
        for title, weight, high, low in zip(titles, weights, best, worst, strict=True)
    )
    for each in criteria:
        if (each.best is None) != (each.worst is None) or (each.best is not None and each.best == each.worst):
            raise ValueError(f"{name}: {each.name}: expected two different numbers in the rows best and worst, or none")
    _below_zero(name, criteria, table)
    return Sheet(criteria=criteria, values={who: dict(zip(titles, row, strict=True)) for who, row in table.items()})


def _check_weights(name: str, titles: Sequence[str], weights: Sequence[float | None]) -> None:
    """Refuse weights that say nothing."""
    for title, weight in zip(titles, weights, strict=True):
        if weight is None or weight < 0:
            found = "is empty" if weight is None else f"is {weight:g}"
            raise ValueError(f"{name}: the weight of {title} {found}; write 0 or more")
    if not any(weights):
        raise ValueError(f"{name}: all weights are 0; write one above 0")


def _below_zero(name: str, criteria: Sequence[Criterion], table: Mapping[str, Sequence[float | None]]) -> None:
    """Refuse values for which `lowest / value` means nothing."""
    for number, each in enumerate(criteria):
        for who, row in table.items():
            value = row[number]
            if each.best is None and value is not None and value < 0:
                right = "without the rows best and worst the lowest is best, from 0 on"
                raise ValueError(f"{name}: {each.name} of {who} is {value:g}; {right}")


def _number(cell: str, where: str) -> float | None:
    text = cell.strip().removesuffix("%").strip()
    if not text:
        return None
    try:
        value = float({"yes": "1", "no": "0"}.get(text.lower(), text))
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise ValueError(f"{where} is {cell!r}, which is not a number; {right_way(text, '99.95, yes or no')}")
    return value


def unknown_columns(sheet: Sheet, name: str) -> None:
    """Refuse a column in which no vendor has a value: it would count 0 for all, as a mistyped title does.

    Raises:
        ValueError: names the column, and those that gpuwatch fills in.

    """
    for each in sheet.criteria:
        if each.weight and all(row[each.name] is None for row in sheet.values.values()):
            near = nearest(each.name, (PRICE, USEFUL_HOUR))
            hint = f". The nearest is {near!r}" if near not in (None, each.name) else ""
            raise ValueError(
                f"{name}: no vendor has a value of {each.name!r}; gpuwatch fills in {PRICE} and {USEFUL_HOUR} alone, "
                f"where it knows them{hint}"
            )


def fill_measured(sheet: Sheet, measured: Mapping[str, Mapping[str, float]]) -> Sheet:
    """With what was measured (by criterion and vendor) where the table has the column and leaves it empty."""
    values = {
        vendor: {
            name: value if value is not None else measured.get(name, {}).get(vendor) for name, value in row.items()
        }
        for vendor, row in sheet.values.items()
    }
    return Sheet(criteria=sheet.criteria, values=values)


def rank_vendors(sheet: Sheet) -> tuple[Place, ...]:
    """Return the vendors, the best first."""
    lowest = {
        each.name: min((v for row in sheet.values.values() if (v := row[each.name]) is not None), default=None)
        for each in sheet.criteria
    }
    total = sum(each.weight for each in sheet.criteria)
    made = []
    for vendor, row in sheet.values.items():
        points = {each.name: each.points(row[each.name], lowest[each.name]) for each in sheet.criteria}
        score = sum(each.weight * points[each.name] for each in sheet.criteria) / total
        unknown = tuple(name for name, value in row.items() if value is None)
        made.append(Place(vendor=vendor, score=score, points=points, values=row, unknown=unknown))
    return tuple(sorted(made, key=lambda place: (-place.score, place.vendor)))


def turns(sheet: Sheet) -> Iterator[VendorTurn]:
    """Rule 4: the criterion, what was done to its weight, and who is first then, where that is somebody else."""
    first = rank_vendors(sheet)[0].vendor
    for each in sheet.criteria:
        for word, factor in (("twice the weight", 2.0), ("no weight", 0.0)):
            other = tuple(
                Criterion(name=c.name, weight=c.weight * (factor if c is each else 1.0), best=c.best, worst=c.worst)
                for c in sheet.criteria
            )
            if not any(c.weight for c in other):
                continue
            winner = rank_vendors(Sheet(criteria=other, values=sheet.values))[0].vendor
            if winner != first:
                yield VendorTurn(criterion=each.name, weight=word, first=winner)


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorRow:
    """A vendor: its score, and of each criterion the value (null: not known) and its points."""

    vendor: str
    score: float
    values: dict[str, float | None]
    points: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorsDocument:
    """Vendors, best first; `weights` are parts of 1. `measured` names the columns that gpuwatch filled in."""

    vendors: list[VendorRow]
    weights: dict[str, float]
    measured: list[str]
    turns: list[VendorTurn]


def vendors_document(sheet: Sheet, measured: Sequence[str]) -> VendorsDocument:
    """Return the sheet and its places as a JSON document."""
    total = sum(each.weight for each in sheet.criteria)
    return VendorsDocument(
        vendors=[
            VendorRow(
                vendor=place.vendor,
                score=round(place.score, 4),
                values=dict(place.values),
                points={name: round(points, 4) for name, points in place.points.items()},
            )
            for place in rank_vendors(sheet)
        ],
        weights={each.name: round(each.weight / total, 4) for each in sheet.criteria},
        measured=list(measured),
        turns=list(turns(sheet)),
    )


def as_text(sheet: Sheet, sources: Mapping[str, str]) -> str:
    """A table with points, then what is not known, and how firm the first place is."""
    total = sum(each.weight for each in sheet.criteria)
    heads = ("score", "vendor", *(f"{each.name} {each.weight / total:.0%}" for each in sheet.criteria))
    places = rank_vendors(sheet)
    rows = [heads, *(_row(place) for place in places)]
    lines = align_rows(rows, left={1}, spare={column: column for column in range(2, len(heads))})
    lines += ["", "Each cell: the points from 0 to 1, and the value they are made of."]
    lines += [f"{name}: {source}." for name, source in sources.items()]
    lines += [f"{each.vendor}: not known, so 0 points: {', '.join(each.unknown)}." for each in places if each.unknown]
    found = list(turns(sheet))
    lines += [f"With {each.weight} of {each.criterion}, {each.first} is first." for each in found]
    if not found:
        lines.append(f"{places[0].vendor} stays first with twice the weight, or no weight, of any one criterion.")
    return "\n".join(lines)


def _row(place: Place) -> tuple[str, ...]:
    cells = []
    for name, value in place.values.items():
        cells.append("0.00 (?)" if value is None else f"{place.points[name]:.2f} ({value:g})")
    return (f"{place.score:.3f}", place.vendor, *cells)
