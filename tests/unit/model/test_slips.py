"""Numbers in the habits of many countries: which number a message tells a person to type."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.slips import as_share, readable, right_way


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2,50", "2.50"),
        ("0,3", "0.3"),
        ("250,000", "250000"),
        ("1,250,000.50", "1250000.50"),
        ("1.250,50", "1250.50"),
        ("250 000", "250000"),
        ("250'000", "250000"),
        ("$2", "2"),
        ("¥250000", "250000"),
        ("250000 CNY", "250000"),
        ("10.2kW", "10.2"),
        ("3y", "3"),
        ("30%", "0.3"),
        ("-2,5", "-2.5"),
        ("free", None),
        ("", None),
        ("1.2.3", None),
    ],
)
def test_the_number_that_was_meant(typed: str, meant: str | None) -> None:
    """Signs, units and thousands go, a comma becomes a point, a percentage a share; the rest is not guessed."""
    assert readable(typed) == meant


@given(st.text())
def test_whatever_is_named_can_be_typed(text: str) -> None:
    """A number that a message names is read as one, whatever stood there."""
    meant = readable(text)
    assert meant is None or Decimal(meant).is_finite()


def test_a_percentage_without_its_sign_is_a_hundredth() -> None:
    """30 is 0.3; what is above 100 was no percentage."""
    assert [as_share(Decimal(each)) for each in ("30", "100", "6.5", "0.3", "250", "-1")] == [
        "0.3",
        "1",
        "0.065",
        None,
        None,
        None,
    ]


def test_a_message_ends_with_the_number_or_an_example() -> None:
    """What nobody could mean as a number has an example."""
    assert (right_way("2,50", "0.35"), right_way("free", "0.35")) == ("write 2.50", "write for example 0.35")
