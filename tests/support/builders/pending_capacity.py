"""A pool's nodes, and the steps taken for it that its list does not show yet."""

from dataclasses import replace
from datetime import timedelta

from gpuwatch.model.decision import (
    Intent,
    LedgerView,
    Observation,
    OpenIntent,
    Outcome,
    Status,
    Verb,
)
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeState
from gpuwatch.policies.capacity import LaunchRules
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.past_steps import REASON

LAUNCH = LaunchRules(template="lt-1", subnets=("subnet-a", "subnet-b"), instance_type="g6.xlarge")
ASKED_A = {
    "pool": "default",
    "template": "lt-1",
    "version": "$Default",
    "instance_type": "g6.xlarge",
    "subnet": "subnet-a",
}


def stopped(node_id: str, **other: object) -> Node:
    """A stopped, enrolled machine."""
    return replace(a_node(node_id), state=NodeState.STOPPED, **other)  # type: ignore[arg-type]


def an_intent(
    verb: Verb, node_id: str, status: Status | None, arguments: dict[str, str] | None = None, key: str = ""
) -> OpenIntent:
    """An open intent with its last outcome."""
    intent = Intent(
        key=key or f"k-{node_id}",
        verb=verb,
        node_id=node_id,
        pool="default",
        at=NOW - timedelta(minutes=5),
        reason=REASON,
        arguments=arguments or {},
    )
    last = None if status is None else Outcome(key=intent.key, at=intent.at, status=status, detail="")
    return OpenIntent(intent=intent, attempts=1, last=last)


def seen(*nodes: Node, groups: tuple[NodeGroup, ...] = (), **ledger: object) -> Observation:
    """The pool and its past."""
    fleet = Fleet(observed_at=NOW, nodes=nodes, groups=groups, named=("default",))
    return Observation(now=NOW, fleet=fleet, ledger=LedgerView(**ledger))  # type: ignore[arg-type]
