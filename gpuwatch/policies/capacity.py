"""PURE: how large a pool is or is about to be, and which steps bring it to a size; what counts how much, sizes.py says.

Rules: what is on its way counts as there, so that asking again adds nothing. Stopped nodes are started first, then a
consented group grows, then nodes are launched from the pool's template. An addition that the cloud has certainly not
carried out is asked for again under its own intent. A launched machine counts for as long as it may live, shown or not
(see uncounted.py); a list that does not show what was settled a moment ago is late. A launch that may have happened is
asked again before all else. What its cloud is about to take does not count; a member's place is its group's to fill.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuwatch.model.decision import (
    ADDITIONS,
    DECISION_TAG,
    REMOVALS,
    SETTLE_TIMEOUT,
    Done,
    Intent,
    Observation,
    OpenIntent,
    Reason,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import CapacityType, Node, NodeGroup, NodeState
from gpuwatch.policies.launches import (
    CHANGE,
    NEW,
    LaunchRules,
    Sources,
    again,
    doubtful_size,
    failed_actions,
    launches,
    may_appear,
)
from gpuwatch.policies.lives import ENDED, LAUNCHES, SHOWN, THERE
from gpuwatch.policies.sizes import NODES, Need, Sizes
from gpuwatch.policies.spot import records
from gpuwatch.policies.spot.choice import choose_offers
from gpuwatch.policies.spot.records import OFFER
from gpuwatch.policies.spot.settings import Offers
from gpuwatch.policies.starts import Startable, starts
from gpuwatch.policies.uncounted import forgotten, is_closed, lacks

__all__ = ["ENDED", "LAUNCHES", "SHOWN", "THERE", "LaunchRules", "additions", "adds", "adds_of", "coming"]
__all__ += ["launched_id", "launching", "leaving", "may_appear", "nodes_being_taken", "now", "others"]
__all__ += ["pool_of_launch", "same_try", "surplus", "unreplaced_count", "unseen"]


def now(observation: Observation, pool: str, sizes: Sizes = NODES) -> int:
    """How large the pool is, with what is being added and without what is being removed."""
    there, added = _there(observation, pool), coming(observation, pool)
    if sizes.gpus is None:
        return len(there) + len(added)
    nodes = [node for node in observation.fleet.roster(pool).nodes if node.id in there]
    return sum(map(_known_size, (*map(sizes.node, nodes), *map(sizes.kind, added))))


def unsized_machines(observation: Observation, pool: str, sizes: Sizes) -> list[str]:
    """The machines of the pool, there or on their way, of which nobody knows how much they count."""
    if sizes.gpus is None:
        return []
    there = _there(observation, pool)
    nodes = [node for node in observation.fleet.roster(pool).nodes if node.id in there and sizes.node(node) is None]
    added = [kind for kind in coming(observation, pool) if sizes.kind(kind) is None]
    return [f"{node.name} ({node.instance_type})" for node in nodes] + [
        f"a machine on its way ({kind or 'of a type that is not known'})" for kind in added
    ]


def _known_size(size: int | None) -> int:
    """What is not known counts as none."""
    return size or 0


def _there(observation: Observation, pool: str) -> set[str]:
    """The nodes that run or begin to; a removal that was certainly not carried out takes none of them away."""
    nodes = observation.fleet.roster(pool).nodes
    there = {node.id for node in nodes if node.enrolled and node.state in THERE and node.cloud_notice is None}
    return there - leaving(observation)


def nodes_being_taken(observation: Observation, pool: str) -> list[Node]:
    """The nodes that still run and do not count any more, because their cloud is about to take them."""
    if not observation.fleet.with_notice:
        return []
    nodes = [node for node in observation.fleet.roster(pool).nodes if node.cloud_notice is not None]
    gone = leaving(observation)
    return [node for node in nodes if node.enrolled and node.state in THERE and node.id not in gone]


def unreplaced_count(observation: Observation, pool: str, sizes: Sizes = NODES) -> int:
    """How much of those nothing was added for since the first of their notices: no loss is replaced twice."""
    extra = {each.node_id for each in observation.lives if each.surplus}
    lost = [node for node in nodes_being_taken(observation, pool) if node.id not in extra]
    going = sum(_known_size(sizes.node(node)) for node in lost)
    if not going:
        return 0
    ids = {node.id for node in observation.fleet.roster(pool).nodes if node.cloud_notice is not None}
    recorded = {each.node_id: each.since for each in observation.ledger.interruptions}
    since = min(recorded.get(node_id, observation.now) for node_id in ids)
    came: list[Intent | Done] = [entry.intent for entry in observation.ledger.open_intents if not entry.resumable]
    came += [each for each in observation.ledger.recent if each.status is Status.SETTLED]
    came = [each for each in came if each.pool == pool and each.at >= since]
    added = [sizes.brings(observation.fleet, each.verb, each.node_id, each.arguments) for each in came]
    return 0 if None in added else max(0, going - sum(map(_known_size, added)))  # a doubt buys nothing


def surplus(observation: Observation, pool: str, sizes: Sizes = NODES) -> int:
    """How much of what the pool has is there on top of what is wanted, until nodes on demand have gone in its place."""
    extra = [each for each in observation.lives if each.surplus and each.pool == pool]
    if not extra:
        return 0
    there, fleet = _there(observation, pool), observation.fleet
    nodes = [node for each in extra if each.node_id in there and (node := fleet.find(each.node_id or "")) is not None]
    asked = {entry.intent.key for entry in observation.ledger.open_intents if _brought(observation, entry)}
    asked |= {done.key for done in _lately(observation) if _late(observation, done)}
    kinds = [each.asked.get("instance_type") for each in extra if each.key in asked]
    total = sum(map(_known_size, (*map(sizes.node, nodes), *map(sizes.kind, kinds))))
    others = [node for node in fleet.roster(pool).nodes if node.id in there]
    firm = sum(_known_size(sizes.node(node)) for node in others if node.capacity_type is not CapacityType.SPOT)
    return min(total, firm)  # with no other left there is nothing that could go in its place


def leaving(observation: Observation) -> set[str]:
    """The nodes with a removal that is under way, or may be."""
    entries = observation.ledger.open_intents
    return {entry.intent.node_id for entry in entries if entry.intent.verb in REMOVALS and not entry.resumable}


def coming(observation: Observation, pool: str) -> list[str | None]:
    """The machine type of every node that is on its way and not yet to be seen; None where it is not known."""
    roster, there, away = observation.fleet.roster(pool), _there(observation, pool), leaving(observation)
    found: list[str | None] = []
    for group in roster.groups:
        if group.enrolled:
            present = sum(node.group == group.id for node in roster.nodes if node.id in there)
            out = lacks(observation, group) + sum(node_id in away for node_id in group.node_ids)
            found += [group.instance_type] * (_desired_size(observation, group) - out - present)
    for entry in observation.ledger.open_intents:
        if entry.intent.pool == pool and entry.intent.verb in ADDITIONS and not entry.resumable:
            found += _brought(observation, entry)
    return found + [kind for done in _lately(observation) if done.pool == pool for kind in _late(observation, done)]


def launching(observation: Observation, pool: str, more: Iterable[Mapping[str, str]] = ()) -> tuple[str, ...]:
    """The offer of every launch that is on its way and not yet to be seen, and of `more` of them."""
    asked = [
        entry.intent.arguments
        for entry in observation.ledger.open_intents
        if entry.intent.pool == pool
        and entry.intent.verb is Verb.LAUNCH
        and not entry.resumable
        and _brought(observation, entry)
    ]
    lately = [done for done in _lately(observation) if done.pool == pool and done.verb is Verb.LAUNCH]
    asked += [done.arguments for done in lately if _late(observation, done)]
    return tuple(each[OFFER] for each in (*asked, *more) if OFFER in each)


def _brought(observation: Observation, entry: OpenIntent) -> list[str | None]:
    """The machine types of the nodes that an open addition will bring and that are not there to be counted."""
    intent = entry.intent
    if intent.verb is Verb.LAUNCH:
        made = launched_id(entry)
        seen = forgotten(entry, observation.now) or any(
            node.enrolled and (node.id == made or node.tags.get(DECISION_TAG) == intent.key)
            for node in observation.fleet.roster(intent.pool).nodes
        )
        return [] if seen else [intent.arguments.get("instance_type")]
    if intent.verb is Verb.START:
        node = observation.fleet.find(intent.node_id)
        return [] if node is None or node.state in THERE else [node.instance_type]
    group = observation.fleet.group(intent.node_id)
    size = int(intent.arguments["size"])
    return [] if group is None else [group.instance_type] * (size - _desired_size(observation, group))


def _lately(observation: Observation) -> list[Done]:
    """The additions that settled so short a time ago that a list may not show them."""
    return [
        done
        for done in observation.ledger.ended_actions(ADDITIONS)
        if done.status is Status.SETTLED and abs(observation.now - done.at) <= SETTLE_TIMEOUT
    ]


def _late(observation: Observation, done: Done) -> list[str | None]:
    """The machine type of what was launched or started a moment ago, where the list does not show it so."""
    if done.verb is Verb.LAUNCH:
        node_id = done.detail.removeprefix(SHOWN)
        late = node_id != done.detail and observation.fleet.find(node_id) is None
        late = late and node_id not in observation.fleet.ended and not _taken_since(observation, done, node_id)
        return [done.arguments.get("instance_type")] if late and not _removed_since(observation, done, node_id) else []
    node = observation.fleet.find(done.node_id) if done.verb is Verb.START else None
    late = node is not None and node.state is NodeState.STOPPED and observation.ledger.open_for(node.id) is None
    return [node.instance_type] if node and late and not _removed_since(observation, done, node.id) else []


def _taken_since(observation: Observation, done: Done, node_id: str) -> bool:
    """Whether its cloud has taken that node after that addition, as it had announced."""
    return any(
        each.verb is Verb.LOST and each.node_id == node_id and each.at >= done.at for each in observation.ledger.recent
    )


def _removed_since(observation: Observation, done: Done, node_id: str) -> bool:
    """Whether gpuwatch itself has removed that node after that addition."""
    return any(
        each.verb in REMOVALS and each.node_id == node_id and each.status is Status.SETTLED and each.at >= done.at
        for each in observation.ledger.recent
    )


def _desired_size(observation: Observation, group: NodeGroup) -> int:
    """A group's size: what it was raised to a moment ago, unless a termination in the pool has lowered it since."""
    sizes = [
        int(done.arguments["size"])
        for done in _lately(observation)
        if done.verb is Verb.GROW
        and done.node_id == group.id
        and not any(
            each.verb in {Verb.TERMINATE, Verb.SHRINK} and each.pool == group.pool and each.at >= done.at
            for each in observation.ledger.recent
        )
    ]
    return max([group.desired, *sizes])


