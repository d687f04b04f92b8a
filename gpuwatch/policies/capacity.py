"""PURE: how many nodes a pool has or is about to have, and which steps bring it to a number.

Rules: what is on its way counts as there, so that asking again adds nothing; stopped nodes are started first, then a
consented group grows, then nodes are launched from the pool's template; a try that failed lately is not repeated while
another is left; an addition that the cloud has certainly not carried out is asked for again under its own intent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, ClassVar

from annotated_types import MinLen

from gpuwatch.model.decision import (
    ADDITIONS,
    DECISION_TAG,
    REMOVALS,
    Done,
    Intent,
    Observation,
    Reason,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.knobs import STRICT, Knob

_NEW = "new:"
_THERE = frozenset({NodeState.RUNNING, NodeState.PENDING})
_CHANGE = "Less load, or a lower floor."
_FAILED_LATELY = timedelta(minutes=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRules:
    """Where new nodes of a pool come from."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    template: Annotated[
        Annotated[str, MinLen(1)] | None,
        Knob("The launch template, by id (lt-…) or name; without one nothing is launched."),
    ] = None
    version: Annotated[str, MinLen(1), Knob("Its version: a number, $Default or $Latest.")] = "$Default"
    region: Annotated[str | None, Knob("Where to launch. None: the first of cloud.regions.")] = None
    account: Annotated[str | None, Knob("The account to launch in, by its number. None: the first.")] = None
    subnets: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Knob("Subnets to try in this order, one for each zone; none given: the template's own."),
    ] = ()
    instance_type: Annotated[str | None, Knob("The machine type. None: the template's own.")] = None


def now(observation: Observation, pool: str) -> int:
    """How many nodes the pool has, with what is being added and without what is being removed."""
    return len(_there(observation, pool)) + len(coming(observation, pool))


def _there(observation: Observation, pool: str) -> set[str]:
    """The nodes that run or begin to; a removal that was certainly not carried out takes none of them away."""
    nodes = observation.fleet.roster(pool).nodes
    return {node.id for node in nodes if node.enrolled and node.state in _THERE} - _leaving(observation)


def _leaving(observation: Observation) -> set[str]:
    """The nodes whose removal is under way, or may be."""
    entries = observation.ledger.open_intents
    return {entry.intent.node_id for entry in entries if entry.intent.verb in REMOVALS and not entry.resumable}


def coming(observation: Observation, pool: str) -> list[str | None]:
    """The machine type of every node that is on its way and not yet to be seen; None where it is not known."""
    roster, there, leaving = observation.fleet.roster(pool), _there(observation, pool), _leaving(observation)
    found: list[str | None] = []
    for group in roster.groups:
        if group.enrolled:
            present = sum(node.group == group.id for node in roster.nodes if node.id in there)
            going = sum(node_id in leaving for node_id in group.node_ids)
            found += [group.instance_type] * (group.desired - going - present)
    seen = {node.tags.get(DECISION_TAG) for node in roster.nodes}
    for entry in observation.ledger.open_intents:
        if entry.intent.pool == pool and entry.intent.verb in ADDITIONS and not entry.resumable:
            found += _brought(observation, entry.intent, seen)
    return found


def _brought(observation: Observation, intent: Intent, seen: set[str | None]) -> list[str | None]:
    """The machine types of the nodes that an open addition will bring and that are not there to be counted."""
    if intent.verb is Verb.LAUNCH:
        return [intent.arguments.get("instance_type")] * (intent.key not in seen)
    if intent.verb is Verb.START:
        node = observation.fleet.find(intent.node_id)
        return [] if node is None or node.state in _THERE else [node.instance_type]
    group = observation.fleet.group(intent.node_id)
    return [] if group is None else [group.instance_type] * (int(intent.arguments["size"]) - group.desired)


def adds(step: Step) -> int:
    """How many nodes a step adds."""
    return adds_of(step.verb, step.arguments)


def adds_of(verb: Verb, arguments: Mapping[str, str]) -> int:
    """How many nodes an action adds."""
    return int(arguments.get("adds", "1")) if verb in ADDITIONS else 0


def launched_for(step: Step) -> str | None:
    """The pool that a launch is for."""
    return step.node_id.removeprefix(_NEW).rpartition(":")[0] if step.verb is Verb.LAUNCH else None


def same_try(done: Done, step: Step) -> bool:
    """Whether a step asks for what was asked then: the same node or group, or a launch with the same arguments."""
    if done.verb is not step.verb:
        return False
    return dict(done.arguments) == dict(step.arguments) if step.verb is Verb.LAUNCH else done.node_id == step.node_id


