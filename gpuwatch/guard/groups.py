"""Rules on groups of machines: whether a member may go, and how large the group may be made, or how small."""

from gpuwatch.guard.case import Case, Finding, allow, refuse
from gpuwatch.model.decision import Verb
from gpuwatch.model.readable import how_many
from gpuwatch.model.verbs import PREPARATIONS
from gpuwatch.policies import capacity
from gpuwatch.policies.places import group_places


def scale_in_protection(case: Case) -> Finding:
    """Refuses to terminate a group's member that somebody else has protected from scale-in.

    This protection (`aws autoscaling set-instance-protection`, or the group's `NewInstancesProtectedFromScaleIn`) means
    that the machine should stay (P20). EC2 would still terminate it by name, so gpuwatch does not ask, and gives no
    notice. Protection that gpuwatch set itself (docs/policies/scale-in-protection.md) does not matter here. The ledger
    shows it: a `protect` on record, and no round since then that saw the member without protection. After the ledger
    was lost, all protection counts as somebody else's.

    Remove the protection with `aws autoscaling set-instance-protection` if the machine may be terminated.
    """
    if not case.machine.scale_in_protected:
        return allow("It has no scale-in protection.")
    if case.observation.ledger.is_shielded_by_us(case.step.node_id):
        return allow("Its scale-in protection is gpuwatch's own.")
    return refuse(
        "Somebody else protects it from its group's scale-in.",
        "Remove that protection in the cloud if the machine may be terminated.",
    )


def group_rules(case: Case) -> Finding:
    """Refuses to terminate a member, or to grow a group, where the Auto Scaling group does not permit it safely.

    A termination must not take the group below its minimum; members chosen earlier in the round count as gone (P7). It
    must not cost another member (P4): in a group of several zones, `AZRebalance` then terminates a member of the
    group's own choice, perhaps a busy one, unless all others have scale-in protection. A growth must not exceed the
    group's maximum, and the group must still have the size that the decision assumed, because setting a size must never
    make a group smaller. With `Launch` or `Terminate` suspended the group would not carry the action out.

    Lower MinSize, raise MaxSize or resume the process. For `AZRebalance`, suspend it, or wait until gpuwatch has
    protected the other members.
    """
    group = case.group
    if case.node is not None and case.node.group is None:
        return allow("It is in no group.")
    if group is None:
        return refuse("Its group is unknown.", "The cloud must list the group.")
    if case.step.verb is Verb.GROW:
        size, adds = int(case.step.arguments["size"]), capacity.adds(case.step)
        if not 0 < size - group.desired <= adds:
            return refuse(
                f"The group has {how_many(group.desired, 'node')} now: {size} is not {adds} more.",
                "The next round counts again.",
            )
        if size > group.max_size:
            return refuse(f"{size} is above the group's maximum of {group.max_size}.", "Raise its MaxSize.")
        if "Launch" in group.suspended:
            return refuse("The group's Launch process is suspended.", "Resume it, or start nodes another way.")
        return allow(f"The group takes up to {how_many(group.max_size, 'node')}.")
    leaving = sum(
        1
        for step in case.counts(PREPARATIONS | {Verb.TERMINATE, Verb.UNPROTECT})
        if step.node_id != case.step.node_id
        and (step.node_id in group.node_ids or _is_in_group(case, step.node_id, group.id))
    )
    if group.desired - leaving - 1 < group.min_size:
        return refuse(f"The group's minimum is {group.min_size} of {group.desired}.", "Lower its MinSize.")
    if "Terminate" in group.suspended:
        return refuse("The group's Terminate process is suspended.", "Resume it.")
    if len(group.zones) > 1 and "AZRebalance" not in group.suspended:
        others = [
            node
            for node in case.observation.fleet.roster(case.pool).nodes
            if node.group == group.id and node.id != case.step.node_id and not node.scale_in_protected
        ]
        listed = {node.id for node in case.observation.fleet.roster(case.pool).nodes}
        if others or not set(group.node_ids) <= listed:
            return refuse(
                "The group may terminate another member to balance its zones.",
                "Suspend AZRebalance, or wait until gpuwatch has set scale-in protection on the others.",
            )
    return allow("The group allows its termination together with its place.")


def _is_in_group(case: Case, node_id: str, group_id: str) -> bool:
    """Whether the node says that it is in the group, which may not list it yet."""
    node = case.observation.fleet.find(node_id)
    return node is not None and node.group == group_id


def group_takes_back(case: Case) -> Finding:
    """Refuses to take back a group's desired size where a member could go for it.

    A group that its cloud gives no more members goes on asking for them. Once its pool has them from elsewhere, what it
    lacks is taken back: to the number of its members and no further, and never below its minimum. Most clouds lower a
    size by a number, and the group chooses who goes. If a member came at that very moment, it could choose a busy one:
    so all its running members must have scale-in protection. The group is looked at again right after the call, and if
    a member has come, the size is raised again at once. Google Cloud takes the places back by their names.

    Wait until gpuwatch has protected its members, or lower the desired size yourself.
    """
    group = case.group
    if group is None:
        return refuse("Its group is unknown.", "The cloud must list the group.")
    size, places = int(case.step.arguments["size"]), group_places(case.observation, group)
    if places.why_left is None or not len(group.node_ids) <= size < group.desired == places.size:
        return refuse(
            f"The group has {len(group.node_ids)} of {how_many(group.desired, 'node')} now.",
            "The next round looks again.",
        )
    if size < group.min_size:
        return refuse(f"The group's minimum is {group.min_size}.", "Lower its MinSize.")
    if group.gives_back_places:
        return allow("Its cloud takes back the places that are empty.")
    nodes = {node.id: node for node in case.observation.fleet.roster(case.pool).nodes}
    bare = [each for each in group.node_ids if each not in nodes or not nodes[each].scale_in_protected]
    if bare:
        return refuse(
            f"{len(bare)} of its members have no scale-in protection, such as {bare[0]}: the group could choose one.",
            "Protect them from the group's scale-in, or lower its desired size yourself.",
        )
    return allow("Every member is protected from the group's scale-in.")
