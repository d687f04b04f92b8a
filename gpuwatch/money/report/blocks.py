"""What sections are made of, and how figures are written."""

from dataclasses import dataclass
from typing import ClassVar

from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import format_cents, format_usd
from gpuwatch.model.readable import how_many
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.totals import Total, money_parts

_MOST_KINDS = 3


@dataclass(frozen=True, slots=True)
class Words:
    """Sentences, a paragraph each."""

    kind: ClassVar = "words"
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Texts in rows; columns in `left` are words, the others numbers.

    `summed`: the last row is the others' sum. `beneath`: the last column is sentences; where there is no room for them
    with the others they stand under their row. `extra` columns are left out where there is little room.
    """

    kind: ClassVar = "table"
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int]
    summed: bool = False
    beneath: bool = False
    extra: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of three parts, in cents, and how it is written."""

    label: str
    useful: int
    wasted: int
    unproven: int
    written: str

    @property
    def length(self) -> int:
        """Return the parts together."""
        return self.useful + self.wasted + self.unproven


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars on one scale."""

    kind: ClassVar = "bars"
    caption: str
    bars: tuple[Bar, ...]

    @property
    def most(self) -> int:
        """Return the value of the longest bar."""
        return max((bar.length for bar in self.bars), default=0)

    def percent(self, cents: int) -> float:
        """A part of a bar, of the longest bar's length."""
        return 100 * cents / self.most if self.most > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One number in large letters, with its name and a note."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Several figures in one row."""

    kind: ClassVar = "figures"
    figures: tuple[Figure, ...]


Part = Words | Table | Bars | Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands under it."""

    title: str
    parts: tuple[Part, ...]


def usd(total: Total, cents: int) -> str:
    """Unknown where no machine has a price, more than that where some machines have no price."""
    if total.unpriced:
        return "unknown"
    return f"{format_cents(cents)}{'+?' if total.unpriced_ms else ''}"


def unproven_cents(total: Total) -> int:
    """What nobody knows the use of, as every table shows it."""
    *_, (unproven, _) = money_parts({"": total}, display_currency().cent)
    return unproven


def bar_of(label: str, total: Total) -> Bar:
    """The bar of a total: proven waste, what nobody knows, and useful time."""
    cents, wasted, unproven = (part for part, _ in money_parts({"": total}, display_currency().cent))
    share = f", {percent(wasted / cents)} wasted" if cents else ""
    useful, written = cents - wasted - unproven, usd(total, cents) + share
    return Bar(label=label, useful=useful, wasted=wasted, unproven=unproven, written=written)


def unproven_note(total: Total) -> str:
    """What nobody knows the use of, as a sentence with what to do."""
    hours = f"{total.unproven_ms / HOUR_MS:,.1f} GPU-hours"
    cost = "" if total.unpriced else f" ({format_cents(unproven_cents(total))})"
    return (
        f"Nobody knows the use of {hours}{cost}: they are no proven waste. Unknown is time without an agent or a clear "
        "verdict (`gpuwatch doctor controller` says why), silent is time without a round."
    )


def unpriced_note(total: Total) -> str:
    """What has no price, as a sentence with what to do."""
    named = sorted(total.unpriced_kinds)
    more = f" and {len(named) - _MOST_KINDS} more kinds" if len(named) > _MOST_KINDS else ""
    kinds = f" ({', '.join(named[:_MOST_KINDS])}{more})" if named else ""
    machines = len(total.unpriced_machines)
    of_machines = f" of {how_many(machines, 'machine')}" if machines else ""
    return (
        f"{total.unpriced_ms / HOUR_MS:,.1f} machine-hours{of_machines} have no known price{kinds}: they are in no sum "
        "of money (+?). Set `prices.live`, or their prices in `prices.file`."
    )


def foreign_note(total: Total) -> str:
    """What is not ours, as a sentence with what to do."""
    found = total.foreign
    machines = f" of {how_many(len(found.machines), 'machine')}" if found.machines else ""
    cost = "without a known price" if found.unpriced else f"{format_usd(found.usd)}{'+?' if found.unpriced_ms else ''}"
    fleets = sorted(found.fleets)
    named = f", or of fleet {' and '.join(fleets)}" if fleets else ""
    return (
        f"Not ours: {found.node_ms / HOUR_MS:,.1f} machine-hours{machines}, {cost} (not enrolled{named}), in no sum. "
        "Enrol them with the tag `gpuwatch:fleet`, or set `cost.scope: account` to count all machines."
    )


def percent(ratio: float) -> str:
    """Return a ratio as percent with one decimal."""
    return f"{ratio:.1%}"
