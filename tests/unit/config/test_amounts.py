"""Budgets and limits may be written in another currency; what the controller reckons with is US dollars."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.builders.configurations import mistakes, read

RATES = 'prices: {rates: {CNY: "0.138"}, rates_as_of: "2026-11-20"}\n'


@pytest.mark.parametrize("text", ["36000 CNY", "CNY 36000", '"36,000.00 CNY"', "36000CNY"])
def test_a_budget_in_yuan_is_exact(file: Path, text: str) -> None:
    """36,000 x 0.138."""
    settings = read(file, f"{RATES}budgets: {{ml: {{usd_per_month: {text}}}}}\n")

    assert settings.budgets["ml"].usd_per_month == Decimal(4968)


def test_limits_and_costs_of_a_restart_may_be_written_so_too(file: Path) -> None:
    """Every key in US dollars; a plain number stays what it is."""
    settings = read(
        file,
        f"{RATES}limits: {{max_usd_per_hour: 1000 CNY, max_stopped_usd_per_hour: 20}}\n"
        "pools: {default: {idle: {restart_usd: 10 CNY}}}\n",
    )

    assert settings.limits.max_usd_per_hour == Decimal(138)
    assert settings.limits.max_stopped_usd_per_hour == Decimal(20)
    assert settings.pools["default"].idle.restart_usd == Decimal("1.38")


def test_a_currency_without_a_rate_is_refused_at_its_key(file: Path) -> None:
    """With what to write; nothing is converted by a rate that nobody gave."""
    text = mistakes(file, f"{RATES}budgets: {{ml: {{usd_per_month: 30000 EUR}}}}\n")

    assert text.startswith("FILE:2: budgets.ml.usd_per_month: '30000 EUR': prices.rates has no rate for EUR")
    assert text.count("expected") == 1


@pytest.mark.parametrize("text", ["a lot of CNY", "CNY 5 CNY", "-5 CNY", "5 yuan"])
def test_what_is_no_amount_is_refused_as_no_number(file: Path, text: str) -> None:
    """As before."""
    assert "is not a number" in mistakes(file, f"{RATES}budgets: {{ml: {{usd_per_month: {text}}}}}\n")


def test_the_currency_of_texts_has_its_rate_and_its_day(file: Path) -> None:
    """US dollars without a word."""
    chosen = read(file, f"currency: CNY\n{RATES}").shown_currency

    assert (chosen.code, chosen.usd, chosen.as_of) == ("CNY", Decimal("0.138"), date(2026, 11, 20))
    assert read(file, RATES).shown_currency.code == "USD"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("currency: EUR\n", "prices.rates has no rate for EUR"),
        ('prices: {rates_as_of: "yesterday"}\n', "'yesterday' is no day"),
    ],
)
def test_a_currency_without_a_rate_and_a_day_that_is_none_are_refused(file: Path, text: str, says: str) -> None:
    """At the start."""
    assert says in mistakes(file, text)
