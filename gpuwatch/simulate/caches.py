"""What a backtest need not find out again: it plays months of rounds, and most nodes are the same objects as before.

`with_caches` puts all of it into a controller's parts. A live controller has none of it: there each node has a new
verdict in every round. Nothing here decides: the tests hold each answer against the full computation.

Rules: nodes are frozen, so what followed from one still does while it is the same object. What is kept of the look
before is used only for the nodes that did not change since; the few others are looked at again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from itertools import compress, count
from operator import is_not
from typing import Any, TypeVar

from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Advice, Observation, Step, Stopped, Verb, Wait
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeReport, NodeState, PoolView
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.promise import Notice
from gpuwatch.model.proposal import Steps
from gpuwatch.policies.idle import Asked

_FEW = 4  # of so many nodes one: where more have changed, counting all of them takes no longer


def with_caches(parts: ControllerContext) -> ControllerContext:
    """Return the parts with every cache that a backtest has."""
    steps = IdleSteps()
    return replace(
        parts,
        signals=KnownFleets(parts.signals),
        idle_steps=steps.steps_of,
        steps_for=lambda _: steps.steps_of,
    )


def changed_places(before: Sequence[Node], now: Sequence[Node]) -> list[int]:
    """Return where two sequences of one length hold different objects."""
    return list(compress(count(), map(is_not, before, now)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a fleet comes to, as `Fleet` has it, and of which nodes and groups."""

    nodes: tuple[Node, ...]
    groups: tuple[NodeGroup, ...]
    place_of: Mapping[str, int]
    rosters: dict[str, PoolView]


@dataclass(slots=True)
class LastFleet:
    """The sums of the fleet that was counted last; None: none was."""

    counted: Counted | None = None

    def count(self, fleet: Fleet) -> Counted:
        """Count a whole fleet, or go on from the last one if few nodes are others."""
        before, nodes, groups = self.counted, fleet.nodes, fleet.groups
        changes = None if before is None else _changes(before, fleet)
        if before is None or changes is None:
            plain = Fleet(observed_at=fleet.observed_at, nodes=nodes, groups=groups)
            place_of, rosters = plain.place_of, plain.rosters
        else:
            by_pool: dict[str, list[tuple[Node, Node]]] = {}
            for change in changes:
                by_pool.setdefault(change[1].pool, []).append(change)
            others = {pool: _roster(before.rosters[pool], fleet, found) for pool, found in by_pool.items()}
            place_of, rosters = before.place_of, before.rosters | others
        self.counted = Counted(nodes=nodes, groups=groups, place_of=place_of, rosters=rosters)
        return self.counted


def _changes(before: Counted, fleet: Fleet) -> list[tuple[Node, Node]] | None:
    """Return which nodes have become which; None: sums cannot be carried on, or too many have changed."""
    if before.groups != fleet.groups or not len(before.place_of) == len(before.nodes) == len(fleet.nodes):
        return None
    places = changed_places(before.nodes, fleet.nodes)
    changes = [(before.nodes[place], fleet.nodes[place]) for place in places]
    same = all((old.id, old.pool) == (new.id, new.pool) for old, new in changes)
    return changes if same and len(changes) * _FEW <= len(fleet.nodes) else None


def _roster(view: PoolView, fleet: Fleet, changes: list[tuple[Node, Node]]) -> PoolView:
    if len(view.nodes) == len(fleet.nodes):
        nodes = fleet.nodes
    else:
        new = {after.id: after for _, after in changes}
        nodes = tuple([new.get(node.id, node) for node in view.nodes])
    old, now = [_counts(old) for old, _ in changes], [_counts(new) for _, new in changes]
    members, sound = view.members, view.sound
    if [each[0] for each in old] != [each[0] for each in now]:
        members = _ids(members, changes, [each[0] for each in now])
    if [each[1] for each in old] != [each[1] for each in now]:
        sound = _ids(sound, changes, [each[1] for each in now])
    return PoolView(
        nodes=nodes,
        members=members,
        known=view.known + sum(each[2] for each in now) - sum(each[2] for each in old),
        without_work=view.without_work + sum(each[3] for each in now) - sum(each[3] for each in old),
        groups=view.groups,
        sound=sound,
    )


def _counts(node: Node) -> tuple[bool, bool, bool, bool]:
    """Whether it counts as a member, as a sound one, as one that is known, and as one without work."""
    if not node.member:
        return False, False, False, False
    state = node.activity.state
    known = state is not State.UNKNOWN
    return True, node.sound, known, known and state is not State.BUSY


def _ids(ids: frozenset[str], changes: list[tuple[Node, Node]], inside: list[bool]) -> frozenset[str]:
    """Return the ids, with each changed node's in or out."""
    ours = [(new.id, within) for (_, new), within in zip(changes, inside, strict=True)]
    return (ids - {node_id for node_id, within in ours if not within}) | {node_id for node_id, within in ours if within}


def _sum(name: str) -> Any:  # noqa: ANN401  takes the place of a cached property of any type
    return property(lambda fleet: getattr(fleet.counted, name))


