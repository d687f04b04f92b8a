"""Columns for a terminal of any width: the least needed are left out first, the last one is cut at last."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpuwatch.model.legible import legible

_GAPS = (2, 1)  # between columns; the narrower one where the room is needed
_CUT = "…"
_WANTED = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `spare` says when it is left out: the highest first, 0 never."""

    title: str
    cells: Sequence[str]
    spare: int = 0
    right: bool = False
    styles: Sequence[str] = field(default=())  # by row; without any, plain

    @property
    def width(self) -> int:
        """What it takes to show it whole."""
        return max(map(cell_len, (self.title, *self.cells)))

    @property
    def empty(self) -> bool:
        """Whether nothing is known for any row."""
        return all(cell in {"", "-"} for cell in self.cells)


def laid_out(columns: Sequence[Column], width: int | None) -> list[Text]:
    """A line of titles and a line for each row. The last column has what room is left; None: as much as it needs.

    Columns go until the last one fits, or has `_WANTED` cells: it is cut last.
    """
    kept = [column for column in columns if not column.empty or not column.spare]
    while width is not None and _needed(kept, _GAPS[-1]) > width and any(column.spare for column in kept):
        least = max(kept, key=lambda column: column.spare)
        kept = [column for column in kept if column is not least]
    gap = next((each for each in _GAPS if width is None or _needed(kept, each) <= width), _GAPS[-1])
    widths = [column.width for column in kept]
    if width is not None:
        widths[-1] = max(0, min(widths[-1], width - sum(widths[:-1]) - gap * (len(kept) - 1)))
    rows = range(len(columns[0].cells))
    lines = [_line([column.title for column in kept], kept, widths, ["bold"] * len(kept), gap)]
    lines += [
        _line(
            [column.cells[row] for column in kept],
            kept,
            widths,
            [column.styles[row] if column.styles else "" for column in kept],
            gap,
        )
        for row in rows
    ]
    return lines


def cut(words: str, width: int | None) -> str:
    """The words within so many cells, harmless for a terminal, with a sign where something is missing."""
    words = legible(words)
    if width is None or cell_len(words) <= width:
        return words
    return set_cell_size(words, max(0, width - 1)).rstrip() + _CUT if width > 0 else ""


def wrapped(words: str, width: int | None, lines: int) -> list[str]:
    """The words on at most so many lines; the last one is cut."""
    if width is None or lines <= 1:
        return [cut(words, width)]
    rest, found = words.split(" "), list[str]()
    while rest and len(found) < lines - 1:
        taken = 1
        while taken < len(rest) and cell_len(" ".join(rest[: taken + 1])) <= width:
            taken += 1
        found.append(cut(" ".join(rest[:taken]), width))
        rest = rest[taken:]
    return [*found, cut("  " + " ".join(rest), width)] if rest else found


def _needed(columns: Sequence[Column], gap: int) -> int:
    """The width at which no column has to go."""
    *others, last = (column.width for column in columns)
    return sum(others) + min(last, _WANTED) + gap * (len(columns) - 1)


def _line(
    cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], styles: Sequence[str], gap: int
) -> Text:
    """One line; no spaces at its end."""
    line = Text(no_wrap=True)
    for number, (cell, column, width, style) in enumerate(zip(cells, columns, widths, styles, strict=True)):
        shown = cut(cell, width)
        room = " " * (width - cell_len(shown))
        line.append(" " * (gap if number else 0))
        line.append(room if column.right else "")
        line.append(shown, style=style)
        line.append("" if column.right else room)
    line.rstrip()
    return line
