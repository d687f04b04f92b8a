"""A fleet of which one node was looked at again: every removal is judged by one, so it must not cost O(nodes) sums."""

from dataclasses import replace
from datetime import datetime

from gpuwatch.model.fleet import Fleet, Node, NodeGroup


def looked_again(fleet: Fleet, node: Node, groups: tuple[NodeGroup, ...], observed_at: datetime) -> Fleet:
    """The fleet with that node in the place of the one of its id, and these groups.

    What its pools come to is not counted again where the node counts as before.
    """
    nodes = tuple([node if each.id == node.id else each for each in fleet.nodes])
    fresh = replace(fleet, observed_at=observed_at, nodes=nodes, groups=groups)
    before, kept = fleet.find(node.id), vars(fleet)
    # Where cached properties keep what they found.
    if before is not None:
        vars(fresh)["_by_id"] = {**kept["_by_id"], node.id: node}
    if before is None or groups != fleet.groups or _counts_as(before) != _counts_as(node):
        return fresh
    view = fleet.roster(node.pool)
    seen = tuple([node if each is before else each for each in view.nodes])
    vars(fresh)["rosters"] = {**fleet.rosters, node.pool: replace(view, nodes=seen)}
    if "enrolled" in kept:
        vars(fresh)["enrolled"] = kept["enrolled"]
    return fresh


def _counts_as(node: Node) -> tuple[object, ...]:
    """What a pool's roster says of a node."""
    return node.pool, node.enrolled, node.state, node.activity.state, node.sound
