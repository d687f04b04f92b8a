"""PURE: what was asked for and is no longer waited for: it does not count as coming, and the pool asks elsewhere.

Rules, all of them:

1. A group that its cloud gives no more members is left: at once where the cloud says why, or where its newest members
   did not last (lasting.py), and otherwise once nothing has come for LEFT_AFTER. Each member that comes begins the wait
   again, and so does a silence of its cloud.
2. What a group lacks that is left may come all the same. So its desired size is taken back by as many as come from
   elsewhere, and until that is done what it lacks counts towards the pool's maximum and towards limits in money.
3. A group rests after its size was taken back, as an offer without stock does. Then it is asked again.
4. A launched machine that its cloud has never shown is left SETTLE_TIMEOUT after that was written down. It may run all
   the same: rule 2 holds for it, and nothing more is launched with its settings (guard rule `launch_unseen`).
5. A member that stopped by itself keeps its place in some clouds' groups. LEFT_AFTER later it is not waited for either.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuwatch.model.decision import SETTLE_TIMEOUT, Done, Observation, OpenIntent, Reason, Status, Step, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import NodeGroup, NodeState
from gpuwatch.model.life import End
from gpuwatch.model.readable import how_many
from gpuwatch.model.verbs import REDUCTIONS
from gpuwatch.policies.lasting import rest_of_group
from gpuwatch.policies.sizes import NODES, Sizes
from gpuwatch.policies.spot.offers import rest_seconds

# How long a group may take for its next member where its cloud does not say that there is none.
LEFT_AFTER = SETTLE_TIMEOUT
# How the outcome of a launch ends whose machine its cloud has never shown.
NOT_SHOWN = "the cloud does not show it"
_GROWS = frozenset({Verb.GROW})


def lacks(observation: Observation, group: NodeGroup) -> int:
    """How many members of a group are not waited for any more; one that stopped by itself keeps its place (rule 5)."""
    return (_missing(group) if why_left(observation, group) else 0) + _stopped_places(observation, group)


def _stopped_places(observation: Observation, group: NodeGroup) -> int:
    """How many places of a group its members keep that stopped by themselves and were not replaced."""
    lives = observation.members.get(group.id, ())
    long_ago = observation.now - LEFT_AFTER
    stopped = {each.node_id for each in lives if each.end is End.STOPPED and (each.ended_at or long_ago) <= long_ago}
    nodes = [observation.fleet.find(node_id) for node_id in group.node_ids if node_id in stopped]
    return sum(node is not None and node.state is NodeState.STOPPED for node in nodes)


def why_left(observation: Observation, group: NodeGroup) -> str | None:
    """Why what a group lacks is not waited for, as a clause; None: it has all, or it is waited for."""
    if not (group.enrolled and group.seen_now) or group.short_since is None or _missing(group) == 0:
        return None
    if rest_of_group(observation, group.id) is not None:
        return "its newest members did not last"
    asked = _newest_growth(observation, group)
    if group.refused is not None and (asked is None or group.refused.at >= asked):
        return f"its cloud gives it no more: {group.refused.why}"
    waited = observation.now - _waited_since(observation, group, group.short_since)
    return f"nothing has come for {format_duration(waited.total_seconds())}" if waited >= LEFT_AFTER else None


def _newest_growth(observation: Observation, group: NodeGroup) -> datetime | None:
    """When the newest growth was accepted: the cloud may have refused the machines before it was seen settled."""
    return max([done.reached_at or done.at for done in _settled_actions(observation, group, _GROWS)], default=None)


def _waited_since(observation: Observation, group: NodeGroup, short_since: datetime) -> datetime:
    """Since when nothing has come: the newest growth and each member that comes begin the wait again."""
    ids, asked = frozenset(group.node_ids), _newest_growth(observation, group)
    came = [node.launched_at for node in observation.fleet.roster(group.pool).nodes if node.id in ids]
    return max([short_since, *filter(None, [asked, *came])])


def is_closed(observation: Observation, group: NodeGroup) -> bool:
    """Whether a group is not to be asked for more members now: it is left, or it rests."""
    if why_left(observation, group) is not None or _resting_seconds(observation, group) > 0:
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
    count = counted + sum(lacks(observation, group) * each for group, each in groups)
    count -= max(target, sum(group.desired * each for group, each in groups))
    for group, each in groups if count > 0 else ():
        why = why_left(observation, group)
        takes = 0 if why is None else min(count // each, _missing(group), group.desired - group.min_size)
        if takes > 0 and group.protected is None:
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
        if stopped := _stopped_places(observation, group):
            yield (
                f"{how_many(stopped, 'member')} of the group {group.name} stopped without gpuwatch: they keep their "
                "places, and count towards the pool's maximum alone."
            )
        if why := why_left(observation, group):
            yield f"{lacking}: {why}."
        elif group.enrolled and group.seen_now and group.short_since is not None and _missing(group):
            until = _waited_since(observation, group, group.short_since) + LEFT_AFTER
            yield f"{lacking}: the pool waits for them until {format_time(until)}."
    for each in launches:
        if forgotten(each, observation.now):
            yield f"The launch {each.intent.key} no longer counts as a node, but towards the pool's maximum."


def _missing(group: NodeGroup) -> int:
    """How many members fewer than it wants its cloud shows."""
    return max(0, group.desired - len(group.node_ids))


def _resting_seconds(observation: Observation, group: NodeGroup) -> float:
    """For how much longer a group rests after its size was taken back."""
    refusals = _settled_actions(observation, group, REDUCTIONS)
    if not refusals:
        return 0.0
    rest = timedelta(seconds=rest_seconds(len(refusals), own=0))
    return (max(done.at for done in refusals) + rest - observation.now).total_seconds()


def _settled_actions(observation: Observation, group: NodeGroup, verbs: frozenset[Verb]) -> list[Done]:
    """What was done of these verbs to a group lately."""
    ended = observation.ledger.ended_actions(verbs)
    return [done for done in ended if done.node_id == group.id and done.status is Status.SETTLED]
