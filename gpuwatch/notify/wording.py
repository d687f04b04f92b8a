"""Pure: what every message is made of, and how times, money and text from outside stand in it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from gpuwatch.model.money import format_usd
from gpuwatch.runtime.printable import legible

LONGEST = 200  # of a name; of a sentence several times that


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One node or workload: who it is, what there is to say of it, and where to click."""

    head: str
    facts: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """All that a message says."""

    subject: str
    opening: str
    items: tuple[Item, ...]
    more: str | None
    hints_title: str
    hints: tuple[str, ...]
    footer: str
    page: str | None


def printable(text: str, longest: int = LONGEST) -> str:
    """Text from outside on one line, in which nothing works as a link, a command's end or a line of ours."""
    plain = legible(" ".join(text.split())).replace("://", ": //").replace("`", "'")
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def when(at: datetime, zone: ZoneInfo) -> str:
    """A time with its zone, and in UTC where that is another."""
    utc = "" if not at.astimezone(zone).utcoffset() else f" ({at.astimezone(UTC):%H:%M} UTC)"
    return f"{short(at, zone)}{utc}"


def short(at: datetime, zone: ZoneInfo) -> str:
    """A time with its zone."""
    return f"{at.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"


def usd(amount: Decimal) -> str:
    """`$1,234.50`, or the same in the currency that people read."""
    return format_usd(amount)
