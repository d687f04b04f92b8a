"""The report as pages: as text for terminals, and as one HTML page that mail clients show as browsers do.

The HTML page has tables, styles in the elements, no script, nothing that is loaded. A chart as SVG, which most mail
clients drop, is in the page for browsers only. The page is well-formed XML.
"""

import textwrap
from collections.abc import Iterator, Sequence

from gpuwatch.model.usage import HOUR_MS, Use
from gpuwatch.money.report import charts
from gpuwatch.money.report.blocks import Bar, Bars, Figures, Part, Table, Words
from gpuwatch.money.report.charts import Axis, Band
from gpuwatch.money.report.report import Report, Step
from gpuwatch.money.report.sections import OVER_TIME, WASTE, figures, headline, sections, title
from gpuwatch.runtime.html import render
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows

_BANDS = (
    ("useful", (Use.USEFUL,), 0),
    ("idle", (Use.IDLE, Use.PARKED, Use.STALLED), 1),
    ("down, not known", (Use.DOWN, Use.UNKNOWN, Use.SILENT), 7),
)
_BAR = 30
_WIDTH = 100
_WIDEST = 40  # of a column; longer words are cut


def as_text(report: Report) -> str:
    """All sections, within about 120 columns."""
    lines = [title(report), "", *_wrap_sentence(headline(report)), "", *_part(figures(report))]
    for section in sections(report):
        lines += ["", section.title, "-" * len(section.title)]
        for number, part in enumerate(section.parts):
            lines += [*([""] if number else []), *_part(part)]
    return "\n".join([*lines, "", *_wrap_sentence(f"{WASTE}.")])


def _part(part: Part) -> Iterator[str]:
    match part:
        case Words(sentences):
            for sentence in sentences:
                yield from _wrap_sentence(sentence)
        case Figures(items):
            yield from align_rows([(each.name, each.value, each.note) for each in items], left={0, 2})
        case Bars(caption, bars):
            yield f"{caption} (# wasted, ? use not known, = useful)"
            rows = [(bar.label, f"{_draw_bar(bar, part.most):<{_BAR}}", bar.written) for bar in bars]
            yield from align_rows(rows, left={0, 1, 2})
        case Table():
            yield part.caption
            yield from _table(part)


def _draw_bar(bar: Bar, most: int) -> str:
    if most <= 0:
        return ""
    wasted, known, whole = (round(_BAR * cents / most) for cents in (bar.wasted, bar.wasted + bar.unproven, bar.length))
    return "#" * wasted + "?" * (known - wasted) + "=" * (whole - known)


def _table(table: Table) -> Iterator[str]:
    """Sentences of the last column stand under their rows."""
    shown = len(table.heads) - table.beneath
    rows = [table.heads, *table.rows]
    for number, line in enumerate(align_rows([row[:shown] for row in rows], left=table.left, widest=_WIDEST)):
        yield line
        if number and table.beneath:
            yield from textwrap.wrap(legible(rows[number][-1]), _WIDTH, initial_indent="    ", subsequent_indent="    ")


def _wrap_sentence(sentence: str) -> list[str]:
    return textwrap.wrap(legible(sentence), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def as_html(report: Report, *, mail: bool = False) -> str:
    """The page; for `mail` without what mail clients drop."""
    return render(
        "money/report/report.html",
        title=title(report),
        headline=headline(report),
        figures=figures(report),
        sections=list(sections(report)),
        charts={} if mail or len(report.steps) <= 1 else {OVER_TIME: _chart(report)},
        chart_style="" if mail else charts.STYLE,
        footnote=f"{WASTE}.",
    )


def _chart(report: Report) -> str:
    """What the GPUs did, step by step."""
    steps = report.steps
    bands = [
        Band(label=label, values=[_hours(step, uses) for step in steps], colour=colour)
        for label, uses, colour in _BANDS
    ]
    moments = [(place / len(steps), step.label) for place, step in enumerate(steps)]
    words = ", ".join(f"{band.label} {sum(band.values):,.1f} GPU-hours" for band in bands)
    y_axis = Axis(name="GPU-hours", write=lambda each: f"{each:,.0f}")
    return charts.areas(f"What GPUs did, by {report.unit}", words, bands, y_axis, moments)


def _hours(step: Step, uses: Sequence[Use]) -> float:
    return sum(step.total.gpu_ms_by_use[use] for use in uses) / HOUR_MS
