"""A fleet of which few nodes are others than at an earlier look: what its pools come to is not counted from the start.

Every round, and every removal, judges by such a fleet: that must not cost sums over all nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, PoolView
from gpuwatch.model.node_facts import changed_places

_SINCE = "_since"  # in a fleet's `vars`: the nodes that it was carried on from, and the places of others
_FEW = 4  # of so many nodes one: where more have changed, counting all of them takes no longer


def looked_again(fleet: Fleet, node: Node, groups: tuple[NodeGroup, ...], observed_at: datetime) -> Fleet:
    """The fleet with that node in the place of the one of its id, and these groups."""
    nodes, place = list(fleet.nodes), fleet.place_of.get(node.id)
    if len(fleet.place_of) < len(nodes):  # two have one id
        places = [at for at, each in enumerate(nodes) if each.id == node.id]
    else:
        places = [] if place is None else [place]
    for at in places:
        nodes[at] = node
    return _carry_facts_on(fleet, replace(fleet, observed_at=observed_at, nodes=tuple(nodes), groups=groups), places)


def carry_facts_on(before: Fleet | None, fleet: Fleet) -> Fleet:
    """The same fleet; it holds already what it would find out about its nodes, as far as an earlier one had done so."""
    if before is None or len(before.nodes) != len(fleet.nodes):
        return fleet
    return _carry_facts_on(before, fleet, changed_places(before.nodes, fleet.nodes))


def changed_since(nodes: Sequence[Node], fleet: Fleet) -> Sequence[int]:
    """Where the fleet's nodes are other objects than these, as many ones; it knows of those it was carried on from."""
    before, places = vars(fleet).get(_SINCE, ((), ()))
    return places if before is nodes else changed_places(nodes, fleet.nodes)


def _carry_facts_on(before: Fleet, fleet: Fleet, places: Sequence[int]) -> Fleet:
    """Likewise, with other nodes at these places alone."""
    changes = [(before.nodes[place], fleet.nodes[place]) for place in places]
    if len(places) * _FEW > len(fleet.nodes) or any((old.id, old.pool) != (new.id, new.pool) for old, new in changes):
        return fleet
    known, kept = vars(before), vars(fleet)  # where cached properties keep what they found
    if "place_of" not in known or len(known["place_of"]) != len(fleet.nodes):  # nobody asked, or two have one id
        return fleet
    kept["place_of"], kept[_SINCE] = known["place_of"], (before.nodes, places)
    if "enrolled" in known and all(old.enrolled is new.enrolled for old, new in changes):
        kept["enrolled"] = known["enrolled"]
    if "in_slurm" in known and not known["in_slurm"]:
        kept["in_slurm"] = any(new.slurm is not None for _, new in changes)
    if "in_kubernetes" in known and not known["in_kubernetes"]:
        kept["in_kubernetes"] = any(new.kubernetes is not None for _, new in changes)
    if "with_notice" in known and not known["with_notice"]:
        kept["with_notice"] = any(new.cloud_notice is not None for _, new in changes)
    if "rosters" in known and before.groups == fleet.groups:
        kept["rosters"] = _rosters(before, fleet, changes)
    return fleet


def _rosters(before: Fleet, fleet: Fleet, changes: Iterable[tuple[Node, Node]]) -> dict[str, PoolView]:
    """Every pool's, as the changes leave it."""
    by_pool: dict[str, list[tuple[Node, Node]]] = {}
    for change in changes:
        by_pool.setdefault(change[1].pool, []).append(change)
    return before.rosters | {pool: _roster(before.rosters[pool], fleet, found) for pool, found in by_pool.items()}


def _roster(view: PoolView, fleet: Fleet, changes: list[tuple[Node, Node]]) -> PoolView:
    """Return the roster of one pool."""
    if len(view.nodes) == len(fleet.nodes):
        nodes = fleet.nodes
    else:
        new = {after.id: after for _, after in changes}
        nodes = tuple([new.get(node.id, node) for node in view.nodes])
    old, now = [_counts(old) for old, _ in changes], [_counts(new) for _, new in changes]
    members, sound = view.members, view.sound
    if [each[0] for each in old] != [each[0] for each in now]:
        members = _move_ids(members, changes, [each[0] for each in now])
    if [each[1] for each in old] != [each[1] for each in now]:
        sound = _move_ids(sound, changes, [each[1] for each in now])
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


def _move_ids(ids: frozenset[str], changes: list[tuple[Node, Node]], inside: list[bool]) -> frozenset[str]:
    """The ids, with each changed node's in or out."""
    ours = [(new.id, within) for (_, new), within in zip(changes, inside, strict=True)]
    return (ids - {node_id for node_id, within in ours if not within}) | {node_id for node_id, within in ours if within}
