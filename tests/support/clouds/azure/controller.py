"""A controller that enforces over the pretended Azure, with agents that answer as their machines' users act."""

from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.clouds import Cloud
from gpuwatch.controller.context import LiveParts
from gpuwatch.controller.observe.pool_metrics import of_verdicts
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import DEFAULT_POOL, Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.policies import PoolRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import RULES, a_verdict


class Agents:
    """Idle since the test's beginning, unless they are busy."""

    def __init__(self, clock: ManualClock) -> None:
        """Nobody is busy."""
        self.clock = clock
        self.busy: set[str] = set()

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All of them answer."""
        asked = tuple(replace(node, signal=self.confirm(node)) for node in nodes)
        return Fleet(observed_at=self.clock.now(), nodes=asked)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Nobody asks for numbers."""
        return of_verdicts(fleet, queries, self.clock.now())

    def confirm(self, node: Node) -> NodeReport:
        """One of them answers, as long as its machine runs."""
        if node.state is not NodeState.RUNNING:
            return NodeReport(failure=f"it is {node.state}")
        state, held = (State.BUSY, 0.0) if node.id in self.busy else (State.IDLE, 0.9 * self.clock.monotonic())
        return NodeReport(verdict=a_verdict(node.id, state, held, gpus=node.known_gpus, at=self.clock.now()))


def a_controller(
    cloud: Cloud, clock: ManualClock, agents: Agents, *, ledger: Ledger | None = None, rules: PoolRules = RULES
) -> LiveParts:
    """Its parts, with one pool."""
    return LiveParts(
        clock=clock,
        cloud=cloud,
        signals=agents,
        ledger=ledger or Ledger.in_memory(),
        rules=Rulebook(pools={DEFAULT_POOL: rules}, limits=Limits(max_stops_per_hour_ratio=1.0), enforce=True),
    )


def told(parts: LiveParts, node_id: str) -> list[list[str]]:
    """Every intent of a machine, oldest first, as its verb and its outcomes."""
    history = reversed(parts.ledger.history(node_id, limit=100))
    return [[entry.intent.verb, *(outcome.status for outcome in entry.outcomes)] for entry in history]
