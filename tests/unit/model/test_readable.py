"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.readable import count_text, how_many, quantity_text


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (999, "999"),
        (350_000, "350,000"),
        (350_000_000, "350 million"),
        (6_738_415_616, "6.738 billion"),
        (7_000_000_000, "7 billion"),
        (10**15, "1,000 trillion"),
        (10**30, "1,000,000,000,000,000,000 trillion"),
    ],
)
def test_a_count_has_a_word_for_its_size(number: int, words: str) -> None:
    """Nobody counts zeros."""
    assert count_text(number) == words


def test_one_of_a_thing_is_no_plural() -> None:
    """And thousands are parted."""
    assert [how_many(number, "node") for number in (0, 1, 2, 1200)] == ["0 nodes", "1 node", "2 nodes", "1,200 nodes"]


@given(st.integers(1, 10**15))
def test_a_count_is_told_to_a_thousandth(number: int) -> None:
    """The words give back the number, nearly."""
    value, _, word = count_text(number).partition(" ")
    size = {"": 1, "million": 10**6, "billion": 10**9, "trillion": 10**12}[word]

    assert float(value.replace(",", "")) * size == pytest.approx(number, rel=1e-3)


def test_a_percentage_over_its_limit_is_no_part_of_it() -> None:
    """`90 of 1 %` reads like a part of a per cent."""
    assert quantity_text(0.9, 0.01, "ratio") == "90 %, limit 1 %"
    assert quantity_text(0.9, None, "ratio") == "90 %"
    assert quantity_text(2.6e-10, 1e-12, "ratio") == "2.6e-08 %, any is work"
    assert quantity_text(1.4, 0.8, "cores") == "1.4 cores, limit 0.8"
