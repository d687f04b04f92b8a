"""runtime/table: whole on a pipe; in a terminal of any width without the columns that are needed least."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.runtime.table import align_rows

ROWS = [("policy", "bill saved", "hours", "USD saved"), ("timeout=10m", "63.3%", "30.4", "24.46")]


def test_on_a_pipe_every_column_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that a terminal may leave out."""
    monkeypatch.delenv("COLUMNS", raising=False)

    assert align_rows(ROWS, spare={1: 2, 2: 1}) == [
        "policy       bill saved  hours  USD saved",
        "timeout=10m       63.3%   30.4      24.46",
    ]


def test_a_narrow_terminal_leaves_out_the_least_needed_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest number first; the last column is never cut."""
    monkeypatch.setenv("COLUMNS", "30")

    assert align_rows(ROWS, spare={1: 2, 2: 1}) == [
        "policy       hours  USD saved",
        "timeout=10m   30.4      24.46",
        "(a wider terminal, or a pipe, also has: bill saved)",
    ]


@given(st.integers(1, 200))
def test_tables_without_spare_columns_are_whole_everywhere(width: int) -> None:
    """Reports and mails are made of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))

        assert align_rows(ROWS)[1] == "timeout=10m       63.3%   30.4      24.46"


@pytest.mark.parametrize("columns", ["", "0", "wide", "-3"])
def test_a_width_that_is_none_is_not_believed(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not set."""
    monkeypatch.setenv("COLUMNS", columns)

    assert len(align_rows(ROWS, spare={1: 1})) == 2
