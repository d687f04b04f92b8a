"""PURE: a bill compared with what was metered, by machine and day: the differences and their likely reasons."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction

from gpuwatch.model.money import format_price
from gpuwatch.money.accounting.totals import Total
from gpuwatch.money.bill.charge import BillError, Charge

Line = tuple[str, date]  # a resource on a day

_CENT = Fraction(1, 100)
_HOURS = Fraction(1, 60)  # a minute of difference does not count
_HOURS_RATIO = Fraction(1, 100)
_HOUR_MS = 3_600_000


@dataclass(slots=True)
class Billed:
    """What a bill says of one machine on one day; `list_usd` is the same at public prices, None: not known of all."""

    usd: Fraction = Fraction(0)
    hours: Fraction | None = None
    plain: bool = True
    list_usd: Fraction | None = Fraction(0)
    committed_usd: Fraction = Fraction(0)  # of `usd`: for hours that a commitment covers
    amortized: bool = True

    def add(self, charge: Charge, usd: Fraction, rate: Fraction) -> None:
        """Add one more line to it."""
        self.usd += usd
        self.plain &= charge.plain
        self.amortized &= charge.amortized
        if charge.committed:
            self.committed_usd += usd
        listed = None if charge.list_cost is None else Fraction(charge.list_cost) * rate
        if listed is None and charge.hours is None and not charge.plain:
            listed = Fraction(0)  # a discount of its own line: the list price stands in the line of the hour
        self.list_usd = None if self.list_usd is None or listed is None else self.list_usd + listed
        if charge.hours is not None:
            self.hours = (self.hours or Fraction(0)) + Fraction(charge.hours)


@dataclass(slots=True)
class Bill:
    """A bill by line, in US dollars. What is not for machine time is summed apart, by whether a machine caused it.

    `fees_usd` was paid for commitments: it is in no sum, because the hours that they cover carry it.
    """

    lines: dict[Line, Billed] = field(default_factory=dict)
    other_of_machines: Fraction = Fraction(0)
    of_no_machine: Fraction = Fraction(0)
    by_kind: dict[str, Fraction] = field(default_factory=dict)  # both of these together
    fees_usd: Fraction = Fraction(0)

    @property
    def list_usd(self) -> Fraction | None:
        """Machine time at public prices; None: the bill does not have them for all of it."""
        listed = [each.list_usd for each in self.lines.values()]
        known = [each for each in listed if each is not None]
        return sum(known, Fraction(0)) if known and len(known) == len(listed) else None

    @property
    def committed_usd(self) -> Fraction:
        """Machine time that commitments cover."""
        return sum((each.committed_usd for each in self.lines.values()), Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One line on which bill and metering differ; None is not in it, or of no known price."""

    resource: str
    day: date
    billed_usd: Fraction | None
    metered_usd: Fraction | None
    why: str
    list_usd: Fraction | None = None
    committed_usd: Fraction = Fraction(0)

    @property
    def usd(self) -> Fraction:
        """By how much the bill is higher."""
        return (self.billed_usd or Fraction(0)) - (self.metered_usd or Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """All differences of a cent or more, the largest first, and the sums of both sides.

    `unknown` lines are metered without a known price, and are in no bill: nothing is known about their cost.
    """

    differences: tuple[Difference, ...]
    equal: int
    billed_usd: Fraction
    metered_usd: Fraction
    unknown: int = 0


def gather_charges(
    lines: Iterable[Charge],
    known: frozenset[str],
    rates: Mapping[str, Decimal],
    names: Mapping[str, str] | None = None,
) -> Bill:
    """The bill of these charges; `known` are the nodes that the ledger has metered at any time.

    `names` are the ids of machines by the names that a bill may have for them instead.

    Raises:
        BillError: it is in a currency of which no rate is configured.

    """
    bill = Bill()
    for each in lines:
        rate = rate_of(each.currency, rates)
        usd = Fraction(each.cost) * rate
        if each.fee:
            bill.fees_usd += usd
            continue
        resource = node_of(each.resource, known, names or {})
        ours = resource in known or resource.startswith("i-")
        if each.machine is False or (each.machine is None and not ours):
            if ours:
                bill.other_of_machines += usd
            else:
                bill.of_no_machine += usd
            bill.by_kind[each.kind] = bill.by_kind.get(each.kind, Fraction(0)) + usd
            continue
        bill.lines.setdefault((resource, each.day), Billed()).add(each, usd, rate)
    return bill


def rate_of(currency: str, rates: Mapping[str, Decimal]) -> Fraction:
    """What one of it is worth in US dollars.

    Raises:
        BillError: no rate is configured.

    """
    rate = Decimal(1) if currency == "USD" else rates.get(currency)
    if rate is None:
        raise BillError(f"the bill is in {currency}, of which prices.rates has no rate in US dollars")
    return Fraction(rate)


def node_of(resource: str, known: frozenset[str], names: Mapping[str, str]) -> str:
    """The node that a bill's resource is, by its id, in any case, or by its name; else as the bill calls it."""
    if resource in known:
        return resource
    folded = resource.casefold()
    return folded if folded in known else names.get(folded, resource)


def reconcile_bill(
    bill: Bill, metered: Mapping[Line, Total], known: frozenset[str], began: date | None
) -> Reconciliation:
    """Both sides by line. `metered` is of the days of the bill; `began` is the day on which metering did."""
    found: list[Difference] = []
    unknown = 0
    for resource, day in bill.lines.keys() | metered.keys():
        billed, total = bill.lines.get((resource, day)), metered.get((resource, day))
        priced = total is not None and total.unpriced_ms == 0
        made = Difference(
            resource=resource,
            day=day,
            billed_usd=None if billed is None else billed.usd,
            metered_usd=total.usd if total is not None and priced else None,
            why=_why(resource, day, billed, total, known=known, began=began),
            list_usd=None if billed is None else billed.list_usd,
            committed_usd=Fraction(0) if billed is None else billed.committed_usd,
        )
        if abs(made.usd) >= _CENT:
            found.append(made)
        elif made.billed_usd is None and made.metered_usd is None:
            unknown += 1
    found.sort(key=lambda each: (-abs(each.usd), each.resource, each.day))
    return Reconciliation(
        differences=tuple(found),
        equal=len(bill.lines.keys() | metered.keys()) - len(found) - unknown,
        billed_usd=sum((each.usd for each in bill.lines.values()), Fraction(0)),
        metered_usd=sum((each.usd for each in metered.values()), Fraction(0)),
        unknown=unknown,
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
    if not billed.amortized:
        return "a commitment covers it, and the bill lacks its effective cost: export the amortized one"
    listed = "" if billed.list_usd is None else f", {_per_hour(billed.list_usd, hours)} list"
    if billed.committed_usd:
        part = billed.committed_usd / billed.usd if billed.usd else Fraction(1)
        covers = "a commitment covers it" if part >= 1 else f"commitments cover {float(part):.0%} of its cost"
        return f"{covers}: {_per_hour(billed.usd, hours)} in the bill{listed}"
    if not billed.plain:
        return f"a discount is in the bill: {_per_hour(billed.usd, hours)}{listed}"
    return f"another price: {_per_hour(billed.usd, hours)} in the bill, {_per_hour(total.usd, hours)} metered"


def _per_hour(usd: Fraction, hours: Fraction) -> str:
    return f"{format_price(usd / hours)} an hour" if hours else "no hours"
