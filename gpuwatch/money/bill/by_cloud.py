"""PURE: what each cloud's bill is made of: machine time, egress and the rest, and all clouds together.

Egress is only what a bill names so: nothing is derived from bytes that gpuwatch has seen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import cents_of, format_cents, usd_to_the_cent
from gpuwatch.money.bill.charge import EGRESS, KINDS
from gpuwatch.money.bill.reconcile import Bill
from gpuwatch.runtime.table import align_rows

_MACHINES, _TOGETHER = "machine time", "together"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudBill:
    """A cloud's bill: machine time, egress, and `usd`, which is all of it; `cloud` is null if nobody named it."""

    cloud: str | None
    usd_machine_time: Decimal
    usd_egress: Decimal
    usd: Decimal


def cloud_bills(bills: Iterable[tuple[str | None, Bill]]) -> list[CloudBill]:
    """One for each bill."""
    return [
        CloudBill(
            cloud=cloud,
            usd_machine_time=usd_to_the_cent(machine_time(bill)),
            usd_egress=usd_to_the_cent(bill.by_kind.get(EGRESS, Fraction(0))),
            usd=usd_to_the_cent(machine_time(bill) + sum(bill.by_kind.values())),
        )
        for cloud, bill in bills
    ]


def as_lines(bills: Sequence[tuple[str | None, Bill]]) -> list[str]:
    """A row for each cloud; rows and columns add up to the cent. No line where the bills are of machines alone."""
    kinds = [kind for kind in KINDS if kind == EGRESS or any(bill.by_kind.get(kind) for _, bill in bills)]
    if not any(bill.by_kind for _, bill in bills):
        return []
    rows = [
        (cloud or "the bill", [cents_of(machine_time(bill)), *(cents_of(bill.by_kind.get(kind, 0)) for kind in kinds)])
        for cloud, bill in bills
    ]
    if len(rows) > 1:
        rows.append(("all", [sum(column) for column in zip(*(cents for _, cents in rows), strict=True)]))
    heads = ("cloud", _MACHINES, *kinds, _TOGETHER)
    cells = [(name, *map(format_cents, cents), format_cents(sum(cents))) for name, cents in rows]
    return ["", *align_rows([heads, *cells], left={0}), *filter(None, [display_currency().note])]


def machine_time(bill: Bill) -> Fraction:
    """What the bill has for the time of machines."""
    return sum((each.usd for each in bill.lines.values()), Fraction(0))
