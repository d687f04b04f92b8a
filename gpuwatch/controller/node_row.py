"""One node of a round as people want to see it: the row of status, page and demo."""

from collections.abc import Sequence
from typing import Any

from gpuwatch.controller.round import Round
from gpuwatch.model.decision import Answer, Step, Verb
from gpuwatch.model.fleet import Node, NodeState


def fleet_rows(done: Round) -> list[dict[str, Any]]:
    """`status --json`: one object a node."""
    steps = {step.node_id: step for decision in done.decisions for step in decision.steps}
    refusals = {review.step.node_id: review.refusals for review in done.reviews}
    return [_row(node, steps[node.id], refusals.get(node.id, ()), done) for node in done.observation.fleet.nodes]


def _row(node: Node, step: Step, refusals: Sequence[Answer], done: Round) -> dict[str, Any]:
    """What a person wants to know of a node at a glance."""
    activity, notice = node.activity, done.observation.ledger.notice(node.id)
    objections = "".join(f" But: {answer.sentence}" for answer in refusals)
    return {
        "node": node.id,
        "name": node.name,
        "pool": node.pool,
        "instance_type": node.instance_type,
        "gpus": node.gpu_count,
        "state": node.state.value,
        "enrolled": node.enrolled,
        "activity": activity.state.value if node.state is NodeState.RUNNING else None,
        "held_seconds": activity.held_seconds if node.state is NodeState.RUNNING else None,
        "doubt": activity.doubt,
        "notified_at": None if notice is None else notice.at.isoformat(),
        "next": Verb.HOLD.value if refusals else step.verb.value,
        "why": step.reason.sentence + objections,
        "refused_by": [answer.rule for answer in refusals],
    }
