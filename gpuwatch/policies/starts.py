"""PURE: which stopped nodes a pool may start: its own stops, or anybody's.

One that work waits for comes first, then the last stopped.
"""

from datetime import timedelta
from typing import Literal

from gpuwatch.model.decision import LAUNCHED_AT, Observation, Reason, Status, Step, Stopped, Verb
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.life import End
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.policies.kubernetes import pending_pods
from gpuwatch.policies.lasting import resting_starts
from gpuwatch.policies.launches import CHANGE, failed_actions

Startable = Literal["own", "any"]

WITHHELD = "start_withheld"  # the code of what an owner is told of a machine that is wanted and not started
_CLOCKS_APART = timedelta(minutes=1)  # a cloud's and ours


def starts(observation: Observation, pool: str, start: Startable, reason: Reason) -> list[Step]:
    """Stopped nodes: of those that were stopped last the caches are warm, and their disks are paid for."""
    stopped_at = {each.node_id: each.at for each in observation.ledger.stopped}
    given_up = {done.node_id for done in failed_actions(observation, Verb.START)} | resting_starts(
        observation, pool
    ).keys()
    nodes = observation.fleet.roster(pool).nodes
    startable = [node for node in nodes if _startable(observation, node, start, given_up)]
    startable.sort(
        key=lambda node: (
            node.slurm is None or node.slurm.wanted_for is None,
            -pending_pods.awaits(node, observation.fleet),
            node.id not in stopped_at,
            -stopped_at[node.id].timestamp() if node.id in stopped_at else 0.0,
        )
    )
    return [Step(node_id=node.id, verb=Verb.START, reason=reason, change=CHANGE) for node in startable]


def unseen_startable(observation: Observation, pool: str, start: Startable) -> list[Node]:
    """Nodes that were stopped when their cloud showed them last, and that might be started if it showed them now."""
    nodes = observation.fleet.roster(pool).nodes
    unseen = [node for node in nodes if node.state is NodeState.UNKNOWN and node.last_shown is NodeState.STOPPED]
    return [node for node in unseen if _may_be_started(observation, node, start)]


def has_stopped(observation: Observation, pool: str, start: Startable) -> bool:
    """Whether a stopped node of the pool may be started."""
    return bool(starts(observation, pool, start, Reason(code="", sentence="")))


def _startable(observation: Observation, node: Node, start: Startable, given_up: set[str]) -> bool:
    """Whether a node is stopped, and may be started for its pool now."""
    if node.state is not NodeState.STOPPED or node.id in given_up:
        return False
    return _may_be_started(observation, node, start)


def _may_be_started(observation: Observation, node: Node, start: Startable) -> bool:
    """Whether a stopped node may be started for its pool."""
    entry = observation.ledger.open_for(node.id)
    return (
        node.enrolled
        and node.protected is None
        and node.managed_by is None
        and node.group is None
        and node.capacity_type is not CapacityType.CAPACITY_BLOCK
        and not_to_start(observation, node, start) is None
        and (entry is None or (entry.intent.verb is Verb.START and entry.resumable))
    )


def not_to_start(observation: Observation, node: Node, start: Startable) -> str | None:
    """Why a stopped node is not to be started again: its owner may have stopped it for good."""
    found = observation.ledger.stop_of(node.id)
    doubt = None if found is None else found.why_not_ours(node)
    if found is not None and doubt is None and not _ran_since(node, found, observation.interval_seconds):
        return None
    if _fell_back(observation, node):
        return None  # nobody has stopped it since gpuwatch was allowed to start it
    if start == "own" or node.owned:  # a host that somebody else switched off is its owner's
        return "gpuwatch did not stop it" if doubt is None else f"{NOT_PROVED}: {doubt}"
    recent = [done for done in observation.ledger.recent if (done.node_id, done.verb) == (node.id, Verb.START)]
    started = max((done.at for done in recent if done.status is Status.SETTLED), default=None)
    return None if started is None else f"it was stopped again after gpuwatch started it at {started:%H:%M} UTC"


def _fell_back(observation: Observation, node: Node) -> bool:
    """Whether its last start was gpuwatch's, and failed by its cloud's own word."""
    if node.failed_start is None or node.launched_at is None:
        return False
    mine = [each for each in observation.lives if each.started and each.node_id == node.id]
    last = max(mine, key=lambda each: each.at, default=None)
    if last is None or last.end is not End.STOPPED or LAUNCHED_AT not in last.asked:
        return False
    return last.asked[LAUNCHED_AT] != node.launched_at.isoformat() and node.launched_at <= last.at + _CLOCKS_APART


def _ran_since(node: Node, found: Stopped, interval_seconds: float) -> bool:
    """Whether somebody has started a node since our stop of it, by the cloud's own clock where that is known.

    Of a cloud that does not say when a machine was started last, a process knows what it has seen itself.
    """
    if node.sight is not None and found.why_unwatched(node, interval_seconds) is not None:
        return True
    if node.launched_at is None:
        return False
    if node.sight is not None:
        return node.launched_at > found.at
    return node.launched_at > found.at if found.launched_at is None else node.launched_at != found.launched_at
