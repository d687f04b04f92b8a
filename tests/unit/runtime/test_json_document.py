"""JSON that others send: what can be read can also be written down."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.runtime.json_document import read_json

TEXTS = st.text(st.characters(), max_size=8)  # with halves of surrogate pairs
NUMBERS = st.integers(-(10**16), 10**16)
VALUES = st.recursive(st.none() | NUMBERS | TEXTS, lambda each: st.lists(each) | st.dictionaries(TEXTS, each))


@given(value=VALUES, packed=st.booleans())
def test_every_text_of_somebody_else_can_be_stored(value: object, packed: bool) -> None:
    """As UTF-8, which no half of a character is; whole texts are as they were."""
    text = json.dumps(value)

    found = read_json(text.encode() if packed else text)

    assert json.dumps(found, ensure_ascii=False).encode()
    assert "\\ud" in text.lower() or found == value


@pytest.mark.parametrize("body", [rb'"\ud83d"', b'"\xed\xa0\xbd"', b'\xef\xbb\xbf"?"'])
def test_half_a_character_is_a_question_mark(body: bytes) -> None:
    """Written as JSON's escape, or as bytes that only look like UTF-8; a mark of order at the beginning is none."""
    assert set(read_json(body)) <= {"?", "\ufffd"}


@pytest.mark.parametrize("number", ["1" * 19, "-" + "9" * 40, "1" * 5000, "1e400", "-1e999", "NaN", "-Infinity"])
def test_a_number_that_no_column_and_no_other_program_can_hold_is_not_known(number: str) -> None:
    """Beyond 64 bits, beyond a double, or none at all: it costs its own field, and not the document around it."""
    assert read_json(f'{{"gpus": {number}, "id": "i-1"}}') == {"gpus": None, "id": "i-1"}


@pytest.mark.parametrize("nested", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_what_is_nested_without_end_is_no_json(nested: str) -> None:
    """Not an error of Python's own stack, which its callers do not expect."""
    with pytest.raises(ValueError, match=r"nested too deep|Expecting"):
        read_json(nested)


def test_what_is_no_json_is_a_value_error() -> None:
    """As of Python's own reader."""
    with pytest.raises(ValueError, match="Expecting value"):
        read_json(b"<html>")
