"""A desk whose ledger is in memory: weeks of rounds take seconds."""

from dataclasses import dataclass, field

from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.round import Round, step
from gpuwatch.simulate.memory_ledger import InMemoryLedger
from tests.support.builders.fleet import Desk

_COMPACTED_EVERY = 720  # rounds


@dataclass(slots=True)
class LightDesk(Desk):
    """As a desk; its ledger keeps no past rounds, so nothing of them can be explained."""

    light: InMemoryLedger = field(default_factory=InMemoryLedger)
    rounds_: int = 0

    def round(self, seconds: float = 60.0) -> Round:
        """One round; then time passes, and whoever is not busy goes on being so."""
        parts = self.parts
        done = step(
            ControllerContext(
                clock=parts.clock,
                cloud=parts.cloud,
                signals=parts.signals,
                ledger=self.light,
                rules=parts.rules,
                memory=parts.memory,
                prices=parts.prices,
                interval_seconds=parts.interval_seconds,
            )
        )
        self.rounds_ += 1
        if self.rounds_ % _COMPACTED_EVERY == 0:
            self.light.compact(self.clock.now())
        self.rest(seconds)
        return done
