"""PURE: waiting times that need no knowledge of the pool.

Rules, all of them:

1. Everything is in seconds of the machine's rental: a restart of 600 costs as much as 600 idle seconds.
2. A restart costs its machine time, and what it costs in money besides divided by the machine's price.
3. While capacity is scarce a restart costs more: half as much again for each recent capacity error, up to three times.
"""

import hashlib
import math

from gpuwatch.model.decision import Wait

_MORE_PER_ERROR = 0.5
_MOST = 3.0


def restart_seconds(
    machine_seconds: float, *, usd: float = 0.0, usd_per_hour: float | None = None, capacity_errors: int = 0
) -> float | None:
    """What a restart costs in seconds of rental; None: it takes a price, and there is none."""
    scarcity = min(_MOST, 1 + _MORE_PER_ERROR * capacity_errors)
    if not usd:
        return machine_seconds * scarcity
    if usd_per_hour is None or usd_per_hour <= 0:
        return None
    return (machine_seconds + usd / usd_per_hour * 3600) * scarcity


def fixed(seconds: float) -> Wait:
    """The same wait for everybody."""
    return Wait(seconds=seconds, why="the pool's settings say so")


def break_even(restart: float) -> Wait:
    """The wait that costs as much as a restart: never more than twice the optimum (ski rental)."""
    return Wait(seconds=restart, why="so much idle rental costs as much as a restart")


def randomized(restart: float, draw: float) -> Wait:
    """A wait drawn with density e^(t/r) / (r (e-1)) on 0 to r: e/(e-1) = 1.58 times the optimum in expectation.

    `draw` is even on 0 to 1; `draw_of` makes one.
    """
    return Wait(seconds=restart * math.log1p(draw * (math.e - 1)), why="drawn anew for each idle time")


def draw_of(node_id: str, idle_since: str) -> float:
    """A number from 0 to below 1 that is always the same for one node and the moment it turned idle."""
    digest = hashlib.blake2b(f"{node_id}\n{idle_since}".encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48
