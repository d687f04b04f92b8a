"""PURE: waiting times that need no knowledge of the pool, and what a restart costs.

Rules, all of them:

1. Everything is in seconds of the machine's rental: a restart of 600 costs as much as 600 idle seconds.
2. A restart costs its machine time, as set or as measured, and what it costs in money besides divided by the machine's
   price.
3. While capacity is scarce a restart costs more: half as much again for each recent capacity error, up to three times.
4. A stop is regretted if its machine is needed again within a quarter of an hour: somebody may still have been there,
   and waits for as long as a restart takes. That time has a price of its own, `waiting_usd_per_hour`. In rental of a
   machine without a price it counts as if that cost $60 an hour, as eight large GPUs do.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from gpuwatch.model.duration import format_duration
from gpuwatch.model.measurement import Restarts
from gpuwatch.policies.idle_timeout.restart_times import ENOUGH

MINIMUM_WAIT_SECONDS = 60.0  # no notice comes sooner, however little a restart costs or a budget leaves
LONGEST = 4.0  # restarts' cost, past which no guess keeps a node
UNMEASURED_SECONDS = 600.0  # until enough starts are measured
REGRET_SECONDS = 900.0  # a need so soon after a stop makes the stop a regretted one
_USUAL_USD_PER_HOUR = 60.0
_MOST_WAITING = 4.0  # restarts' cost: more does not make a wait longer than the longest
_MORE_PER_ERROR = 0.5
_MOST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What a restart costs in seconds of rental, and what that was made of."""

    seconds: float
    measures: bool
    known: Restarts
    usd: float

    @property
    def why(self) -> str:
        """The cost and where it comes from, but for what the configuration says, as a clause."""
        reasons = [f"a restart costs {format_duration(self.seconds)}"]
        if self.measures:
            seen = self.known.starts
            reasons.append(
                f"not measured yet, {seen} of {ENOUGH} starts seen"
                if self.known.seconds is None
                else f"measured from {seen} starts"
            )
        if self.usd:
            reasons.append("its money included")
        if self.known.failed:
            reasons.append(f"more for {self.known.failed} starts that failed lately")
        return ", ".join(reasons)


def restart(
    cost: float | Literal["measured"], known: Restarts, *, usd: float = 0.0, usd_per_hour: float | None = None
) -> Restart | None:
    """A restart by a pool's settings and what is known of its starts; None: it takes a price, which is not known."""
    machine = cost if cost != "measured" else UNMEASURED_SECONDS if known.seconds is None else known.seconds
    seconds = restart_seconds(machine, usd=usd, usd_per_hour=usd_per_hour, capacity_errors=known.failed)
    return None if seconds is None else Restart(seconds=seconds, measures=cost == "measured", known=known, usd=usd)


def restart_seconds(
    machine_seconds: float, *, usd: float = 0.0, usd_per_hour: float | None = None, capacity_errors: int = 0
) -> float | None:
    """What a restart costs in seconds of rental; None: it takes a price, which is not known."""
    scarcity = min(_MOST, 1 + _MORE_PER_ERROR * capacity_errors)
    if not usd:
        return machine_seconds * scarcity
    if usd_per_hour is None or usd_per_hour <= 0:
        return None
    return (machine_seconds + usd / usd_per_hour * 3600) * scarcity


def waiting_usd(seconds: float, usd_per_hour: Decimal) -> Decimal:
    """Price the time for which somebody waits: of a regretted stop, how long the machine's restart takes."""
    return usd_per_hour * Decimal(repr(max(0.0, seconds))) / 3600


def waiting_restarts(waiting_usd_per_hour: float, usd_per_hour: float | None) -> float:
    """Count in restarts' costs what a regretted stop of a machine at this price costs people."""
    price = usd_per_hour if usd_per_hour is not None and usd_per_hour > 0 else _USUAL_USD_PER_HOUR
    return min(_MOST_WAITING, waiting_usd_per_hour / price)
