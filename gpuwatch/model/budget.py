"""A month's budget as one round saw it: what is spent, where the month will end, and what follows from that."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from gpuwatch.model.fleet import Node

Basis = Literal["actual", "forecast", "rate"]  # spent, as usual, at the present rate
When = Literal["never", "actual", "forecast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The machines that count: what is named must all be so; a scope that names nothing is everything.

    With a `namespace` what its pods hold of them counts, and no machine is in the scope as a whole.
    """

    pool: str | None = None
    owner: str | None = None
    account: str | None = None
    tag: tuple[str, str] | None = None
    cloud: str | None = None
    namespace: str | None = None

    def takes(
        self,
        pool: str,
        owner: str | None,
        account: str | None,
        tags: Mapping[str, str],
        cloud: str | None,
        namespace: str | None = None,
    ) -> bool:
        """Whether spending under these labels counts; a cloud that is not known (None) is no cloud's.

        `namespace` is that of the pods that hold what was billed; None: it is of whole machines.
        """
        return (
            self.pool in {None, pool}
            and self.namespace == namespace
            and self.cloud in {None, cloud}
            and self.owner in {None, owner}
            and self.account in {None, account}
            and (self.tag is None or tags.get(self.tag[0]) == self.tag[1])
        )

    def covers(self, node: Node) -> bool:
        """Whether a machine's spending counts."""
        return self.takes(node.pool, node.owner, node.account, node.tags, node.cloud)

    def __str__(self) -> str:
        """Return the scope in words for people."""
        named = {"cloud": self.cloud, "pool": self.pool, "owner": self.owner, "account": self.account}
        named["namespace"] = self.namespace
        parts = [f"{name} {value}" for name, value in named.items() if value is not None]
        return ", ".join([*parts, *(["tag " + "=".join(self.tag)] if self.tag else [])]) or "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A threshold that was reached this month: the part of the budget, by what, and in the round of when."""

    ratio: float
    on: Basis
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShorterWaits:
    """Idle machines wait this long at most, because of that (a clause)."""

    wait_seconds: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """One budget in one round.

    `spent_usd` is what the ledger had metered, up to the round before; None with a `doubt` where it could not be read.
    It and the forecast are lower bounds where machine-hours without a known price (`unpriced_hours`) are among it.
    `thresholds` are the parts of it that people want to hear of, smallest first. `blocked` is why no machine may be
    added, None: it may; `hastening` how long idle machines wait, None: as their pools say. `reaches_at` is when all
    will be spent at the forecast's pace, where that is this month and still ahead. The forecast is as usual: with how
    long such machines usually run. `present_rate_usd` is what the month ends at if what runs now runs on, and nothing
    else; `lasting_rate_usd` the same at the least rate of the last three days, which thresholds and effects go by.
    `change` is the last step of the fleet, where it had one within two weeks.
    """

    name: str
    scope: Scope
    usd_per_month: Decimal
    month: str
    ends_at: datetime
    block_growth: When = "never"
    thresholds: tuple[float, ...] = ()
    spent_usd: Decimal | None = None
    usd_per_hour: Decimal | None = None  # of what runs now, as far as its price is known
    unpriced_now: int = 0  # machines that run now without a known price
    unpriced_hours: float = 0.0
    assumed_usd: Decimal | None = None  # of these hours at the last known prices; in no other sum
    assumed_types: tuple[str, ...] = ()  # machine types without a price now of which one was known
    foreign_hours: float = 0.0  # this month, of machines that are not ours and would be in the scope; in no sum
    foreign_usd: Decimal | None = None  # of those with a known price; None: there are none
    forecast_usd: Decimal | None = None
    lower_usd: Decimal | None = None  # of the 80 % interval; None: the past cannot tell
    upper_usd: Decimal | None = None
    probability_over: float | None = None
    present_rate_usd: Decimal | None = None
    lasting_rate_usd: Decimal | None = None
    change: str | None = None
    method: str = ""
    reaches_at: datetime | None = None
    crossings: tuple[Crossing, ...] = ()
    blocked: str | None = None
    hastening: ShorterWaits | None = None
    notes: tuple[str, ...] = ()
    doubt: str | None = None