def launched_id(entry: OpenIntent) -> str | None:
    """The machine that the cloud said it launches; None where it has not said so, or nothing else was written since."""
    detail = "" if entry.last is None else entry.last.detail
    made = detail.removeprefix(LAUNCHES).removeprefix("the cloud launched ")
    return None if made == detail else made.partition(",")[0]


def unseen(observation: Observation, pool: str) -> Iterator[str]:
    """What is known of each launch of the pool that has had its time to turn into a node, and has not."""
    for entry in observation.ledger.open_intents:
        last = entry.last
        if entry.intent.pool == pool and last is not None and last.status is Status.UNSEEN:
            yield last.detail


def adds(step: Step) -> int:
    """How many nodes a step adds."""
    return adds_of(step.verb, step.arguments)


def adds_of(verb: Verb, arguments: Mapping[str, str]) -> int:
    """How many nodes an action adds."""
    return int(arguments.get("adds", "1")) if verb in ADDITIONS else 0


def pool_of_launch(step: Step) -> str | None:
    """The pool that a launch is for."""
    return step.node_id.removeprefix(NEW).rpartition(":")[0] if step.verb is Verb.LAUNCH else None


def same_try(done: Done, step: Step) -> bool:
    """Whether a step asks for what was asked then: the same node or group, or a launch with the same arguments."""
    if done.verb is not step.verb:
        return False
    return dict(done.arguments) == dict(step.arguments) if step.verb is Verb.LAUNCH else done.node_id == step.node_id


