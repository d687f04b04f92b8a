"""docs/pictures/rooms.svg: the rooms of gpuwatch/, from import-linter's contracts and from what each imports.

What a room holds is the first sentence of its own docstring.
"""

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.docs.svg import draw, text_at

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = _ROOT / "gpuwatch"
_WIDTH, _MARGIN, _GAP, _PAD, _ROW, _TOP = 860, 16, 12, 12, 17, 38
_LETTER = 7.1  # pixels that one takes on average
_IMPORT = re.compile(r"^\s*(?:from|import) gpuwatch\.(\w+)", re.MULTILINE)


def floors() -> list[list[str]]:
    """The rooms that import-linter's layers name, from top to bottom."""
    layers = _contract("flow")["layers"]
    every = [[name.strip().removeprefix("gpuwatch.") for name in layer.split("|")] for layer in layers]
    return [floor for floor in every if floor != ["__main__"]]


def imports() -> dict[str, set[str]]:
    """The other rooms that the modules of each room import."""
    return {room: set(_imported(room)) - {room} for floor in floors() for room in floor}


def render_picture() -> str:
    """The picture, as SVG in light and dark."""
    pure, imported = set(_contract("pure")["source_modules"]), imports()
    heads = [
        text_at(_MARGIN, 24, "A room imports only rooms below it.", "head"),
        text_at(_WIDTH - 158, 24, "pure: no clock, no I/O", "keep"),
    ]
    parts, y = list[str](), _TOP
    for floor in floors():
        width = (_WIDTH - 2 * _MARGIN - (len(floor) - 1) * _GAP) // len(floor)
        letters = int((width - 2 * _PAD) / _LETTER)
        order = [room for each in floors() for room in each]
        texts = [
            (
                textwrap.wrap(_sentence(room), letters),
                textwrap.wrap("imports " + ", ".join(sorted(imported[room], key=order.index)), letters)
                if imported[room]
                else ["imports no other room"],
            )
            for room in floor
        ]
        height = 2 * _PAD + _ROW * (1 + max(len(holds) + len(uses) for holds, uses in texts))
        for place, (room, (holds, uses)) in enumerate(zip(floor, texts, strict=True)):
            x = _MARGIN + place * (width + _GAP)
            parts.append(
                f'<rect class="paper rule" x="{x}" y="{y}" width="{width}" height="{height}" rx="6" stroke-width="1"/>'
            )
            base = y + _PAD + 11
            parts.append(text_at(x + _PAD, base, f"{room}/", "name"))
            if f"gpuwatch.{room}" in pure:
                parts.append(text_at(x + width - _PAD - 28, base, "pure", "keep"))
            lines = [*((line, "") for line in holds), *((line, "head") for line in uses)]
            parts += [
                text_at(x + _PAD, base + _ROW * row, line, kind) for row, (line, kind) in enumerate(lines, start=1)
            ]
        y += height + _GAP
    return draw(_WIDTH, y - _GAP + _MARGIN, [*heads, *parts])


def _contract(which: str) -> dict[str, Any]:
    written = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = written["tool"]["importlinter"]["contracts"]
    return next(each for each in contracts if each["id"] == which)


def _imported(room: str) -> Iterator[str]:
    for module in (_PACKAGE / room).rglob("*.py"):
        yield from _IMPORT.findall(module.read_text(encoding="utf-8"))


def _sentence(room: str) -> str:
    """What it holds: the first sentence of its docstring, without the word for rooms without a clock."""
    said = ast.get_docstring(ast.parse((_PACKAGE / room / "__init__.py").read_bytes())) or ""
    words = " ".join(said.partition("\n\n")[0].split()).removeprefix("PURE: ")
    first = re.split(r"(?<=\.) ", words, maxsplit=1)[0].replace("`", "")
    return first[0].upper() + first[1:]
