"""PURE: what rows of spending add up to, exactly; rounded only when shown, so that what is shown adds up as well."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gpuwatch.model.usage import AMOUNTS, GPU, HOUR_MS, JOULES, MEASURED, USES, Terms, Use
from gpuwatch.money.accounting.slices import Calendar

_KNOWN_WASTE = tuple(USES.index(use) for use in (Use.IDLE, Use.PARKED, Use.STALLED, Use.DOWN))
_USEFUL = USES.index(Use.USEFUL)
TAG = "tag:"
NONE = "(none)"  # what has no owner, account or tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Amounts under one set of terms, of an hour or a day (seconds since 1970), and of a node, where these are told."""

    terms: Terms
    amounts: Sequence[int]
    begin: int | None = None
    node_id: str | None = None


@dataclass(slots=True)
class Total:
    """What rows add up to. Money is of machines with a known price; `unpriced_ms` is the time of the others."""

    amounts: list[int] = field(default_factory=lambda: [0] * len(AMOUNTS))
    usd_by_use: list[Fraction] = field(default_factory=lambda: [Fraction(0)] * len(USES))
    unpriced_ms: int = 0

    def add(self, row: Row) -> None:
        """One more row; the money of a machine is divided among the uses as its GPUs' time is."""
        self.amounts = [mine + its for mine, its in zip(self.amounts, row.amounts, strict=True)]
        if row.terms.usd_per_hour is None:
            self.unpriced_ms += sum(row.amounts[:GPU])
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
        """For how long their GPUs were."""
        return sum(self.amounts[GPU:JOULES])

    @property
    def gpu_ms_by_use(self) -> dict[Use, int]:
        """Likewise, by what they did."""
        return dict(zip(USES, self.amounts[GPU:JOULES], strict=True))

    @property
    def waste_ratio(self) -> float | None:
        """Billed GPU-hours without useful activity / billed GPU-hours; None where nothing was billed."""
        return 1 - self.amounts[GPU + _USEFUL] / self.gpu_ms if self.gpu_ms else None

    @property
    def usd(self) -> Fraction:
        """What was billed at known prices."""
        return sum(self.usd_by_use, Fraction(0))

    @property
    def usd_wasted(self) -> Fraction:
        """All of it that was not for useful time."""
        return self.usd - self.usd_by_use[_USEFUL]

    @property
    def usd_wasted_for_sure(self) -> Fraction:
        """Without the time of which is not known what it was used for."""
        return sum((self.usd_by_use[place] for place in _KNOWN_WASTE), Fraction(0))

    @property
    def joules(self) -> int:
        """As measured."""
        return self.amounts[JOULES]

    @property
    def measured_gpu_ms(self) -> int:
        """Over which they were."""
        return self.amounts[MEASURED]


BY: dict[str, Callable[[Row], str | None]] = {
    "pool": lambda row: row.terms.pool,
    "owner": lambda row: row.terms.owner,
    "account": lambda row: row.terms.account,
    "node": lambda row: row.node_id,
    "type": lambda row: row.terms.instance_type,
    "region": lambda row: row.terms.region,
    "capacity": lambda row: row.terms.capacity_type,
}


def grouping(by: str, calendar: Calendar) -> Callable[[Row], str]:
    """What tells the group of a row.

    Raises:
        ValueError: there is no such slicing.

    """
    if by == "day":
        return lambda row: f"{calendar.local((row.begin or 0) * 1000):%Y-%m-%d}"
    if by.startswith(TAG) and len(by) > len(TAG):
        name = by.removeprefix(TAG)
        return lambda row: dict(row.terms.tags).get(name, NONE)
    if by not in BY:
        raise ValueError(f"{by!r} is no way to slice; there are {', '.join(BY)}, day and {TAG}KEY")
    return lambda row: BY[by](row) or NONE


def totals(rows: Iterable[Row], group: Callable[[Row], str]) -> dict[str, Total]:
    """The total of each group, by name."""
    found: dict[str, Total] = {}
    for row in rows:
        found.setdefault(group(row), Total()).add(row)
    return dict(sorted(found.items()))


def whole(groups: Iterable[Total]) -> Total:
    """All of them together."""
    made = Total()
    for each in groups:
        made.amounts = [mine + its for mine, its in zip(made.amounts, each.amounts, strict=True)]
        made.usd_by_use = [mine + its for mine, its in zip(made.usd_by_use, each.usd_by_use, strict=True)]
        made.unpriced_ms += each.unpriced_ms
    return made


def shown(parts: Mapping[str, Fraction], step: Fraction) -> tuple[int, dict[str, int]]:
    """The sum and its parts in whole steps: the sum rounded to the nearest, and parts that add up to it.

    By largest remainders: no part is off by a step or more, and the sum is the same however it is divided.
    """
    exact = {name: part / step for name, part in parts.items()}
    total = round(sum(exact.values(), Fraction(0)))
    made = {name: part.numerator // part.denominator for name, part in exact.items()}
    rest = total - sum(made.values())
    for name in sorted(made, key=lambda name: (made[name] - exact[name], name))[:rest]:
        made[name] += 1
    return total, made


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """For how long machines were billed under the same terms in one hour or day, which begins then (s since 1970)."""

    begin: int
    span: int
    terms: Terms
    node_ms: int
