"""PURE: machines of a pool that the settings do not have. Their rules are unknown, so they are left alone.

Rules: every node holds; a notice that was given under other rules is withdrawn; a running member of a consented group
gets the group's scale-in protection, whatever its use, because its pool may be one that keeps idle nodes.
"""

from gpuwatch.model.decision import Observation, Proposal, Reason, Step, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.readable import how_many

CODE = "unknown_pool"


def propose(observation: Observation, pool: str, doubt: str) -> Proposal:
    """A step for each node of the pool; `doubt` is the sentence that says why the pool is not known."""
    roster = observation.fleet.roster(pool)
    groups = frozenset(group.id for group in roster.groups if group.enrolled)
    steps = tuple(_step(node, observation, groups, doubt) for node in roster.nodes)
    sentence = f"{how_many(len(steps), 'node')} and {how_many(len(roster.groups), 'group')} are left alone. {doubt}"
    return Proposal(policy="unplaced", pool=pool, reason=Reason(code=CODE, sentence=sentence), steps=steps)


def _step(node: Node, observation: Observation, groups: frozenset[str], doubt: str) -> Step:
    """Hold, and undo or prevent what would end the node."""
    verb = Verb.HOLD
    if observation.ledger.notice(node.id) is not None:
        verb = Verb.WITHDRAW
    elif node.group in groups and _could_be_chosen(node):
        verb = Verb.PROTECT
    reason = Reason(code=CODE, sentence=doubt, evidence=node.activity.evidence)
    return Step(node_id=node.id, verb=verb, reason=reason, change="Another tag gpuwatch:pool, or rules for that pool.")


def _could_be_chosen(node: Node) -> bool:
    """Whether the node's group may end it in a scale-in of its own, and we may keep it from that."""
    ours = node.enrolled and node.managed_by is None
    return ours and node.state is NodeState.RUNNING and not node.scale_in_protected
