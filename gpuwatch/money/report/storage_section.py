"""The section about what is billed besides machines' hours: disks, snapshots, images, addresses; by the month, now."""

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TypedDict

from gpuwatch.clouds import LeftoverKind
from gpuwatch.model.currency import shown_in
from gpuwatch.model.money import format_cents
from gpuwatch.money.accounting.totals import shown
from gpuwatch.money.report.blocks import Part, Table, Words
from gpuwatch.money.report.report import Report
from gpuwatch.money.storage import STORAGE_AS_OF, STORAGE_SOURCE, Sum

_WORDS: dict[str, str] = {
    LeftoverKind.RUNNING_VOLUME: "disks of machines in use",
    LeftoverKind.STOPPED_VOLUME: "disks of stopped machines",
    LeftoverKind.UNATTACHED_VOLUME: "disks, attached to nothing",
    LeftoverKind.STOPPED_ADDRESS: "addresses of stopped machines",
    LeftoverKind.UNUSED_ADDRESS: "addresses, used by nothing",
    LeftoverKind.SNAPSHOT: "snapshots of disks that are gone",
    LeftoverKind.IMAGE: "images, named by no machine or template",
}
_GIB = 1024**3
_CENT = Decimal("0.01")


class StorageRow(TypedDict):
    """All of one kind, at list prices; `without_price` of them have no known price and are not in `usd_per_month`."""

    kind: str
    count: int
    size_bytes: int
    usd_per_month: str
    without_price: int


class StorageDocument(TypedDict):
    """Disks, snapshots, images and addresses when the report was made; `usd_per_month` is the sum of known prices."""

    by: list[StorageRow]
    usd_per_month: str
    prices_as_of: date
    prices_source: str


def storage(report: Report) -> Iterator[Part]:
    """How many of each kind, and what they cost; nothing where the cloud was not asked."""
    sums = report.facts.storage
    if sums is None:
        return
    if not sums:
        yield Words(("No disk and nothing left over was found.",))
        return
    total, cents = shown({each.kind: Fraction(each.usd) for each in sums}, shown_in().cent)
    rows = [
        (_WORDS[each.kind], f"{each.count:,}", _gib(each.size_bytes), _usd(each, cents[each.kind])) for each in sums
    ]
    size = _gib(sum(each.size_bytes for each in sums))
    rows.append(("all", f"{sum(each.count for each in sums):,}", size, format_cents(total)))
    heads = ("what", "number", "GiB", "a month")
    yield Table(caption="By the month", heads=heads, rows=tuple(rows), left=frozenset({0}), summed=True)
    unpriced = sum(each.unpriced for each in sums)
    lacking = [f"{unpriced:,} without a known price are not in the sums."] if unpriced else []
    source = f"Prices of {STORAGE_AS_OF}: {STORAGE_SOURCE}."
    yield Words(
        (
            "As it is when the report is made, besides the machines' own cost; `gpuwatch unused` lists each.",
            *lacking,
            source,
        )
    )


def as_object(sums: Sequence[Sum]) -> StorageDocument:
    """The same, with the prices as texts."""
    return {
        "by": [
            {
                "kind": each.kind,
                "count": each.count,
                "size_bytes": each.size_bytes,
                "usd_per_month": str(each.usd.quantize(_CENT)),
                "without_price": each.unpriced,
            }
            for each in sums
        ],
        "usd_per_month": str(sum((each.usd for each in sums), Decimal(0)).quantize(_CENT)),
        "prices_as_of": STORAGE_AS_OF,
        "prices_source": STORAGE_SOURCE,
    }


def _usd(each: Sum, cents: int) -> str:
    """A "?" where no price is known, "+?" where some are not."""
    if each.unpriced == each.count:
        return "?"
    return f"{format_cents(cents)}{'+?' if each.unpriced else ''}"


def _gib(size_bytes: int) -> str:
    """Addresses have no size."""
    return f"{size_bytes // _GIB:,}" if size_bytes else "-"
