"""PURE: idle machines wait less where a budget says so. Only the wait before the notice changes, and only to less."""

from collections.abc import Sequence

from gpuwatch.model.budget import BudgetState, Scope, ShorterWaits
from gpuwatch.model.fleet import Node
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS


def hastening(budgets: Sequence[BudgetState], node: Node) -> ShorterWaits | None:
    """The shortest wait that a budget asks of an idle node; None where none does."""
    asked = [each.hastening for each in budgets if each.hastening is not None and each.scope.covers(node)]
    return min(asked, key=lambda each: each.wait_seconds, default=None)


def hastened(budgets: Sequence[BudgetState], node: Node, wait: float | None) -> float | None:
    """A node's wait under these budgets; one that is not known, as there is no price, stays so."""
    found = hastening(budgets, node) if wait is not None else None
    return wait if wait is None or found is None else min(wait, max(MINIMUM_WAIT_SECONDS, found.wait_seconds))


def in_force(budgets: Sequence[BudgetState]) -> tuple[tuple[Scope, ShorterWaits], ...]:
    """All that any wait can follow from: it changes far less often than what was spent."""
    return tuple((each.scope, each.hastening) for each in budgets if each.hastening is not None)
