"""What is billed and used by no running machine, and disks in use, with their prices, for people and for scripts."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from gpuwatch.clouds import Cloud, Leftover, LeftoverKind
from gpuwatch.clouds.disks import HasDisks
from gpuwatch.clouds.silence import partial
from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import day_with_age, format_cents, format_usd, usd_of_cents
from gpuwatch.model.readable import legible
from gpuwatch.model.sight import Silence
from gpuwatch.money.accounting.totals import round_parts
from gpuwatch.money.storage import (
    STORAGE_AS_OF,
    STORAGE_SOURCE,
    StorageRow,
    address_usd_per_month,
    volume_usd_per_month,
)
from gpuwatch.runtime.json_document import fill_document
from gpuwatch.runtime.table import align_rows

_WORDS = {
    LeftoverKind.UNATTACHED_VOLUME: "volume, attached to nothing",
    LeftoverKind.STOPPED_VOLUME: "volume of the stopped {node}",
    LeftoverKind.UNUSED_ADDRESS: "address, used by nothing",
    LeftoverKind.STOPPED_ADDRESS: "address of the stopped {node}",
    LeftoverKind.SNAPSHOT: "snapshot of a volume that is gone",
    LeftoverKind.IMAGE: "image, named by no machine or template",
    LeftoverKind.RUNNING_VOLUME: "volume of {node}, which is not stopped",
}
_SPARE = {5: 3, 4: 2, 2: 1}  # of a narrow terminal: names go first, then places and types
_GIB = 1024**3
_WIDTH = 80


def usd_per_month(left: Leftover) -> Decimal | None:
    """The list price of a month; None is not known, never free. Only those of AWS are in the table."""
    if left.provider != "aws":
        return None
    if left.kind in {LeftoverKind.UNUSED_ADDRESS, LeftoverKind.STOPPED_ADDRESS}:
        return address_usd_per_month()
    # What a snapshot or an image holds is less than the volumes that it makes.
    if left.size_bytes is None or left.kind in {LeftoverKind.SNAPSHOT, LeftoverKind.IMAGE}:
        return None
    return volume_usd_per_month(
        left.type, size_bytes=left.size_bytes, iops=left.iops, bytes_per_second=left.throughput_bytes_per_second
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedRow:
    """Something left over, or a disk in use. `node_id` is the machine that has it; null: no machine does.

    `made` is when a snapshot was made.
    """

    id: str
    kind: LeftoverKind
    name: str
    type: str | None
    size_bytes: int | None
    node_id: str | None
    region: str
    account: str | None
    cloud: str | None
    usd_per_month: Decimal | None
    made: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentRow:
    """A place that gave no answer, so that the list lacks what is there; `where` is null for a cloud as a whole."""

    cloud: str | None
    where: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedDocument:
    """What costs money and serves no running machine; `usd_per_month` is the sum of the known list prices.

    `in_use` are disks of GPU machines that are not stopped, which that sum leaves out. `silent` are the places that the
    lists lack.
    """

    unused: list[UnusedRow]
    in_use: list[UnusedRow]
    silent: list[SilentRow]
    usd_per_month: Decimal
    in_use_usd_per_month: Decimal
    prices_as_of: date
    prices_age_days: int
    prices_source: str


def list_leftovers(cloud: Cloud) -> tuple[Sequence[Leftover], list[Silence]]:
    """What is left over, and disks in use, in all places that answer, and those that do not.

    Raises:
        CloudError: none answers.

    """
    with partial() as silent:
        found = whole(cloud)
    return found, list({(each.cloud, each.where): each for each in silent}.values())


def whole(cloud: Cloud) -> Sequence[Leftover]:
    """What is left over, and disks in use where the cloud shows them.

    Raises:
        CloudError: a part of it could not be had.

    """
    return (*cloud.leftovers(), *(cloud.disks() if isinstance(cloud, HasDisks) else ()))


def by_kind(found: Sequence[Leftover]) -> list[StorageRow]:
    """The sum of each kind, the dearest first."""
    kinds = dict[LeftoverKind, list[Leftover]]()
    for each in found:
        kinds.setdefault(each.kind, []).append(each)
    sums = [
        StorageRow(
            kind=kind,
            count=len(those),
            size_bytes=sum(each.size_bytes or 0 for each in those),
            usd_per_month=_sum(those),
            without_price=sum(usd_per_month(each) is None for each in those),
        )
        for kind, those in kinds.items()
    ]
    return sorted(sums, key=lambda each: (-each.usd_per_month, each.kind))


def _part_leftovers(found: Sequence[Leftover]) -> tuple[list[Leftover], list[Leftover]]:
    """What is left over, and the disks in use."""
    used = [each for each in found if each.kind is LeftoverKind.RUNNING_VOLUME]
    return [each for each in found if each.kind is not LeftoverKind.RUNNING_VOLUME], used


def unused_document(found: Sequence[Leftover], silent: Sequence[Silence] = (), *, today: date) -> UnusedDocument:
    """Everything, with its prices to the cent."""
    (left, usd), (used, in_use_usd) = map(_document_rows, _part_leftovers(found))
    return UnusedDocument(
        unused=left,
        in_use=used,
        silent=[SilentRow(cloud=each.cloud or None, where=each.where or None, reason=each.reason) for each in silent],
        usd_per_month=usd,
        in_use_usd_per_month=in_use_usd,
        prices_as_of=STORAGE_AS_OF,
        prices_age_days=(today - STORAGE_AS_OF).days,
        prices_source=STORAGE_SOURCE,
    )


def _cents(found: Sequence[Leftover], cent: Fraction) -> tuple[int, dict[str, int]]:
    """What is left over in whole cents, by its place in the list: these add up to the sum."""
    return round_parts({str(at): Fraction(usd_per_month(each) or 0) for at, each in enumerate(found)}, cent)


def _document_rows(found: Sequence[Leftover]) -> tuple[list[UnusedRow], Decimal]:
    """Rows with their prices to the cent, and what they add up to."""
    total, cents = _cents(found, Fraction(1, 100))
    return [_document_row(each, cents[str(at)]) for at, each in enumerate(found)], usd_of_cents(total)


def _document_row(left: Leftover, cents: int) -> UnusedRow:
    return fill_document(
        UnusedRow,
        left,
        type=left.type or None,
        cloud=left.cloud or None,
        usd_per_month=None if usd_per_month(left) is None else usd_of_cents(cents),
    )


def as_text(found: Sequence[Leftover], silent: Sequence[Silence] = (), *, today: date) -> str:
    """The dearest first, and the sum; then the sum of disks in use, and what the lists lack."""
    lacks = [f"Warning: no answer from {each.name} ({each.reason}): the list lacks what is there." for each in silent]
    return "\n".join([_text(found, today, whole=not silent), *map(legible, lacks)])


def _text(found: Sequence[Leftover], today: date, *, whole: bool) -> str:
    left, used = _part_leftovers(found)
    lines = [*_leftover_lines(left, whole=whole), *_used_lines(used)]
    if found:
        lines += textwrap.wrap(f"Prices of {day_with_age(STORAGE_AS_OF, today)}: {STORAGE_SOURCE}.", _WIDTH)
        lines += filter(None, [display_currency().note])
    return "\n".join(lines)


def _used_lines(used: Sequence[Leftover]) -> Iterator[str]:
    """The sum of disks in use; nothing where none was listed."""
    for each in by_kind(used):
        disks = "disk" if each.count == 1 else "disks"
        more = f", and {each.without_price} without a known price" if each.without_price else ""
        size = f"{each.count:,} {disks} of machines in use, {each.size_bytes // _GIB:,} GiB"
        yield f"Not left over: {size}, {format_usd(each.usd_per_month)} a month{more}."


def _leftover_lines(found: Sequence[Leftover], *, whole: bool) -> list[str]:
    if not found and not whole:
        return ["Nothing is left over where there was an answer."]
    if not found:
        return ["Nothing is left over: every volume and every address belongs to a machine that runs."]
    dearest = sorted(found, key=lambda left: (-(usd_per_month(left) or 0), left.id))
    heads = (f"{display_currency().head}/MONTH", "ID", "TYPE", "WHAT", "WHERE", "NAME")
    total, cents = _cents(dearest, display_currency().cent)
    rows = [_row(each, cents[str(at)]) for at, each in enumerate(dearest)]
    lines = align_rows([heads, *rows], left=range(1, 6), spare=_SPARE)
    unknown = sum(usd_per_month(left) is None for left in found)
    more = f", and {unknown} without a known price" if unknown else ""
    lines.append(f"{len(found)} left over, {format_cents(total)} a month{more}.")
    return lines


def _row(left: Leftover, cents: int) -> tuple[str, ...]:
    size = "" if left.size_bytes is None else f" {left.size_bytes // _GIB} GiB"
    made = "" if left.made is None else f", made {left.made:%Y-%m-%d}"
    what = f"{_WORDS[left.kind].format(node=left.node_id)}{made}"
    where = " ".join(filter(None, (left.region, left.account)))
    return (
        "?" if usd_per_month(left) is None else format_cents(cents),
        left.id,
        f"{left.type}{size}",
        what,
        where,
        left.name,
    )


def _sum(found: Sequence[Leftover]) -> Decimal:
    """The sum of known prices."""
    return sum((usd_per_month(left) or Decimal(0) for left in found), Decimal(0))
