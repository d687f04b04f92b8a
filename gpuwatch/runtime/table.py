"""Tables as text: aligned, without colours or boxes; whole on pipes, in files and mails, fitted to a terminal."""

import os
from collections.abc import Collection, Mapping, Sequence

from gpuwatch.runtime.printable import legible

_STANDARD_OUTPUT = 1
_WHOLE = 1_000_000  # cells: no column is cut


def align_rows(
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[int] | None = (0,),
    widest: int | None = None,
    spare: Mapping[int, int] | None = None,
) -> list[str]:
    """A line for each row. Columns in `left` hold words (None: all do), the others numbers; longer cells are cut.

    `spare` names columns that a narrow terminal may leave out, those with the highest number first; a last line then
    says which. The first row has the titles.
    """
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  a name may hold wide letters; agents load no rich

    from gpuwatch.runtime.columns import Column, fitting, laid_out  # noqa: PLC0415  likewise

    def fitted(cell: str) -> str:
        cell = legible(cell)
        return cell if widest is None or cell_len(cell) <= widest else f"{set_cell_size(cell, widest - 3)}..."

    columns = [
        Column(
            title=cells[0],
            cells=cells[1:],
            right=left is not None and number not in left,
            spare=(spare or {}).get(number, 0),
        )
        for number, cells in enumerate(zip(*([fitted(cell) for cell in row] for row in rows), strict=True))
    ]
    width = _terminal_width() if spare else None
    kept = columns if width is None else fitting(columns, width, wanted=_WHOLE, gap=2)
    lines = [line.plain for line in laid_out(kept, None)] if kept else []
    gone = [column.title for column in columns if column not in kept and not column.empty]
    return [*lines, f"(a wider terminal, or a pipe, also has: {', '.join(gone)})"] if gone else lines


def _terminal_width() -> int | None:
    """How wide a table may be; None where nobody reads it in a terminal. COLUMNS sets it."""
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdecimal() and int(chosen):
        return int(chosen)
    try:
        return os.get_terminal_size(_STANDARD_OUTPUT).columns or None
    except OSError:  # a pipe, or a file
        return None
