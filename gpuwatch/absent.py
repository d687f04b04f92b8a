"""Machines that the cloud no longer lists, although the ledger holds a notice for them or a stop of theirs.

Missing from one list is no proof: lists of clouds may lack a machine for a moment. A machine is gone when the cloud,
asked by its id, shows it terminated, or has known neither list nor id for an hour.
"""

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.model.decision import Observation, Reason, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.parts import Missing, Parts

_ASKED_AT_MOST = 20  # in one round, those first that have waited longest
_UNKNOWN_FOR_SECONDS = 3600.0
_REASON = Reason(code="gone", sentence="The machine no longer exists, so its notice is closed.")


def close_gone(parts: Parts, observation: Observation, round_id: int) -> None:
    """Close the notices of machines that are gone, each with a record, and forget our stops of them."""
    ledger, missing = observation.ledger, parts.memory.missing
    noticed, stopped = {each.node_id: each for each in ledger.notices}, {each.node_id for each in ledger.stopped}
    absent = {node_id for node_id in noticed.keys() | stopped if observation.fleet.find(node_id) is None}
    now = parts.clock.monotonic()
    for node_id in missing.keys() - absent:
        del missing[node_id]
    for node_id in absent - missing.keys():
        missing[node_id] = Missing(since=now)
    for node_id in sorted(absent, key=lambda each: (missing[each].asked, each))[:_ASKED_AT_MOST]:
        missing[node_id].asked = now
        if not _gone(parts, node_id, now - missing[node_id].since):
            continue
        if node_id in noticed:
            at, pool = parts.clock.now(), parts.ledger.pool_of(noticed[node_id].key)
            intent = parts.ledger.intend(Verb.WITHDRAW, node_id, pool, at, _REASON, round_id)
            parts.ledger.settle(intent, Status.SETTLED, "the machine is gone: there are no tags to set", at)
        if node_id in stopped:
            parts.ledger.forget_stop(node_id)


def _gone(parts: Parts, node_id: str, missing_seconds: float) -> bool:
    """Whether it is proved that a machine no longer exists."""
    try:
        node = parts.cloud.node(node_id)
    except NotFoundError:
        return missing_seconds >= _UNKNOWN_FOR_SECONDS
    except CloudError:
        return False
    return node is None or node.state is NodeState.TERMINATED
