"""What follows from each node alone, made again only for nodes that changed since the last look.

A round passes over all nodes a dozen times, a backtest does so for months of rounds, and most nodes are the very same
objects as in the round before. Nodes are frozen, so what followed from one still does.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import is_not
from typing import Any, TypeVar

from gpuwatch.model.fleet import Node

Fact = TypeVar("Fact")


def changed_places(before: Sequence[Node], now: Sequence[Node]) -> list[int]:
    """Where two sequences of one length hold different objects."""
    return list(compress(count(), map(is_not, before, now)))


@dataclass(slots=True)
class NodeFacts:
    """Its owner passes it on from look to look; it holds the nodes of the last one."""

    _known: dict[Hashable, tuple[Sequence[Node], list[Any]]] = field(default_factory=dict)
    _compared: tuple[Sequence[Node], Sequence[Node], list[int]] = ((), (), [])  # the last two, and where they differ

    def facts_of(self, make: Callable[[Node], Fact], nodes: Sequence[Node]) -> list[Fact]:
        """What `make`, a pure function of a module, says of each; not to be changed."""
        before, facts = self._known.get(make, ((), []))
        if before is nodes:
            return facts
        if len(before) == len(nodes):
            facts = facts.copy()
            for place in self._places(before, nodes):
                facts[place] = make(nodes[place])
        else:
            known = dict(zip(map(id, before), facts, strict=True))
            facts = [known[id(node)] if id(node) in known else make(node) for node in nodes]
        self._known[make] = nodes, facts
        return facts

    def _places(self, before: Sequence[Node], nodes: Sequence[Node]) -> list[int]:
        """Where they differ; other facts are asked for about the same nodes."""
        old, new, places = self._compared
        if old is not before or new is not nodes:
            places = changed_places(before, nodes)
            # Old nodes are held only while most of them are the new ones.
            self._compared = (before, nodes, places) if 2 * len(places) <= len(nodes) else ((), (), [])
        return places
