"""PURE: the one count of a group's places: its size, what has no member, and what is no longer waited for.

Everybody who asks about a group's places reads `group_places`, so that no two answers differ. Rules, all of them:

1. A group that its cloud gives no more members is left: at once where the cloud says why, or where its newest members
   did not last (lasting.py), and otherwise once nothing has come for LEFT_AFTER. Each member that comes begins the wait
   again, and so does a silence of its cloud.
2. A member that stopped by itself keeps its place in some clouds' groups. LEFT_AFTER later it is not waited for either.
3. A size is what the group was raised to a moment ago, where no list shows that yet, and no termination has lowered it.
4. On trial, after members that did not last, a group gets one more; what comes of an earlier growth is that one.
"""

from datetime import datetime

from gpuwatch.model.decision import SETTLE_TIMEOUT, Done, Observation, Status, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeGroup, NodeState
from gpuwatch.model.life import End, Places
from gpuwatch.policies.lasting import group_on_trial, rest_of_group

# How long a group may take for its next member where its cloud does not say that there is none.
LEFT_AFTER = SETTLE_TIMEOUT
_GROWS = frozenset({Verb.GROW})
_LOWERS = frozenset({Verb.TERMINATE, Verb.SHRINK})


def group_places(observation: Observation, group: NodeGroup) -> Places:
    """The group's places, counted once for each observation."""
    found = observation.counts.places.get(group.id)
    if found is None:
        found = observation.counts.places[group.id] = _count_places(observation, group)
    return found


def _count_places(observation: Observation, group: NodeGroup) -> Places:
    """Every place of a group, once."""
    size, missing, why = _size(observation, group), max(0, group.desired - len(group.node_ids)), None
    if missing and group.enrolled and group.seen_now and group.short_since is not None:
        why = _why_left(observation, group, group.short_since)
    stopped = _stopped_places(observation, group)
    tried = group_on_trial(observation, group.id) and size > len(group.node_ids)
    return Places(
        size=size,
        shown=group.desired,
        missing=missing,
        stopped=stopped,
        late=(missing if why else 0) + stopped,
        why_left=why,
        on_trial=tried,
    )


def waits_until(observation: Observation, group: NodeGroup) -> datetime | None:
    """Until when what a group has no members for is waited for; None: it has all, or it is left, or nobody knows."""
    places = group_places(observation, group)
    if places.missing == 0 or places.why_left or not group.enrolled or not group.seen_now or group.short_since is None:
        return None
    return _waited_since(observation, group, group.short_since) + LEFT_AFTER


def _size(observation: Observation, group: NodeGroup) -> int:
    """How many members the group is to have (rule 3)."""
    recent = observation.ledger.recent
    sizes = [
        int(done.arguments["size"])
        for done in settled_actions(observation, group, _GROWS)
        if abs(observation.now - done.at) <= SETTLE_TIMEOUT
        and not any(each.verb in _LOWERS and each.pool == group.pool and each.at >= done.at for each in recent)
    ]
    return max([group.desired, *sizes])


def _stopped_places(observation: Observation, group: NodeGroup) -> int:
    """How many places of a group its members keep that stopped by themselves and were not replaced."""
    lives = observation.members.get(group.id, ())
    long_ago = observation.now - LEFT_AFTER
    stopped = {each.node_id for each in lives if each.end is End.STOPPED and (each.ended_at or long_ago) <= long_ago}
    nodes = [observation.fleet.find(node_id) for node_id in group.node_ids if node_id in stopped]
    return sum(node is not None and node.state is NodeState.STOPPED for node in nodes)


def _why_left(observation: Observation, group: NodeGroup, short_since: datetime) -> str | None:
    """Why what a group lacks is not waited for, as a clause; None: it is waited for (rule 1)."""
    if rest_of_group(observation, group.id) is not None:
        return "its newest members did not last"
    asked = _newest_growth(observation, group)
    if group.refused is not None and (asked is None or group.refused.at >= asked):
        return f"its cloud gives it no more: {group.refused.why}"
    waited = observation.now - _waited_since(observation, group, short_since)
    return f"nothing has come for {format_duration(waited.total_seconds())}" if waited >= LEFT_AFTER else None


def _newest_growth(observation: Observation, group: NodeGroup) -> datetime | None:
    """When the newest growth was accepted: the cloud may have refused the machines before it was seen settled."""
    return max([done.reached_at or done.at for done in settled_actions(observation, group, _GROWS)], default=None)


def _waited_since(observation: Observation, group: NodeGroup, short_since: datetime) -> datetime:
    """Since when nothing has come: the newest growth and each member that comes begin the wait again."""
    ids, asked = frozenset(group.node_ids), _newest_growth(observation, group)
    came = [node.launched_at for node in observation.fleet.roster(group.pool).nodes if node.id in ids]
    return max([short_since, *filter(None, [asked, *came])])


def settled_actions(observation: Observation, group: NodeGroup, verbs: frozenset[Verb]) -> list[Done]:
    """What was done of these verbs to a group lately."""
    ended = observation.ledger.ended_actions(verbs)
    return [done for done in ended if done.node_id == group.id and done.status is Status.SETTLED]
