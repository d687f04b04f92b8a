"""Fleets of which something holds the money back, for the tests of `blocked`."""

from gpuwatch.controller.round import Round
from gpuwatch.guard.obstacles import Obstacle
from gpuwatch.model.fleet import Node
from gpuwatch.money.blocked.blocked import Blocked, Group, blocked_money
from tests.support.builders.fleet import Desk
from tests.support.builders.served_page import PRICE


def a_priced_desk(*nodes: Node, **other: object) -> Desk:
    """A controller over these machines, whose hour costs PRICE."""
    desk = Desk(prices={"g6.xlarge": PRICE}, **other)  # type: ignore[arg-type]
    for node in nodes:
        desk.fleet.put(node)
    return desk


def blocked_of(done: Round, desk: Desk, pool: str | None = None) -> Blocked:
    """What a round of that controller says."""
    return blocked_money(done.observation, done.decisions, done.reviews, desk.rulebook, pool=pool)


def all_groups(found: Blocked) -> tuple[Group, ...]:
    """Those of every kind."""
    return (*found.groups, *found.groups_soon, *found.groups_in_doubt, *found.groups_foreign)


def obstacles(found: Blocked, node_id: str = "i-1") -> list[Obstacle]:
    """What holds one machine: the group that counts it, then the others; nothing where it is in no group."""
    for group in all_groups(found):
        for node in group.nodes:
            if node.id == node_id:
                return [group.reason, *node.also]
    return []
