"""Tables for a terminal of any width, and for pipes: the least needed columns go first, the last one is cut at last."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from gpuwatch.model.readable import legible

_GAPS = (2, 1)  # between columns; the narrower one where the room is needed
_CUT = "…"
_WANTED = 36
# A blank, brackets that open, a Chinese character or a word, and the marks that may not begin a line.
_PIECE = re.compile(
    r" ?[（“《]*(?:[\u4e00-\u9fff]|[^ \u4e00-\u9fff，。：；、！？）”》（“《]+)[，。：；、！？）”》…]*| ?[^ ]| "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `spare` says when it is left out: the highest first, 0 never.

    `least` is the width to which it may be cut where the last column needs room; 0: it is never cut.
    """

    title: str
    cells: Sequence[str]
    spare: int = 0
    right: bool = False
    styles: Sequence[str] = field(default=())  # by row; without any, plain
    least: int = 0

    @property
    def width(self) -> int:
        """What it takes to show it whole."""
        return max(map(cell_len, (self.title, *self.cells)))

    @property
    def empty(self) -> bool:
        """Whether nothing is known for any row."""
        return all(cell in {"", "-"} for cell in self.cells)


def laid_out(
    columns: Sequence[Column], width: int | None, *, lines: int | None = 1, wanted: int = _WANTED
) -> list[Text]:
    """A line of titles, then each row. The last column has what room is left; width None: as much as it needs.

    Columns are cut, then go, until the last one fits, or has `wanted` cells: it is cut last. A row takes at most so
    many `lines` (None: as many as its last cell needs).
    """
    kept = fitting(columns, width, wanted=wanted)
    gap = next((each for each in _GAPS if width is None or _needed_width(kept, each, wanted) <= width), _GAPS[-1])
    widths = [column.width for column in kept]
    if width is not None:
        _shrink(widths, kept, _needed_width(kept, gap, wanted) - width)
        widths[-1] = max(0, min(widths[-1], width - sum(widths[:-1]) - gap * (len(kept) - 1)))
    found = [_line([column.title for column in kept], kept, widths, ["bold"] * len(kept), gap)]
    for row in range(len(columns[0].cells)):
        styles = [column.styles[row] if column.styles else "" for column in kept]
        *cells, last = (column.cells[row] for column in kept)
        parts = [last] if width is None or kept[-1].right else wrap_words(last, widths[-1], lines)
        found.append(_line([*cells, parts[0]], kept, widths, styles, gap))
        found += [_line([*[""] * len(cells), part], kept, widths, styles, gap) for part in parts[1:]]
    return found


def fitting(
    columns: Sequence[Column], width: int | None, *, wanted: int = _WANTED, gap: int = _GAPS[-1]
) -> list[Column]:
    """The columns that stay: those that know something of a row, as many as there is room for."""
    kept = [column for column in columns if not column.empty or not column.spare]
    while (
        width is not None
        and _needed_width(kept, gap, wanted, shrunk=True) > width
        and any(column.spare for column in kept)
    ):
        least = max(kept, key=lambda column: column.spare)
        kept = [column for column in kept if column is not least]
    return kept


def cut(words: str, width: int | None) -> str:
    """The words within so many cells, harmless for a terminal, with a sign where something is missing."""
    words = legible(words)
    if width is None or cell_len(words) <= width:
        return words
    return set_cell_size(words, max(0, width - 1)).rstrip() + _CUT if width > 0 else ""


def wrap_words(words: str, width: int | None, lines: int | None) -> list[str]:
    """The words on at most so many lines; the last one is cut. `lines` None: on as many as they need, and none is."""
    if width is None or lines == 1 or width < 1:
        return [cut(words, width)]
    if lines is None:
        return _fold_words(legible(words), width)
    rest, found = _pieces(words), list[str]()
    while rest and len(found) < lines - 1:
        taken = 1
        while taken < len(rest) and cell_len("".join(rest[: taken + 1]).strip(" ")) <= width:
            taken += 1
        found.append(cut("".join(rest[:taken]).strip(" "), width))
        rest = rest[taken:]
    return [*found, cut("  " + "".join(rest).strip(" "), width)] if rest else found


def _fold_words(words: str, width: int) -> list[str]:
    """The words on as many lines as they take; a word wider than a line goes on in the next one."""
    found = [""]
    for piece in _pieces(words):
        word = piece.removeprefix(" ")
        joined = f"{found[-1]}{piece}" if found[-1] else word
        if cell_len(joined) <= width:
            found[-1] = joined
        else:
            chopped = chop_cells(word, width) if cell_len(word) > width else [word]
            found = [*found, *chopped] if found[-1] else [*found[:-1], *chopped]
    return found


def _pieces(words: str) -> list[str]:
    """What is not parted at the end of a line, each with the blank before it: words, and the characters of Chinese."""
    if words.isascii():
        first, *others = words.split(" ")
        return [first, *(f" {word}" for word in others)]
    return _PIECE.findall(words)


def _shrink(widths: list[int], columns: Sequence[Column], missing: int) -> None:
    """Cut the widest of the columns that may be cut, cell by cell, until nothing is missing."""
    may = [number for number, column in enumerate(columns[:-1]) if column.least]
    while missing > 0:
        free = [number for number in may if widths[number] > columns[number].least]
        if not free:
            return
        widths[max(free, key=lambda number: widths[number])] -= 1
        missing -= 1


def _needed_width(columns: Sequence[Column], gap: int, wanted: int, *, shrunk: bool = False) -> int:
    """The width at which no column has to go, with those that may be cut as narrow as they get, or whole."""
    *others, last = columns
    widths = (min(each.least, each.width) if shrunk and each.least else each.width for each in others)
    return sum(widths) + min(last.width, wanted) + gap * (len(columns) - 1)


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
