"""PURE: what a round tells each pool that learns or draws its waits, and the waits that come of it."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from gpuwatch.model.decision import ADDITIONS, Observation, Status, Wait
from gpuwatch.model.fleet import Node, NodeState, State
from gpuwatch.policies import PoolRules, idle
from gpuwatch.policies.timing import rules as timings
from gpuwatch.policies.timing.follow import Sighting, followed
from gpuwatch.policies.timing.history import GapHistory
from gpuwatch.policies.timing.learned import waits

_SCARCE_FOR = timedelta(hours=1)


def learned(
    observation: Observation, pool: str, rules: PoolRules, history: GapHistory
) -> tuple[Mapping[str, Wait], GapHistory]:
    """The waits of a pool's idle nodes, and its history after this round."""
    at = observation.now.timestamp()
    restart = _restart(observation, pool, rules)
    if restart is None:
        return {}, history
    history = followed(history, at, _sightings(observation, pool), restart)
    if rules.idle.after == "learned":
        return waits(history, at)
    drawn = {
        name: timings.randomized(gap.restart, timings.draw_of(name, f"{gap.since:.0f}"))
        for name, gap in history.open.items()
        if gap.reclaimed is None
    }
    return drawn, history


def _restart(observation: Observation, pool: str, rules: PoolRules) -> float | None:
    """What a restart costs now: dearer while starts and launches of the pool fail. The cheapest node's price counts."""
    nodes = observation.fleet.roster(pool).nodes
    known = [price for node in nodes if (price := observation.price(node)) is not None]
    cheapest = min(known, key=lambda price: price.usd_per_hour, default=None)
    base = idle.restart_seconds(rules.idle, cheapest)
    since = observation.now - _SCARCE_FOR
    errors = sum(
        done.pool == pool and done.verb in ADDITIONS and done.status is Status.FAILED and done.at > since
        for done in observation.ledger.recent
    )
    return None if base is None else timings.restart_seconds(base, capacity_errors=errors)


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
