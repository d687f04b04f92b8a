"""PURE: keep an Auto Scaling group from choosing a working member for a scale-in of its own.

Rules: a running member of a consented group carries the group's scale-in protection unless it is proven idle. What a
tag protects or snoozes, and what lacks evidence that the pool requires, keeps it. Protection that gpuwatch set itself
goes right before it terminates the member, in pools that say so, after the notice and with all that a removal takes:
`resolve` lets it take the place of a termination and of nothing else. What somebody else protected stays protected.
"""

from collections.abc import Callable

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Proposal, Reason, Step, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.policies.idle import IdleRules, lacking
from gpuwatch.policies.idle_timeout.node_wait import wait_seconds


def propose(
    observation: Observation, pool: str, rules: IdleRules, *, ours: Callable[[Node], bool] = lambda _: False
) -> Proposal:
    """A step for each member with a protection that is not what it should be.

    `ours` is whether a node is gpuwatch's all the same that another system's marks name.
    """
    groups = {group.id for group in observation.fleet.roster(pool).groups if group.enrolled or group.serves_cluster}
    members = [
        node
        for node in (observation.fleet.roster(pool).nodes if groups else ())
        if node.group in groups and node.enrolled and node.state is NodeState.RUNNING
        if node.managed_by is None or ours(node)
    ]
    waits = ((node, wait_seconds(node, observation, rules)) for node in members)
    steps = tuple(step for node, wait in waits if (step := _step(node, wait, rules, observation)) is not None)
    sentence = (
        f"scale-in protection to change on {len(steps)} of {len(members)} members of consented groups"
        if steps
        else "no scale-in protection to change"
    )
    return Proposal(policy="shield", pool=pool, reason=Reason(code="shield", sentence=sentence), steps=steps)


def _step(node: Node, idle_after: float | None, rules: IdleRules, observation: Observation) -> Step | None:
    """Protect what is not proven idle; take gpuwatch's own protection off what is about to be terminated."""
    state, held = node.activity.state, node.activity.held_seconds
    kept = node.protected is not None or (node.snoozed is not None and held <= rules.max_snooze)
    long = idle_after is not None and held >= idle_after
    proven = state is State.IDLE and long and not kept and lacking(node.activity, rules) is None
    if not proven and not node.scale_in_protected:
        word = f"{state.value} and kept by a tag" if kept else state.value
        reason = Reason(code="working", sentence=f"It is {word}: its group must not choose it for a scale-in.")
        return Step(node_id=node.id, verb=Verb.PROTECT, reason=reason, change="Proof that it is idle.")
    if (
        proven
        and node.scale_in_protected
        and rules.action == "terminate"
        and observation.ledger.is_shielded_by_us(node.id)
    ):
        reason = Reason(code="proven_idle", sentence="It is proven idle: the protection that gpuwatch gave it ends.")
        return Step(node_id=node.id, verb=Verb.UNPROTECT, reason=reason, change="Any activity on it.")
    return None
