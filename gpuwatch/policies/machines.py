"""PURE: the one count of a pool: what is there, what comes, what leaves, and what counts towards its maximum alone.

Everybody who asks how large a pool is reads `pool_machines`, so that no two answers differ. Rules, all of them:

1. Present is each enrolled node that runs or begins to; a removal that was certainly not carried out changes nothing.
   With a removal under way it leaves; what its cloud is about to take is taken. What its cloud does not show now is
   present, so that nothing is bought in its place, and like what only comes it is no reason for another to go.
2. Coming is what was asked for and is not yet to be seen: launches, starts, places of groups. A launch comes until a
   node of the pool bears its key. What settled less than SETTLE_TIMEOUT ago and is not shown in the pool comes as well:
   a list is late, or lacks its tags. What is removed, lost or ended comes no more: gone is what its cloud says is gone.
   A start that is over (lives.py) comes no more either.
3. In doubt is a launch that nobody answered, and that may be tried again, for SETTLE_TIMEOUT after its last try.
4. Late is what is no longer waited for (places.py, uncounted.py). Stopped are machines that gpuwatch launched and that
   stopped without gpuwatch. Both count towards maximums, as doubts do.
5. A member's place is its group's to fill: what leaves or is taken of a group is no place of its own.
6. A floor counts without any node of which a step of a removal is open: a drain is half a removal, and what was refused
   is tried again.
7. What came since a loss replaces it, and so does what may have come: no loss is replaced twice.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from math import inf

from gpuwatch.model.decision import (
    ADDITIONS,
    DECISION_TAG,
    NOTIFIED_TAG,
    REMOVAL_STEPS,
    REMOVALS,
    SETTLE_TIMEOUT,
    Done,
    Intent,
    LedgerView,
    Observation,
    OpenIntent,
    Status,
    Verb,
)
from gpuwatch.model.fleet import CapacityType, Node, NodeGroup, NodeState
from gpuwatch.model.life import End, Expected, PoolMachines
from gpuwatch.policies.lives import SHOWN, THERE, launched_machine
from gpuwatch.policies.places import group_places
from gpuwatch.policies.sizes import NODES, Sizes
from gpuwatch.policies.spot.records import CAPACITY, SPOT
from gpuwatch.policies.uncounted import forgotten

_GONE = frozenset({NodeState.TERMINATING, NodeState.TERMINATED})
_DOWN = frozenset({NodeState.STOPPING, NodeState.STOPPED})


def pool_machines(observation: Observation, pool: str) -> PoolMachines:
    """The pool's machines, counted once for each observation."""
    found = observation.counts.machines.get(pool)
    if found is None:
        found = observation.counts.machines[pool] = _count_machines(observation, pool)
    return found


def _count_machines(observation: Observation, pool: str) -> PoolMachines:
    """Every machine of a pool, in one place."""
    fleet, away = observation.fleet, leaving(observation)
    nodes = fleet.roster(pool).nodes
    awake = [node for node in nodes if node.enrolled and node.state in THERE]
    stay = [node for node in awake if node.id not in away] if away else awake
    present = [node for node in stay if node.cloud_notice is None] if fleet.with_notice else stay
    opened = [entry for entry in observation.ledger.open_intents if entry.intent.pool == pool]
    shown = _shown_launches(nodes, opened)
    missing = [entry for entry in opened if entry.intent.verb is Verb.LAUNCH and entry.intent.key not in shown]
    lost = [entry for entry in missing if forgotten(entry, observation.now)]
    settled = {*shown, *(entry.intent.key for entry in lost)}
    comes = [entry for entry in opened if not entry.resumable and entry.intent.key not in settled]
    coming = [
        *_places(observation, pool, present, away),
        *(each for entry in comes for each in _asked_for(observation, entry.intent)),
        *_settled_unshown(observation, pool),
    ]
    started = {each.name for each in coming}
    groups = fleet.roster(pool).groups
    late = [_place(group) for group in groups for _ in range(group_places(observation, group).late)]
    return PoolMachines(
        present=tuple(present),
        unseen=tuple([node for node in present if node.state is NodeState.UNKNOWN]),
        taken=tuple([node for node in stay if node.cloud_notice is not None]) if fleet.with_notice else (),
        leaving=tuple([node for node in awake if node.id in away]) if away else (),
        stopped=tuple([node for node in _left_stopped(observation, pool, nodes) if node.id not in started]),
        coming=tuple(coming),
        doubtful=tuple(
            [_launch(each.intent) for each in missing if each.resumable and may_appear(each, observation.now)]
        ),
        late=(*late, *(_launch(entry.intent) for entry in lost)),
        shown=shown,
        may_leave=frozenset(
            [entry.intent.node_id for entry in observation.ledger.open_intents if entry.intent.verb in REMOVAL_STEPS]
        ),
    )


def leaving(observation: Observation) -> set[str]:
    """The nodes of all pools with a removal that is under way, or may be."""
    entries = observation.ledger.open_intents
    return {entry.intent.node_id for entry in entries if entry.intent.verb in REMOVALS and not entry.resumable}


