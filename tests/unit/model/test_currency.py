"""Money is kept in US dollars and shown in the currency that people read, exact to its cent."""

from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.currency import DOLLARS, Currency, show_in
from gpuwatch.model.money import bare_usd, cents_of, format_price, format_usd
from gpuwatch.money.accounting.totals import round_parts

YUAN = Currency(code="CNY", usd=Decimal("0.138"), as_of=date(2026, 11, 20))


def test_a_sum_is_shown_with_the_sign_of_its_currency() -> None:
    """5,000 dollars at 0.138 dollars for a yuan are 36,231.88 yuan."""
    dollars = (format_usd(Decimal(5000)), format_usd(Decimal(-5)), format_usd(None))
    show_in(YUAN)
    yuan = (
        format_usd(Decimal(5000)),
        format_usd(Decimal(-5)),
        bare_usd(Decimal("4.14")),
        format_price(Decimal("0.69")),
    )
    show_in(Currency(code="SGD", usd=Decimal("0.75")))

    assert dollars == ("$5,000.00", "-$5.00", "-")
    assert yuan == ("¥36,231.88", "-¥36.23", "30.00", "¥5.0000")
    assert format_usd(Decimal(3)) == "SGD 4.00"


def test_the_rate_and_its_day_are_a_sentence() -> None:
    """In US dollars there is nothing to say."""
    undated = Currency(code="CNY", usd=Decimal("0.1380"))

    assert YUAN.note == "Money in CNY: one is 0.138 US dollars, the rate of 2026-11-20."
    assert (
        undated.note
        == "Money in CNY: one is 0.138 US dollars, the rate of a day that prices.rates_as_of does not give."
    )
    assert YUAN.unless_usd is YUAN
    assert (DOLLARS.note, DOLLARS.unless_usd) == (None, None)


@given(
    yuan=st.integers(min_value=-(10**12), max_value=10**12),
    rate=st.decimals(min_value="0.0001", max_value=100, places=6, allow_nan=False),
)
def test_what_was_written_in_a_currency_is_shown_as_it_was_written(yuan: int, rate: Decimal) -> None:
    """To the cent: a budget of 36,000.00 yuan never becomes 35,999.99."""
    show_in(Currency(code="CNY", usd=rate))
    shown_cents = cents_of(Decimal(yuan) / 100 * rate)
    show_in(DOLLARS)

    assert shown_cents == yuan


@given(parts=st.lists(st.fractions(min_value=0, max_value=10**6), min_size=1, max_size=12))
def test_rows_in_a_currency_add_up_to_their_sum(parts: list[Fraction]) -> None:
    """By largest remainders of its own cents, not of dollars' cents that were converted."""
    total, cents = round_parts({str(number): part for number, part in enumerate(parts)}, YUAN.cent)

    assert sum(cents.values()) == total
    assert abs(total * YUAN.cent - sum(parts)) <= YUAN.cent / 2


@pytest.mark.parametrize("code", ["CNY", "EUR", "JPY"])
def test_every_currency_has_a_heading(code: str) -> None:
    """One word for a column's title."""
    assert Currency(code=code, usd=Decimal("0.5")).head.strip()
