"""PURE: a bill's lines as charges by resource and day: AWS Cost and Usage Reports, Cost Explorer, any CSV.

Columns by AWS: docs.aws.amazon.com/cur, "Line item details" and "Column dictionary" (CUR 2.0). Cost Explorer's export
has a row for each day and a column for each resource, such as `i-0abc($)`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase

from gpuwatch.model.duration import in_calendar
from gpuwatch.model.slips import is_amount
from gpuwatch.runtime.printable import legible

_MACHINE_TIME = ("BoxUsage", "SpotUsage", "DedicatedUsage", "HostBoxUsage", "Reservation:")
EGRESS, OTHER = "egress", "other"
# Usage types of AWS that are for no machine's time, after the code of the region: what people call them. Egress is what
# leaves a region, for the Internet, another region or Direct Connect; other traffic stays in it, or comes in.
_KINDS = (
    ("Out-Bytes", EGRESS),
    ("Out-ABytes", EGRESS),
    ("Out-OBytes", EGRESS),
    ("DataXfer-Out", EGRESS),
    ("SnapshotUsage", "snapshots"),
    ("EBS:Volume", "disks"),
    ("DataTransfer", "traffic"),
    ("-Bytes", "traffic"),
    ("ElasticIP", "addresses"),
    ("PublicIPv4", "addresses"),
)
KINDS = (*dict.fromkeys(kind for _, kind in _KINDS), OTHER)
_PLAIN = frozenset({"", "Usage"})
_HOUR = timedelta(hours=1)
_LONGEST = timedelta(hours=25)
_WIDE = "($)"
_SHOWN = 6  # columns of an unknown bill


class BillError(Exception):
    """The bill cannot be read; the sentence names the line and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What the columns are called; None: there is no such column."""

    node: str
    start: str
    cost: str
    end: str | None = None
    currency: str | None = None
    usage: str | None = None  # AWS's usage type: separates machine time from the rest
    hours: str | None = None
    line: str | None = None  # AWS's line item type
    item: str | None = None  # what a line is for, in a cloud's own words
    egress: tuple[str, ...] = ()  # patterns of the items that are egress


LEGACY_CUR = Columns(
    node="lineItem/ResourceId",
    start="lineItem/UsageStartDate",
    cost="lineItem/UnblendedCost",
    end="lineItem/UsageEndDate",
    currency="lineItem/CurrencyCode",
    usage="lineItem/UsageType",
    hours="lineItem/UsageAmount",
    line="lineItem/LineItemType",
)
CUR_2 = Columns(
    node="line_item_resource_id",
    start="line_item_usage_start_date",
    cost="line_item_unblended_cost",
    end="line_item_usage_end_date",
    currency="line_item_currency_code",
    usage="line_item_usage_type",
    hours="line_item_usage_amount",
    line="line_item_line_item_type",
)
GENERIC = Columns(node="node", start="start", cost="cost", end="end", currency="currency", hours="hours")
_REQUIRED = ("node", "start", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One line: a resource's cost on a day. `machine` is whether it is for a machine's time; None: not known."""

    resource: str
    day: date
    cost: Decimal
    currency: str
    machine: bool | None
    hours: Decimal | None
    plain: bool  # no commitment, discount, credit, tax or refund
    kind: str = OTHER  # of what is for no machine's time, one of KINDS


def map_columns(mappings: Sequence[str], egress: Sequence[str] = ()) -> Columns:
    """The generic columns with other names, as `node=Instance`; `egress` are patterns of the items that are egress.

    Raises:
        BillError: no such column, or patterns without a column of items.

    """
    names = tuple(field.name for field in fields(Columns) if field.name != "egress")
    given = dict(each.partition("=")[::2] for each in mappings)
    for name, column in given.items():
        if name not in names or not column:
            written = next(each for each in mappings if each.partition("=")[0] == name)
            known = ", ".join(names)
            raise BillError(f"--column {written!r} maps no column; write for example node=Instance, of {known}")
    if egress and "item" not in given:
        raise BillError("--egress says which items are egress; name their column by --column, such as item=meterName")
    base = {name: getattr(GENERIC, name) for name in names}
    return Columns(**{**base, **given}, egress=tuple(egress))


def _some(header: Sequence[str]) -> str:
    """The first columns of a file, to be recognised by."""
    names = [name for name in header if name]
    return ", ".join(legible(name, 40) for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "") or "none"


