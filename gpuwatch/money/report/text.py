"""The report as text for terminals."""

import textwrap
from collections.abc import Iterator

from gpuwatch.money.report.blocks import Bar, Bars, Figures, Part, Table, Words
from gpuwatch.money.report.report import Report
from gpuwatch.money.report.sections import WASTE, figures, headline, sections, title
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows

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
        case Figures(items):
            yield from align_rows([(each.name, each.value, each.note) for each in items], left={0, 2})
        case Bars(caption, bars):
            yield f"{caption} (# wasted, = useful)"
            rows = [(bar.label, f"{_drawn(bar, part.most):<{_BAR}}", bar.written) for bar in bars]
            yield from align_rows(rows, left={0, 1, 2})
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
    rows = [table.heads, *table.rows]
    for number, line in enumerate(align_rows([row[:shown] for row in rows], left=table.left, widest=_WIDEST)):
        yield line
        if number and table.beneath:
            yield from textwrap.wrap(legible(rows[number][-1]), _WIDTH, initial_indent="    ", subsequent_indent="    ")


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(legible(sentence), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
