"""prices.file: a YAML file, or a CSV table with the same names as columns.

    prices:
      - {node: rack3-07, price: 4.10, source: depreciation and power}
      - {provider: hosts, instance_type: rtx-box, purchase: 24000, years: 4}
      - {provider: aws, region: us-east-1, instance_type: p5.48xlarge, capacity_type: on_demand, percent_off: 27,
         from: 2026-01-01, until: 2027-01-01, source: savings plan}

Texts are kept as they are written, so 0.1 is exactly a tenth. A mistake is reported with file, line, key and remedy.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import yaml

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.overrides import OwnPrices, OwnRow
from gpuwatch.runtime.bounded_text import text_of
from gpuwatch.runtime.printable import not_utf8

COLUMNS = (
    "provider", "region", "instance_type", "capacity_type", "node",
    "price", "purchase", "years", "currency", "percent_off", "from", "until", "source",
)  # fmt: skip
_CAPACITIES = (*(each.value for each in CapacityType), "any")
_LARGEST_FILE_ROWS = 20_000
_MOST_PROBLEMS = 20
_HOURS_A_YEAR, _SMALLEST = Decimal(8766), Decimal("0.000001")


class PricesError(ValueError):
    """The file of own prices cannot be used; the text has two lines for each mistake."""


def read_prices(path: Path, currency: str) -> OwnPrices:
    """The entries of a file; `currency` is that of a price that names none.

    Raises:
        OSError: the file cannot be read.
        PricesError: with every mistake that was found, up to 20.

    """
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    try:
        text = text_of(path)
    except UnicodeDecodeError as error:
        raise PricesError(f"{path}: {not_utf8(error)}\n    expected: a YAML or CSV file") from error
    problems = _Problems(str(path))
    entries = list(_csv(text, problems) if path.suffix.lower() == ".csv" else _yaml(text, problems))
    rows = [row for line, cells in entries if (row := _row(line, cells, currency, problems)) is not None]
    _refuse_doubles(rows, problems)
    problems.end()
    return OwnPrices(rows=tuple(rows), name=path.name, written=written)


class _Problems:
    """What is wrong with a file."""

    def __init__(self, file: str) -> None:
        """Begin without a mistake in that file."""
        self._file = file
        self._mistakes: list[str] = []

    def add(self, line: int, key: str, wrong: str, right: str) -> None:
        """Add a mistake of the file."""
        named = f"{key}: " if key else ""
        self._mistakes.append(f"{self._file}:{line}: {named}{wrong}\n    expected: {right}")

    def end(self) -> None:
        """Stop where there is any.

        Raises:
            PricesError: there is.

        """
        if self._mistakes:
            raise PricesError("\n".join(self._mistakes[:_MOST_PROBLEMS]))


_Entry = tuple[int, Mapping[str, str]]
_LOOKS_LIKE = "a list under `prices:`, each item a group of " + ", ".join(COLUMNS)


def _yaml(text: str, problems: _Problems) -> Iterator[_Entry]:
    """The items under `prices:` with their lines; every value as the text that was written."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problems.add(mark.line + 1 if mark else 1, "", f"is no YAML: {' '.join(str(error).split())}", _LOOKS_LIKE)
        return
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode) or [name.value for name, _ in root.value] != ["prices"]:
        problems.add(root.start_mark.line + 1, "", "the file does not begin with `prices:` alone", _LOOKS_LIKE)
        return
    items = root.value[0][1]
    if not isinstance(items, yaml.SequenceNode) or len(items.value) > _LARGEST_FILE_ROWS:
        wrong = "is no list" if not isinstance(items, yaml.SequenceNode) else "has too many items"
        problems.add(items.start_mark.line + 1, "prices", wrong, f"{_LOOKS_LIKE}, {_LARGEST_FILE_ROWS} at most")
        return
    for item in items.value:
        line = item.start_mark.line + 1
        if not isinstance(item, yaml.MappingNode):
            problems.add(line, "prices", "an item is no group of keys", _LOOKS_LIKE)
            continue
        cells: dict[str, str] = {}
        for name, value in item.value:
            if not isinstance(name, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
                problems.add(name.start_mark.line + 1, str(name.value), "is no single value", "one plain value")
            elif name.value in cells:
                problems.add(name.start_mark.line + 1, name.value, "is written twice", "one of the two")
            else:
                cells[name.value] = value.value
        yield line, cells


def _csv(text: str, problems: _Problems) -> Iterator[_Entry]:
    """The rows of a table with the line that each ends in."""
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="")
    try:
        for row in reader:
            if "" in row:
                problems.add(reader.line_num, "", "has more cells than there are columns", "one cell for each column")
                continue
            yield reader.line_num, {name: cell.strip() for name, cell in row.items()}
    except csv.Error as error:
        problems.add(reader.line_num, "", f"is no CSV: {error}", "columns named " + ", ".join(COLUMNS))


