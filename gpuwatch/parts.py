"""What a controller is made of and what a round leaves: the nouns that `controller`, `settling` and `acting` share."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuwatch.clock import Clock
from gpuwatch.clouds import Cloud
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Decision, Observation, Outcome, Proposal, Review
from gpuwatch.model.money import Price
from gpuwatch.signals import SignalSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a controller is made of; the casts differ in these alone. `prices` tells a machine type's price now."""

    clock: Clock
    cloud: Cloud
    signals: SignalSource
    ledger: Ledger
    rules: Rulebook
    prices: Callable[[str], Price | None] = lambda _instance_type: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One step that was carried out, or tried, with what came of it."""

    review: Review
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All that one round saw, said and did. `trouble` is why it saw nothing."""

    observation: Observation
    proposals: tuple[Proposal, ...] = ()
    decisions: tuple[Decision, ...] = ()
    reviews: tuple[Review, ...] = ()
    settled: tuple[Outcome, ...] = ()
    acts: tuple[Act, ...] = ()
    trouble: str | None = None
