"""PURE: a bill compared with what was metered, by machine and day: the differences and their likely reasons."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction

from gpuwatch.model.money import format_price
from gpuwatch.money.accounting.totals import Total
from gpuwatch.money.bill.parse import BillError, Charge

Line = tuple[str, date]  # a resource on a day

_CENT = Fraction(1, 100)
_HOURS = Fraction(1, 60)  # a minute of difference does not count
_HOURS_RATIO = Fraction(1, 100)
_HOUR_MS = 3_600_000


@dataclass(slots=True)
class Billed:
    """What a bill says of one machine on one day."""

    usd: Fraction = Fraction(0)
    hours: Fraction | None = None
    plain: bool = True


@dataclass(slots=True)
class Bill:
    """A bill by line, in US dollars. What is not for machine time is summed apart, by whether a machine caused it."""

    lines: dict[Line, Billed] = field(default_factory=dict)
    other_of_machines: Fraction = Fraction(0)
    of_no_machine: Fraction = Fraction(0)
    by_kind: dict[str, Fraction] = field(default_factory=dict)  # both of these together


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One line on which bill and metering differ; None is not in it, or of no known price."""

    resource: str
    day: date
    billed_usd: Fraction | None
    metered_usd: Fraction | None
    why: str

    @property
    def usd(self) -> Fraction:
        """By how much the bill is higher."""
        return (self.billed_usd or Fraction(0)) - (self.metered_usd or Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """All differences of a cent or more, the largest first, and the sums of both sides."""

    differences: tuple[Difference, ...]
    equal: int
    billed_usd: Fraction
    metered_usd: Fraction


def gather_charges(lines: Iterable[Charge], known: frozenset[str], rates: Mapping[str, Decimal]) -> Bill:
    """The bill of these charges; `known` are the nodes that the ledger has metered at any time.

    Raises:
        BillError: it is in a currency of which no rate is configured.

    """
    bill = Bill()
    for each in lines:
        rate = Decimal(1) if each.currency == "USD" else rates.get(each.currency)
        if rate is None:
            raise BillError(f"the bill is in {each.currency}, of which prices.rates has no rate in US dollars")
        usd = Fraction(each.cost) * Fraction(rate)
        ours = each.resource in known or each.resource.startswith("i-")
        if each.machine is False or (each.machine is None and not ours):
            if ours:
                bill.other_of_machines += usd
            else:
                bill.of_no_machine += usd
            bill.by_kind[each.kind] = bill.by_kind.get(each.kind, Fraction(0)) + usd
            continue
        line = bill.lines.setdefault((each.resource, each.day), Billed())
        line.usd += usd
        line.plain &= each.plain
        if each.hours is not None and each.plain:
            line.hours = (line.hours or Fraction(0)) + Fraction(each.hours)
    return bill


def reconcile_bill(
    bill: Bill, metered: Mapping[Line, Total], known: frozenset[str], began: date | None
) -> Reconciliation:
    """Both sides by line. `metered` is of the days of the bill; `began` is the day on which metering did."""
    found: list[Difference] = []
    for resource, day in bill.lines.keys() | metered.keys():
        billed, total = bill.lines.get((resource, day)), metered.get((resource, day))
        priced = total is not None and total.unpriced_ms == 0
        made = Difference(
            resource=resource,
            day=day,
            billed_usd=None if billed is None else billed.usd,
            metered_usd=total.usd if total is not None and priced else None,
            why=_why(resource, day, billed, total, known=known, began=began),
        )
        if abs(made.usd) >= _CENT:
            found.append(made)
    found.sort(key=lambda each: (-abs(each.usd), each.resource, each.day))
    return Reconciliation(
        differences=tuple(found),
        equal=len(bill.lines.keys() | metered.keys()) - len(found),
        billed_usd=sum((each.usd for each in bill.lines.values()), Fraction(0)),
        metered_usd=sum((each.usd for each in metered.values()), Fraction(0)),
    )


def _why(
    resource: str, day: date, billed: Billed | None, total: Total | None, *, known: frozenset[str], began: date | None
) -> str:
    """Return the likeliest reason of a difference."""
    if billed is None:
        return "only metered: the bill may be late, or of another account or period"
    if total is None:
        if resource not in known:
            return "only in the bill: never a machine of this fleet"
        before = began is not None and day < began
        return "only in the bill: metering began later" if before else "only in the bill: not metered on that day"
    hours = Fraction(total.node_ms, _HOUR_MS)
    if billed.hours is not None and abs(billed.hours - hours) > max(_HOURS, _HOURS_RATIO * hours):
        return f"other hours: {float(billed.hours):.2f} in the bill, {float(hours):.2f} metered"
    if total.unpriced_ms:
        return f"its price was not known: {_per_hour(billed.usd, hours)} by the bill"
    if not billed.plain:
        return "a commitment, discount or credit is in the bill"
    return f"another price: {_per_hour(billed.usd, hours)} in the bill, {_per_hour(total.usd, hours)} metered"


def _per_hour(usd: Fraction, hours: Fraction) -> str:
    return f"{format_price(usd / hours)} an hour" if hours else "no hours"
