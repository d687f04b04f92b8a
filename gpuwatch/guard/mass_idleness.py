"""Sudden mass idleness: many nodes that turned idle at the same time. A sensor is suspected, not luck.

What has something in common is suspected together: the nodes of a pool, of the whole fleet, of a cloud, and those with
one image, one driver or one version of the agent. However a fleet is divided into pools, it freezes all the same.

Occupied, parked and stalled nodes count like idle ones: a sensor that reads zero makes nodes look so on which
somebody's process is alive.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.guard.settings import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node

_SINCE_START = timedelta(minutes=10)  # idle since its start, or nearly: it never turned idle
# What nodes have in common: a kind, and which one of that kind.
Group = tuple[str, str]
_POOL, _FLEET = "of the pool", "of the fleet"
_ALL: Group = (_FLEET, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """So many of the `members` that worked until then turned idle between these times.

    `of` says which nodes these are, and `common` what else those have in common that turned idle.
    """

    count: int
    members: int
    first: datetime
    last: datetime
    of: str = _POOL
    common: tuple[str, ...] = ()

    @property
    def is_of_pool(self) -> bool:
        """Whether it is about the nodes of one pool."""
        return self.of == _POOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """The latest mass idleness of each group of nodes that has one, and which were acknowledged: of a pool, or all."""

    by_group: Mapping[Group, Burst]
    acknowledged: tuple[tuple[str | None, datetime], ...] = ()

    def on(self, pool: str, node: Node | None = None) -> Burst | None:
        """Return the latest that a node of a pool takes part in, unless somebody has acknowledged it since.

        Without a node it is that of the pool and of the fleet.
        """
        if not self.by_group:
            return None
        groups = [(_POOL, pool), _ALL, *(() if node is None else _shared(node))]
        known = [at for named, at in self.acknowledged if named in {None, pool}]
        found = [each for group in groups if (each := self.by_group.get(group)) is not None]
        return max(
            (each for each in found if each.last >= max(known, default=each.last)),
            key=lambda each: each.last,
            default=None,
        )


def burst(observation: Observation, pool: str, limits: Limits) -> Burst | None:
    """The latest mass idleness of a pool, or of the fleet, that nobody has acknowledged since."""
    return find_bursts(observation, limits).on(pool)


def find_bursts(observation: Observation, limits: Limits) -> Bursts:
    """Find the mass idleness of each group of nodes; once a round, since all nodes are looked at.

    It is recognised by how long each verdict has held, so it needs no memory and survives a restart. The share is of
    the nodes that could turn idle then: neither those idle before nor those started after make it smaller.
    """
    least, fleet = limits.mass_idleness_nodes, observation.fleet
    if sum(roster.without_work for roster in fleet.rosters.values()) < least:
        return Bursts(by_group={})
    turned: defaultdict[Group, list[tuple[datetime, Node]]] = defaultdict(list)
    could: list[Node] = []
    for node in fleet.nodes:
        if not node.member:
            continue
        onset = _onset(node, observation.now)
        if onset is None:
            could.append(node)
        elif not _from_start(node, onset):
            could.append(node)
            for group in _groups(node):
                turned[group].append((onset, node))
    large = {group: sorted(each, key=_when) for group, each in turned.items() if len(each) >= least}
    window = timedelta(seconds=limits.mass_idleness_window)
    large = {group: each for group, each in large.items() if _at_once(each, least, window)}
    starts: defaultdict[Group, list[datetime]] = defaultdict(list)
    for node in could if large else ():
        if (start := node.launched_at) is not None:
            for group in large.keys() & set(_groups(node)):
                starts[group].append(start)
    found = {group: _latest(group, each, sorted(starts[group]), limits) for group, each in large.items()}
    by_group = {group: each for group, each in found.items() if each is not None}
    return Bursts(by_group=by_group, acknowledged=observation.ledger.acknowledged)


def _at_once(turned: Sequence[tuple[datetime, Node]], least: int, window: timedelta) -> bool:
    """Whether so many turned idle within the window at all."""
    return any(last[0] - first[0] <= window for first, last in zip(turned, turned[least - 1 :], strict=False))


def _latest(
    group: Group, turned: Sequence[tuple[datetime, Node]], starts: Sequence[datetime], limits: Limits
) -> Burst | None:
    """Find the latest burst among the nodes of a group that turned idle, by the times at which all were started."""
    window = timedelta(seconds=limits.mass_idleness_window)
    found, low = None, 0
    for high, (last, _) in enumerate(turned):
        while last - turned[low][0] > window:
            low += 1
        count = high - low + 1
        # Those not started after it, without those idle before it.
        working = max(count, bisect_right(starts, last) - low)
        if count >= max(limits.mass_idleness_nodes, limits.mass_idleness_ratio * working):
            found = (low, high, working)
    if found is None:
        return None
    low, high, working = found
    kind, name = group
    return Burst(
        count=high - low + 1,
        members=working,
        first=turned[low][0],
        last=turned[high][0],
        of=kind if kind in {_POOL, _FLEET} else f"{kind} {name}",
        common=() if kind == _POOL else tuple(_common(group, [node for _, node in turned[low : high + 1]])),
    )


def _common(group: Group, nodes: Sequence[Node]) -> Iterator[str]:
    """What nodes have in common besides their group, in words."""
    shared = set(_shared(nodes[0])).intersection(*map(_shared, nodes[1:]))
    for kind, name in _shared(nodes[0]):
        if (kind, name) in shared and (kind, name) != group:
            yield f"{kind.partition(' ')[2]} {name}"


def _groups(node: Node) -> tuple[Group, ...]:
    """Return all groups that a node is suspected with."""
    return ((_POOL, node.pool), _ALL, *_shared(node))


def _shared(node: Node) -> tuple[Group, ...]:
    """What a node may have in common with nodes of other pools, as far as it is known."""
    verdict = node.signal.verdict
    known = (
        ("of the cloud", node.cloud),
        ("with the image", node.image),
        ("with the driver", None if verdict is None else verdict.driver_version),
        ("with the agent", None if verdict is None else verdict.agent_version),
    )
    return tuple([(kind, name) for kind, name in known if name])


def _when(turned: tuple[datetime, Node]) -> datetime:
    """Return the time at which a node turned idle."""
    return turned[0]


def _onset(node: Node, now: datetime) -> datetime | None:
    """When a node ceased to work, as far as its present state says; None where it works, or nobody knows.

    Prometheus counts no time of occupied, parked and stalled nodes: they did not all turn so in this round.
    """
    activity = node.activity
    if activity.state in {State.BUSY, State.UNKNOWN} or (activity.since is None and activity.held_seconds == 0.0):
        return None
    return now - timedelta(seconds=activity.held_seconds)


def _from_start(node: Node, onset: datetime) -> bool:
    """Whether a node was idle from its start."""
    return node.launched_at is not None and onset - node.launched_at < _SINCE_START
