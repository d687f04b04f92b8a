"""PURE: each node's step in a pool, taken from an earlier decision where nothing that it follows from has changed.

A round decides about each node, and before each removal once more about the whole pool. A backtest does so for months
of rounds. Most nodes are the very same objects as before. The caller owns the cache and passes it in.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import compress, count
from operator import is_not
from typing import TypeVar

from gpuwatch.model.decision import Advice, Observation, Reason, Step, Stopped, Verb, Wait
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.looked_again import changed_since
from gpuwatch.model.node_facts import changed_places
from gpuwatch.model.promise import Notice
from gpuwatch.model.proposal import Steps


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
    """The newest decision about a pool in the order of its nodes, and what all of it follows from.

    `steps` are those of `made`; `changing` are the places of those that do not hold, `timed` of those that follow from
    the time, `advising` of those with advice.
    """

    about: object
    nodes: tuple[Node, ...] = ()
    place_of: Mapping[str, int] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    waits: Mapping[str, Wait] = field(default_factory=dict)
    made: tuple[NodeStep, ...] = ()
    steps: tuple[Step, ...] = ()
    changing: frozenset[int] = frozenset()
    timed: frozenset[int] = frozenset()
    advising: frozenset[int] = frozenset()

    @property
    def advice(self) -> tuple[Advice, ...]:
        """All of it, in the order of the nodes."""
        return tuple([each for place in sorted(self.advising) for each in self.made[place].advice])

    @property
    def indexed(self) -> tuple[Step, ...]:
        """The steps, those that do not hold known; not so where two nodes have one id."""
        if len(self.place_of) < len(self.steps):
            return self.steps
        return Steps.one_per_target(self.steps, [self.steps[place] for place in sorted(self.changing)])


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
) -> PoolSteps:
    """Every node's step and advice; `make` is called only for nodes that the cache cannot answer for.

    What `make` returns must follow from the node, its notice, its stop, its wait and `about`. It may also follow from
    the time: for nodes with a notice, for all nodes where `ages`, and for stopped nodes where `terminates`.
    """
    nodes, ledger, now = observation.fleet.roster(pool).nodes, observation.ledger, observation.now
    waits = observation.waits
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

    if len(before.made) == len(nodes):
        fleet = observation.fleet
        others = changed_since(before.nodes, fleet) if nodes is fleet.nodes else changed_places(before.nodes, nodes)
        place_of = _places(before, nodes, others)
        places = _others(before, others, place_of, observation)
        made, steps = list(before.made), list(before.steps)
        for place in places:
            made[place] = one = decide(nodes[place], made[place])
            steps[place] = one.step
    else:
        place_of, places = _number_nodes(nodes), range(len(nodes))
        by_id = {one.node.id: one for one in before.made}
        made = [decide(node, by_id.get(node.id)) for node in nodes]
        steps = [one.step for one in made]
        before = PoolSteps(about=before.about)
    hold = Verb.HOLD
    found = PoolSteps(
        about=before.about,
        nodes=nodes,
        place_of=place_of,
        notices=ledger.notices,
        stopped=ledger.stopped,
        waits=waits,
        made=tuple(made),
        steps=tuple(steps),
        changing=_move_places(before.changing, places, [place for place in places if steps[place].verb is not hold]),
        timed=_move_places(before.timed, places, [place for place in places if made[place].at is not None]),
        advising=_move_places(before.advising, places, [place for place in places if made[place].advice]),
    )
    if cache is not None:
        cache[pool] = found
    return found


def _number_nodes(nodes: tuple[Node, ...]) -> dict[str, int]:
    return {node.id: place for place, node in enumerate(nodes)}


def _places(before: PoolSteps, nodes: tuple[Node, ...], others: Collection[int]) -> Mapping[str, int]:
    """Where each node is; mostly where it was."""
    same = all(before.nodes[place].id == nodes[place].id for place in others)
    return before.place_of if same else _number_nodes(nodes)


def _others(
    before: PoolSteps, changed_nodes: Collection[int], place_of: Mapping[str, int], observation: Observation
) -> Collection[int]:
    """The places of the nodes that must be decided about again, or looked at for that."""
    if len(place_of) < len(before.nodes):  # two have one id
        return range(len(before.nodes))
    ledger, waits = observation.ledger, observation.waits
    changed = [each.node_id for each in _renewed_items(before.notices, ledger.notices)]
    changed += [each.node_id for each in _renewed_items(before.stopped, ledger.stopped)]
    if before.waits is not waits:
        changed += [name for name in before.waits.keys() | waits.keys() if before.waits.get(name) != waits.get(name)]
    places = set(changed_nodes)
    now = observation.now
    places.update([place for place in before.timed if before.made[place].at != now])
    places.update([place_of[name] for name in changed if name in place_of])
    return places


_Of = TypeVar("_Of", Notice, Stopped)


def _renewed_items(before: tuple[_Of, ...], now: tuple[_Of, ...]) -> list[_Of]:
    """What is in one of them and not in the other; equal values that are not the same object count as other ones."""
    if before is now:
        return []
    shorter = min(len(before), len(now))
    first = next(compress(count(), map(is_not, before, now)), shorter)  # mostly one stands in the midst of hundreds
    last = next(compress(count(), map(is_not, reversed(before), reversed(now))), shorter)
    last = min(last, shorter - first)
    before, now = before[first : len(before) - last], now[first : len(now) - last]
    old, new = set(map(id, before)), set(map(id, now))
    return [each for each in before if id(each) not in new] + [each for each in now if id(each) not in old]


def _move_places(before: frozenset[int], places: Collection[int], inside: list[int]) -> frozenset[int]:
    """The places, with those that were looked at in or out."""
    return before.difference(places).union(inside)


def count_steps(changing: Iterable[Step], nodes: int) -> Reason:
    """One sentence for the pool: how many of its nodes get what, of which those that do not hold are given."""
    counts = Counter(step.verb for step in changing)
    counts[Verb.HOLD] = nodes - counts.total()
    summary = ", ".join(f"{counts[verb]} {verb.value}" for verb in Verb if counts[verb])
    return Reason(code="idle", sentence=summary or "the pool has no nodes")
