"""Text columns that take any text: PostgreSQL has no NUL, no database has half a surrogate pair, and people have both.

A character that cannot be written stands in the database as `MARK` and another character, and comes back as it was.
Text without such characters, which is nearly all, is written as it is, so that older ledgers stay what they are.
"""

import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from sqlalchemy import Dialect, Text, TypeDecorator

MARK = "\U0010fffd"  # private use: nobody's text has it, and where one does it is written twice
_SHIFT = 0x100000  # from a character that cannot be written to the private one that stands for it
_UNWRITABLE = re.compile(f"[\x00\ud800-\udfff{MARK}]")
_WRITTEN = re.compile(f"{MARK}([\U00100000\U0010d800-\U0010dfff{MARK}])")


class AnyText(TypeDecorator[str]):
    """Text of any characters, the same in SQLite and in PostgreSQL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Write it in characters that every database has."""
        del dialect
        return value if value is None else storable_text(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], str | None]:
        """Read it as it was; a function for each value, as a `process_result_value` takes a call more."""
        del dialect, coltype
        return _read_text


def _read_text(value: str | None) -> str | None:
    return value if value is None or MARK not in value else _WRITTEN.sub(_as_it_was, value)


def storable_text(value: str) -> str:
    """The text as databases hold it; texts that differ are held differently."""
    if value.isascii() and "\x00" not in value:  # as nearly all are
        return value
    return _UNWRITABLE.sub(lambda found: MARK + (MARK if found[0] == MARK else chr(ord(found[0]) + _SHIFT)), value)


def json_of(value: Any) -> bytes:  # noqa: ANN401  whatever msgspec knows
    """JSON of a value with any texts: half a surrogate pair, which JSON cannot have, stands as in a column."""
    order: Literal["sorted"] | None = "sorted" if isinstance(value, dict) else None
    try:
        return msgspec.json.encode(value, order=order)
    except UnicodeEncodeError:
        return msgspec.json.encode(_storable(msgspec.to_builtins(value)), order=order)


def _as_it_was(found: re.Match[str]) -> str:
    return MARK if found[1] == MARK else chr(ord(found[1]) - _SHIFT)


def _storable(value: Any) -> Any:  # noqa: ANN401  builtins
    match value:
        case str():
            return storable_text(value)
        case dict():
            return {_storable(name): _storable(each) for name, each in value.items()}
        case list() | tuple():
            return [_storable(each) for each in value]
    return value