def additions(  # noqa: PLR0913  where from, and how far
    observation: Observation,
    pool: str,
    target: int,
    launch: Sources,
    start: Startable = "own",
    *,
    sizes: Sizes = NODES,
    most: int | None = None,
    machines: int | None = None,
) -> tuple[Step, ...]:
    """The steps from what the pool has to its target; fewer where nothing more is to be had.

    Machines come whole, so the last may bring more; `most` is how large the pool may be, with how many `machines`.
    """
    has = now(observation, pool, sizes) + doubtful_size(observation, pool, launch, sizes)
    if target <= has or unsized_machines(observation, pool, sizes):
        return ()
    sentence = f"The pool has {sizes.words(has)} and should have {target}."
    if going := nodes_being_taken(observation, pool):
        gone = sum(_known_size(sizes.node(node)) for node in going)
        sentence += f" Its cloud is about to take {gone} more of them."
    reason = Reason(code="scale_out", sentence=sentence)
    need = Need(
        missing=target - has,
        wanted=target,
        sizes=sizes,
        most=None if most is None else max(0, most - has),
        machines=None if machines is None else max(0, machines - now(observation, pool)),
    )
    steps = again(observation, pool, need, launch, reason, doubtful=True)
    steps += _started_first(observation, pool, need, steps, launch, start, reason)
    need = _need_after(need, steps, observation)
    growth, need = _growth(observation, observation.fleet.roster(pool).groups, need, reason)
    steps += growth
    asked = [step.arguments for step in steps if step.verb is Verb.LAUNCH]
    need = replace(need, coming=launching(observation, pool, asked))
    return (*steps, *launches(observation, pool, need, launch, reason))


