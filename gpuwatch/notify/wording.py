"""Pure: what every message is made of, and how times, money and text from outside stand in it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal
from zoneinfo import ZoneInfo

from gpuwatch.model.money import format_usd
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.translation import CHINESE, catalogue

Language = Literal["en", "zh-CN"]
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
    page_title: str = "The page"
    language: Language = "en"


def translate_wording(wording: Wording, language: Language) -> Wording:
    """The message in a language; names, times, links and what is typed stay as they are."""
    if language == "en":
        return wording
    translate = catalogue(CHINESE).translate
    return Wording(
        subject=translate(wording.subject),
        opening=translate(wording.opening),
        items=tuple(
            Item(
                head=translate(each.head),
                facts=tuple((translate(label), translate(fact)) for label, fact in each.facts),
                links=tuple((translate(label), url) for label, url in each.links),
            )
            for each in wording.items
        ),
        more=None if wording.more is None else translate(wording.more),
        hints_title=translate(wording.hints_title),
        hints=tuple(map(translate, wording.hints)),
        footer=translate(wording.footer),
        page=wording.page,
        page_title=translate(wording.page_title),
        language=language,
    )


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
