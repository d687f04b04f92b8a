"""What sections are made of, and how figures are written."""

from dataclasses import dataclass
from typing import ClassVar

from gpuwatch.model.money import format_cents
from gpuwatch.money.accounting.totals import Total


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
    """One bar of two parts, in cents, and how it is written."""

    label: str
    useful: int
    wasted: int
    written: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars on one scale."""

    kind: ClassVar = "bars"
    caption: str
    bars: tuple[Bar, ...]

    @property
    def most(self) -> int:
        """Return the value of the longest bar."""
        return max((bar.useful + bar.wasted for bar in self.bars), default=0)

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
    if total.unpriced_ms and total.unpriced_ms == total.node_ms:
        return "unknown"
    return f"{format_cents(cents)}{'+?' if total.unpriced_ms else ''}"


def percent(ratio: float) -> str:
    """Return a ratio as percent with one decimal."""
    return f"{ratio:.1%}"
