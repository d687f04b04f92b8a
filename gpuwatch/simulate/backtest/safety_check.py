"""A recording through the real controller, enforcing, with a witness: what it stopped wrongly, which rules it broke.

Nothing is rationed, and but for a pool's own rules notice and warm-up are as short as they can be, so that a policy
meets as much as it can.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuwatch.agent.devices.load_profile import LoadProfile
from gpuwatch.controller.round import step
from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.backtest import engine, pool_rules
from gpuwatch.simulate.backtest.compare import Policy
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.witness import Controller
from gpuwatch.simulate.fleet.options import Options, log_unheard
from gpuwatch.simulate.fleet.workloads import Workload

_WARM_UP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is played: the first hours, or as much from the begin on as so many real seconds allow."""

    hours: float | None = None
    real_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of the first `hours`, which may be the `whole`. `violations` are sentences with their property."""

    node_hours: float = 0.0
    hours: float = 0.0
    whole: bool = False
    stops: int = 0
    wrongly_stopped: int = 0
    violations: tuple[str, ...] = ()


def check(  # noqa: PLR0913  what a play is made of
    policy: Policy,
    history: History,
    options: Options,
    restart: float,
    bounds: Bounds,
    clock: Clock,
    *,
    controller: Controller = step,
    advance: Advance = no_advance,
) -> Checked:
    """Play one policy; `never` stops nothing and needs no play."""
    if policy.never:
        return Checked()
    rules = policy.rules_at(restart) or _rules_of(policy, restart)
    horizon = history.horizon_seconds
    seconds = horizon if bounds.hours is None else min(horizon, bounds.hours * 3600)
    begun = clock.monotonic()
    end = begun + bounds.real_seconds

    def tell(now: float, whole: float) -> None:
        spent = 0.0 if bounds.hours is not None else (clock.monotonic() - begun) / bounds.real_seconds
        advance(min(1.0, max(now / whole, spent)), 1.0)

    with log_unheard():
        played = engine.play(
            replace(options, idle=rules.idle, warm_up=rules.warm_up),
            _without_memory(history.lives, seconds) if policy.rules is None else history.lives,
            seconds,
            least_seconds=pool_rules.least_seconds(rules.idle),
            controller=controller,
            enough=lambda: bounds.hours is None and clock.monotonic() > end,
            advance=tell,
        )
    return Checked(
        node_hours=len(history.lives) * played.seconds / 3600,
        hours=played.seconds / 3600,
        whole=played.seconds >= horizon,
        stops=len(played.world.stops),
        wrongly_stopped=sum(stop.wrong is not None for stop in played.world.stops),
        violations=tuple(played.violations),
    )


def _rules_of(policy: Policy, restart: float) -> PoolRules:
    """A policy that is a wait alone, as a pool that meets as much as it can."""
    idle = IdleRules(
        timeout=policy.timeout,
        fresh_timeout=None,
        restart_cost=restart,
        grace_period=0.0,
        unattended_grace_period=0.0,
        instance_store="discard",
    )
    return PoolRules(warm_up=_WARM_UP_SECONDS, idle=idle)


def _without_memory(lives: Iterable[Workload], horizon: float) -> tuple[Workload, ...]:
    """The same lives, where held memory is no sign of use, as in the figures: else a wait would meet no idleness."""
    made: dict[LoadProfile, LoadProfile] = {}
    for programme in {programme for life in lives for programme in life.gpus}:
        phases = list(programme.phases(horizon))
        held = any(phase.memory_bytes or phase.processes for _, phase in phases)
        bare = (replace(phase, at=at, memory_bytes=0, processes=None) for at, phase in phases)
        made[programme] = LoadProfile(tuple(bare)) if held else programme
    return tuple(replace(life, gpus=tuple(made[programme] for programme in life.gpus)) for life in lives)
