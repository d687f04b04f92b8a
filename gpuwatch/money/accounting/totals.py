"""PURE: what rows of spending add up to, exactly; rounded only when shown, so that what is shown adds up as well."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from gpuwatch.model.money import usd_of_cents, usd_to_the_cent
from gpuwatch.model.usage import AMOUNTS, GPU, HOUR_MS, JOULES, MEASURED, UNPROVEN, USES, WASTED, Holder, Terms, Use
from gpuwatch.money.accounting.scope import Foreign
from gpuwatch.money.accounting.settings import EnergySettings
from gpuwatch.money.accounting.slices import Calendar

_WASTED, _UNPROVEN = (tuple(map(USES.index, uses)) for uses in (WASTED, UNPROVEN))
_USEFUL = USES.index(Use.USEFUL)
_CENT = Fraction(1, 100)
_JOULES_PER_KWH = 3_600_000
Name = TypeVar("Name", str, tuple[str, str], tuple[str, str, str])  # of a group
Document = TypeVar("Document")
TAG = "tag:"
NONE = "(none)"  # what has no owner, account or tag
NO_CLUSTER = "(no cluster)"  # GPUs that are of no node of a Kubernetes cluster
NOT_KNOWN = "(not known)"  # the cloud of what was billed before the ledger kept it


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Amounts under one set of terms; where given, of an hour or a day (seconds since 1970), of a node, of a holder.

    `machines` are those of a sum under terms of which they are to be counted: foreign ones, and without a price.
    """

    terms: Terms
    amounts: Sequence[int]
    begin: int | None = None
    node_id: str | None = None
    holder: Holder | None = None
    machines: frozenset[str] = frozenset()

    @property
    def named(self) -> frozenset[str]:
        """The machines that it is known to be of."""
        return self.machines if self.node_id is None else frozenset((self.node_id,))


@dataclass(slots=True)
class Total:
    """What rows add up to. Money is of machines with a known price; `unpriced_ms` is the time of the others.

    Money and GPU time are the sum of three parts: useful, wasted (proven: seen, and of no use) and unproven (nobody
    knows, or nobody looked). What foreign machines were billed is in none of it, and stands next to it.
    """

    amounts: list[int] = field(default_factory=lambda: [0] * len(AMOUNTS))
    usd_by_use: list[Fraction] = field(default_factory=lambda: [Fraction(0)] * len(USES))
    unpriced_ms: int = 0
    unpriced_kinds: frozenset[str] = frozenset()  # types and regions of machines without a known price
    unpriced_machines: frozenset[str] = field(default=frozenset(), compare=False)  # as far as rows name them
    foreign: Foreign = field(default_factory=Foreign)

    def add(self, row: Row) -> None:
        """One more row; the money of a machine is divided among the uses as its GPUs' time is."""
        if row.terms.foreign is not None:
            self.foreign.add(row.terms, row.amounts, row.named)
            return
        self.amounts = [mine + its for mine, its in zip(self.amounts, row.amounts, strict=True)]
        if row.terms.usd_per_hour is None:
            self.unpriced_ms += sum(row.amounts[:GPU])
            self.unpriced_kinds |= {f"{row.terms.instance_type} in {row.terms.region}"}
            self.unpriced_machines |= row.named
            return
        first, parts = (GPU, row.terms.gpus) if row.terms.gpus > 0 else (0, 1)
        of_a_ms = Fraction(row.terms.usd_per_hour) / (HOUR_MS * parts)
        for place in range(len(USES)):
            if row.amounts[first + place]:
                self.usd_by_use[place] += of_a_ms * row.amounts[first + place]

    @property
    def node_ms(self) -> int:
        """For how long machines were billed."""
        return sum(self.amounts[:GPU])

    @property
    def gpu_ms(self) -> int:
        """For how long their GPUs were billed."""
        return sum(self.amounts[GPU:JOULES])

    @property
    def gpu_ms_by_use(self) -> dict[Use, int]:
        """Billed GPU time by use."""
        return dict(zip(USES, self.amounts[GPU:JOULES], strict=True))

    @property
    def unpriced(self) -> bool:
        """Whether no machine of it has a known price."""
        return self.unpriced_ms > 0 and self.unpriced_ms == self.node_ms

    @property
    def useful_ms(self) -> int:
        """GPU time that was useful."""
        return self.amounts[GPU + _USEFUL]

    @property
    def wasted_ms(self) -> int:
        """GPU time that was seen and of no use."""
        return sum(self.amounts[GPU + place] for place in _WASTED)

    @property
    def unproven_ms(self) -> int:
        """GPU time of which nobody knows what it was used for."""
        return sum(self.amounts[GPU + place] for place in _UNPROVEN)

    @property
    def waste_ratio(self) -> float | None:
        """Proven waste / billed GPU-hours; None where nothing was billed."""
        return self.wasted_ms / self.gpu_ms if self.gpu_ms else None

    @property
    def unproven_ratio(self) -> float | None:
        """Unproven / billed GPU-hours; None where nothing was billed."""
        return self.unproven_ms / self.gpu_ms if self.gpu_ms else None

    @property
    def usd(self) -> Fraction:
        """What was billed at known prices."""
        return sum(self.usd_by_use, Fraction(0))

    @property
    def usd_useful(self) -> Fraction:
        """What of it was for useful time."""
        return self.usd_by_use[_USEFUL]

    @property
    def usd_wasted(self) -> Fraction:
        """What of it was for time that was seen and of no use."""
        return sum((self.usd_by_use[place] for place in _WASTED), Fraction(0))

    @property
    def usd_unproven(self) -> Fraction:
        """What of it was for time of which nobody knows what it was used for: no proven waste."""
        return sum((self.usd_by_use[place] for place in _UNPROVEN), Fraction(0))

    @property
    def usd_waste_ratio(self) -> float | None:
        """Proven waste, of what was billed at known prices; None where this is nothing."""
        return float(self.usd_wasted / self.usd) if self.usd else None

    @property
    def joules(self) -> int:
        """Return the measured energy in joules."""
        return self.amounts[JOULES]

    @property
    def measured_gpu_ms(self) -> int:
        """GPU time over which energy was measured."""
        return self.amounts[MEASURED]


