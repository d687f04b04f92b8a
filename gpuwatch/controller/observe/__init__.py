"""How the controller learns what the nodes are doing."""

from collections.abc import Sequence
from typing import Protocol

from gpuwatch.model.fleet import Fleet, Node, Signal
from gpuwatch.model.measurement import Measure, Query


class SignalSource(Protocol):
    """Asks about nodes. A node that does not answer well is data (its signal carries the failure), not an exception."""

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All the nodes given, each with its signal; only running enrolled-or-not nodes are asked."""
        ...

    def confirm(self, node: Node) -> Signal:
        """Ask one node itself for what it sees from now on; an answer that cannot be of now is a failure in words."""
        ...

    def measure(self, fleet: Fleet, queries: Sequence[Query]) -> tuple[Measure, ...]:
        """One measure for each query, in their order; a number that cannot be had is data (its doubt), no exception."""
        ...
