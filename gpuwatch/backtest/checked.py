"""A bounded part of a recording through the real controller, enforcing, with a witness: what it stopped wrongly.

Notice and warm-up are as short as they can be and nothing is rationed, so that a policy meets as much as it can.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuwatch.backtest.compare import Policy
from gpuwatch.backtest.gaps import History, part_of
from gpuwatch.backtest.witness import WatchedCloud, WatchedLedger, Witness
from gpuwatch.clock import Clock
from gpuwatch.controller import Parts, step
from gpuwatch.demo import FORGETFUL, play, staged
from gpuwatch.policies.idle import IdleRules
from gpuwatch.simulation.lives import Life
from gpuwatch.simulation.options import Options

_WARM_UP_SECONDS = 60.0
_LEAST_SECONDS = 60.0  # before which no wait that is drawn or learned ends
_NODES = 20  # where the real time is bounded: few nodes for long say more than many for moments
_WINDOW_SECONDS = 21600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is played: the first hours of every node, or what so many real seconds allow of a few."""

    hours: float | None = None
    real_seconds: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of a part. `violations` are sentences, each with its property."""

    node_hours: float = 0.0
    stops: int = 0
    wrongly_stopped: int = 0
    violations: tuple[str, ...] = ()


class _EnoughError(Exception):
    """The real time is over."""


def check(
    policy: Policy,
    history: History,
    options: Options,
    restart: float,
    bounds: Bounds,
    clock: Clock,
    *,
    controller: Callable[[Parts], object] = step,
) -> Checked:
    """Play one policy; `never` stops nothing and needs no play."""
    if policy.never:
        return Checked()
    lives, horizon = _part(history, options, bounds)
    fixed = policy.after if isinstance(policy.after, float) else None
    wait = restart if fixed is None else fixed
    idle = IdleRules(
        after=policy.after, restart_cost=restart, notice=0.0, parked="stop", parked_after=wait, instance_store="discard"
    )
    options = replace(options, idle=idle, warm_up=_WARM_UP_SECONDS)
    ledger = WatchedLedger.in_memory("backtest", FORGETFUL)
    parts, world = staged(options, lives, horizon, ledger)
    least = wait if fixed is not None or policy.after == "break_even" else min(wait, _LEAST_SECONDS)
    witness = Witness(world=world, cloud=parts.cloud, ledger=ledger, rules=parts.rules, least_seconds=least)
    ledger.look = witness.settles
    watched = replace(parts, cloud=WatchedCloud(parts.cloud, parts, witness))
    until = clock.monotonic() + bounds.real_seconds

    def round_of(parts: Parts) -> None:
        controller(parts)
        if bounds.hours is None and clock.monotonic() > until:
            raise _EnoughError

    played = horizon
    with contextlib.closing(ledger):
        try:
            play(watched, world, parts.cloud, options, horizon, controller=round_of)
        except _EnoughError:
            played = parts.clock.monotonic()
    return Checked(
        node_hours=len(lives) * played / 3600,
        stops=len(world.stops),
        wrongly_stopped=sum(stop.wrong is not None for stop in world.stops),
        violations=tuple(witness.violations),
    )


def _part(history: History, options: Options, bounds: Bounds) -> tuple[Sequence[Life], float]:
    """The lives to be played and for how long: where real time is bounded, those that turn idle most, where they do."""
    if bounds.hours is not None:
        return history.lives, min(history.horizon_seconds, bounds.hours * 3600)
    if not history.gaps:
        return history.lives[:_NODES], history.horizon_seconds
    starts = Counter(int(gap.begin // _WINDOW_SECONDS) for gap in history.gaps)
    window = max(starts, key=lambda each: (starts[each], -each))
    turns = Counter(gap.node_id for gap in history.gaps if gap.begin // _WINDOW_SECONDS == window)
    return part_of(history, options, {name for name, _ in turns.most_common(_NODES)}, window * _WINDOW_SECONDS)
