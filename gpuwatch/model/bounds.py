"""PURE: what a value from outside may be: an agent, a cluster, a server or a cloud may say anything.

A type that is decoded from others' words has these in the place of int, float and str: what no machine can have is
refused with the whole answer, under the name of its source, and reaches no round. They are wide: an honest source
stays far below them. Values that come in other ways, such as a tag, are held to the same by the functions.
"""

from datetime import datetime
from math import isfinite
from typing import Annotated

from msgspec import Meta

from gpuwatch.model.duration import in_calendar

MOST = 2**53  # up to here JSON, MessagePack, SQLite, PostgreSQL and a double mean the same integer
MOST_AMOUNT = 1e18  # of any unit: nobody has moved so many bytes
MOST_CHARACTERS = 10_000  # of a sentence; an agent's longest are some hundreds
MOST_IN_A_NAME = 512  # of a machine, a pool or a person; in an index of PostgreSQL 2,700 bytes have room
MOST_GPUS = 4096  # of one machine
MOST_NODES = 1_000_000  # of one group
MOST_TAGS = 256  # of one machine; AWS allows 50, Google 64

BoundedInt = Annotated[int, Meta(ge=-MOST, le=MOST)]
BoundedFloat = Annotated[float, Meta(ge=-MOST_AMOUNT, le=MOST_AMOUNT)]
BoundedText = Annotated[str, Meta(max_length=MOST_CHARACTERS)]


def bounded_name(name: str) -> str:
    """The name as it can be stored and sent, and no longer than names are."""
    return _hold_to(name, MOST_IN_A_NAME)


def bounded_text(text: str) -> str:
    """The text as it can be stored and sent, and no longer than a sentence."""
    return _hold_to(text, MOST_CHARACTERS)


def is_storable(text: str) -> bool:
    """Whether every program can write it: half a surrogate pair has no form in UTF-8."""
    return text.isascii() or text.encode(errors="replace").decode() == text


def bounded_amount(value: float) -> float | None:
    """The amount; None: it is no number, or one that cannot be measured."""
    return value if isfinite(value) and abs(value) <= MOST_AMOUNT else None


def bounded_time(at: datetime | None) -> datetime | None:
    """The time; None: it has no zone, or leaves the calendar where it is shown."""
    return at if at is not None and at.tzinfo is not None and in_calendar(at) else None


def time_on_record(text: str | None) -> datetime | None:
    """The time that a record holds as text; None: it holds no time, or one that cannot be read."""
    try:
        return bounded_time(datetime.fromisoformat(text or ""))
    except ValueError:
        return None


def is_count(count: object, most: int) -> bool:
    """Whether it is a whole number from zero to there; neither a text of one nor a truth value is."""
    return isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= most


def _hold_to(text: str, most: int) -> str:
    return text if len(text) <= most and text.isascii() else text[:most].encode(errors="replace").decode()
