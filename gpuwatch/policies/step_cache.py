"""PURE: each node's step in a pool, taken from an earlier decision where nothing that it follows from has changed.

A round decides about each node, and before each removal once more about the whole pool. A backtest does so for months
of rounds. Most nodes are the very same objects as before. The caller owns the cache and passes it in.
"""

from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuwatch.model.decision import Advice, Observation, Reason, Step, Stopped, Verb, Wait
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.promise import Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStep:
    """A node's step and advice, and what they follow from: the node, `about`, and the time `at` (None: any time)."""

    node: Node
    about: tuple[Notice | None, Stopped | None, Wait | None]
    at: datetime | None
    step: Step
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSteps:
    """The newest decision about a pool: its steps in the order of its nodes, and what all of them follow from."""

    about: object
    notices: frozenset[Notice] = frozenset()
    stopped: tuple[Stopped, ...] = ()
    waits: Mapping[str, Wait] = field(default_factory=dict)
    steps: tuple[NodeStep, ...] = ()


StepCache = MutableMapping[str, PoolSteps]  # by pool


def steps_of_pool(
    observation: Observation,
    pool: str,
    about: object,
    make: Callable[[Node], tuple[Step, tuple[Advice, ...]]],
    *,
    ages: bool,
    terminates: bool,
    cache: StepCache | None,
) -> tuple[NodeStep, ...]:
    """Every node's step and advice; `make` is called only for nodes that the cache cannot answer for.

    What `make` returns must follow from the node, its notice, its stop, its wait and `about`. It may also follow from
    the time: for nodes with a notice, for all nodes where `ages`, and for stopped nodes where `terminates`.
    """
    nodes, ledger, now = observation.fleet.roster(pool).nodes, observation.ledger, observation.now
    notices, waits, stopped = frozenset(ledger.notices), observation.waits, ledger.stopped
    before = None if cache is None else cache.get(pool)
    if before is None or before.about != (about, ages, terminates):
        before = PoolSteps(about=(about, ages, terminates))

    def decide(node: Node, known: NodeStep | None) -> NodeStep:
        notice = ledger.notice(node.id)
        of_it = (notice, ledger.stop_of(node.id), waits.get(node.id))
        if known is not None and known.node is node and (known.at is None or known.at == now) and known.about == of_it:
            return known
        timed = ages or notice is not None or (terminates and node.state is NodeState.STOPPED)
        step, advice = make(node)
        return NodeStep(node=node, about=of_it, at=now if timed else None, step=step, advice=advice)

    if len(before.steps) == len(nodes):
        changed = {each.node_id for each in before.notices ^ notices}
        changed.update(
            node_id for node_id in before.waits.keys() | waits.keys() if before.waits.get(node_id) != waits.get(node_id)
        )
        changed.update(_restopped(before.stopped, stopped))
        steps = tuple(
            [
                one
                if one.node is node and (one.at is None or one.at == now) and node.id not in changed
                else decide(node, one)
                for one, node in zip(before.steps, nodes, strict=True)
            ]
        )
    else:
        by_id = {one.node.id: one for one in before.steps}
        steps = tuple([decide(node, by_id.get(node.id)) for node in nodes])
    if cache is not None:
        cache[pool] = PoolSteps(about=before.about, notices=notices, stopped=stopped, waits=waits, steps=steps)
    return steps


def _restopped(before: tuple[Stopped, ...], now: tuple[Stopped, ...]) -> set[str]:
    """The nodes with another stop than before; equal stops that are not the same object count as other ones."""
    if before is now:
        return set()
    old, new = {id(each): each for each in before}, {id(each): each for each in now}
    return {old[each].node_id for each in old.keys() - new.keys()} | {
        new[each].node_id for each in new.keys() - old.keys()
    }


def counted(steps: tuple[Step, ...]) -> Reason:
    """One sentence for the pool: how many nodes get what."""
    hold = Verb.HOLD
    verbs = [step.verb for step in steps if step.verb is not hold]  # most hold, and hashing them all takes longer
    counts: Counter[Verb] = Counter(verbs)
    counts[hold] = len(steps) - len(verbs)
    summary = ", ".join(f"{counts[verb]} {verb.value}" for verb in Verb if counts[verb])
    return Reason(code="idle", sentence=summary or "the pool has no nodes")
