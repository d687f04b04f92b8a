"""The sentences that modules can say, read from their source: an f-string with its parts left open."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.docs.prose import OPEN, literals

_END = re.compile(rf"(?<=\.) (?=[A-Z{OPEN}]|gpuwatch )")
_BEGIN = re.compile(f"[A-Z{OPEN}]|gpuwatch ")
_LOGGED = re.compile("%[sd]")


def sentences_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each whole sentence; docstrings, and texts about settings, are none."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for line, text in literals(tree, without=("Setting", "Contradiction")):
        for each in _END.split(re.sub(rf"^{OPEN} ?(?=[A-Z{OPEN}]|gpuwatch)", "", text)):
            if (
                _BEGIN.match(each)
                and not _LOGGED.search(each)
                and each.endswith(".")
                and len(re.findall("[A-Za-z]{2,}", each)) > 1
            ):
                yield line, each


def said_as(sentence: str) -> re.Pattern[str]:
    """What a sentence looks like, whatever stands in its open parts."""
    return re.compile(".+".join(map(re.escape, sentence.split(OPEN))))


def readable(sentence: str) -> str:
    """A sentence for a failure's message."""
    return sentence.replace(OPEN, "{}")