def _need_after(need: Need, steps: Sequence[Step], observation: Observation) -> Need:
    """What is lacking once these steps were taken."""
    return need.after_machines(need.sizes.total(observation.fleet, steps), sum(map(adds, steps)))


def others(
    observation: Observation,
    pool: str,
    need: Need,
    tried: Sequence[Step],
    launch: Sources,
    start: Startable,
    *,
    grown: Mapping[str, int],
) -> Iterator[Step]:
    """Where else what is missing could come from, in the same order; `tried` are the pool's steps as they were decided.

    Each of them is for one node, or as many as are missing of a group: the caller stops when there are enough.
    A group that may grow by so many as `grown` says may grow by more than that, in one step.
    """
    fleet, has = observation.fleet, now(observation, pool, need.sizes)
    reason = next(step.reason for step in tried if step.verb in ADDITIONS)
    taken = {step.node_id for step in tried if step.verb is not Verb.HOLD}
    yield from (step for step in starts(observation, pool, start, reason) if step.node_id not in taken)
    for group in fleet.roster(pool).groups:
        had = grown.get(group.id, 0)
        if (had or group.id not in taken) and observation.ledger.open_for(group.id) is None:
            more = need.after_machines(-had * _known_size(need.sizes.kind(group.instance_type)), -had)
            steps, _ = _growth(observation, (group,), more, reason)
            yield from (step for step in steps if adds(step) > had)
    asked = [step for step in tried if step.verb is Verb.LAUNCH]
    wanted = has + need.sizes.total(fleet, asked) + need.missing
    coming = launching(observation, pool, [step.arguments for step in asked])
    yield from launches(observation, pool, replace(need, wanted=wanted, coming=coming, but=taken), launch, reason)


def _started_first(
    observation: Observation,
    pool: str,
    need: Need,
    asked_again: Sequence[Step],
    sources: Sources,
    start: Startable,
    reason: Reason,
) -> list[Step]:
    """The starts that come before launches: of nodes that are not spot only so many as spot is not to be had for."""
    steps, fleet, left = (
        starts(observation, pool, start, reason),
        observation.fleet,
        _need_after(need, asked_again, observation),
    )
    if not steps or not isinstance(sources, Offers):
        return left.needed_steps(steps, fleet)
    names = choose_offers(observation, pool, sources, replace(need, coming=launching(observation, pool)))
    offered = [sources.offers[name] for name in names]
    asked = sum(_known_size(need.sizes.kind(each.instance_type)) for each in offered if each.capacity == records.SPOT)
    kinds = {node.id: node.capacity_type for node in fleet.roster(pool).nodes}
    of_spot = left.needed_steps([step for step in steps if kinds[step.node_id] is CapacityType.SPOT], fleet)
    left = _need_after(left, of_spot, observation)
    left = replace(left, missing=min(left.missing, need.missing - asked))
    return of_spot + left.needed_steps([step for step in steps if kinds[step.node_id] is not CapacityType.SPOT], fleet)


def _growth(
    observation: Observation, groups: Sequence[NodeGroup], need: Need, reason: Reason
) -> tuple[list[Step], Need]:
    """Consented groups, as far as their maximum goes, and what is lacking then; what waits for an open intent is not.

    An open growth is asked for again only as it was asked, where that is still wanted; otherwise it is dropped first.
    """
    steps: list[Step] = []
    asked = {entry.intent.node_id: entry for entry in observation.ledger.open_intents if entry.intent.verb is Verb.GROW}
    given_up = {done.node_id for done in failed_actions(observation, Verb.GROW)}
    for group in (each for each in groups if not is_closed(observation, each)):
        size, each = _desired_size(observation, group), need.sizes.kind(group.instance_type)
        room = min(need.count(each), group.max_size - size)
        if room > 0 and group.enrolled and group.protected is None and group.id not in given_up:
            arguments = {"size": str(size + room), "adds": str(room)}
            need = need.after_machines(room * _known_size(each), room)
            entry = asked.get(group.id)
            if entry is not None and entry.resumable and _is_within(entry.intent.arguments, size, room):
                arguments = dict(entry.intent.arguments)
            if entry is None or (entry.resumable and dict(entry.intent.arguments) == arguments):
                steps.append(Step(node_id=group.id, verb=Verb.GROW, reason=reason, change=CHANGE, arguments=arguments))
    return steps, need


def _is_within(arguments: Mapping[str, str], size: int, room: int) -> bool:
    """Whether an earlier growth is a part of what is wanted of the group now."""
    adds = int(arguments["adds"])
    return int(arguments["size"]) - adds == size and adds <= room