def _shown_launches(nodes: Iterable[Node], opened: Iterable[OpenIntent]) -> dict[str, str]:
    """The nodes of the pool that open launches have brought, by the keys of these."""
    launches = [entry for entry in opened if entry.intent.verb is Verb.LAUNCH]
    if not launches:
        return {}
    made = {launched_id(entry): entry.intent.key for entry in launches}
    keys = {entry.intent.key for entry in launches}
    mine = [node for node in nodes if node.enrolled]
    found = {key: node.id for node in mine if (key := node.tags.get(DECISION_TAG, "")) in keys}
    return found | {made[node.id]: node.id for node in mine if node.id in made}


def _places(observation: Observation, pool: str, present: Iterable[Node], away: set[str]) -> Iterator[Expected]:
    """The places that groups will fill: up to their sizes, without those that are left or go with their members."""
    for group in observation.fleet.roster(pool).groups:
        if group.enrolled:
            members = sum(node.group == group.id for node in present)
            places, leaves = group_places(observation, group), sum(node_id in away for node_id in group.node_ids)
            yield from [_place(group)] * (places.size - places.late - leaves - members)


def _place(group: NodeGroup) -> Expected:
    return Expected(name=group.id, kind=group.instance_type)


def _launch(asked: Intent | Done) -> Expected:
    about = asked.arguments
    spot = about.get(CAPACITY) == SPOT
    return Expected(name=asked.node_id, kind=about.get("instance_type"), spot=spot, key=asked.key, asked=about)


def _start(node: Node, key: str) -> Expected:
    return Expected(name=node.id, kind=node.kind, spot=node.capacity_type is CapacityType.SPOT, key=key)


def _asked_for(observation: Observation, intent: Intent) -> list[Expected]:
    """What an open addition will bring and is not there to be counted."""
    if intent.verb is Verb.LAUNCH:
        return [_launch(intent)]
    if intent.verb is Verb.START:
        node = observation.fleet.find(intent.node_id)
        return [] if node is None or node.state in THERE or node.state in _GONE else [_start(node, intent.key)]
    group = observation.fleet.group(intent.node_id) if intent.verb is Verb.GROW else None
    more = 0 if group is None else int(intent.arguments["size"]) - group_places(observation, group).size
    return [] if group is None else [_place(group)] * more


def _settled_unshown(observation: Observation, pool: str) -> Iterator[Expected]:
    """What was launched or started a moment ago, where the list does not show it so."""
    ledger, fleet, known = observation.ledger, observation.fleet, set[str]()
    over = {life.key for life in observation.lives if life.started and life.end is not None}
    for done in _lately(observation):
        launched = done.verb is Verb.LAUNCH
        node_id = done.detail.removeprefix(SHOWN) if launched else done.node_id
        if done.pool != pool or done.verb is Verb.GROW or (launched and node_id == done.detail) or node_id in known:
            continue
        node = fleet.find(node_id)
        if launched:
            elsewhere = node is None or (node.state in THERE and not (node.enrolled and node.pool == pool))
            late = elsewhere and node_id not in fleet.ended
        else:
            down = node is not None and node.state is NodeState.STOPPED and ledger.open_for(node_id) is None
            late = down and done.key not in over
        if late and not _gone_since(ledger, done, node_id):
            known.add(node_id)
            yield _launch(done) if node is None or launched else _start(node, done.key)


def _lately(observation: Observation) -> list[Done]:
    """The additions that settled so short a time ago that a list may not show them."""
    return [
        done
        for done in observation.ledger.ended_actions(ADDITIONS)
        if done.status is Status.SETTLED and abs(observation.now - done.at) <= SETTLE_TIMEOUT
    ]


def _gone_since(ledger: LedgerView, done: Done, node_id: str) -> bool:
    """Whether gpuwatch has removed that node after that addition, or its cloud has taken it as it had announced."""
    return any(
        each.node_id == node_id
        and each.at >= done.at
        and (each.verb is Verb.LOST or (each.verb in REMOVALS and each.status is Status.SETTLED))
        for each in ledger.recent
    )


def may_appear(entry: OpenIntent, at: datetime) -> bool:
    """Whether a launch that is not known to have happened may still turn up as a machine (rule 3)."""
    since, launch = entry.reached_at, entry.intent.verb is Verb.LAUNCH
    return launch and entry.reached and since is not None and abs(at - since) <= SETTLE_TIMEOUT


def launched_id(entry: OpenIntent) -> str | None:
    """The machine that the cloud said it launches; None where it has not said so, or nothing else was written since."""
    return None if entry.last is None else launched_machine(entry.last.detail)


def _left_stopped(observation: Observation, pool: str, nodes: Iterable[Node]) -> list[Node]:
    """The machines that gpuwatch launched for the pool, and that stopped without gpuwatch: their disks are paid for.

    Where the ledger's last three days do not know a machine any more, its tag says who launched it. A notice takes the
    place of that tag. Then the ledger's older records say who launched it (`launched`).
    """
    ledger = observation.ledger
    mine = [life for life in observation.lives if life.pool == pool and not life.started]
    ids = {life.node_id for life in mine if life.end is End.STOPPED}
    down = [node for node in nodes if node.state in _DOWN and node.id not in ledger.stopped_ids]
    return [
        node
        for node in down
        if node.enrolled
        and node.group is None
        and (node.id in ids or node.id in ledger.launched or _bears_its_launch(node, ledger))
        and ledger.open_for(node.id) is None
    ]


