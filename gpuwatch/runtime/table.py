"""Tables as plain text, for pipes, files and mails: aligned, without colours or boxes, however wide they are."""

from collections.abc import Collection, Sequence

from gpuwatch.runtime.printable import legible


def aligned(
    rows: Sequence[Sequence[str]], *, left: Collection[int] | None = (0,), widest: int | None = None
) -> list[str]:
    """A line for each row. Columns in `left` hold words (None: all do), the others numbers; longer cells are cut."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  a name may hold wide letters; agents load no rich

    from gpuwatch.runtime.columns import Column, laid_out  # noqa: PLC0415  likewise

    def fitted(cell: str) -> str:
        cell = legible(cell)
        return cell if widest is None or cell_len(cell) <= widest else f"{set_cell_size(cell, widest - 3)}..."

    columns = [
        Column(title=cells[0], cells=cells[1:], right=left is not None and number not in left)
        for number, cells in enumerate(zip(*([fitted(cell) for cell in row] for row in rows), strict=True))
    ]
    return [line.plain for line in laid_out(columns, None)] if columns else []
