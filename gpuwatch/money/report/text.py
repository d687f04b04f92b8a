"""The report for terminals."""

import textwrap
from collections.abc import Iterator

from gpuwatch.money.report.blocks import Bar, Bars, Figures, Part, Table, Words
from gpuwatch.money.report.report import Report
from gpuwatch.money.report.sections import WASTE, figures, headline, sections, title
from gpuwatch.runtime.printable import legible

_BAR = 30
_WIDTH = 100
_WIDEST = 40  # of a column; longer words are cut


def as_text(report: Report) -> str:
    """All sections, within about 120 columns."""
    lines = [title(report), "", *_wrapped(headline(report)), "", *_part(figures(report))]
    for section in sections(report):
        lines += ["", section.title, "-" * len(section.title)]
        for number, part in enumerate(section.parts):
            lines += [*([""] if number else []), *_part(part)]
    return "\n".join([*lines, "", *_wrapped(f"{WASTE}.")])


def _part(part: Part) -> Iterator[str]:
    match part:
        case Words(sentences):
            for sentence in sentences:
                yield from _wrapped(sentence)
        case Figures(told):
            width = max(len(each.name) for each in told)
            most = max(len(each.value) for each in told)
            for each in told:
                yield f"{each.name:<{width}}  {each.value:>{most}}  {each.beside}"
        case Bars(caption, bars):
            yield f"{caption} (# wasted, = useful)"
            width = max(len(bar.label) for bar in bars)
            for bar in bars:
                yield f"{bar.label:<{width}}  {_drawn(bar, part.most):<{_BAR}}  {bar.written}"
        case Table():
            yield part.caption
            yield from _table(part)


def _drawn(bar: Bar, most: int) -> str:
    if most <= 0:
        return ""
    whole = round(_BAR * (bar.useful + bar.wasted) / most)
    wasted = round(_BAR * bar.wasted / most)
    return "#" * wasted + "=" * (whole - wasted)


def _table(table: Table) -> Iterator[str]:
    """Sentences of the last column stand under their rows."""
    shown = len(table.heads) - table.beneath
    rows = [[legible(cell) for cell in row] for row in (table.heads, *table.rows)]
    widths = [min(_WIDEST, max(len(row[place]) for row in rows)) for place in range(shown)]
    for number, row in enumerate(rows):
        cells = [_cut(cell, width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join(
            cell.ljust(width) if place in table.left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        if number and table.beneath:
            yield from textwrap.wrap(row[-1], _WIDTH, initial_indent="    ", subsequent_indent="    ")


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 3]}..."


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(legible(sentence), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
