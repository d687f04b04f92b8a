"""PURE: a floor keeps nodes that policies would remove: whatever asks for its size wins over what takes it."""

from dataclasses import replace

from gpuwatch.model.decision import REMOVAL_STEPS, Observation, Step, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.policies import machines
from gpuwatch.policies.spot import back


def keep_floor(
    observation: Observation, pool: str, changes: list[Step], floor: int, rules: back.Rules
) -> tuple[dict[str, Step], str]:
    """The removals that the floor turns into holds: first of the nodes kept anyway, then of those idle the shortest.

    Nodes on demand that stand in for spot go before all others. Only sound nodes satisfy the floor; where there are too
    few of them, whatever runs may be wanted.
    """
    roster, sizes = observation.fleet.roster(pool), rules.sizes(observation.fleet)
    removals = [step for step in changes if step.verb in REMOVAL_STEPS and step.node_id in roster.members]
    if not removals:
        return {}, ""
    # What earlier rounds remove counts as gone, whatever is decided of it now.
    leaving = machines.pool_machines(observation, pool).may_leave
    sound = roster.sound - (leaving - {step.node_id for step in removals})
    lost = [step for step in removals if step.node_id in sound]
    if sizes.gpus is None and len(lost) <= len(sound) - floor:
        return {}, ""
    nodes = {node.id: node for node in roster.nodes}
    count = {node_id: sizes.node(nodes[node_id]) or 0 for node_id in sound}
    spare = sum(count.values()) - floor
    if spare >= 0 and sum(count[step.node_id] for step in lost) <= spare:
        return {}, ""
    removals = lost if spare >= 0 else removals
    removals.sort(
        key=lambda step: (
            _is_spoken_for(nodes[step.node_id]),
            -nodes[step.node_id].activity.held_seconds,
            step.node_id,
        ),
    )
    keep_warm = list[Step]()
    for step in back.first(removals, observation, pool, floor, rules):
        size = count.get(step.node_id, 0)
        if spare < 0 or size > spare:
            keep_warm.append(step)
        else:
            spare -= size
    unsound = len(roster.members) - len(roster.sound)
    others = f"; {unsound} that run are unknown, failing or stalled and do not count" if unsound else ""
    running = f"{floor} running nodes" if sizes.gpus is None else f"{floor} GPUs on running nodes"
    others += f"; {gone} more are being removed" if (gone := len(roster.sound) - len(sound)) else ""
    words = f"{len(keep_warm)} leave the floor of {running}{others}"
    clamp = f"{len(removals)} removals were proposed, {words}."
    return {step.node_id: _hold_step(step, clamp, f"min_{sizes.key}") for step in keep_warm}, clamp


def _is_spoken_for(node: Node) -> bool:
    """Whether somebody keeps the node: it must not take the place of one that may go."""
    return any(each is not None for each in (node.protected, node.snoozed, node.managed_by))


def _hold_step(step: Step, clamp: str, key: str) -> Step:
    """The step turned into a hold by a clamp."""
    reason = replace(step.reason, code=back.HELD_BY_FLOOR, sentence=f"{step.reason.sentence} {clamp}")
    return replace(step, verb=Verb.HOLD, reason=reason, change=f"A lower {key}, or another running node.")