def cloud_name(terms: Terms) -> str:
    """The cloud's name; of the only one where the settings name none, what it is."""
    return terms.cloud or terms.provider or NOT_KNOWN


BY: dict[str, Callable[[Row], str | None]] = {
    "pool": lambda row: row.terms.pool,
    "cloud": lambda row: cloud_name(row.terms),
    "provider": lambda row: row.terms.provider or NOT_KNOWN,
    "owner": lambda row: row.terms.owner,
    "account": lambda row: row.terms.account,
    "node": lambda row: row.node_id,
    "type": lambda row: row.terms.instance_type,
    "region": lambda row: row.terms.region,
    "capacity": lambda row: row.terms.capacity_type,
}


# Slicings of rows by holder; what machines outside a cluster cost is NO_CLUSTER.
BY_HOLDER: dict[str, Callable[[Holder], str | None]] = {
    "namespace": lambda holder: holder.namespace,
    "workload": lambda holder: holder.workload,
    "workload-owner": lambda holder: holder.owner if holder.kind else holder.namespace,
}


def grouping(by: str, calendar: Calendar) -> Callable[[Row], str]:
    """The function that names the group of a row.

    Raises:
        ValueError: there is no such slicing.

    """
    if by == "day":
        return lambda row: f"{calendar.local((row.begin or 0) * 1000):%Y-%m-%d}"
    if by.startswith(TAG) and len(by) > len(TAG):
        name = by.removeprefix(TAG)
        return lambda row: dict(row.terms.tags).get(name) or NONE
    if by in BY_HOLDER:
        named = BY_HOLDER[by]
        return lambda row: NO_CLUSTER if row.holder is None else named(row.holder) or NONE
    if by not in BY:
        raise ValueError(f"{by!r} is no way to slice; there are {', '.join((*BY, *BY_HOLDER))}, day and {TAG}KEY")
    return lambda row: BY[by](row) or NONE


def totals(rows: Iterable[Row], group: Callable[[Row], Name]) -> dict[Name, Total]:
    """The total of each group, by name."""
    found: dict[Name, Total] = {}
    for row in rows:
        found.setdefault(group(row), Total()).add(row)
    return dict(sorted(found.items()))


