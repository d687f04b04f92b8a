"""Code blocks of the documentation."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

_FENCE = re.compile(
    r"^(?P<mark> *<!-- (?:not run|measured): .+? -->\n)?"
    r"(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; `not_run`: the page says in a comment above it why nothing reads it, or what writes it."""

    page: Path
    line: int
    language: str
    text: str
    not_run: bool


def every_block(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, those within lists too."""
    whole = (ROOT / page).read_text(encoding="utf-8")
    for found in _FENCE.finditer(whole):
        yield Block(
            page=page,
            line=whole.count("\n", 0, found.start("indent")) + 1,
            language=found["language"],
            text=textwrap.dedent(found["text"]),
            not_run=found["mark"] is not None,
        )


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return [block.text for block in every_block(page) if block.language == language]
