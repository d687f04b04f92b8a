"""A controller over the fake of Google Cloud: its agents, its rounds, its bill."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.controller.context import LiveParts, Memory
from gpuwatch.controller.observe.pool_metrics import of_verdicts
from gpuwatch.controller.round import ControllerContext, Round, step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import DEFAULT_POOL, Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.usage import GPU, HourKey
from gpuwatch.money.accounting.metering import Marks, Metering, meter
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_verdict
from tests.support.clouds.gcp.world import GcpWorld

_UTC = Metering(zone=ZoneInfo("UTC"))
# A short day: idle after ten minutes, and five minutes between notice and stop.
BRISK = PoolRules(idle=IdleRules(timeout=600.0, grace_period=300.0, instance_store="discard"), warm_up=0.0)


@dataclass(slots=True)
class Agents:
    """The machines' agents: each tells since when its GPUs do what they do."""

    clock: ManualClock
    doing: dict[str, tuple[State, float]] = field(default_factory=dict)  # by node; since, of the monotonic clock

    def show(self, node_id: str, state: State, held: float = 0.0) -> None:
        """It begins to do something else."""
        self.doing[node_id] = (state, self.clock.monotonic() - held)

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All of them answer."""
        return Fleet(
            observed_at=self.clock.now(), nodes=tuple(replace(node, signal=self.confirm(node)) for node in nodes)
        )

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Nobody asks for numbers."""
        return of_verdicts(fleet, queries, self.clock.now())

    def confirm(self, node: Node) -> NodeReport:
        """One of them answers, as long as its machine runs."""
        if node.state is not NodeState.RUNNING:
            return NodeReport(failure=f"it is {node.state}")
        state, since = self.doing.get(node.id, (State.IDLE, 0.0))
        held = 0.9 * (self.clock.monotonic() - since)
        return NodeReport(verdict=a_verdict(node.id, state, held, gpus=node.known_gpus, at=self.clock.now()))


class GcpDesk:
    """Rounds over a world; what the ledger acknowledged survives `crash`, and all else of the controller does not."""

    def __init__(self, world: GcpWorld, rules: PoolRules = BRISK) -> None:
        """No round was yet."""
        self.world, self.clock, self.fleet = world, world.clock, Agents(world.clock)
        self.interval = 60.0
        self.ledger = Ledger.in_memory()
        self.memory = Memory()
        self._rules = Rulebook(
            pools={DEFAULT_POOL: rules, "train": rules}, limits=Limits(max_stops_per_hour_ratio=1.0), enforce=True
        )
        self._marks: Marks | None = None
        self._billed: dict[str, int] = {}

    @property
    def parts(self) -> LiveParts:
        """What step() takes."""
        return LiveParts(
            clock=self.clock,
            cloud=self.world.cloud,
            signals=self.fleet,
            ledger=self.ledger,
            rules=self._rules,
            memory=self.memory,
            interval_seconds=self.interval,
        )

    def round(self, seconds: float = 60.0, parts: ControllerContext | None = None) -> Round:
        """One round and what it bills; then time passes."""
        done = step(parts or self.parts)
        if done.trouble is None:
            self._meter(done.observation)
        self.rest(seconds)
        return done

    def rest(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)

    def crash(self) -> None:
        """The process is gone; another begins with the same ledger."""
        self.world.cloud = self.world.anew()
        self.memory = Memory()

    def billed_minutes(self, node_id: str) -> int:
        """For how long metering has billed it."""
        return round(self._billed.get(node_id, 0) / 60_000)

    def told(self, node_id: str) -> list[list[str]]:
        """Every intent of a machine, oldest first, as its verb and its outcomes."""
        history = reversed(self.ledger.history(node_id))
        return [[entry.intent.verb, *(outcome.status for outcome in entry.outcomes)] for entry in history]

    def _meter(self, observation: Any) -> None:  # noqa: ANN401  an Observation
        rows: Mapping[HourKey, list[int]]
        self._marks, rows = meter(self._marks, observation, _UTC, lambda _: 1, Calendar(_UTC.zone))
        for key, amounts in rows.items():
            self._billed[key.node_id] = self._billed.get(key.node_id, 0) + sum(amounts[:GPU])
