"""PURE: a floor keeps nodes that policies would remove: whatever asks for so many nodes wins over what takes them."""

from dataclasses import replace

from gpuwatch.model.decision import LETS_GO, Observation, Step, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.policies.spot import back


def kept(
    observation: Observation, pool: str, changes: list[Step], floor: int, rules: back.Rules
) -> tuple[dict[str, Step], str]:
    """The removals that the floor turns into holds: first of the nodes kept anyway, then of those idle the shortest.

    Nodes on demand that stand in for spot go before all others. Only sound nodes satisfy the floor; where there are too
    few of them, whatever runs may be wanted.
    """
    roster = observation.fleet.roster(pool)
    removals = [step for step in changes if step.verb in LETS_GO and step.node_id in roster.members]
    spare = len(roster.sound) - floor
    lost = [step for step in removals if step.node_id in roster.sound]
    if not removals or (spare >= 0 and len(lost) <= spare):
        return {}, ""
    removals = lost if spare >= 0 else removals
    nodes = {node.id: node for node in roster.nodes}
    removals.sort(
        key=lambda step: (_spoken_for(nodes[step.node_id]), -nodes[step.node_id].activity.held_seconds, step.node_id),
    )
    keep_warm = back.first(removals, observation, pool, floor, rules)[max(0, spare) :]
    unsound = len(roster.members) - len(roster.sound)
    others = f"; {unsound} that run are unknown, failing or stalled and do not count" if unsound else ""
    words = f"{len(keep_warm)} leave the floor of {floor} running nodes{others}"
    clamp = f"{len(removals)} removals were proposed, {words}."
    return {step.node_id: _held(step, clamp) for step in keep_warm}, clamp


def _spoken_for(node: Node) -> bool:
    """Whether somebody keeps the node: it must not take the place of one that may go."""
    return any(each is not None for each in (node.protected, node.snoozed, node.managed_by))


def _held(step: Step, clamp: str) -> Step:
    """The step turned into a hold by a clamp."""
    reason = replace(step.reason, code="min_nodes", sentence=f"{step.reason.sentence} {clamp}")
    return replace(step, verb=Verb.HOLD, reason=reason, change="A lower min_nodes, or another running node.")
