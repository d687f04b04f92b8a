"""A controller over two clouds with one machine each, which may begin anew while one of them is silent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.several import SeveralClouds
from gpuwatch.controller.context import LiveParts, Memory
from gpuwatch.controller.recall import recall
from gpuwatch.model.fleet import Fleet, Node, NodeReport
from gpuwatch.model.measurement import MetricQuery, MetricValue
from tests.support.builders.fleet import Desk, FakeFleet, a_node


@dataclass
class Agents:
    """The agents of both clouds' machines."""

    clouds: Mapping[str, FakeFleet]

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """Each asked."""
        asked = tuple(replace(node, signal=self.confirm(node)) for node in nodes)
        return Fleet(observed_at=next(iter(self.clouds.values())).clock.now(), nodes=asked)

    def confirm(self, node: Node) -> NodeReport:
        """One asked."""
        return self.clouds[node.cloud].confirm(node)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """The numbers of the first cloud's fleet."""
        return next(iter(self.clouds.values())).measure(fleet, queries)


@dataclass(slots=True)
class TwoClouds(Desk):
    """A desk over the clouds `bj`, which is `fleet`, and `us`."""

    other: FakeFleet = field(init=False)
    all: SeveralClouds = field(init=False)

    def __post_init__(self) -> None:
        """One idle machine in each."""
        self.fleet, self.other = FakeFleet(clock=self.clock), FakeFleet(clock=self.clock)
        self.restart()
        self.fleet.put(a_node("ins-1"))
        self.other.put(a_node("i-1"))

    @property
    def parts(self) -> LiveParts:
        """With both clouds."""
        signals = Agents({"bj": self.fleet, "us": self.other})
        return LiveParts(
            clock=self.clock,
            cloud=self.all,
            signals=signals,
            ledger=self.ledger,
            rules=self.rulebook,
            memory=self.memory,
            prices=lambda hire, _: self.prices.get(hire.instance_type),
            interval_seconds=self.interval,
        )

    def restart(self) -> None:
        """The controller's process begins anew: the ledger is all that it knows."""
        parts: dict[str, Cloud] = {"bj": self.fleet, "us": self.other}
        self.all, self.memory = SeveralClouds(parts), Memory()
        recall(self.all, self.ledger)

    def rest(self, seconds: float) -> None:
        """Whoever is idle goes on being so."""
        self.clock.advance(seconds)
        for fleet in (self.fleet, self.other):
            fleet.go_on(seconds)

    def stops(self) -> tuple[list[str], list[str]]:
        """What was stopped in each."""
        return self.fleet.stops(), self.other.stops()