def charges(
    header: Sequence[str], rows: Iterable[Mapping[str, str]], local_day: Callable[[datetime], date], own: Columns | None
) -> Iterator[Charge]:
    """All lines that cost something. `local_day` gives the day of a moment where days begin as those of the ledger do.

    Raises:
        BillError: the header is of no known kind, or a line cannot be read.

    """
    if own is None and any(name.endswith(_WIDE) for name in header):
        yield from _wide(header, rows)
        return
    # With bills of several clouds, columns are named for those that are not AWS's.
    kinds = (LEGACY_CUR, CUR_2, GENERIC) if own is None else (own, LEGACY_CUR, CUR_2)
    columns = next((known for known in kinds if _has(header, known)), None)
    if columns is None:
        wanted = ", ".join(str(getattr(own or GENERIC, name)) for name in _REQUIRED)
        raise BillError(
            f"the bill has no columns {wanted}; it has {_some(header)}. Name them by --column, such as node=Instance"
        )
    for number, row in enumerate(rows, start=2):
        charge = _charge(row, columns, local_day, number)
        if charge is not None:
            yield charge


def _has(header: Sequence[str], columns: Columns) -> bool:
    return all(getattr(columns, name) in header for name in _REQUIRED)


def _charge(
    row: Mapping[str, str], columns: Columns, local_day: Callable[[datetime], date], line: int
) -> Charge | None:
    """One line; None where it is of no resource or of nothing."""
    resource = (row.get(columns.node) or "").strip().rpartition("/")[2]
    cost = _number(row.get(columns.cost), columns.cost, line)
    usage, hours = _cell(row, columns.usage), _cell(row, columns.hours)
    item = _cell(row, columns.item)
    egress = any(fnmatchcase(item, pattern) for pattern in columns.egress)
    kind = EGRESS if egress else next((kind for word, kind in _KINDS if word in usage), OTHER)
    # Clouds bill traffic also without naming whose it is.
    if not (resource or kind == EGRESS) or not (cost or hours):
        return None
    return Charge(
        resource=resource,
        day=_day(row, columns, local_day, line),
        cost=cost,
        currency=_cell(row, columns.currency) or "USD",
        machine=not egress and (not usage or any(word in usage for word in _MACHINE_TIME)),
        hours=_number(hours, columns.hours or "", line) if hours else None,
        plain=_cell(row, columns.line) in _PLAIN,
        kind=kind,
    )


def _day(row: Mapping[str, str], columns: Columns, local_day: Callable[[datetime], date], line: int) -> date:
    """The day of a line of an hour by its moment, of a longer one by its date."""
    begin = _time(row.get(columns.start), columns.start, line)
    end = _cell(row, columns.end)
    if len(_cell(row, columns.start)) <= len("2026-03-01") or not end:
        return begin.date()
    length = _time(end, columns.end or "", line) - begin
    if length > _LONGEST:
        raise BillError(f"line {line}: it is of more than a day ({begin} to {end}); export the bill by hour or by day")
    return local_day(begin) if length <= _HOUR else begin.date()


def _wide(header: Sequence[str], rows: Iterable[Mapping[str, str]]) -> Iterator[Charge]:
    """Cost Explorer's table: days down, resources across."""
    first, resources = header[0], [name for name in header[1:] if name.endswith(_WIDE) and "total" not in name.lower()]
    for line, row in enumerate(rows, start=2):
        if "total" in (row.get(first) or "").lower():
            continue
        day = _time(row.get(first), first, line).date()
        for name in resources:
            cost = _number(row.get(name) or "0", name, line)
            if cost:
                yield Charge(
                    resource=name.removesuffix(_WIDE).strip().rpartition("/")[2],
                    day=day,
                    cost=cost,
                    currency="USD",
                    machine=None,
                    hours=None,
                    plain=True,
                )


def _cell(row: Mapping[str, str], column: str | None) -> str:
    return "" if column is None else (row.get(column) or "").strip()


def _number(text: str | None, column: str, line: int) -> Decimal:
    try:
        number = Decimal((text or "0").strip().replace(",", "").removeprefix("$") or "0")
    except InvalidOperation:
        raise BillError(f"line {line}: {column} is {text!r}, which is no number") from None
    if not is_amount(number):
        raise BillError(f"line {line}: {column} is {text!r}, which is no amount")
    return number


def _time(text: str | None, column: str, line: int) -> datetime:
    at: datetime | None = None
    with suppress(ValueError):
        at = datetime.fromisoformat((text or "").strip())
    if at is None or not in_calendar(at):
        raise BillError(f"line {line}: {column} is {text!r}, which is no time such as 2026-03-01T00:00:00Z")
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
