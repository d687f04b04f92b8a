"""PURE: which spot offer to ask next, from what each did to the pool before.

Rules: an offer that has no stock, or takes a node back, rests for a growing time. Of the others the cheapest come
first, in steps of price; within a step the largest machines, where the pool counts GPUs; of these those that take nodes
back least often, and of those the ones where the pool has fewest nodes. An offer that is dearer than the rules allow is
not asked at all.

An offer without a record is not preferred for ever and not avoided either: it counts as half a loss in one hour.
`make bench ARGS=spot` measures them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log
from typing import Literal

from gpuwatch.model.duration import backoff_seconds

# How far back losses and hours count. Older ones say little: a zone that was scarce last week may be empty now.
MEMORY_SECONDS = 3 * 86_400.0
FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 120.0, 2400.0
# The guard does not try the same launch again before (the default of limits.capacity_cooldown).
LEAST_REST_SECONDS = 180.0
# What gives nodes and has no more is probably at its end: there a rest is so many times longer, up to four hours.
_WITH_NODES, _LONGEST_WITH_NODES_SECONDS = 8.0, 4 * 3600.0
# A count above that of the longest rest would only make an offer rest on after it has stock again.
_MOST_REFUSALS = 6
# With these, about one try in five succeeds, whether an offer comes back often or seldom.
_TAKEN_BY_SUCCESS = 4
# Work that waits for an offer finds it back at most so much of its outage late (and three minutes).
_OF_THE_OUTAGE = 0.25

# What orders offers of one price: how often they take nodes back and how many are there; the latter alone; nothing.
Spread = Literal["capacity", "zones", "lowest_price"]

_SPREAD = 1.0  # how much worse each own node in an offer makes it: losses come in groups
_PRICE_STEP = 1.05  # prices within 5 % are the same: fewer losses are worth more than that


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRecord:
    """What is known of one offer now.

    `size` is what a machine counts in its pool. `preemptions` and `hours_up` (of nodes) are those of the last
    MEMORY_SECONDS. `own` counts the pool's nodes that run there or boot, without those with an interruption notice.
    `resting_seconds` is for how much longer it rests.
    """

    name: str
    usd_per_hour: float
    size: int = 1
    preemptions: int = 0
    hours_up: float = 0.0
    own: int = 0
    resting_seconds: float = 0.0

    @property
    def preemptions_per_hour(self) -> float:
        """Estimated for one node there."""
        return (self.preemptions + 0.5) / (self.hours_up + 1.0)


def rank_offers(
    records: Iterable[OfferRecord], *, most_usd_per_hour: float | None = None, spread: Spread = "capacity"
) -> list[OfferRecord]:
    """The offers that may be asked now, the best first. `most_usd_per_hour` is what spot may cost; None: anything."""
    open_now = [
        each
        for each in records
        if each.resting_seconds <= 0 and (most_usd_per_hour is None or each.usd_per_hour <= most_usd_per_hour)
    ]
    cheapest = min((each.usd_per_hour for each in open_now), default=0.0)
    return sorted(open_now, key=lambda each: (*_order(each, cheapest, spread), each.name))


def rest_seconds(refusals: int, own: int) -> float:
    """How long an offer rests after so many refusals: 3, 4, 8, 16, 32, 40 minutes.

    With nodes of the pool there now (`own`) eight times 2, 4 … minutes, four hours at most.
    """
    if refusals <= 0:
        return 0.0
    rest = backoff_seconds(refusals, first=FIRST_REST_SECONDS, longest=LONGEST_REST_SECONDS)
    return max(LEAST_REST_SECONDS, min(rest * _WITH_NODES, _LONGEST_WITH_NODES_SECONDS) if own else rest)


def rest_in_outage_seconds(refusals: int, outage_seconds: float) -> float:
    """The same for work with a deadline, where the pool has no nodes there: while it waits its slack is spent.

    Of an outage that has lasted so long until its last refusal a quarter at most, and three minutes at least.
    """
    return min(rest_seconds(refusals, 0), max(LEAST_REST_SECONDS, _OF_THE_OUTAGE * outage_seconds))


def refusals_after(refusals: int, *, refused: bool) -> int:
    """The count of refusals after one more try. It is bounded, and a success takes most of it away, not all.

    So an offer that comes back often is asked often, and one that seldom does, seldom.
    """
    return min(_MOST_REFUSALS, refusals + 1) if refused else max(0, refusals - _TAKEN_BY_SUCCESS)


def _order(record: OfferRecord, cheapest: float, spread: Spread) -> tuple[float, int, float]:
    if spread == "lowest_price":
        return record.usd_per_hour, -record.size, 0.0
    losses = float(record.own) if spread == "zones" else record.preemptions_per_hour * (1.0 + _SPREAD * record.own)
    return _price_step(record.usd_per_hour, cheapest), -record.size, losses


def _price_step(usd: float, cheapest: float) -> int:
    if usd <= cheapest or cheapest <= 0:
        return 0
    return floor(log(usd / cheapest) / log(_PRICE_STEP) + 1e-9)
