"""The texts of the page's scripts: strings and templates, each with whether `t` says it in the reader's language."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PATTERN = re.compile(r"/(?:\[(?:\\.|[^\]\n])*\]|\\.|[^/\n\\])+/\w*")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_BEFORE_PATTERN = frozenset("(,=:[!&|?{};")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string, or a template with `{}` for each part."""

    line: int
    text: str
    said: bool


def texts_of(script: str) -> list[Text]:
    """All of a script, inner ones too."""
    found: list[Text] = []
    _read(script, 0, "", found)
    return sorted(found, key=lambda each: each.line)


def _read(script: str, at: int, end: str, found: list[Text]) -> int:
    """Read code until its closing brace, or its end; the place after that."""
    before, depth = "", 0
    while at < len(script):
        here = script[at]
        skipped = _SKIPPED.match(script, at)
        pattern = _PATTERN.match(script, at) if here == "/" and before in _BEFORE_PATTERN else None
        quoted = _QUOTED.match(script, at)
        if end and here == end and not depth:
            return at + 1
        if skipped:
            at = skipped.end()
            continue
        if pattern:
            at = pattern.end()
        elif quoted:
            line = script.count("\n", 0, at) + 1
            found.append(Text(line=line, text=quoted[0][1:-1], said=False))
            at = quoted.end()
        elif here == "`":
            at = _read_template(script, at, found)
        else:
            depth += {"{": 1, "}": -1}.get(here, 0)
            at += 1
        before = before if here.isspace() else here
    return at


def _read_template(script: str, at: int, found: list[Text]) -> int:
    line, said, text = script.count("\n", 0, at) + 1, re.search(r"\bt$", script[:at]) is not None, ""
    at += 1
    while script[at] != "`":
        if script.startswith("${", at):
            at, text = _read(script, at + 2, "}", found), text + "{}"
        else:
            text, at = text + script[at], at + 1
    found.append(Text(line=line, text=text, said=said))
    return at + 1


def counted(script: str) -> Iterator[str]:
    """The words that `count` puts behind a number."""
    for call in re.finditer(r"\bcount\(", script):
        depth, end = 1, call.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(script[end], 0)
            end += 1
        for each in re.findall(r'[,?:] "(\w+)"', script[call.end() : end]):
            yield f"{{}} {each}"