def told_by_records(nodes: Iterable[Node], ledger: LedgerView) -> list[str]:
    """The stopped machines of which the ledger's records alone say who launched them: their tag names a notice."""
    down = [node for node in nodes if node.state in _DOWN and node.enrolled and node.group is None]
    return [node.id for node in down if node.tags.get(NOTIFIED_TAG) and node.id not in ledger.stopped_ids]


def _bears_its_launch(node: Node, ledger: LedgerView) -> bool:
    """Whether its tag names its launch: a notice that came later would have written its time, too."""
    key = node.tags.get(DECISION_TAG)
    return bool(key) and not node.tags.get(NOTIFIED_TAG) and key not in ledger.foreign


def now(observation: Observation, pool: str, sizes: Sizes = NODES) -> int:
    """How large the pool is, with what is being added and without what is being removed."""
    found = pool_machines(observation, pool)
    return sizes.of_nodes(found.present) + sizes.of_expected(found.coming)


def there(observation: Observation, pool: str, sizes: Sizes = NODES) -> int:
    """How much of the pool is there: what only comes, or is not shown, is no reason for anything to go."""
    found = pool_machines(observation, pool)
    return sizes.of_nodes(found.present) - sizes.of_nodes(found.unseen)


def unsized_machines(observation: Observation, pool: str, sizes: Sizes, *, all_that_may_be: bool = False) -> list[str]:
    """The machines of the pool, there or on their way, of which nobody knows how much they count.

    `all_that_may_be`: with what counts towards maximums alone.
    """
    if sizes.gpus is None:
        return []
    found = pool_machines(observation, pool)
    nodes, added = found.present, [(each, "on its way") for each in found.coming]
    if all_that_may_be:
        nodes = (*nodes, *found.taken, *found.stopped)
        added += [(each, "that may still come") for each in (*found.doubtful, *found.late)]
    said = [f"{node.name} ({node.instance_type})" for node in nodes if sizes.node(node) is None]
    kinds = [(each.kind, how) for each, how in added if sizes.kind(each.kind) is None]
    return said + [f"a machine {how} ({kind or 'of a type that is not known'})" for kind, how in kinds]


def unreplaced_count(observation: Observation, pool: str, sizes: Sizes = NODES) -> int:
    """How much of what is taken nothing was added for since the first of their notices: no loss is replaced twice."""
    found, extra = pool_machines(observation, pool), {each.node_id for each in observation.lives if each.surplus}
    going = sizes.of_nodes([node for node in found.taken if node.id not in extra])
    if not going:
        return 0
    ids = {node.id for node in observation.fleet.roster(pool).nodes if node.cloud_notice is not None}
    recorded = {each.node_id: each.since for each in observation.ledger.interruptions}
    since = min(recorded.get(node_id, observation.now) for node_id in ids)
    added = came_since(observation, pool, sizes, since)
    return max(0, going - int(min(going, sum(brings for _, brings in added))))


def came_since(
    observation: Observation, pool: str, sizes: Sizes, since: datetime | None = None
) -> list[tuple[datetime, float]]:
    """When each addition came to the pool, or may have, oldest first, and how much it brought (rule 7).

    An open addition that may be tried again is still to come: it is asked for again under its own intent. One of which
    nobody knows how much it brings is enough for every loss before it.
    """
    ledger = observation.ledger
    came: list[tuple[datetime, Done | Intent]] = [(each.at, each) for each in ledger.recent if _may_have_come(each)]
    came += [(observation.now, entry.intent) for entry in ledger.open_intents if not entry.resumable]
    found = list[tuple[datetime, float]]()
    for at, each in came:
        if each.pool == pool and each.verb in ADDITIONS and (since is None or each.at >= since):
            brings = sizes.brings(observation.fleet, each.verb, each.node_id, each.arguments)
            found.append((at, inf if brings is None else brings))
    return sorted(found)


def _may_have_come(done: Done) -> bool:
    """Whether a finished addition came, or may have: one that was refused at once has not."""
    return done.status is Status.SETTLED or (done.reached and done.reached_at is not None)


def surplus(observation: Observation, pool: str, sizes: Sizes = NODES) -> int:
    """How much of what the pool has is there on top of what is wanted, until nodes on demand have gone in its place."""
    extra = [each for each in observation.lives if each.surplus and each.pool == pool]
    if not extra:
        return 0
    found, keys = pool_machines(observation, pool), {each.key for each in extra}
    ids = {each.node_id or found.shown.get(each.key) for each in extra}
    total = sizes.of_nodes([node for node in found.present if node.id in ids])
    total += sizes.of_expected([each for each in found.coming if each.key in keys])
    firm = sizes.of_nodes([node for node in found.present if node.capacity_type is not CapacityType.SPOT])
    return min(total, firm)  # with no other left there is nothing that could go in its place