def _row(line: int, cells: Mapping[str, str], currency: str, problems: _Problems) -> OwnRow | None:
    """The entry; None where something is wrong with it, which is noted."""
    entry = {name: cell for name, cell in cells.items() if cell or name not in COLUMNS}
    wrong = list(_wrong(entry))
    for key, what, right in wrong:
        problems.add(line, key, what, right)
    if wrong:
        return None
    capacity = entry.get("capacity_type", "any")
    percent = entry.get("percent_off")
    return OwnRow(
        line=line,
        provider=entry.get("provider"),
        region=entry.get("region"),
        instance_type=entry.get("instance_type"),
        capacity_type=None if capacity == "any" else CapacityType(capacity),
        node=entry.get("node"),
        price=_price_of(entry),
        percent_off=None if percent is None else Decimal(percent),
        currency=entry.get("currency", currency),
        begins=_moment(entry["from"]) if "from" in entry else None,
        ends=_moment(entry["until"]) if "until" in entry else None,
        source=entry.get("source") or _source_of(entry),
    )


def _price_of(entry: Mapping[str, str]) -> Decimal | None:
    """What an hour costs: the price, or the purchase price over the hours of its years."""
    if "purchase" in entry:
        return (Decimal(entry["purchase"]) / (Decimal(entry["years"]) * _HOURS_A_YEAR)).quantize(_SMALLEST)
    return Decimal(entry["price"]) if "price" in entry else None


def _source_of(entry: Mapping[str, str]) -> str:
    if "purchase" in entry:
        return f"purchase price of {entry['purchase']} over {entry['years']} years"
    return "own price"


def _wrong(entry: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Key, mistake and remedy for everything wrong with an entry."""
    for name, text in entry.items():
        if name not in COLUMNS:
            yield name, f"is no key of a price (its value is {text!r})", f"one of {', '.join(COLUMNS)}"
        elif name in _CELLS and not _CELLS[name].good(text):
            yield name, f"{text!r} is no {_CELLS[name].noun}", _CELLS[name].right
    yield from _misshapen(entry)
    begins, ends = (_moment(entry[name]) if name in entry else None for name in ("from", "until"))
    if begins is not None and ends is not None and ends <= begins:
        yield "until", f"{entry['until']} is not after {entry['from']}", "a later time than from"


def _misshapen(entry: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """What must or must not stand together."""
    given = [name for name in ("price", "purchase", "percent_off") if name in entry]
    if len(given) != 1:
        right = "price: 4.10, or purchase: 24000 with years: 4, or percent_off: 27"
        yield "price", "an entry gives either a price, or a purchase price, or a discount", right
    if ("purchase" in entry) != ("years" in entry):
        yield "years", "a purchase price is spread over years", "purchase: 24000 and years: 4"
    if {"price", "purchase"} & entry.keys() and not ("instance_type" in entry or "node" in entry):
        yield "instance_type", "a price belongs to a machine type or to a node", "such as instance_type: p5.48xlarge"
    for name in ("provider", "region", "instance_type", "capacity_type", "percent_off"):
        if "node" in entry and name in entry:
            yield name, "a node's price names the node alone", "node and price"
    for name in ("capacity_type", "source"):
        if "percent_off" in entry and name not in entry:
            right = _CELLS[name].right if name in _CELLS else "a name, such as savings plan"
            yield name, "a discount says what it is on and where it comes from", right


def _moment(text: str) -> datetime | None:
    """A day at midnight UTC, or a time with its offset; None: it is neither."""
    try:
        moment = datetime.fromisoformat(text)
        if len(text) == len("2026-01-01"):
            return moment.replace(tzinfo=UTC)
        return None if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """What a value has to be."""

    good: Callable[[str], object]
    noun: str
    right: str


_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,12})?").fullmatch
_PERCENT = re.compile(r"(100|[0-9]{1,2})(\.[0-9]{1,6})?").fullmatch
_DAY = _Cell(good=_moment, noun="day and no time", right="2026-01-01 (midnight UTC), or 2026-01-01T08:30:00+08:00")
_CELLS = {
    "price": _Cell(good=_AMOUNT, noun="amount", right="a number of 0 or more, such as 4.10"),
    "purchase": _Cell(good=_AMOUNT, noun="amount", right="a number of 0 or more, such as 24000"),
    "years": _Cell(
        good=lambda text: _AMOUNT(text) and 0 < Decimal(text) <= 100,  # noqa: PLR2004  a slip, such as a year's number
        noun="number of years",
        right="above 0 and at most 100, such as 4",
    ),
    "percent_off": _Cell(
        good=lambda text: _PERCENT(text) and 0 < Decimal(text) <= 100,  # noqa: PLR2004  percent
        noun="discount",
        right="above 0 and at most 100, such as 27",
    ),
    "capacity_type": _Cell(
        good=_CAPACITIES.__contains__, noun="kind of capacity", right=f"one of {', '.join(_CAPACITIES)}"
    ),
    "currency": _Cell(
        good=re.compile(r"[A-Z]{3}").fullmatch, noun="currency", right="three capital letters, such as USD or CNY"
    ),
    "from": _DAY,
    "until": _DAY,
}


def _refuse_doubles(rows: Sequence[OwnRow], problems: _Problems) -> None:
    """Note entries that give the same machines two prices at the same time."""
    seen: dict[tuple[object, ...], list[OwnRow]] = {}
    for row in rows:
        for other in seen.setdefault(row.scope, []):
            apart = (row.ends and other.begins and row.ends <= other.begins) or (
                other.ends and row.begins and other.ends <= row.begins
            )
            if not apart:
                problems.add(row.line, "", f"says the same as line {other.line}, at the same time", "one of the two")
                break
        seen[row.scope].append(row)
