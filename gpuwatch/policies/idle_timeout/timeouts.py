"""PURE: what each pool learns of its starts and gaps in a round, and the waits that follow."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from gpuwatch.model.decision import ADDITIONS, Observation, Status, Wait
from gpuwatch.model.fleet import Node, NodeState, State
from gpuwatch.model.measurement import Restarts
from gpuwatch.policies import PoolRules, capacity, idle, schedule
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.demand import demand_of
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.learned import waits as learned
from gpuwatch.policies.idle_timeout.restart_times import measured, watched
from gpuwatch.policies.idle_timeout.tracking import Sighting, followed

_SCARCE_FOR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One pool in one round: its restarts, for how long work has waited for it, its nodes' waits, and what it knows."""

    restarts: Restarts
    queued: float | None
    waits: Mapping[str, Wait]
    history: GapHistory


def timed(observation: Observation, pool: str, rules: PoolRules, history: GapHistory) -> Timed:
    """A pool's round."""
    at = observation.now.timestamp()
    nodes = observation.fleet.roster(pool).nodes
    starts = watched(history.starts, at, (node for node in nodes if node.enrolled))
    seconds, count = measured(starts)
    restarts = Restarts(seconds=seconds, starts=count, failed=_failed(observation, pool))
    demand = demand_of(observation, pool, rules.idle, rules.scaling)
    since = history.queued_since
    since = since if demand is None else None if not demand else at if since is None else min(at, since)
    queued = at - since if demand and since is not None else None
    history = replace(history, starts=starts, queued_since=since)
    waits, history = _waits(replace(observation, restarts={pool: restarts}), pool, rules, history, (demand, queued))
    return Timed(restarts=restarts, queued=queued, waits=waits, history=history)


def _failed(observation: Observation, pool: str) -> int:
    """How many starts and launches of the pool failed lately."""
    since = observation.now - _SCARCE_FOR
    return sum(
        done.pool == pool and done.verb in ADDITIONS and done.status is Status.FAILED and done.at > since
        for done in observation.ledger.recent
    )


def _waits(
    observation: Observation, pool: str, rules: PoolRules, history: GapHistory, queue: tuple[bool | None, float | None]
) -> tuple[Mapping[str, Wait], GapHistory]:
    """The waits of a pool's idle nodes, and its history after this round; no waits in a pool that does not learn them.

    The cheapest node's price decides what a restart costs. A pool at its floor is followed and has no waits.
    """
    if rules.idle.timeout != "learned":
        return {}, history
    nodes = observation.fleet.roster(pool).nodes
    prices = [price for node in nodes if (price := observation.price(node)) is not None]
    cheapest = min(prices, key=lambda price: price.usd_per_hour, default=None)
    restart = idle.restart_of(observation, pool, rules.idle, cheapest)
    if restart is None:
        return {}, history
    at, (demand, queued) = observation.now.timestamp(), queue
    history = followed(history, at, _sightings(observation, pool), restart.seconds, demand=demand)
    if capacity.now(observation, pool) <= _floor(observation, pool, rules, restart.seconds):
        return {}, gaps.kept(history, at)
    return learned(history, at, queued=queued is not None and queued < restart.seconds)


def _floor(observation: Observation, pool: str, rules: PoolRules, restart: float) -> int:
    """How many nodes something else keeps: the minimum, windows in force or about to open, the last wish of scaling."""
    ahead = schedule.coming(rules.schedule, observation.now, restart)
    wishes = [each for each in observation.ledger.wishes if each.pool == pool]
    return max(
        rules.min_nodes,
        *(each.min_nodes or 0 for each in schedule.in_force(rules.schedule, observation.now)),
        0 if ahead is None else ahead[2],
        max(wishes, key=lambda each: each.at).want if wishes else 0,
    )


def _sightings(observation: Observation, pool: str) -> Iterator[Sighting]:
    """What was seen of the enrolled nodes; one that somebody else stopped is out of sight."""
    ours = {each.node_id for each in observation.ledger.stopped}
    for node in observation.fleet.roster(pool).nodes:
        if node.enrolled and (node.state is not NodeState.STOPPED or node.id in ours):
            yield _sighting(node)


def _sighting(node: Node) -> Sighting:
    """One node."""
    if node.state in {NodeState.STOPPED, NodeState.STOPPING}:
        return Sighting(node_id=node.id, says="reclaimed")
    state = node.activity.state
    if node.state is not NodeState.RUNNING or state is State.UNKNOWN:
        return Sighting(node_id=node.id, says="unknown")
    if state is State.IDLE:
        return Sighting(node_id=node.id, says="idle", idle_seconds=node.activity.held_seconds)
    return Sighting(node_id=node.id, says="needed")
