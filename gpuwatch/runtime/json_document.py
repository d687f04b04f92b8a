"""JSON documents for programs, in one form; others' JSON.

A document is a frozen dataclass that says in its docstring what its fields mean: docs/json.md is made from it. It
begins with its schema. Times are in UTC and end in Z, money (`Decimal`) is text with all its digits and no exponent,
and a number that JSON does not have is null.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
_Document = TypeVar("_Document", bound="DataclassInstance")
_DIGITS = 18  # of the integers that are believed: any of them fits into 64 bits
# Of a document's schema: it grows when a field changes its meaning or goes, never for a new field.
VERSION = 1
_LATER = {"cost": 2, "report": 2}  # wasted is what is proven; before, what nobody knew was in it


def version_of(kind: str) -> int:
    """The version of a document's schema."""
    return _LATER.get(kind, VERSION)


def document(kind: str, body: object) -> dict[str, Any]:
    """One document of values that any JSON library writes.

    `kind` is the command's words with dots between them (`audit.log`). `body` is a dataclass, a struct or a mapping of
    what msgspec knows; its datetimes have a time zone. A field `schema` of its own is replaced.
    """
    fields = _plain(msgspec.to_builtins(body, builtin_types=(datetime, Decimal)))
    return {
        "schema": f"gpuwatch.{kind}/{version_of(kind)}",
        **{name: fields[name] for name in fields if name != "schema"},
    }


def json_text(kind: str, body: object) -> str:
    """The document on one line, in ASCII, so that a terminal shows it and no control character has an effect."""
    return json.dumps(document(kind, body), allow_nan=False)


def fill_document(kind: type[_Document], source: object, **others: object) -> _Document:
    """Return a document of that type: these fields, and all others from the source's attributes of the same name."""
    names = {each.name for each in fields(kind)} - others.keys()
    return kind(**{name: getattr(source, name) for name in names}, **others)


def read_json(text: str | bytes) -> Any:  # noqa: ANN401  JSON
    """What somebody else's JSON says, in texts that can be stored and sent: half a character is a question mark.

    JSON may have halves of a surrogate pair, which Python reads, and no database or file takes. A number beyond 64
    bits, beyond a double, and NaN, is not known: None.

    Raises:
        ValueError: it is no JSON, or nested deeper than any honest document.

    """
    whole = text.decode("utf-8-sig", errors="replace") if isinstance(text, bytes) else text
    try:
        found = json.loads(whole, parse_int=_integer, parse_float=_float, parse_constant=lambda _word: None)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    return _whole(found) if _HALVES.search(whole) else found


def _integer(digits: str) -> int | None:
    """The integer; None: it has more digits than 64 bits."""
    return int(digits) if len(digits) <= _DIGITS else None


def _float(digits: str) -> float | None:
    """The number; None: it is larger than any."""
    return found if math.isfinite(found := float(digits)) else None


def _whole(value: Any) -> Any:  # noqa: ANN401  JSON
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {_whole(name): _whole(each) for name, each in value.items()}
        case list():
            return [_whole(each) for each in value]
    return value


def _plain(value: Any) -> Any:  # noqa: ANN401  JSON
    """Return the value with its times in UTC, its money in text, and only numbers that JSON has."""
    match value:
        case datetime():
            return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"
        case Decimal():
            return f"{value:f}" if value.is_finite() else None
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value
