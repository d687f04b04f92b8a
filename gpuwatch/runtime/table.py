"""Tables for terminals, pipes and files: aligned text without colours or boxes, whatever the terminal's width."""

from collections.abc import Collection, Sequence

from gpuwatch.runtime.printable import legible


def aligned(
    rows: Sequence[Sequence[str]], *, left: Collection[int] | None = (0,), widest: int | None = None
) -> list[str]:
    """A line for each row. Columns in `left` hold words (None: all do), the others numbers; longer cells are cut."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  a name may hold wide letters; agents load no rich

    def fitted(cell: str) -> str:
        cell = legible(cell)
        return cell if widest is None or cell_len(cell) <= widest else f"{set_cell_size(cell, widest - 3)}..."

    cells = [[fitted(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        parts = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            room = " " * (width - cell_len(cell))
            parts.append(cell + room if left is None or column in left else room + cell)
        lines.append("  ".join(parts).rstrip())
    return lines
