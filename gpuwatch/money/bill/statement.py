"""`gpuwatch cost reconcile`: a bill's file compared with the ledger."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

from gpuwatch.model.money import format_usd, usd_to_the_cent
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import NOT_KNOWN, Total, cloud_name
from gpuwatch.money.bill import by_cloud
from gpuwatch.money.bill.by_cloud import CloudBill
from gpuwatch.money.bill.parse import OTHER, BillError, Columns, charges
from gpuwatch.money.bill.reconcile import Bill, Difference, Line, Reconciliation, gather_charges, reconcile_bill
from gpuwatch.runtime.bounded_text import lines_of
from gpuwatch.runtime.printable import not_utf8
from gpuwatch.runtime.table import align_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A bill's file compared with the ledger, over the days of the bill."""

    first: date
    last: date
    zone: ZoneInfo
    bill: Bill
    found: Reconciliation
    cloud: str | None = None  # whose bill it is; None: nobody named it


def compare_bill(
    spend: SpendBook,
    path: Path,
    zone: ZoneInfo,
    rates: Mapping[str, Decimal],
    own: Columns | None = None,
    cloud: str | None = None,
) -> Compared:
    """Read the bill once, a line at a time, then the ledger's rows of its days; those of `cloud`, if it is one's bill.

    What was metered before the ledger knew clouds counts where the bill has its machine.

    Raises:
        BillError: the file cannot be read as a bill.

    """
    known = spend.nodes()
    calendar = Calendar(zone)
    with _open_lines(path) as lines:
        reader = csv.DictReader(lines)
        lines_of = charges(reader.fieldnames or (), reader, lambda at: at.astimezone(zone).date(), own)
        bill = gather_charges(lines_of, known, rates)
    if not bill.lines:
        raise BillError(f"{path} holds no line of a machine's time; is it the right export?")
    days = [day for _, day in bill.lines]
    first, last = min(days), max(days)
    since, until = calendar.midnight(first), calendar.midnight(last + timedelta(days=1))
    metered: dict[Line, Total] = {}
    billed = {node for node, _ in bill.lines}
    for row in spend.rows(since, until, by_node=True, by_time=True):
        home = cloud_name(row.terms)
        if cloud not in {None, home} and not (home == NOT_KNOWN and row.node_id in billed):
            continue
        day = calendar.local((row.begin or 0) * 1000).date()
        metered.setdefault((row.node_id or "", day), Total()).add(row)
    began = spend.began()
    begun = None if began is None else calendar.local(began).date()
    return Compared(
        first=first, last=last, zone=zone, bill=bill, found=reconcile_bill(bill, metered, known, begun), cloud=cloud
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceDocument:
    """A machine's day in which bill and ledger differ: billed minus metered, null where one of them has no line.

    `cloud` is the one of the bill, null if nobody named it.
    """

    cloud: str | None
    resource: str
    day: date
    usd: Decimal
    usd_billed: Decimal | None
    usd_metered: Decimal | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileDocument:
    """Bills compared with the ledger, over the days of the bills, which are those of `timezone`.

    `usd_other_of_machines` is what bills have for machines besides their time, `usd_of_no_machine` the rest, and
    `usd_by_kind` the same money by kind: egress, other traffic, disks, snapshots, addresses, other. `clouds` has each
    bill's machine time and egress. `equal` is the number of lines that agree to the cent.
    """

    first_day: date
    last_day: date
    timezone: str
    usd_billed: Decimal
    usd_metered: Decimal
    usd_other_of_machines: Decimal
    usd_of_no_machine: Decimal
    usd_by_kind: dict[str, Decimal]
    clouds: list[CloudBill]
    equal: int
    differences: list[DifferenceDocument]


def reconcile_document(results: Sequence[Compared]) -> ReconcileDocument:
    """All differences of all bills, the largest first."""
    kinds: dict[str, Fraction] = {}
    for result in results:
        for kind, usd in result.bill.by_kind.items():
            kinds[kind] = kinds.get(kind, Fraction(0)) + usd
    return ReconcileDocument(
        first_day=min(each.first for each in results),
        last_day=max(each.last for each in results),
        timezone=results[0].zone.key,
        usd_billed=_sum(each.found.billed_usd for each in results),
        usd_metered=_sum(each.found.metered_usd for each in results),
        usd_other_of_machines=_sum(each.bill.other_of_machines for each in results),
        usd_of_no_machine=_sum(each.bill.of_no_machine for each in results),
        usd_by_kind={kind: usd_to_the_cent(usd) for kind, usd in sorted(kinds.items())},
        clouds=by_cloud.cloud_bills((each.cloud, each.bill) for each in results),
        equal=sum(each.found.equal for each in results),
        differences=[
            DifferenceDocument(
                cloud=cloud,
                resource=each.resource,
                day=each.day,
                usd=usd_to_the_cent(each.usd),
                usd_billed=None if each.billed_usd is None else usd_to_the_cent(each.billed_usd),
                usd_metered=None if each.metered_usd is None else usd_to_the_cent(each.metered_usd),
                why=each.why,
            )
            for cloud, each in _differences(results)
        ],
    )


def as_text(results: Sequence[Compared], limit: int) -> str:
    """The largest differences first, with the likeliest reason of each; the sums; then each cloud's bill by kind."""
    several = len(results) > 1
    found = _differences(results)
    rows = [
        (
            *([cloud or "?"] if several else []),
            each.resource,
            str(each.day),
            *map(format_usd, (each.usd, each.billed_usd, each.metered_usd)),
            each.why,
        )
        for cloud, each in found[:limit]
    ]
    heads = (*(["cloud"] if several else []), "machine", "day", "difference", "bill", "metered", "why")
    lines = align_rows([heads, *rows], left={0, 1, 6} if several else {0, 5}) if rows else []
    more = len(found) - limit
    if more > 0:
        lines.append(f"… and {more} smaller ones (--limit).")
    for result in results:
        lines += _sums(result, f"{result.cloud}: " if several else "")
    lines += by_cloud.as_lines([(each.cloud, each.bill) for each in results])
    zone = results[0].zone.key
    if zone != "UTC":
        lines.append(f"Days are those of {zone}; lines of a whole day in the bill are days of UTC.")
    return "\n".join(lines)


def _agree(lines: int) -> str:
    return "1 line agrees" if lines == 1 else f"{lines:,} lines agree"


def _sums(result: Compared, name: str) -> Iterator[str]:
    """What one bill and the ledger add up to."""
    found, other, none = result.found, result.bill.other_of_machines, result.bill.of_no_machine
    off = found.billed_usd - found.metered_usd
    yield (
        f"{name}{result.first} to {result.last}: {format_usd(found.billed_usd)} for machine time in the bill, "
        f"{format_usd(found.metered_usd)} metered, {format_usd(off)} apart; {_agree(found.equal)} to the cent."
    )
    if other or none:
        apart = f"{format_usd(other)} for traffic and the like of machines and {format_usd(none)} of other resources"
        kinds = [f"{format_usd(usd)} {kind}" for kind, usd in sorted(result.bill.by_kind.items(), key=_dearest)]
        by_kind = f" By kind: {', '.join(kinds)}." if result.bill.by_kind.keys() - {OTHER} else ""
        yield f"{name}the bill also has {apart}.{by_kind}" if name else f"The bill also has {apart}.{by_kind}"


def _differences(results: Sequence[Compared]) -> list[tuple[str | None, Difference]]:
    """Those of all bills, the largest first."""
    found = [(result.cloud, each) for result in results for each in result.found.differences]
    return sorted(found, key=lambda pair: -abs(pair[1].usd))


def _sum(parts: Iterable[Fraction]) -> Decimal:
    return usd_to_the_cent(sum(parts, Fraction(0)))


def _dearest(item: tuple[str, Fraction]) -> tuple[Fraction, str]:
    return -item[1], item[0]


@contextmanager
def _open_lines(path: Path) -> Iterator[Iterator[str]]:
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
                yield lines_of(lines)
    except OSError as error:
        raise BillError(f"{path} cannot be read: {error.strerror or error}") from error
    except BillError as error:
        raise BillError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise BillError(f"{path} {not_utf8(error)}") from error
    except (EOFError, zlib.error, csv.Error) as error:
        raise BillError(f"{path} is not a CSV file, or not a whole one: {error}") from error
