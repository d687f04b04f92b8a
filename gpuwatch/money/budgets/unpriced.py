"""PURE: a budget's machines without a known price, and what they would cost at the last known one.

Rules, all of them:

1. The last known price of a kind (cloud, region, type, capacity) is the one that another machine of the kind has now,
   or else the newest in the ledger's rows, with its day.
2. What is assumed so is in no sum: neither in what is spent nor in the forecast, and it crosses no threshold.
3. A budget with `block_growth` counts it: growth ends when spent and assumed reach the budget together, and while a
   machine runs of a kind that never had a price.
4. Nothing is removed for it, and no wait is shortened.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

from gpuwatch.model.fleet import Node
from gpuwatch.model.money import Price, format_usd
from gpuwatch.model.usage import HOUR_MS, Terms
from gpuwatch.money.accounting.totals import Billed

Kind = tuple[str, str, str, str]  # cloud, region, type, capacity
_MOST_KINDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPrice:
    """What an hour of a kind of machine last cost, and of which day that is."""

    usd_per_hour: Decimal
    day: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpriced:
    """What a budget's sums lack: `usd` is assumed for hours without a price, `usd_per_hour` for what runs without one.

    `day` is that of the oldest price it rests on, `types` are those of which there is one; of `unknown` machines of
    these `kinds` no price was ever known.
    """

    usd: Fraction = Fraction(0)
    usd_per_hour: Decimal = Decimal(0)
    day: date | None = None
    types: tuple[str, ...] = ()
    unknown: int = 0
    kinds: tuple[str, ...] = ()

    def words(self) -> str:
        """What was assumed, and what of it is not known, as a clause; "" where every price is known."""
        parts = []
        if self.day is not None and self.usd:
            parts.append(
                f"hours without a price would be about {format_usd(self.usd)} at the last known prices (of {self.day})"
            )
        if self.unknown:
            more = f" and {len(self.kinds) - _MOST_KINDS} more" if len(self.kinds) > _MOST_KINDS else ""
            named = f"{', '.join(self.kinds[:_MOST_KINDS])}{more}"
            machines = f"{self.unknown} machine{'s' if self.unknown != 1 else ''}"
            parts.append(f"what {machines} cost has never been known ({named})")
        return ", and ".join(parts)


def kind_of(terms: Terms) -> Kind:
    """The kind of machine that was billed."""
    return terms.cloud or "", terms.region, terms.instance_type, terms.capacity_type


def kind_of_node(node: Node) -> Kind:
    """The kind of a machine that exists."""
    return node.cloud, node.region, node.instance_type, node.capacity_type.value


def last_prices(rows: Iterable[Billed]) -> dict[Kind, LastPrice]:
    """The newest price of each kind in these rows, whosever machines they are of."""
    newest: dict[Kind, Billed] = {}
    for row in rows:
        if row.terms.usd_per_hour is not None:
            kind = kind_of(row.terms)
            if kind not in newest or newest[kind].begin <= row.begin:
                newest[kind] = row
    return {
        kind: LastPrice(
            usd_per_hour=row.terms.usd_per_hour or Decimal(0),
            day=row.terms.price_as_of or datetime.fromtimestamp(row.begin, UTC).date(),
        )
        for kind, row in newest.items()
    }


def without_price(
    hours: Mapping[Kind, int | Fraction],
    running: Sequence[tuple[Decimal, Node, Price | None]],
    last: Mapping[Kind, LastPrice],
) -> Unpriced:
    """Rule 1: of this month's milliseconds without a price by kind, and of what runs now, by its part in the scope."""
    now = {
        kind_of_node(node): LastPrice(usd_per_hour=price.usd_per_hour, day=price.as_of)
        for _, node, price in running
        if price is not None
    }
    known = {**last, **now}
    lacking = [(part, node) for part, node, price in running if price is None]
    kinds = {*hours, *(kind_of_node(node) for _, node in lacking)}
    days = [known[kind].day for kind in kinds if kind in known]
    never = [node for _, node in lacking if kind_of_node(node) not in known]
    return Unpriced(
        usd=sum(
            (Fraction(known[kind].usd_per_hour) * ms / HOUR_MS for kind, ms in hours.items() if kind in known),
            Fraction(0),
        ),
        usd_per_hour=sum(
            (part * known[kind_of_node(node)].usd_per_hour for part, node in lacking if kind_of_node(node) in known),
            Decimal(0),
        ),
        day=min(days, default=None),
        types=tuple(sorted({kind[2] for kind in kinds if kind in known})),
        unknown=len(never),
        kinds=tuple(sorted({f"{node.instance_type} in {node.region}" for node in never})),
    )
