"""Budgets as a round saw them: one that is used up, unless a test says otherwise."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from gpuwatch.guard import Case
from gpuwatch.model.budget import BudgetState, Scope, ShorterWaits


def a_state(**changes: object) -> BudgetState:
    """A budget for everything of which more than all is spent, and that blocks growth."""
    base = BudgetState(
        name="ml",
        scope=Scope(),
        usd_per_month=Decimal(5000),
        month="2026-03",
        ends_at=datetime(2026, 4, 1, tzinfo=UTC),
        block_growth="actual",
        spent_usd=Decimal(5120),
        blocked="$5120.00 of the $5000.00 of the budget ml are spent in 2026-03",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def a_hurry(seconds: float = 600.0, **changes: object) -> BudgetState:
    """One that hastens idle machines of its scope."""
    hastening = ShorterWaits(wait_seconds=seconds, why="the budget ml is forecast at 112%")
    return a_state(blocked=None, hastening=hastening, **changes)


def budgeted(case: Case, **changes: object) -> Case:
    """The case under such a budget, besides those it has."""
    budgets = (*case.observation.budgets, a_state(**changes))
    return replace(case, observation=replace(case.observation, budgets=budgets))


def alone(case: Case) -> Case:
    """The case in a fleet without a node."""
    return replace(case, observation=replace(case.observation, fleet=replace(case.observation.fleet, nodes=())))
