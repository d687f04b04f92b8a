"""Of which days the prices of a report are, how old that makes them, and whose they are."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from gpuwatch.model.money import day_with_age
from gpuwatch.model.usage import AMOUNTS, Terms
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.report.money_sections import price_words
from gpuwatch.money.report.report import PriceDays, price_days

TODAY = date(2026, 11, 23)
TERMS = Terms(
    pool="training",
    owner=None,
    account=None,
    region="us-east-1",
    instance_type="p5.48xlarge",
    capacity_type="on_demand",
    gpus=8,
    usd_per_hour=Decimal("55.04"),
    price_as_of=date(2026, 1, 19),
    price_source="a list",
    tags=(),
)


def a_row(ms: int, **terms: object) -> Row:
    """So much time of one machine in use."""
    amounts = [ms, *[0] * (len(AMOUNTS) - 1)]
    return Row(terms=replace(TERMS, **terms), amounts=amounts)  # type: ignore[arg-type]  # any field of the terms


@pytest.mark.parametrize(
    ("as_of", "text"),
    [
        (date(2026, 1, 19), "2026-01-19, 308 days old"),
        (date(2026, 11, 22), "2026-11-22, 1 day old"),
        (TODAY, "2026-11-23"),
        (date(2026, 12, 1), "2026-12-01"),
    ],
)
def test_a_day_has_its_age(as_of: date, text: str) -> None:
    """A price of today, or of a clock that is ahead, has none."""
    assert day_with_age(as_of, TODAY) == text


def test_the_oldest_price_gives_the_age_and_the_most_used_source_comes_first() -> None:
    """Machines without a known price are in neither."""
    rows = [
        a_row(10, price_as_of=date(2026, 11, 20), price_source="a contract"),
        a_row(90),
        a_row(500, usd_per_hour=None, price_as_of=None, price_source=None),
    ]
    found = price_days(rows, TODAY)

    assert found is not None
    assert price_words(found, TODAY) == (
        "Prices are of 2026-01-19 to 2026-11-20, the oldest 308 days old, from 2 sources:",
        "- a list",
        "- a contract",
    )
    assert found == PriceDays(
        oldest=date(2026, 1, 19), newest=date(2026, 11, 20), age_days=308, sources=("a list", "a contract")
    )


def test_of_many_sources_the_text_names_three() -> None:
    """JSON has all."""
    found = price_days([a_row(100 - number, price_source=f"list {number}") for number in range(5)], TODAY)

    assert found is not None
    assert price_words(found, TODAY)[1:] == ("- list 0", "- list 1", "- list 2", "- and 2 more sources")
    assert len(found.sources) == 5


@pytest.mark.parametrize("rows", [[], [a_row(5, usd_per_hour=None, price_as_of=None, price_source=None)]])
def test_without_a_price_nothing_is_said(rows: Sequence[Row]) -> None:
    """A day of no price is not told."""
    assert price_days(rows, TODAY) is None
