"""PURE: what an hour of each type cost by a bill, as prices for the months that follow: dated, with their evidence.

Rules, all of them:

1. A rate is of one cloud, region, type, kind of capacity and currency: amortized cost by hours. Unused commitments,
   taxes, credits, refunds and corrections are in none.
2. Hours are the bill's. Where it lacks them (Azure's in hundreds, Google's by part without a size), the ledger's hours
   of the same machine on the same day count. A day without known hours makes no rate, nor does one with committed hours
   of unknown cost, nor hours that cost nothing.
3. Type, region and kind of a machine are the bill's; what it does not say, the ledger may.
4. A rate holds from the first day of the bill until the end of the month that follows its last day: a bill comes weeks
   late, and an old one prices nothing silently. Its source says of which month it is, and what part is committed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import effective_source
from gpuwatch.money.bill.charge import Charge
from gpuwatch.money.bill.reconcile import node_of

_EIGHT_DIGITS = Decimal("0.00000001")
_HOST_OF_ANY = ("n1-", "custom-")  # Google's machines to which any GPUs may be attached


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """What the ledger knows of a machine on a day: what it is, and for how many hours it was billed."""

    region: str
    instance_type: str
    capacity_type: str
    hours: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Of what a rate is."""

    region: str
    instance_type: str
    capacity_type: CapacityType
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What an hour cost, in the bill's currency; `list_per_hour` is the public price where the bill has it."""

    kind: Kind
    per_hour: Decimal
    list_per_hour: Decimal | None
    hours: Decimal
    machines: int
    committed_ratio: Decimal  # of its cost
    first: date
    last: date

    @property
    def until(self) -> date:
        """The day from which it holds no more (rule 4)."""
        months = self.last.year * 12 + self.last.month - 1 + 2
        return date(months // 12, months % 12 + 1, 1)

    @property
    def source(self) -> str:
        """The words that stand with every figure made from it."""
        return effective_source(self.first, self.last, self.committed_ratio)


@dataclass(slots=True)
class _Sum:
    """What a machine's lines of one day add up to, of one kind."""

    cost: Fraction = Fraction(0)
    committed: Fraction = Fraction(0)
    listed: Fraction | None = Fraction(0)
    hours: Fraction | None = None
    known: bool = True

    def add(self, charge: Charge) -> None:
        """Add one more line to it."""
        self.known &= charge.amortized
        if charge.cost == 0 and charge.hours is not None and not charge.committed:
            return  # an hour for nothing, such as the first one of an interrupted spot machine, is no price
        cost = Fraction(charge.cost)
        self.cost += cost
        self.committed += cost if charge.committed else 0
        if charge.hours is not None or charge.list_cost is not None:
            listed = charge.list_cost
            self.listed = None if self.listed is None or listed is None else self.listed + Fraction(listed)
        if charge.hours is not None:
            self.hours = (self.hours or Fraction(0)) + Fraction(charge.hours)


@dataclass(slots=True)
class _Whole:
    """What all days of all machines of a kind add up to."""

    cost: Fraction = Fraction(0)
    committed: Fraction = Fraction(0)
    listed: Fraction | None = Fraction(0)
    hours: Fraction = Fraction(0)
    machines: set[str] = field(default_factory=set)
    days: set[date] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """All rates of a bill, and how many machines' days made none, by the reason."""

    rates: tuple[Rate, ...]
    left_out: Mapping[str, int]


def effective_rates(
    lines: Iterable[Charge], metered: Mapping[tuple[str, date], Metered], names: Mapping[str, str] | None = None
) -> Rates:
    """The rates of a bill. `metered` is what the ledger knows of its machines; `names` as for `gather_charges`."""
    known = frozenset(node for node, _ in metered)
    sums: dict[tuple[str, date, Kind], _Sum] = {}
    left_out: dict[str, int] = {}
    waiting: list[tuple[str, date, Charge]] = []  # a discount's line may lack what its hour's line says
    kinds: dict[tuple[str, date], list[Kind]] = {}
    for each in lines:
        node = node_of(each.resource, known, names or {})
        of_machine = each.machine or (each.machine is None and node in known)
        if not of_machine or each.fee or not each.rated:
            continue
        kind = _kind(each, metered.get((node, each.day)))
        if kind is None and each.hours is None and not each.plain:
            waiting.append((node, each.day, each))
            continue
        if kind is None:
            _count(left_out, "neither bill nor ledger says of which type or region they are")
            continue
        sums.setdefault((node, each.day, kind), _Sum()).add(each)
        kinds.setdefault((node, each.day), []).append(kind)
    for node, day, each in waiting:
        for kind in kinds.get((node, day), ())[:1]:
            sums[node, day, kind].add(each)
    return Rates(rates=tuple(_rates(sums, metered, left_out)), left_out=left_out)


def _kind(charge: Charge, known: Metered | None) -> Kind | None:
    """The kind of machine that a line is of (rule 3); None: neither the bill nor the ledger says."""
    instance_type = charge.instance_type or (known.instance_type if known else None)
    region = charge.region or (known.region if known else None)
    if not instance_type or not region:
        return None
    spot = charge.spot or (charge.instance_type is None and known is not None and known.capacity_type == "spot")
    capacity = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
    return Kind(region=region, instance_type=instance_type, capacity_type=capacity, currency=charge.currency)


def _rates(
    sums: Mapping[tuple[str, date, Kind], _Sum],
    metered: Mapping[tuple[str, date], Metered],
    left_out: dict[str, int],
) -> Iterator[Rate]:
    """Rule 2, and the quotient of each kind, in the order of their names."""
    wholes: dict[Kind, _Whole] = {}
    for (node, day, kind), each in sums.items():
        known = metered.get((node, day))
        hours = each.hours if each.hours is not None else (known.hours if known else None)
        why = _why_none(kind, each, hours)
        if why is not None:
            _count(left_out, why)
            continue
        whole = wholes.setdefault(kind, _Whole())
        whole.cost += each.cost
        whole.committed += each.committed
        whole.listed = None if whole.listed is None or each.listed is None else whole.listed + each.listed
        whole.hours += hours or 0
        whole.machines.add(node)
        whole.days.add(day)
    for kind, whole in sorted(wholes.items(), key=lambda item: _order(item[0])):
        yield Rate(
            kind=kind,
            per_hour=_decimal(whole.cost / whole.hours),
            list_per_hour=None if not whole.listed else _decimal(whole.listed / whole.hours),
            hours=_decimal(whole.hours),
            machines=len(whole.machines),
            committed_ratio=_decimal(whole.committed / whole.cost) if whole.cost else Decimal(0),
            first=min(whole.days),
            last=max(whole.days),
        )


def _why_none(kind: Kind, each: _Sum, hours: Fraction | None) -> str | None:
    """Why a machine's day makes no rate; None: it makes one."""
    if not each.known:
        return "a commitment covers them, and the bill lacks its effective cost"
    if kind.instance_type.startswith(_HOST_OF_ANY):
        return "their type says nothing of their GPUs: name their price yourself"
    if not hours or hours <= 0:
        return "nobody knows their hours"
    return "they cost nothing, or less" if each.cost <= 0 else None


def _count(left_out: dict[str, int], why: str) -> None:
    left_out[why] = left_out.get(why, 0) + 1


def _order(kind: Kind) -> tuple[str, ...]:
    return (kind.region, kind.instance_type, kind.capacity_type.value, kind.currency)


def _decimal(value: Fraction) -> Decimal:
    made = Decimal(value.numerator) / Decimal(value.denominator)
    return made.quantize(_EIGHT_DIGITS, ROUND_HALF_EVEN).normalize() + Decimal(0)
