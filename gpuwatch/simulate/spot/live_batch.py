"""The controller itself with a pool that has a deadline, on a recording of spot capacity (see `live`).

Its nodes always work, from boot to end. What a lost node takes back is as much as gpuwatch says it may be.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.round import step
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.measurement import BatchPast
from gpuwatch.money.accounting.batches import Batches
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import Meter
from gpuwatch.policies.spot.batch import BatchRules, Useful, past
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.memory_ledger import InMemoryLedger
from gpuwatch.simulate.spot.job import JobPlayed, JobTerms
from gpuwatch.simulate.spot.live import BEGINS, Market, no_limits, rulebook
from gpuwatch.simulate.spot.recording import STEP_SECONDS, Recording
from gpuwatch.simulate.spot.sums import Terms

Known = Callable[[Observation], Mapping[str, BatchPast]]


def play_batch(
    recording: Recording, nodes: int, work: JobTerms, terms: Terms, mix: MixRules, *, ledger: Ledger | None = None
) -> JobPlayed:
    """The pool until its work is done; costs are hours on demand of all nodes together.

    Where a ledger is given, done is what the controller metered there by the hour; else what was worked by the minute,
    which is faster. `work` has the times alone: a start costs a boot and the work lost of `terms`.
    """
    clock, at = ManualClock(wall=BEGINS), timedelta(seconds=STEP_SECONDS)
    market = Market(recording=recording, terms=terms, clock=clock)
    batch = BatchRules(
        work=float(work.work_minutes * STEP_SECONDS),
        since=BEGINS.isoformat(),
        by=(BEGINS + work.allowed_minutes * at).isoformat(),
        nodes=nodes,
        restart=float((terms.boot_minutes + terms.lost_minutes) * STEP_SECONDS),
    )
    useful: list[Useful] = []
    parts = ControllerContext(
        clock=clock,
        cloud=market,
        signals=market,
        ledger=InMemoryLedger("batch") if ledger is None else ledger,
        rules=_rules(recording, batch, mix),
        prices=market.price,
        meter=None if ledger is None else Meter(ledger, Metering(zone=ZoneInfo("UTC"))),
        batches=_played_work(useful, batch) if ledger is None else Batches(ledger, {DEFAULT_POOL: batch}),
    )
    cost, interruptions, done = 0.0, 0, None
    for minute in range(recording.minutes):
        market.minute, now = minute, clock.now()
        interruptions += market.take()
        seen = step(parts).observation
        if parts.meter is not None:
            parts.meter(seen)
        if seen.batches[DEFAULT_POOL].done_seconds >= batch.work:
            done = minute
            break
        cost += sum(market.usd()) + market.on_demand() * terms.on_demand_usd_per_hour
        useful += market.useful(now, now + at)
        clock.advance(float(STEP_SECONDS))
    return JobPlayed(
        cost_hours=cost * STEP_SECONDS / 3600 / terms.on_demand_usd_per_hour,
        minutes=done,
        moves=market.launches,
        interruptions=interruptions,
        missed=done is None or done > work.allowed_minutes,
    )


def _rules(recording: Recording, batch: BatchRules, mix: MixRules) -> Rulebook:
    rules = rulebook(recording, batch.nodes, mix, no_limits(batch.nodes))
    pool = replace(rules.pool(DEFAULT_POOL), interruptible="batch", batch=batch, schedule={}, max_nodes=batch.nodes)
    return replace(rules, pools={DEFAULT_POOL: pool})


def _played_work(useful: list[Useful], batch: BatchRules) -> Known:
    """What the played machines have worked, minute by minute."""

    def known(observation: Observation) -> Mapping[str, BatchPast]:
        here = {node.id for node in observation.fleet.nodes}
        return {DEFAULT_POOL: past(useful, batch, here, observation.now)}

    return known
