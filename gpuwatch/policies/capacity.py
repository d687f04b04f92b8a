"""PURE: which steps bring a pool to a size; how large it is, machines.py says, and what counts how much, sizes.py.

Rules: what is on its way counts as there, so that asking again adds nothing. Stopped nodes are started first, then a
consented group grows, then nodes are launched from the pool's template. An addition that the cloud has certainly not
carried out is asked for again under its own intent. A launch that may have happened is asked again before all else.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuwatch.model.decision import (
    ADDITIONS,
    Done,
    Observation,
    Reason,
    Step,
    Verb,
)
from gpuwatch.model.fleet import CapacityType, NodeGroup
from gpuwatch.policies.launches import (
    CHANGE,
    NEW,
    LaunchRules,
    Sources,
    again,
    doubtful_size,
    failed_actions,
    launches,
    offer_names,
)
from gpuwatch.policies.machines import now, pool_machines, unsized_machines
from gpuwatch.policies.places import group_places
from gpuwatch.policies.sizes import NODES, Need, Sizes
from gpuwatch.policies.spot import records
from gpuwatch.policies.spot.choice import choose_offers
from gpuwatch.policies.spot.settings import Offers
from gpuwatch.policies.starts import Startable, starts
from gpuwatch.policies.uncounted import is_closed

__all__ = ["LaunchRules", "additions", "adds", "adds_of", "others", "pool_of_launch", "same_try"]


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
    if going := pool_machines(observation, pool).taken:
        sentence += f" Its cloud is about to take {sizes.of_nodes(going)} more of them."
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
    return (*steps, *launches(observation, pool, replace(need, coming=offer_names(steps)), launch, reason))


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
            more = need.after_machines(-had * (need.sizes.kind(group.instance_type) or 0), -had)
            steps, _ = _growth(observation, (group,), more, reason)
            yield from (step for step in steps if adds(step) > had)
    asked = [step for step in tried if step.verb is Verb.LAUNCH]
    wanted = has + need.sizes.total(fleet, asked) + need.missing
    need = replace(need, wanted=wanted, coming=offer_names(asked), but=taken)
    yield from launches(observation, pool, need, launch, reason)


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
    offered = [sources.offers[name] for name in choose_offers(observation, pool, sources, need)]
    asked = sum(need.sizes.kind(each.instance_type) or 0 for each in offered if each.capacity == records.SPOT)
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
        size, each = group_places(observation, group).size, need.sizes.kind(group.instance_type)
        room = min(need.count(each), group.max_size - size)
        if room > 0 and group.enrolled and group.protected is None and group.id not in given_up:
            arguments = {"size": str(size + room), "adds": str(room)}
            need = need.after_machines(room * (each or 0), room)
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
