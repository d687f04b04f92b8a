"""The sentences that modules can say, read from their source: an f-string with its parts left open."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_OPEN = "\0"  # in place of what an f-string computes
_END = re.compile(r"(?<=\.) (?=[A-Z\0]|gpuwatch )")
_BEGIN = re.compile("[A-Z\0]|gpuwatch ")
_LOGGED = re.compile("%[sd]")


def sentences_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each whole sentence; docstrings, and texts about settings, are none."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for line, text in _texts(tree):
        for each in _END.split(re.sub(rf"^{_OPEN} ?(?=[A-Z{_OPEN}]|gpuwatch)", "", text)):
            if (
                _BEGIN.match(each)
                and not _LOGGED.search(each)
                and each.endswith(".")
                and len(re.findall("[A-Za-z]{2,}", each)) > 1
            ):
                yield line, each


def said_as(sentence: str) -> re.Pattern[str]:
    """What a sentence looks like, whatever stands in its open parts."""
    return re.compile(".+".join(map(re.escape, sentence.split(_OPEN))))


def readable(sentence: str) -> str:
    """A sentence for a failure's message."""
    return sentence.replace(_OPEN, "{}")


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"Setting", "Contradiction"}:
        return
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else _OPEN for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(node, ast.Expr) and isinstance(child, ast.Constant)
        is_part = isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)
        if not is_docstring and not is_part:
            yield from _texts(child)
