"""How the controller learns what the nodes are doing."""

from collections.abc import Sequence
from typing import Protocol

from gpuwatch.model.fleet import Fleet, Node, NodeReport
from gpuwatch.model.measurement import MetricQuery, MetricValue


class NodeReportSource(Protocol):
    """Asks about nodes. A node that does not answer well is data (its signal carries the failure), not an exception."""

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All the nodes given, each with its signal; only running enrolled-or-not nodes are asked."""
        ...

    def confirm(self, node: Node) -> NodeReport:
        """Ask one node itself for what it sees from now on; an answer that cannot be of now is a failure in words."""
        ...

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """One measure for each query, in their order; a number that cannot be had is data (its doubt), no exception."""
        ...
