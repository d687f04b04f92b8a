"""PURE: what was asked for and is no longer waited for: it does not count as coming, and the pool asks elsewhere.

Rules, all of them:

1. Which groups are left, and what they lack, places.py says.
2. What a group lacks that is left may come all the same. So its desired size is taken back by as many as come from
   elsewhere, and until that is done what it lacks counts towards the pool's maximum and towards limits in money. A size
   that no list shows yet is not taken back: what would be asked for is a number, and the wrong one.
3. A group rests after its size was taken back, as an offer without stock does. Then it is asked again.
4. A launched machine that its cloud has never shown is left SETTLE_TIMEOUT after that was written down. It may run all
   the same: rule 2 holds for it, and nothing more is launched with its settings (guard rule `launch_unseen`).
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuwatch.model.decision import SETTLE_TIMEOUT, Observation, OpenIntent, Reason, Status, Step, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import NodeGroup
from gpuwatch.model.readable import how_many
from gpuwatch.model.verbs import REDUCTIONS
from gpuwatch.policies.lasting import rest_of_group
from gpuwatch.policies.places import group_places, settled_actions, waits_until
from gpuwatch.policies.sizes import NODES, Sizes
from gpuwatch.policies.spot.offers import rest_seconds

# How the outcome of a launch ends whose machine its cloud has never shown.
NOT_SHOWN = "the cloud does not show it"


def is_closed(observation: Observation, group: NodeGroup) -> bool:
    """Whether a group is not to be asked for more members now: it is left, it rests, or one is coming on trial."""
    places = group_places(observation, group)
    if places.why_left is not None or places.on_trial or _resting_seconds(observation, group) > 0:
        return True
    return rest_of_group(observation, group.id) is not None


def forgotten(entry: OpenIntent, now: datetime) -> bool:
    """Whether a launch is no longer waited for: its cloud has never shown its machine."""
    last = entry.last
    return (
        last is not None
        and last.status is Status.UNSEEN
        and last.detail.endswith(NOT_SHOWN)
        and now - last.at >= SETTLE_TIMEOUT
    )


def taken_back(observation: Observation, pool: str, target: int, counted: int, sizes: Sizes = NODES) -> Iterator[Step]:
    """The steps that take back the sizes of groups that are left, as far as others have their nodes (rule 2).

    `counted` is how large the pool is, with what comes and is asked for now. What the groups want without us stays as
    it is; so does the size of a group of an unknown machine type.
    """
    known = [(group, sizes.kind(group.instance_type)) for group in observation.fleet.roster(pool).groups]
    groups = [(group, each) for group, each in known if group.enrolled and each]
    count = counted + sum(group_places(observation, group).late * each for group, each in groups)
    count -= max(target, sum(group_places(observation, group).size * each for group, each in groups))
    for group, each in groups if count > 0 else ():
        places = group_places(observation, group)
        why, certain = places.why_left, places.size == places.shown
        takes = 0 if why is None else min(count // each, places.missing, group.desired - group.min_size)
        if takes > 0 and certain and group.protected is None:
            count -= takes * each
            there, size = len(group.node_ids), str(group.desired - takes)
            sentence = f"The group wants {group.desired} nodes and has {there}; {why}. They come from elsewhere."
            yield Step(
                node_id=group.id,
                verb=Verb.SHRINK,
                reason=Reason(code="no_stock", sentence=sentence),
                change="A member that comes.",
                arguments={"size": size, "takes": str(takes)},
            )


def missing_sentences(observation: Observation, pool: str) -> Iterator[str]:
    """Yield a sentence on each launch that brought no node, and on each group of the pool that lacks nodes."""
    launches = [each for each in observation.ledger.open_intents if each.intent.pool == pool]
    for each in launches:
        if each.last is not None and each.last.status is Status.UNSEEN:
            yield f"A launch brought no node: {each.last.detail}."
    for group in observation.fleet.roster(pool).groups:
        lacking = f"The group {group.name} wants {group.desired} nodes and has {len(group.node_ids)}"
        places = group_places(observation, group)
        if (stopped := places.stopped) > 0:
            yield (
                f"{how_many(stopped, 'member')} of the group {group.name} stopped without gpuwatch: they keep their "
                "places, and count towards the pool's maximum alone."
            )
        if places.why_left is not None:
            yield f"{lacking}: {places.why_left}."
        elif (until := waits_until(observation, group)) is not None:
            yield f"{lacking}: the pool waits for them until {format_time(until)}."
    for each in launches:
        if forgotten(each, observation.now):
            yield f"The launch {each.intent.key} no longer counts as a node, but towards the pool's maximum."


def _resting_seconds(observation: Observation, group: NodeGroup) -> float:
    """For how much longer a group rests after its size was taken back."""
    refusals = settled_actions(observation, group, REDUCTIONS)
    if not refusals:
        return 0.0
    rest = timedelta(seconds=rest_seconds(len(refusals), own=0))
    return (max(done.at for done in refusals) + rest - observation.now).total_seconds()
