"""Rules on taking back what a group wants and its cloud does not give it."""

from gpuwatch.guard.case import Case, Finding, allow, refuse
from gpuwatch.model.readable import how_many
from gpuwatch.policies import uncounted


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
    size, why = int(case.step.arguments["size"]), uncounted.left(case.observation, group)
    if why is None or not len(group.node_ids) <= size < group.desired:
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