@dataclass(frozen=True, kw_only=True)
class KnownFleet(Fleet):
    """A fleet with sums that are counted from those of the fleet before it; each `replace` of it counts again."""

    last: LastFleet = field(compare=False, repr=False)

    @cached_property
    def counted(self) -> Counted:
        """What it comes to, counted at the first question."""
        return self.last.count(self)

    place_of = _sum("place_of")
    rosters = _sum("rosters")


@dataclass(frozen=True, slots=True)
class KnownFleets:
    """A source of signals; its fleets are counted from the one before."""

    source: NodeReportSource
    last: LastFleet = field(default_factory=LastFleet)

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """Return the fleet with the signals of all nodes."""
        fleet = self.source.observe(nodes)
        return KnownFleet(last=self.last, **{each.name: getattr(fleet, each.name) for each in fields(Fleet)})

    def confirm(self, node: Node) -> NodeReport:
        """Return one node as it is now."""
        return self.source.confirm(node)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Return the answers to these queries."""
        return self.source.measure(fleet, queries)


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
    def answer(self) -> tuple[tuple[Step, ...], tuple[Advice, ...]]:
        """The steps, those that do not hold known (not so where two nodes have one id), and all advice."""
        advice = tuple([each for place in sorted(self.advising) for each in self.made[place].advice])
        if len(self.place_of) < len(self.steps):
            return self.steps, advice
        return Steps.one_per_target(self.steps, [self.steps[place] for place in sorted(self.changing)]), advice


@dataclass(slots=True)
class IdleSteps:
    """The idle policy's steps, taken from an earlier decision where nothing that they follow from has changed."""

    by_pool: dict[str, PoolSteps] = field(default_factory=dict)

    def steps_of(self, observation: Observation, asked: Asked) -> tuple[tuple[Step, ...], tuple[Advice, ...]]:
        """Return every node's step and all advice; a node is decided about only if its last step cannot stand."""
        nodes, ledger, now = observation.fleet.roster(asked.pool).nodes, observation.ledger, observation.now
        waits, about = observation.waits, (asked.about, asked.ages, asked.terminates)
        before = self.by_pool.get(asked.pool)
        if before is None or before.about != about:
            before = PoolSteps(about=about)

        def decide(node: Node, known: NodeStep | None) -> NodeStep:
            notice = ledger.notice(node.id)
            its = (notice, ledger.stop_of(node.id), waits.get(node.id))
            if (
                known is not None
                and known.node is node
                and (known.at is None or known.at == now)
                and known.about == its
            ):
                return known
            timed = asked.ages or notice is not None or (asked.terminates and node.state is NodeState.STOPPED)
            step, advice = asked.decide(node)
            return NodeStep(node=node, about=its, at=now if timed else None, step=step, advice=advice)

        if len(before.made) == len(nodes):
            others = changed_places(before.nodes, nodes)
            same = all(before.nodes[place].id == nodes[place].id for place in others)
            place_of = before.place_of if same else _number_nodes(nodes)
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
            before = PoolSteps(about=about)
        hold = Verb.HOLD
        self.by_pool[asked.pool] = found = PoolSteps(
            about=about,
            nodes=nodes,
            place_of=place_of,
            notices=ledger.notices,
            stopped=ledger.stopped,
            waits=waits,
            made=tuple(made),
            steps=tuple(steps),
            changing=_move_places(
                before.changing, places, [place for place in places if steps[place].verb is not hold]
            ),
            timed=_move_places(before.timed, places, [place for place in places if made[place].at is not None]),
            advising=_move_places(before.advising, places, [place for place in places if made[place].advice]),
        )
        return found.answer


def _number_nodes(nodes: tuple[Node, ...]) -> dict[str, int]:
    return {node.id: place for place, node in enumerate(nodes)}


def _others(
    before: PoolSteps, changed_nodes: Collection[int], place_of: Mapping[str, int], observation: Observation
) -> Collection[int]:
    """Return the places of the nodes that must be decided about again, or looked at for that."""
    if len(place_of) < len(before.nodes):  # two have one id
        return range(len(before.nodes))
    ledger, waits, now = observation.ledger, observation.waits, observation.now
    changed = [each.node_id for each in _renewed_items(before.notices, ledger.notices)]
    changed += [each.node_id for each in _renewed_items(before.stopped, ledger.stopped)]
    if before.waits is not waits:
        changed += [name for name in before.waits.keys() | waits.keys() if before.waits.get(name) != waits.get(name)]
    places = set(changed_nodes)
    places.update([place for place in before.timed if before.made[place].at != now])
    places.update([place_of[name] for name in changed if name in place_of])
    return places


_Of = TypeVar("_Of", Notice, Stopped)


def _renewed_items(before: tuple[_Of, ...], now: tuple[_Of, ...]) -> list[_Of]:
    """Return what is in one of them and not in the other; equal values that are not one object count as other ones."""
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
    """Return the places, with those that were looked at in or out."""
    return before.difference(places).union(inside)
