"""A desk whose ledger is in memory: weeks of rounds take seconds. Its fleet may be in several clouds."""

from dataclasses import dataclass, field
from typing import cast

from gpuwatch.clouds.several import SeveralClouds
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.round import Round, step
from gpuwatch.controller.timings import Timings
from gpuwatch.ledger import Ledger
from gpuwatch.simulate.memory_ledger import InMemoryLedger
from tests.support.builders.fleet import Desk, FakeFleet
from tests.support.fakes.two_clouds import Agents
from tests.support.nightly import NIGHTLY

_COMPACTED_EVERY = 720  # rounds


def a_daily_ledger() -> Ledger:
    """For many rounds of which nothing is told: in memory each day, and the database in `make nightly`."""
    return Ledger.in_memory() if NIGHTLY else cast("Ledger", InMemoryLedger())


@dataclass(slots=True)
class LightDesk(Desk):
    """As a desk; its ledger keeps no past rounds, so nothing of them can be explained."""

    fleets: dict[str, FakeFleet] = field(default_factory=dict)  # of several clouds, by their names
    clouds: SeveralClouds | None = None
    light: InMemoryLedger = field(default_factory=InMemoryLedger)
    rounds_: int = 0
    timings: Timings = field(default_factory=Timings)

    def use_clouds(self, fleets: dict[str, FakeFleet]) -> None:
        """These are its clouds, by their names; the first one's numbers are measured."""
        self.fleets, self.clouds = fleets, SeveralClouds(fleets)

    def round(self, seconds: float = 60.0) -> Round:
        """One round; then time passes, and whoever is not busy goes on being so."""
        parts = self.parts
        done = step(
            ControllerContext(
                clock=parts.clock,
                cloud=self.clouds or parts.cloud,
                signals=Agents(self.fleets) if self.fleets else parts.signals,
                ledger=self.light,
                rules=parts.rules,
                memory=parts.memory,
                prices=parts.prices,
                interval_seconds=parts.interval_seconds,
                timings=self.timings,
            )
        )
        self.rounds_ += 1
        if self.rounds_ % _COMPACTED_EVERY == 0:
            self.light.compact(self.clock.now())
        self.clock.advance(seconds)
        for fleet in self.fleets.values() or (self.fleet,):
            fleet.go_on(seconds)
        return done
