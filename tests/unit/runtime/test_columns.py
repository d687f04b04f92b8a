"""runtime/columns: words and columns within a width, whatever the words are."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpuwatch.runtime.columns import Column, cut, laid_out, wrap_words


@given(st.text(max_size=60), st.integers(0, 40))
def test_what_is_cut_fits_and_says_so(words: str, width: int) -> None:
    """Wide letters count twice; nothing of it can move the cursor."""
    shown = cut(words, width)

    assert cell_len(shown) <= width
    assert shown.isprintable()
    assert shown == words or shown.endswith("…") or not shown or not words.isprintable()


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=12), min_size=1, max_size=12), st.integers(14, 60))
def test_wrapped_words_are_whole_where_there_is_room(words: list[str], width: int) -> None:
    """On two lines at most; where the second one ends with no sign, no word is missing."""
    sentence = " ".join(words)
    lines = wrap_words(sentence, width, 2)

    assert len(lines) <= 2
    assert all(cell_len(line) <= width for line in lines)
    assume(not lines[-1].endswith("…"))
    assert " ".join(line.strip() for line in lines) == sentence


@pytest.mark.parametrize(
    ("width", "titles"),
    [(80, "A  B     C  WHY"), (17, "A B    C WHY"), (15, "A    C  WHY"), (14, "A   C WHY"), (9, "A WHY")],
)
def test_columns_go_in_their_order_and_the_last_one_stays(width: int, titles: str) -> None:
    """The one with the highest number goes first; the gaps get narrower before."""
    columns = [
        Column(title="A", cells=["1"]),
        Column(title="B", cells=["22"], spare=2),
        Column(title="C", cells=["333"], right=True, spare=1),
        Column(title="WHY", cells=["because"]),
    ]

    assert laid_out(columns, width)[0].plain == titles


def test_a_column_without_a_value_is_left_out() -> None:
    """One that may go: the others have their place whatever is in them."""
    columns = [
        Column(title="A", cells=["-"]),
        Column(title="B", cells=["-", ""][:1], spare=1),
        Column(title="C", cells=["x"]),
    ]

    assert [line.plain for line in laid_out(columns, None)] == ["A  C", "-  x"]


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=30), min_size=1, max_size=20), st.integers(8, 40))
def test_nothing_is_missing_where_a_row_may_take_as_many_lines_as_it_needs(words: list[str], width: int) -> None:
    """Words stay whole where they fit, and go on in the next line where they are wider than one."""
    lines = wrap_words(" ".join(words), width, None)

    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(words)


def test_the_last_column_wraps_in_its_own_place_after_the_others_have_shrunk() -> None:
    """A long name is cut to its least width, then columns go, then the reason takes more lines."""
    columns = [
        Column(title="NAME", cells=["a-very-long-name-of-a-node"], least=10),
        Column(title="POOL", cells=["default"], spare=1),
        Column(title="WHY", cells=["It has been idle for 2h6m, and the notice promised a stop not before 12:10 UTC."]),
    ]

    assert [line.plain for line in laid_out(columns, 64, lines=None)] == [
        "NAME                POOL    WHY",
        "a-very-long-name-o… default It has been idle for 2h6m, and the",
        "                            notice promised a stop not before",
        "                            12:10 UTC.",
    ]
    assert [line.plain for line in laid_out(columns, 52, lines=None)][:2] == [
        "NAME            WHY",
        "a-very-long-na… It has been idle for 2h6m, and the",
    ]


@given(st.text("ab 中文，。（）…é", max_size=60), st.integers(2, 30))
def test_a_chinese_sentence_is_parted_between_any_two_characters(words: str, width: int) -> None:
    """No letter is lost, no line is wider than there is room, and none begins with a comma or full stop."""
    lines = wrap_words(words, width, None)

    assert "".join(lines).replace(" ", "") == words.replace(" ", "")
    assert all(cell_len(line) <= width for line in lines)
    assert wrap_words("节点已经空闲，将在四分钟后停机。", 14, None) == ["节点已经空闲，", "将在四分钟后停", "机。"]
