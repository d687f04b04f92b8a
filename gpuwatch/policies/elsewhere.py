"""PURE: nodes in a cloud that their pool does not name. The pool's rules are for other clouds, so they are left alone.

Rules: such a node holds, whatever it does; a notice that it has is withdrawn.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.model.decision import Observation, Proposal, Reason, Step, Verb
from gpuwatch.model.fleet import Node, NodeGroup

CODE = "other_cloud"


def foreign(machine: Node | NodeGroup, clouds: Sequence[str], called: str = "It") -> str | None:
    """Why a pool with these clouds leaves a node or a group alone, as a sentence; None: it does not."""
    if not clouds or machine.cloud in clouds:
        return None
    return f"{called} is in the cloud {machine.cloud or 'without a name'}, and its pool is for {', '.join(clouds)}."


def hold_elsewhere(proposal: Proposal, observation: Observation, clouds: Sequence[str]) -> Proposal:
    """The proposal with other steps for the nodes that are left alone."""
    if not clouds:
        return proposal
    return replace(proposal, steps=tuple([_step(step, observation, clouds) for step in proposal.steps]))


def _step(step: Step, observation: Observation, clouds: Sequence[str]) -> Step:
    node = observation.fleet.find(step.node_id)
    why = None if node is None else foreign(node, clouds)
    if node is None or why is None:
        return step
    verb = Verb.HOLD if observation.ledger.notice(node.id) is None else Verb.WITHDRAW
    reason = Reason(code=CODE, sentence=why, evidence=node.activity.evidence)
    return Step(node_id=node.id, verb=verb, reason=reason, change="Another tag gpuwatch:pool, or that cloud's name.")
