"""PURE: one line of a bill, of any cloud, and its cells as they are written: numbers, times, maps.

A line's cost is what its hour costs in the end (amortized): an hour that a commitment covers at the commitment's rate,
not at the zero, or at the list price, that the bill also has for it. What is paid for a commitment as such is a fee,
and in no sum: the hours that it covers carry it, and what no hour used of it is UNUSED.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from gpuwatch.model.duration import in_calendar
from gpuwatch.model.slips import is_amount

EGRESS, OTHER = "egress", "other"
UNUSED = "unused commitments"
TAXES, CREDITS, REFUNDS, CORRECTIONS, DISCOUNTS = "taxes", "credits", "refunds", "corrections", "discounts"
KINDS = (
    EGRESS, "snapshots", "disks", "traffic", "addresses",
    UNUSED, DISCOUNTS, CREDITS, REFUNDS, CORRECTIONS, TAXES, OTHER,
)  # fmt: skip
# Of these, people want to know also where no resource is named.
_WITHOUT_RESOURCE = frozenset({EGRESS, UNUSED, TAXES, CREDITS, REFUNDS, CORRECTIONS, DISCOUNTS})
_NULLS = frozenset({"null", "none", "n/a", "nan", "<na>", "\\n"})
HOUR, LONGEST = timedelta(hours=1), timedelta(hours=25)
LocalDay = Callable[[datetime], date]


class BillError(Exception):
    """The bill cannot be read; the sentence names the line and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One line: a resource's cost on a day. `machine` is whether it is for a machine's time; None: not known.

    `committed`: a commitment covers its hours. `amortized` is False where one does, and the bill does not say at what
    rate. `fee`: it is paid for a commitment. `list_cost` is the same at the public price on demand.
    """

    resource: str
    day: date
    cost: Decimal
    currency: str
    machine: bool | None
    hours: Decimal | None
    plain: bool  # no commitment, discount, credit, tax or refund
    kind: str = OTHER  # of what is for no machine's time, one of KINDS
    list_cost: Decimal | None = None
    committed: bool = False
    amortized: bool = True
    fee: bool = False
    region: str | None = None
    instance_type: str | None = None
    spot: bool = False
    rated: bool = True  # whether its cost and hours may make a rate of its type
    commitment_credit: Decimal = Decimal(0)  # by which fees that stand elsewhere in the bill have covered it

    @property
    def counts(self) -> bool:
        """Whether it is of a resource, or of a kind that people ask for also without one."""
        return bool(self.resource) or self.fee or self.kind in _WITHOUT_RESOURCE


def fold_name(name: str) -> str:
    """A column's name without case and signs: `lineItem/ResourceId` and `line_item_resource_id` are one."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


class Row(NamedTuple):
    """One line of a bill, and what its columns are called in this file, by their folded names.

    `read` reads the JSON that a cell may hold, or raises a ValueError.
    """

    cells: Mapping[str, str]
    names: Mapping[str, str]
    line: int
    read: Callable[[str], object]

    def text(self, *names: str) -> str:
        """The first of these columns that holds something; "" where none does."""
        for name in names:
            value = (self.cells.get(self.names.get(name, name)) or "").strip()
            if value and value.casefold() not in _NULLS:
                return value
        return ""

    def has(self, *names: str) -> bool:
        """Whether the bill has one of these columns."""
        return any(name in self.names for name in names)

    def number(self, *names: str) -> Decimal | None:
        """A number; None: the cell is empty.

        Raises:
            BillError: what is there is no number.

        """
        for name in names:
            value = self.text(name)
            if value:
                return as_number(value, self.names.get(name, name), self.line)
        return None

    def amount(self, *names: str) -> Decimal:
        """A number; 0 where the cell is empty."""
        found = self.number(*names)
        return Decimal(0) if found is None else found

    def time(self, *names: str, zone: tzinfo = UTC) -> datetime:
        """A moment; without an offset it is of `zone`.

        Raises:
            BillError: it is not one, or the cell is empty.

        """
        column = next((self.names[name] for name in names if name in self.names), names[0])
        return as_time(self.text(*names), column, self.line, zone)

    def json(self, name: str) -> object:
        """What a column holds as JSON; None: nothing, or something else."""
        with suppress(ValueError):
            return self.read(self.text(name) or "null")
        return None

    def entries(self, name: str) -> Mapping[str, str]:
        """A column that holds a map, or a list of keys and values, as JSON; its keys are folded."""
        found = self.json(name)
        if isinstance(found, list):
            found = {str(each.get("key")): each.get("value") for each in found if isinstance(each, dict)}
        if not isinstance(found, dict):
            return {}
        return {fold_name(str(key)): str(value) for key, value in found.items() if value is not None}


def name_columns(header: Iterable[str]) -> dict[str, str]:
    """What the columns are called in this file, by their folded names; of two that are alike, the first."""
    found: dict[str, str] = {}
    for name in header:
        found.setdefault(fold_name(name), name)
    return found


def as_number(text: str, column: str, line: int) -> Decimal:
    """A number as bills write it.

    Raises:
        BillError: it is not one.

    """
    try:
        number = Decimal(text.strip().replace(",", "").removeprefix("$") or "0")
    except InvalidOperation:
        raise BillError(f"line {line}: {column} is {text!r}, which is no number") from None
    if not is_amount(number):
        raise BillError(f"line {line}: {column} is {text!r}, which is no amount")
    return number


def as_time(text: str, column: str, line: int, zone: tzinfo = UTC) -> datetime:
    """A moment as bills write it; without an offset it is of `zone`.

    Raises:
        BillError: it is not one.

    """
    at: datetime | None = None
    written = text.strip().removesuffix(" UTC")
    for read in (datetime.fromisoformat, _american_day):
        with suppress(ValueError):
            at = read(written)
            break
    if at is None or not in_calendar(at):
        raise BillError(f"line {line}: {column} is {text!r}, which is no time such as 2026-03-01T00:00:00Z")
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def _american_day(text: str) -> datetime:
    """A day as Azure writes it: 10/31/2026."""
    return datetime.strptime(text, "%m/%d/%Y")  # noqa: DTZ007  its zone is the caller's


def day_of(begin: datetime, end: datetime | None, local_day: LocalDay, line: int, *, dated: bool) -> date:
    """The day of a machine's line: of an hour by its moment, of a longer one (or one that is `dated`) by its date.

    Raises:
        BillError: it is of more than a day.

    """
    if dated or end is None:
        return begin.date()
    length = end - begin
    if length > LONGEST:
        raise BillError(f"line {line}: it is of more than a day ({begin} to {end}); export the bill by hour or by day")
    return local_day(begin) if length <= HOUR else begin.date()
