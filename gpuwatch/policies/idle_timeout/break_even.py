"""PURE: waiting times that need no knowledge of the pool, and what a restart costs.

Rules, all of them:

1. Everything is in seconds of the machine's rental: a restart of 600 costs as much as 600 idle seconds.
2. A restart costs its machine time, as set or as measured, and what it costs in money besides divided by the machine's
   price.
3. While capacity is scarce a restart costs more: half as much again for each recent capacity error, up to three times.
   Where the cloud had no machine for some of the starts and launches of the last weeks, it costs as many restarts as it
   takes attempts, up to three, before the next one fails. Four starts that went well are taken for granted.
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
USUAL_USD_PER_HOUR = 60.0  # of a machine without a price
_MOST_WAITING = 4.0  # restarts' cost: more does not make a wait longer than the longest
_GRANTED = 4.0  # starts that are taken to have gone well: one refusal of one is not all
_FADED, _TOLD = 0.05, 0.05
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
        elif (told := _refused_words(self.known)) is not None:
            reasons.append(told)
        return ", ".join(reasons)


def restart(
    cost: float | Literal["measured"], known: Restarts, *, usd: float = 0.0, usd_per_hour: float | None = None
) -> Restart | None:
    """A restart by a pool's settings and what is known of its starts; None: it takes a price, which is not known."""
    machine = cost if cost != "measured" else UNMEASURED_SECONDS if known.seconds is None else known.seconds
    seconds = restart_seconds(
        machine, usd=usd, usd_per_hour=usd_per_hour, capacity_errors=known.failed, refused_ratio=refused_ratio(known)
    )
    return None if seconds is None else Restart(seconds=seconds, measures=cost == "measured", known=known, usd=usd)


def restart_seconds(
    machine_seconds: float,
    *,
    usd: float = 0.0,
    usd_per_hour: float | None = None,
    capacity_errors: int = 0,
    refused_ratio: float = 0.0,
) -> float | None:
    """What a restart costs in seconds of rental; None: it takes a price, which is not known."""
    attempts = 1 / max(1 - refused_ratio, 1 / _MOST)
    scarcity = max(attempts, min(_MOST, 1 + _MORE_PER_ERROR * capacity_errors))
    if not usd:
        return machine_seconds * scarcity
    if usd_per_hour is None or usd_per_hour <= 0:
        return None
    return (machine_seconds + usd / usd_per_hour * 3600) * scarcity


def refused_ratio(known: Restarts) -> float:
    """What part of a pool's starts and launches its cloud has no machine for."""
    return known.refused / (known.asked + _GRANTED) if known.refused > _FADED else 0.0


def _refused_words(known: Restarts) -> str | None:
    ratio = refused_ratio(known)
    return (
        None
        if ratio < _TOLD
        else f"more as its cloud had no machine for about {known.refused:.0f} starts of {known.asked:.0f}"
    )


def waiting_usd(seconds: float, usd_per_hour: Decimal) -> Decimal:
    """Price the time for which somebody waits: of a regretted stop, how long the machine's restart takes."""
    return usd_per_hour * Decimal(repr(max(0.0, seconds))) / 3600


def waiting_restarts(waiting_usd_per_hour: float, usd_per_hour: float | None) -> float:
    """Count in restarts' costs what a regretted stop of a machine at this price costs people."""
    price = usd_per_hour if usd_per_hour is not None and usd_per_hour > 0 else USUAL_USD_PER_HOUR
    return min(_MOST_WAITING, waiting_usd_per_hour / price)
