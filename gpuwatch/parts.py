"""What a controller is made of and what a round leaves: the nouns that `controller`, `settling` and `acting` share."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gpuwatch.clock import Clock
from gpuwatch.clouds import Cloud
from gpuwatch.cost.accounting import Metering
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.decision import Decision, Observation, Outcome, Proposal, Review
from gpuwatch.model.money import Hire, Price
from gpuwatch.signals import SignalSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a controller is made of; the casts differ in these alone. `prices` tells what an hour of a machine costs."""

    clock: Clock
    cloud: Cloud
    signals: SignalSource
    ledger: Ledger
    rules: Rulebook
    prices: Callable[[Hire, datetime], Price | None] = lambda _hire, _now: None
    metering: Metering | None = None  # None: what is billed is not written down
    budgets: Callable[[Observation], tuple[BudgetState, ...]] = lambda _: ()


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
