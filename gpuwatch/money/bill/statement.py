"""`gpuwatch cost reconcile`: a bill's file beside the ledger."""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Total
from gpuwatch.money.bill.parse import BillError, Columns, charges
from gpuwatch.money.bill.reconcile import Bill, Line, Reconciliation, gathered, reconciled
from gpuwatch.money.report.cost import aligned, dollars
from gpuwatch.runtime.printable import legible

_CENT = Fraction(1, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A bill's file beside the ledger, over the days of the bill."""

    first: date
    last: date
    zone: ZoneInfo
    bill: Bill
    found: Reconciliation


def compared(
    spend: SpendBook, path: Path, zone: ZoneInfo, rates: Mapping[str, Decimal], own: Columns | None = None
) -> Compared:
    """Read the bill once, a line at a time, then the ledger's rows of its days.

    Raises:
        BillError: the file cannot be read as a bill.

    """
    known = spend.nodes()
    calendar = Calendar(zone)
    with _opened(path) as lines:
        reader = csv.DictReader(lines)
        told = charges(reader.fieldnames or (), reader, lambda at: at.astimezone(zone).date(), own)
        bill = gathered(told, known, rates)
    if not bill.lines:
        raise BillError(f"{path} holds no line of a machine's time; is it the right export?")
    days = [day for _, day in bill.lines]
    first, last = min(days), max(days)
    since, until = calendar.midnight(first), calendar.midnight(last + timedelta(days=1))
    metered: dict[Line, Total] = {}
    for row in spend.rows(since, until, by_node=True, by_time=True):
        day = calendar.local((row.begin or 0) * 1000).date()
        metered.setdefault((row.node_id or "", day), Total()).add(row)
    began = spend.began()
    begun = None if began is None else calendar.local(began).date()
    return Compared(first=first, last=last, zone=zone, bill=bill, found=reconciled(bill, metered, known, begun))


def as_object(told: Compared) -> dict[str, Any]:
    """All differences."""
    return {
        "first_day": told.first.isoformat(),
        "last_day": told.last.isoformat(),
        "timezone": told.zone.key,
        "usd_billed": _text(told.found.billed_usd),
        "usd_metered": _text(told.found.metered_usd),
        "usd_other_of_machines": _text(told.bill.other_of_machines),
        "usd_of_no_machine": _text(told.bill.of_no_machine),
        "equal": told.found.equal,
        "differences": [
            {
                "resource": each.resource,
                "day": each.day.isoformat(),
                "usd": _text(each.usd),
                "usd_billed": None if each.billed_usd is None else _text(each.billed_usd),
                "usd_metered": None if each.metered_usd is None else _text(each.metered_usd),
                "why": each.why,
            }
            for each in told.found.differences
        ],
    }


def as_text(told: Compared, limit: int) -> str:
    """The largest differences first, with the likeliest reason of each, and the sums."""
    found = told.found
    rows = [["machine", "day", "difference", "bill", "metered"]]
    rows += [
        [each.resource, str(each.day), _dollars(each.usd), _dollars(each.billed_usd), _dollars(each.metered_usd)]
        for each in found.differences[:limit]
    ]
    whys = ["why", *(legible(each.why) for each in found.differences[:limit])]
    lines = [f"{line}  {why}" for line, why in zip(aligned(rows), whys, strict=True)] if found.differences else []
    more = len(found.differences) - limit
    if more > 0:
        lines.append(f"… and {more} smaller ones (--limit).")
    off = found.billed_usd - found.metered_usd
    lines.append(
        f"{told.first} to {told.last}: {_dollars(found.billed_usd)} for machine time in the bill, "
        f"{_dollars(found.metered_usd)} metered, {_dollars(off)} apart; {found.equal} lines agree to the cent."
    )
    other, none = told.bill.other_of_machines, told.bill.of_no_machine
    if other or none:
        apart = f"{_dollars(other)} for traffic and the like of machines and {_dollars(none)} of other resources"
        lines.append(f"Beside that the bill has {apart}.")
    if told.zone.key != "UTC":
        lines.append(f"Days are those of {told.zone.key}; lines of a whole day in the bill are days of UTC.")
    return "\n".join(lines)


def _dollars(usd: Fraction | None) -> str:
    return "-" if usd is None else dollars(round(usd / _CENT)).replace("$-", "-$")


def _text(usd: Fraction) -> str:
    cents = round(usd / _CENT)
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}"


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[str]]:
    """Lines of a text file, packed by gzip or not.

    Raises:
        BillError: it is no such file.

    """
    try:
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            with (
                gzip.GzipFile(fileobj=raw) if packed else raw as binary,
                io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as lines,
            ):
                yield lines
    except OSError as error:
        raise BillError(f"{path} cannot be read: {error.strerror or error}") from error
    except (EOFError, UnicodeDecodeError, csv.Error) as error:
        raise BillError(f"{path} is no CSV file, or not a whole one: {error}") from error
