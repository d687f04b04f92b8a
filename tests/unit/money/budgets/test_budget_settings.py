"""The settings of budgets: their defaults, and what none can mean."""

from decimal import Decimal
from pathlib import Path

from tests.support.builders.configurations import mistakes, read


def test_what_no_budget_can_mean_is_refused_with_what_would_be_right(tmp_path: Path) -> None:
    """Percentages, KEY=VALUE, a tag that is kept; sums above zero."""
    file = tmp_path / "gpuwatch.yaml"
    text = "budgets:\n  a: {thresholds: ['0.5']}\n  b: {tag: team}\n  c: {tag: squad=x}\n"
    result = mistakes(file, text)

    assert "FILE:2: budgets.a.thresholds: '0.5' is no percentage above 0" in result
    assert "FILE:3: budgets.b.tag: 'team' is no KEY=VALUE" in result
    assert "the tag 'squad' of budgets.c is not among cost.tags" in result
    assert "budgets.a.usd_per_month: 0 is too small" in mistakes(file, "budgets: {a: {usd_per_month: 0}}\n")
    assert "shortened_idle_timeout" in mistakes(file, "budgets: {a: {shortened_idle_timeout: 59s}}\n")


def test_a_budget_is_five_thousand_dollars_told_at_half_four_fifths_and_all_and_does_nothing(tmp_path: Path) -> None:
    """The defaults."""
    settings = read(tmp_path / "gpuwatch.yaml", "budgets: {a: {}}\n")
    budget = settings.budgets["a"]

    assert (budget.usd_per_month, budget.block_growth, budget.shorten_idle_timeout) == (Decimal(5000), "never", "never")
    assert budget.ratios == (Decimal("0.5"), Decimal("0.8"), Decimal(1))
