"""Machines that were launched a moment ago, that no list shows, and of which their cloud says that they have ended.

A list may be late, so what it lacks counts for ten minutes. A cloud that takes spot back as soon as it gave it would
leave a pool short for so long. So each such machine is asked for by its id: only the cloud's own word that it has ended
takes it out of the count, and no answer leaves it there.
"""

from gpuwatch.clouds import Cloud, CloudError
from gpuwatch.model.decision import SETTLE_TIMEOUT, LedgerView, Status, Verb
from gpuwatch.model.fleet import Fleet, NodeState
from gpuwatch.policies.lives import SHOWN

_ASKED_AT_MOST = 20  # in one round
_LAUNCHES = frozenset({Verb.LAUNCH})
_ENDS = frozenset({NodeState.TERMINATING, NodeState.TERMINATED})


def ended_machines(cloud: Cloud, fleet: Fleet, ledger: LedgerView) -> tuple[str, ...]:
    """Return the ids of machines that have ended."""
    missing = [node_id for node_id in _recent_launches(ledger, fleet) if fleet.find(node_id) is None]
    return tuple(node_id for node_id in missing[:_ASKED_AT_MOST] if _has_ended(cloud, node_id))


def _recent_launches(ledger: LedgerView, fleet: Fleet) -> list[str]:
    """The machines of the launches that settled so short a time ago that a list may not show them."""
    found = [
        done.detail
        for done in ledger.ended_actions(_LAUNCHES)
        if done.status is Status.SETTLED and abs(fleet.observed_at - done.at) <= SETTLE_TIMEOUT
    ]
    return [detail.removeprefix(SHOWN) for detail in found if detail.startswith(SHOWN)]


def _has_ended(cloud: Cloud, node_id: str) -> bool:
    try:
        node = cloud.node(node_id)
    except CloudError:
        return False
    return node is None or node.state in _ENDS
