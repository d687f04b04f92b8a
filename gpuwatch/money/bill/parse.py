"""PURE: a bill's lines as charges by resource and day: whichever cloud it is of, its columns say it.

AWS Cost and Usage Reports of both namings, FOCUS, Azure's cost exports, Google Cloud's detailed export, Alibaba Cloud's
bills, Cost Explorer's table (a row for each day and a column for each resource, such as `i-0abc($)`), and any CSV with
named columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fnmatch import fnmatchcase

from gpuwatch.money.bill import alibaba, aws, azure, focus, google
from gpuwatch.money.bill.charge import (
    EGRESS,
    UNUSED,
    BillError,
    Charge,
    LocalDay,
    Row,
    as_number,
    as_time,
    day_of,
    name_columns,
)
from gpuwatch.runtime.printable import legible

_PLAIN = frozenset({"", "Usage"})
_WIDE = "($)"
_SHOWN = 6  # columns of an unknown bill


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What the columns of a bill are called that is of no known kind; None: there is no such column."""

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


GENERIC = Columns(node="node", start="start", cost="cost", end="end", currency="currency", hours="hours")
_REQUIRED = ("node", "start", "cost")


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


def charges(
    header: Sequence[str],
    rows: Iterable[Mapping[str, str]],
    local_day: LocalDay,
    own: Columns | None,
    read: Callable[[str], object],
) -> Iterator[Charge]:
    """All lines that cost something. `local_day` gives the day of a moment where days begin as those of the ledger do.

    `read` reads JSON, which some cells hold, or raises a ValueError.

    Raises:
        BillError: the header is of no known kind, or a line cannot be read.

    """
    # With bills of several clouds, columns are named for those that are of no known kind.
    if own is not None and _has(header, own):
        yield from _named_charges(rows, own, local_day)
        return
    reader = _reader(header)
    if reader is not None:
        names = name_columns(header)
        made = (
            each for line, row in enumerate(rows, start=2) for each in reader(Row(row, names, line, read), local_day)
        )
        yield from (each for each in _spread_fees(made) if each.counts)
    elif any(name.endswith(_WIDE) for name in header) and own is None:
        yield from _wide(header, rows)
    elif own is None and _has(header, GENERIC):
        yield from _named_charges(rows, GENERIC, local_day)
    else:
        wanted = ", ".join(str(getattr(own or GENERIC, name)) for name in _REQUIRED)
        raise BillError(
            f"the bill has no columns {wanted}; it has {_some(header)}. Name them by --column, such as node=Instance"
        )


def _reader(header: Sequence[str]) -> Callable[[Row, LocalDay], Iterator[Charge]] | None:
    """What reads a bill with these columns; None: they are of no known cloud."""
    row = Row({}, name_columns(header), 1, str)
    for required, reader in (
        (aws.REQUIRED, aws.aws_charges),
        (focus.REQUIRED, focus.focus_charges),
        (azure.REQUIRED, azure.azure_charges),
        (google.REQUIRED, google.google_charges),
    ):
        if all(row.has(name) for name in required):
            return reader
    return alibaba.alibaba_charges if alibaba.is_alibaba(row) else None


def _spread_fees(lines: Iterable[Charge]) -> Iterator[Charge]:
    """Add to what commitments were credited for what was paid for them, in proportion, where a bill has both apart.

    Fees of a region are of that region, others of all. What was paid where nothing was credited was not used.
    """
    held: list[Charge] = []
    fees: dict[tuple[str, str], Decimal] = {}
    credited: dict[tuple[str, str], Decimal] = {}
    last: Charge | None = None
    for each in lines:
        if not each.commitment_credit:
            if each.fee and each.region is not None:
                last = each
                fees[each.region, each.currency] = fees.get((each.region, each.currency), Decimal(0)) + each.cost
            yield each
            continue
        held.append(each)
        for key in ((each.region or "", each.currency), ("global", each.currency)):
            credited[key] = credited.get(key, Decimal(0)) + each.commitment_credit
    for each in held:
        share = sum(
            (
                fees[key] * each.commitment_credit / credited[key]
                for key in ((each.region or "", each.currency), ("global", each.currency))
                if key in fees
            ),
            Decimal(0),
        )
        yield _with_fee(each, share)
    for key in fees.keys() - credited.keys():
        if last is not None:
            yield _unused_fee(last, fees[key], currency=key[1])


def _with_fee(charge: Charge, share: Decimal) -> Charge:
    return replace(charge, cost=charge.cost + share, amortized=bool(share))


def _unused_fee(fee: Charge, usd: Decimal, currency: str) -> Charge:
    return replace(fee, cost=usd, currency=currency, fee=False, kind=UNUSED)


def _some(header: Sequence[str]) -> str:
    """The first columns of a file, to be recognised by."""
    names = [name for name in header if name]
    return ", ".join(legible(name, 40) for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "") or "none"


def _has(header: Sequence[str], columns: Columns) -> bool:
    return all(getattr(columns, name) in header for name in _REQUIRED)


def _named_charges(rows: Iterable[Mapping[str, str]], columns: Columns, local_day: LocalDay) -> Iterator[Charge]:
    """The lines of a bill with named columns."""
    for number, row in enumerate(rows, start=2):
        charge = _charge(row, columns, local_day, number)
        if charge is not None:
            yield charge


def _charge(row: Mapping[str, str], columns: Columns, local_day: LocalDay, line: int) -> Charge | None:
    """One line; None where it is of no resource or of nothing."""
    resource = (row.get(columns.node) or "").strip().rpartition("/")[2]
    cost = as_number(row.get(columns.cost) or "", columns.cost, line)
    usage, hours = _cell(row, columns.usage), _cell(row, columns.hours)
    item = _cell(row, columns.item)
    egress = any(fnmatchcase(item, pattern) for pattern in columns.egress)
    kind = EGRESS if egress else aws.kind_of_usage(usage)
    # Clouds bill traffic also without naming whose it is.
    if not (resource or kind == EGRESS) or not (cost or hours):
        return None
    begin, end = as_time(row.get(columns.start) or "", columns.start, line), _cell(row, columns.end)
    until = as_time(end, columns.end or "", line) if end else None
    dated = len(_cell(row, columns.start)) <= len("2026-03-01")
    return Charge(
        resource=resource,
        day=day_of(begin, until, local_day, line, dated=dated),
        cost=cost,
        currency=_cell(row, columns.currency) or "USD",
        machine=not egress and (not usage or aws.is_machine_time(usage)),
        hours=as_number(hours, columns.hours or "", line) if hours else None,
        plain=_cell(row, columns.line) in _PLAIN,
        kind=kind,
    )


def _wide(header: Sequence[str], rows: Iterable[Mapping[str, str]]) -> Iterator[Charge]:
    """Cost Explorer's table: days down, resources across."""
    first, resources = header[0], [name for name in header[1:] if name.endswith(_WIDE) and "total" not in name.lower()]
    for line, row in enumerate(rows, start=2):
        if "total" in (row.get(first) or "").lower():
            continue
        day = as_time(row.get(first) or "", first, line).date()
        for name in resources:
            cost = as_number(row.get(name) or "0", name, line)
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