def additions(observation: Observation, pool: str, target: int, launch: LaunchRules) -> tuple[Step, ...]:
    """The steps from what the pool has to its target; fewer where nothing more is to be had."""
    missing = target - now(observation, pool)
    if missing <= 0:
        return ()
    sentence = f"The pool has {target - missing} nodes and should have {target}."
    reason = Reason(code="scale_out", sentence=sentence)
    steps = list(_starts(observation, pool, missing, reason))
    growth, waiting = _growth(observation, pool, missing - len(steps), reason)
    steps += growth
    left = missing - waiting - sum(adds(step) for step in steps)
    return (*steps, *_launches(observation, pool, left, launch, reason))


def _starts(observation: Observation, pool: str, missing: int, reason: Reason) -> Iterator[Step]:
    """Stopped nodes, the last stopped first: their caches are warm and their disks are paid for."""
    stopped_at = {each.node_id: each.at for each in observation.ledger.stopped}
    failed = {done.node_id for done in _failed(observation, Verb.START)}
    startable = [node for node in observation.fleet.roster(pool).nodes if _startable(observation, node, failed)]
    startable.sort(
        key=lambda node: (node.id not in stopped_at, -stopped_at[node.id].timestamp() if node.id in stopped_at else 0.0)
    )
    for node in startable[:missing]:
        yield Step(node_id=node.id, verb=Verb.START, reason=reason, change=_CHANGE)


def _startable(observation: Observation, node: Node, failed: set[str]) -> bool:
    """Whether a node may be started for its pool."""
    entry = observation.ledger.open_for(node.id)
    return (
        node.enrolled
        and node.state is NodeState.STOPPED
        and node.protected is None
        and node.managed_by is None
        and node.group is None
        and node.capacity_type is not CapacityType.CAPACITY_BLOCK
        and node.id not in failed
        and (entry is None or (entry.intent.verb is Verb.START and entry.resumable))
    )


def _growth(observation: Observation, pool: str, missing: int, reason: Reason) -> tuple[list[Step], int]:
    """Consented groups, as far as their maximum goes, and how many nodes wait for an open intent to be out of the way.

    An open growth is asked for again only as it was asked; one to another size is dropped first.
    """
    steps: list[Step] = []
    waiting = 0
    asked = {entry.intent.node_id: entry for entry in observation.ledger.open_intents if entry.intent.verb is Verb.GROW}
    failed = {done.node_id for done in _failed(observation, Verb.GROW)}
    for group in observation.fleet.roster(pool).groups:
        room = min(missing, group.max_size - group.desired)
        if room > 0 and group.enrolled and group.protected is None and group.id not in failed:
            arguments = {"size": str(group.desired + room), "adds": str(room)}
            missing -= room
            entry = asked.get(group.id)
            if entry is None or (entry.resumable and dict(entry.intent.arguments) == arguments):
                steps.append(Step(node_id=group.id, verb=Verb.GROW, reason=reason, change=_CHANGE, arguments=arguments))
            else:
                waiting += room
    return steps, waiting


def _launches(observation: Observation, pool: str, missing: int, launch: LaunchRules, reason: Reason) -> list[Step]:
    """New nodes from the template; intents that were not carried out come first, as they were asked.

    What the pool's template would no longer ask for is not asked for again.
    """
    if launch.template is None:
        return []
    tries = _tries(pool, launch)
    again = [
        entry.intent
        for entry in observation.ledger.open_intents
        if entry.intent.pool == pool
        and entry.intent.verb is Verb.LAUNCH
        and entry.resumable
        and dict(entry.intent.arguments) in tries
    ][: max(0, missing)]
    steps = [
        Step(node_id=each.node_id, verb=Verb.LAUNCH, reason=reason, change=_CHANGE, arguments=each.arguments)
        for each in again
    ]
    failed = [dict(done.arguments) for done in _failed(observation, Verb.LAUNCH)]
    arguments = next((each for each in tries if each not in failed), tries[0])
    taken = {entry.intent.node_id for entry in observation.ledger.open_intents}
    names = (name for number in range(1, 10**6) if (name := f"{_NEW}{pool}:{number}") not in taken)
    steps += [
        Step(node_id=next(names), verb=Verb.LAUNCH, reason=reason, change=_CHANGE, arguments=arguments)
        for _ in range(missing - len(steps))
    ]
    return steps


def _tries(pool: str, launch: LaunchRules) -> list[dict[str, str]]:
    """What a launch may ask for: the template, in each of the subnets in their order."""
    told = {
        "pool": pool,
        "template": launch.template,
        "version": launch.version,
        "region": launch.region,
        "account": launch.account,
        "instance_type": launch.instance_type,
    }
    base = {name: value for name, value in told.items() if value is not None}
    return [{**base, "subnet": subnet} for subnet in launch.subnets] or [base]


def _failed(observation: Observation, verb: Verb) -> list[Done]:
    """What of that verb was given up lately."""
    since = observation.now - _FAILED_LATELY
    return [
        done
        for done in observation.ledger.recent
        if done.verb is verb and done.status is Status.FAILED and done.at > since
    ]
