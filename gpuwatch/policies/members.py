"""PURE: the lives of what groups make after gpuwatch has raised their sizes: how each began, and how it ended.

Rules, all of them:

1. A member's life begins when its cloud started it, by the cloud's clock. It counts if gpuwatch had raised the size of
   its group in the three days before; what the group makes in the place of such a member counts as well.
2. It ends as that of a launched machine does (lives.py). If its group wants fewer since it was seen last, the group may
   have chosen it to go: nobody knows then, and it counts neither way. So it is if it runs again with another launch
   time, or if its group is consented to no longer. While the group gives no answer nothing is known.
3. Of ended members the ledger's records speak, also after a restart; a new process begins with those that are there.
4. Of each group the newest lives are enough, and of a group without trouble none.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuwatch.model.bounds import time_on_record
from gpuwatch.model.decision import LAUNCHED_AT, Done, OpenIntent, Status, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeGroup
from gpuwatch.model.life import MEMBER_OF, End, Life
from gpuwatch.policies.lives import THERE, Use, as_recorded, end_life, ends_a_life, nodes_we_may_remove

_ENDINGS = frozenset({Verb.LOST, Verb.ENDED})
_CLOCKS_APART = timedelta(minutes=1)  # a cloud's and ours
_MEMORY = timedelta(days=3)
NEWEST = 50  # lives of one group: after so many in a row a rest grows no longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member that is there, or was until a moment ago: its group's size when it was seen last, and what was seen."""

    life: Life
    size: int
    use: Use | None = None  # None: nobody has looked yet


def raised_groups(ended: Iterable[Done]) -> dict[str, datetime]:
    """Since when what a group makes counts, by its id (rule 1)."""
    found = dict[str, datetime]()
    for done in ended:
        if done.verb is Verb.GROW and (done.status is Status.SETTLED or done.reached):
            group, at = done.node_id, done.reached_at or done.at
        elif done.verb in _ENDINGS and MEMBER_OF in done.arguments:
            group, at = done.arguments[MEMBER_OF], time_on_record(done.arguments.get(LAUNCHED_AT)) or done.at
        else:
            continue
        found[group] = min(at, found.get(group, at))
    return found


def note_members(
    known: Mapping[str, Member], raised: Mapping[str, datetime], fleet: Fleet, now: datetime
) -> dict[str, Member]:
    """The members that are there, and those of before that are gone for a reason that may be their own (rule 2)."""
    found, shown = dict[str, Member](), set[str]()
    for group in fleet.groups if raised else ():
        since = raised.get(group.id)
        for node_id in group.node_ids if since is not None and group.enrolled else ():
            node = fleet.find(node_id)
            if node is None or node.state not in THERE or node.group != group.id:
                continue
            shown.add(node.id)
            if since is not None and _counts(node, since, now):
                life = _begin_life(node, group)
                before = known.get(life.key)
                found[life.key] = Member(life=life, size=group.desired, use=None if before is None else before.use)
    for key, member in known.items():
        group_now = fleet.group(member.life.asked[MEMBER_OF])
        stands = group_now is not None and group_now.enrolled and now - member.life.at <= _MEMORY
        if key not in found and member.life.node_id not in shown and stands:
            assert group_now is not None  # noqa: S101  it stands
            if not group_now.seen_now or group_now.desired >= member.size:
                found[key] = member
    return found


def _counts(node: Node, since: datetime, now: datetime) -> bool:
    """Whether a member has begun since then, by its cloud's clock."""
    begun = node.launched_at
    return node.enrolled and begun is not None and since - _CLOCKS_APART <= begun <= now + _CLOCKS_APART


def _begin_life(node: Node, group: NodeGroup) -> Life:
    assert node.launched_at is not None  # noqa: S101  the caller has looked
    begun = node.launched_at.isoformat()
    asked = {MEMBER_OF: group.id, LAUNCHED_AT: begun}
    return Life(key=f"{node.id} {begun}", pool=group.pool, at=node.launched_at, asked=asked, node_id=node.id)


def lives_of_members(
    known: Mapping[str, Member], ended: Iterable[Done], opened: Iterable[OpenIntent], fleet: Fleet, now: datetime
) -> dict[str, tuple[Life, ...]]:
    """The newest lives of each group in which some have ended, the oldest first (rules 3 and 4)."""
    found, ends = dict[str, Life](), defaultdict[str, list[Done]](list)
    for done in sorted(ended, key=lambda done: (done.at, done.key)):
        if done.verb in _ENDINGS and MEMBER_OF in done.arguments:
            life = _recorded_life(done)
            found[life.key] = life
        elif ends_a_life(done):
            ends[done.node_id].append(done)
    ours = nodes_we_may_remove(opened)
    for key, member in known.items():
        if key not in found:
            node_id, use = member.life.node_id or "", member.use or Use()
            life = replace(member.life, answered=use.answered, worked=use.worked if use.answered else None)
            found[key] = end_life(life, ends.get(node_id, ()), ours, fleet, now, {key: use})
    by_group = defaultdict[str, list[Life]](list)
    for life in found.values():
        by_group[life.asked[MEMBER_OF]].append(life)
    return {group: _newest_lives(lives) for group, lives in by_group.items() if any(map(_has_ended, lives))}


def _recorded_life(done: Done) -> Life:
    """The life of a member, by the record of its end."""
    begun = done.arguments.get(LAUNCHED_AT, "")
    asked = {name: done.arguments[name] for name in (MEMBER_OF, LAUNCHED_AT) if name in done.arguments}
    life = Life(
        key=f"{done.node_id} {begun}",
        pool=done.pool,
        at=time_on_record(begun) or done.at,
        asked=asked,
        node_id=done.node_id,
    )
    return as_recorded(life, done)


def _has_ended(life: Life) -> bool:
    """Whether it has ended, and not by gpuwatch."""
    return life.end is not None and life.end is not End.REMOVED


def _newest_lives(lives: Iterable[Life]) -> tuple[Life, ...]:
    """The newest lives, and each that has an end without a record."""
    known = sorted(lives, key=lambda each: (each.at, each.key))
    unrecorded = [each for each in known[:-NEWEST] if _has_ended(each) and not each.recorded]
    return (*unrecorded, *known[-NEWEST:])
