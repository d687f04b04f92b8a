"""What can be chosen of the demo, and what it is made of: the lives and the controller's parts."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from gpuwatch.clouds import FLEET_TAG, POOL_TAG, Cloud
from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.controller.round import ControllerContext
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger.protocol import RoundLedger
from gpuwatch.money.prices.catalogue import list_price
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.fleet.traces import Recording, lives_of, read_trace
from gpuwatch.simulate.fleet.workloads import DAY_BEGINS_HOUR, POOLS, DemoError, Workload, demo_fleet

FLEET = "demo"
REGION = "us-east-1"
STORY_BEGINS = datetime(2026, 1, 5, DAY_BEGINS_HOUR, tzinfo=UTC)  # a Monday
DEFAULT_HOURS = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What can be chosen; durations are seconds of the simulation. None: see docs/demo.md."""

    seed: int = 0
    hours: float | None = None
    trace: Path | None = None
    gpus_per_node: int = 1
    instance_type: str | None = None
    timeout: float = 600.0
    idle: IdleRules | None = None  # in the place of `timeout`, `notice` and `parked`
    grace_period: float = 300.0
    warm_up: float = 600.0
    interval: float = 60.0
    sample: float = 60.0
    boot: float = 180.0
    confirmation: float = 5.0
    parked: Literal["stop", "report"] | None = None
    speed: float = 60.0
    seconds: float | None = None  # of real time, live only

    @property
    def pool(self) -> PoolRules:
        """The pool's rules: the profile balanced with shorter waits for idle nodes.

        A recorded node has nobody at it, so its held memory may be reclaimed like idleness.
        """
        grace = self.grace_period
        idle = IdleRules(
            timeout=self.timeout, grace_period=grace, unattended_grace_period=grace, instance_store="discard"
        )
        parked = self.parked or (None if self.trace is None else "stop")
        if parked is not None:
            idle = replace(idle, parked=parked, parked_timeout=self.timeout, owner_grace_period=self.grace_period)
        return PoolRules(warm_up=self.warm_up, idle=self.idle or idle)

    @property
    def limits(self) -> Limits:
        """The guard's defaults for the scripted fleet; a recording asks what the policy does: nothing is rationed."""
        limits = Limits(max_verdict_age=max(30.0, 3 * self.sample + 5.0), max_confirmation_age=self.confirmation)
        if self.trace is None:
            return limits
        return replace(
            limits,
            max_stops_per_round=10**9,
            max_stops_per_hour=10**9,
            max_stops_per_hour_ratio=1.0,
            mass_idleness_nodes=10**9,
        )


def lives(options: Options) -> tuple[tuple[Workload, ...], float]:
    """The fleet's lives and their horizon in seconds.

    Raises:
        DemoError: the recording cannot be played, or one of its machines has no price.

    """
    if options.trace is None:
        horizon = (DEFAULT_HOURS if options.hours is None else options.hours) * 3600
        return demo_fleet(options.seed, horizon), horizon
    return recorded_lives(options, read_trace(options.trace))


def recorded_lives(options: Options, recording: Recording) -> tuple[tuple[Workload, ...], float]:
    """The lives of a recording and their horizon in seconds; raises as `lives`."""
    span = recording.end - recording.begin
    horizon = span if options.hours is None else min(span, options.hours * 3600)
    workloads = lives_of(recording, gpus_per_node=options.gpus_per_node, instance_type=options.instance_type)
    for life in workloads:
        if list_price(life.instance_type) is None:
            raise DemoError(f"--instance-type {life.instance_type}: there is no list price for it; try g6.xlarge")
    return workloads, horizon


def assemble(
    options: Options,
    clock: Clock,
    cloud: Cloud,
    signals: NodeReportSource,
    ledger: RoundLedger,
    pools: Iterable[str] = (),
) -> ControllerContext:
    """The real controller's parts, enforcing; `pools` are those of a recording, whatever their names."""
    return ControllerContext(
        clock=clock,
        cloud=cloud,
        signals=signals,
        ledger=ledger,
        rules=Rulebook(pools=dict.fromkeys((*POOLS, *pools), options.pool), limits=options.limits, enforce=True),
        prices=lambda hire, _now: list_price(hire.instance_type),
        priced_singly=lambda _now: frozenset(),
        starts_are_needs=True,
        interval_seconds=options.interval,
    )


def tags(life: Workload) -> Mapping[str, str]:
    """What a life's machine is tagged with: enrolled in the demo's fleet."""
    return {"Name": life.name, FLEET_TAG: FLEET, POOL_TAG: life.pool}


@contextlib.contextmanager
def log_unheard() -> Iterator[None]:
    """Keep gpuwatch's log lines off the terminal meanwhile."""
    logger, unheard = logging.getLogger("gpuwatch"), logging.NullHandler()
    propagated = logger.propagate
    logger.addHandler(unheard)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(unheard)