def by_use(total: Total) -> Iterator[tuple[Use, float, float]]:
    """Seconds of GPUs and dollars by use."""
    for (use, ms), usd in zip(total.gpu_ms_by_use.items(), total.usd_by_use, strict=True):
        yield use, ms / 1000, float(usd)


def whole(groups: Iterable[Total]) -> Total:
    """The sum of totals."""
    made = Total()
    for each in groups:
        made.amounts = [mine + its for mine, its in zip(made.amounts, each.amounts, strict=True)]
        made.usd_by_use = [mine + its for mine, its in zip(made.usd_by_use, each.usd_by_use, strict=True)]
        made.unpriced_ms += each.unpriced_ms
        made.unpriced_kinds |= each.unpriced_kinds
        made.unpriced_machines |= each.unpriced_machines
        made.foreign.merge(each.foreign)
    return made


def round_parts(
    parts: Mapping[str, Fraction], step: Fraction, most: Mapping[str, int] | None = None, total: int | None = None
) -> tuple[int, dict[str, int]]:
    """The sum and its parts in whole steps: the sum rounded to the nearest (or `total`), and parts that add up to it.

    By largest remainders: no part is off by a step or more, and the sum is the same however it is divided. Where these
    are parts of what is shown next to them as `most`, none is larger (waste is never a cent above its cost); one may
    then be off by a step and a bit.
    """
    exact = {name: part / step for name, part in parts.items()}
    total = round(sum(exact.values(), Fraction(0))) if total is None else total
    made = {name: part.numerator // part.denominator for name, part in exact.items()}
    if most is not None:
        made = {name: min(part, most[name]) for name, part in made.items()}
    rest = total - sum(made.values())
    order = sorted(made, key=lambda name: (made[name] - exact[name], name))
    for name in order[rest:] if rest < 0 else ():
        made[name] -= 1
    while rest > 0:
        room = order if most is None else [name for name in order if made[name] < most[name]]
        for name in room[:rest]:
            made[name] += 1
        rest -= len(room[:rest])
        if not room:
            break
    return total, made


def money_parts(groups: Mapping[str, Total], step: Fraction) -> tuple[tuple[int, dict[str, int]], ...]:
    """What groups cost, wasted, and cost unproven, in whole steps; each adds up.

    Wasted and unproven are together never more than the cost, and in sum all of it where no time was useful.
    """
    cost = round_parts({name: each.usd for name, each in groups.items()}, step)
    wasted = round_parts({name: each.usd_wasted for name, each in groups.items()}, step, cost[1])
    unproven = {name: each.usd_unproven for name, each in groups.items()}
    left, most = {name: cost[1][name] - wasted[1][name] for name in groups}, cost[0] - wasted[0]
    useful = any(each.usd_useful for each in groups.values())
    total = min(most, round(sum(unproven.values(), Fraction(0)) / step)) if useful else most
    return cost, wasted, round_parts(unproven, step, left, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """For how long machines were billed under the same terms in one hour or day, which begins then (s since 1970).

    With a `namespace`: what its pods hold.
    """

    begin: int
    span: int
    terms: Terms
    node_ms: int | Fraction  # a namespace may hold a part of a machine
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalDocument:
    """What was billed, and what of it was of no use. Money is null where no price at all is known.

    `gpu_ms` is milliseconds of GPU time by use, and `billed` is their sum. Wasted is what was seen and of no use (idle,
    parked, stalled, down); unproven is time of which nobody knows the use (unknown, silent): it is no proven waste.
    Ratios are of billed GPU time; `usd_waste_ratio` is `usd_wasted` over `usd`. `unpriced_machine_hours` are in no sum
    of money. `foreign_…` and `usd_foreign` are of machines that are not ours, and in no other figure; with `cost.scope:
    account` they are zero. Numbers of machines are null in hours, days and months.
    """

    usd: Decimal | None
    usd_wasted: Decimal | None
    usd_unproven: Decimal | None
    usd_waste_ratio: float | None
    machine_hours: float
    gpu_hours: float
    gpu_ms: Mapping[str, int]
    waste_ratio: float | None
    unproven_ratio: float | None
    unpriced_machine_hours: float
    unpriced_machines: int | None
    usd_foreign: Decimal | None
    foreign_machine_hours: float
    foreign_gpu_hours: float
    foreign_unpriced_machine_hours: float
    foreign_machines: int | None


@dataclass(frozen=True, kw_only=True)
class Named:
    """A name before the figures; it has no slot, because of two bases only one may have slots."""

    __slots__ = ()
    name: str


def total_documents(
    kind: Callable[..., Document], totals: Mapping[str, Total], more: Callable[[str], Mapping[str, object]]
) -> tuple[Document, ...]:
    """Totals for JSON: exact times, and money in cents that add up to the whole's; `more` are other fields of each."""
    (_, cents), (_, wasted), (_, unproven) = money_parts(totals, _CENT)
    _, foreign = round_parts({name: each.foreign.usd for name, each in totals.items()}, _CENT)
    return tuple(
        kind(
            usd=None if each.unpriced else usd_of_cents(cents[name]),
            usd_wasted=None if each.unpriced else usd_of_cents(wasted[name]),
            usd_unproven=None if each.unpriced else usd_of_cents(unproven[name]),
            usd_waste_ratio=each.usd_waste_ratio,
            machine_hours=each.node_ms / HOUR_MS,
            gpu_hours=each.gpu_ms / HOUR_MS,
            gpu_ms={"billed": each.gpu_ms, **{use.value: ms for use, ms in each.gpu_ms_by_use.items()}},
            waste_ratio=each.waste_ratio,
            unproven_ratio=each.unproven_ratio,
            unpriced_machine_hours=each.unpriced_ms / HOUR_MS,
            unpriced_machines=_number(each.unpriced_machines, each.unpriced_ms),
            usd_foreign=None if each.foreign.unpriced else usd_of_cents(foreign[name]),
            foreign_machine_hours=each.foreign.node_ms / HOUR_MS,
            foreign_gpu_hours=each.foreign.gpu_ms / HOUR_MS,
            foreign_unpriced_machine_hours=each.foreign.unpriced_ms / HOUR_MS,
            foreign_machines=_number(each.foreign.machines, each.foreign.node_ms),
            **more(name),
        )
        for name, each in totals.items()
    )


def _number(named: frozenset[str], ms: int) -> int | None:
    """How many machines there are; None where rows do not name them."""
    return len(named) if named or not ms else None


def total_document(kind: Callable[..., Document], total: Total, **more: object) -> Document:
    """One total for JSON, to the cent."""
    [made] = total_documents(kind, {"": total}, lambda _: more)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Each factor apart; None where it is not stated. `measured_ratio` is of the billed GPU time; None without any.

    `usd` is the power's price, which is in no other sum.
    """

    gpu_kwh: float
    measured_ratio: float | None
    unmeasured_gpu_hours: float
    host_kwh: float | None
    facility_kwh: float | None  # of GPUs, and hosts where stated, by the PUE
    co2e_kg: float | None  # of the facility's where there is a PUE, else of GPUs' and hosts'
    usd: Decimal | None  # of the same


def energy(total: Total, factors: EnergySettings) -> Energy:
    """The energy of a total."""
    gpu = total.joules / _JOULES_PER_KWH
    host = None if factors.host_watts is None else factors.host_watts / 1000 * total.node_ms / HOUR_MS
    machines = gpu + (host or 0.0)
    facility = None if factors.pue is None else machines * factors.pue
    used = machines if facility is None else facility
    grams = factors.co2e_grams_per_kwh
    return Energy(
        gpu_kwh=gpu,
        measured_ratio=total.measured_gpu_ms / total.gpu_ms if total.gpu_ms else None,
        unmeasured_gpu_hours=(total.gpu_ms - total.measured_gpu_ms) / HOUR_MS,
        host_kwh=host,
        facility_kwh=facility,
        co2e_kg=None if grams is None else used * grams / 1000,
        usd=None if factors.usd_per_kwh is None else usd_to_the_cent(Decimal(used) * factors.usd_per_kwh),
    )
