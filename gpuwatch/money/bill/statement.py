"""`gpuwatch cost reconcile`: a bill's file compared with the ledger."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

from gpuwatch.ledger import Ledger
from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import cents_of, format_cents, format_usd, usd_to_the_cent
from gpuwatch.money.accounting.scope import unmark_terms
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import NOT_KNOWN, Total, cloud_name, round_parts
from gpuwatch.money.bill import by_cloud
from gpuwatch.money.bill.by_cloud import CloudBill, machine_time
from gpuwatch.money.bill.charge import OTHER, UNUSED, BillError
from gpuwatch.money.bill.open_bill import open_bill
from gpuwatch.money.bill.parse import Columns
from gpuwatch.money.bill.reconcile import Bill, Difference, Line, Reconciliation, gather_charges, reconcile_bill
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
    names: Mapping[str, str] | None = None,
) -> Compared:
    """Read the bill once, a line at a time, then the ledger's rows of its days; those of `cloud`, if it is one's bill.

    `names` are the ids of machines by the names that a bill may have for them instead (`machine_names`). What was
    metered before the ledger knew clouds counts where the bill has its machine. Foreign machines count as ours do:
    the bill has them.

    Raises:
        BillError: the file cannot be read as a bill.

    """
    known = spend.nodes()
    calendar = Calendar(zone)
    with open_bill(path, zone, own) as lines:
        bill = gather_charges(lines, known, rates, names)
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
        metered.setdefault((row.node_id or "", day), Total()).add(replace(row, terms=unmark_terms(row.terms)))
    began = spend.began()
    begun = None if began is None else calendar.local(began).date()
    return Compared(
        first=first, last=last, zone=zone, bill=bill, found=reconcile_bill(bill, metered, known, begun), cloud=cloud
    )


def machine_names(ledger: Ledger) -> dict[str, str]:
    """The ids of the newest round's machines by their names, in small letters; without names that two of them have."""
    newest = ledger.rounds(limit=1)
    if not newest:
        return {}
    found: dict[str, set[str]] = {}
    for node in ledger.observation(newest[0].id).fleet.nodes:
        found.setdefault(node.name.casefold(), set()).add(node.id)
    return {name: next(iter(ids)) for name, ids in found.items() if name and len(ids) == 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceDocument:
    """A machine's day in which bill and ledger differ: billed minus metered, null where one of them has no line.

    `cloud` is the one of the bill, null if nobody named it. `usd_list` is the machine's time in the bill at public
    prices, null where the bill does not have them; `usd_committed` is what of `usd_billed` a commitment covers.
    """

    cloud: str | None
    resource: str
    day: date
    usd: Decimal
    usd_billed: Decimal | None
    usd_metered: Decimal | None
    usd_list: Decimal | None
    usd_committed: Decimal
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileDocument:
    """Bills compared with the ledger, over the days of the bills, which are those of `timezone`.

    `usd_billed` is amortized machine time: hours that a commitment covers at its rate. `usd_committed` is what of it
    commitments cover, `usd_list` all of it at public prices (null where a bill does not have them). What was paid for
    commitments as such, `usd_commitment_fees`, is in no sum. `usd_other_of_machines` is what bills have for machines
    besides their time, `usd_of_no_machine` the rest, and `usd_by_kind` the same money by kind: egress, other traffic,
    disks, snapshots, addresses, unused commitments, discounts, credits, refunds, corrections, taxes, other. `clouds`
    has each bill's machine time and egress. `equal` is the number of lines that agree to the cent; `unknown` is of
    lines that are metered without a known price and are in no bill.
    """

    first_day: date
    last_day: date
    timezone: str
    usd_billed: Decimal
    usd_metered: Decimal
    usd_list: Decimal | None
    usd_committed: Decimal
    usd_commitment_fees: Decimal
    usd_other_of_machines: Decimal
    usd_of_no_machine: Decimal
    usd_by_kind: dict[str, Decimal]
    clouds: list[CloudBill]
    equal: int
    unknown: int
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
        usd_list=_list_sum(results),
        usd_committed=_sum(each.bill.committed_usd for each in results),
        usd_commitment_fees=_sum(each.bill.fees_usd for each in results),
        usd_other_of_machines=_sum(each.bill.other_of_machines for each in results),
        usd_of_no_machine=_sum(each.bill.of_no_machine for each in results),
        usd_by_kind={kind: usd_to_the_cent(usd) for kind, usd in sorted(kinds.items())},
        clouds=by_cloud.cloud_bills((each.cloud, each.bill) for each in results),
        equal=sum(each.found.equal for each in results),
        unknown=sum(each.found.unknown for each in results),
        differences=[
            DifferenceDocument(
                cloud=cloud,
                resource=each.resource,
                day=each.day,
                usd=_usd(each.billed_usd) - _usd(each.metered_usd),
                usd_billed=None if each.billed_usd is None else usd_to_the_cent(each.billed_usd),
                usd_metered=None if each.metered_usd is None else usd_to_the_cent(each.metered_usd),
                usd_list=None if each.list_usd is None else usd_to_the_cent(each.list_usd),
                usd_committed=usd_to_the_cent(each.committed_usd),
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
            format_cents(_cents(each.billed_usd) - _cents(each.metered_usd)),
            *map(format_usd, (each.billed_usd, each.metered_usd)),
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


def _cents(usd: Fraction | None) -> int:
    return 0 if usd is None else cents_of(usd)


def _usd(usd: Fraction | None) -> Decimal:
    return Decimal(0) if usd is None else usd_to_the_cent(usd)


def _agree(lines: int) -> str:
    return "1 line agrees" if lines == 1 else f"{lines:,} lines agree"


def _sums(result: Compared, name: str) -> Iterator[str]:
    """What one bill and the ledger add up to."""
    found, other, none = result.found, result.bill.other_of_machines, result.bill.of_no_machine
    billed, metered = cents_of(found.billed_usd), cents_of(found.metered_usd)
    yield (
        f"{name}{result.first} to {result.last}: {format_cents(billed)} for machine time in the bill, "
        f"{format_cents(metered)} metered, {format_cents(billed - metered)} apart; {_agree(found.equal)} to the cent."
    )
    if found.unknown:
        one = "1 line is" if found.unknown == 1 else f"{found.unknown:,} lines are"
        yield f"{name}{one} metered without a known price and in no bill: nothing is known about their cost."
    yield from _commitments(result.bill, name)
    if other or none:
        cent = display_currency().cent
        _, two = round_parts({"other": other, "none": none}, cent)
        _, cents = round_parts(result.bill.by_kind, cent)
        apart = (
            f"{format_cents(two['other'])} for traffic and the like of machines and {format_cents(two['none'])} of "
            "other resources"
        )
        kinds = [f"{format_cents(cents[kind])} {kind}" for kind, _ in sorted(result.bill.by_kind.items(), key=_dearest)]
        by_kind = f" By kind: {', '.join(kinds)}." if result.bill.by_kind.keys() - {OTHER} else ""
        yield f"{name}the bill also has {apart}.{by_kind}" if name else f"The bill also has {apart}.{by_kind}"


def _commitments(bill: Bill, name: str) -> Iterator[str]:
    """What commitments and private prices make of the bill."""
    listed = bill.list_usd
    billed = machine_time(bill)
    if listed is not None and listed != billed:
        yield (
            f"{name}at public prices this machine time costs {format_usd(listed)}: "
            f"{format_cents(cents_of(listed) - cents_of(billed))} less by commitments and discounts."
        )
    bare = sum(not each.amortized for each in bill.lines.values())
    if bare:
        yield (
            f"{name}{bare:,} lines have hours that a commitment covers, without their effective cost: "
            "their rate is not known. Export the amortized cost."
        )
    unused = bill.by_kind.get(UNUSED)
    if bill.committed_usd or unused or bill.fees_usd:
        parts = [
            f"{format_usd(bill.committed_usd)} of it is covered by commitments: a stop of these hours saves nothing"
        ]
        if unused:
            parts.append(f"{format_usd(unused)} of commitments was not used")
        if bill.fees_usd:
            parts.append(f"{format_usd(bill.fees_usd)} was paid for commitments, which is in no sum: hours carry it")
        yield f"{name}{'; '.join(parts)}."


def _list_sum(results: Sequence[Compared]) -> Decimal | None:
    """All machine time at public prices; None: a bill does not have them."""
    listed = [each.bill.list_usd for each in results]
    known = [each for each in listed if each is not None]
    return _sum(known) if len(known) == len(listed) else None


def _differences(results: Sequence[Compared]) -> list[tuple[str | None, Difference]]:
    """Those of all bills, the largest first."""
    found = [(result.cloud, each) for result in results for each in result.found.differences]
    return sorted(found, key=lambda pair: -abs(pair[1].usd))


def _sum(parts: Iterable[Fraction]) -> Decimal:
    return usd_to_the_cent(sum(parts, Fraction(0)))


def _dearest(item: tuple[str, Fraction]) -> tuple[Fraction, str]:
    return -item[1], item[0]
